"""A request that lasts long enough for something to happen to it."""

from outrider import Client, Generation, SamplingParams, Speculation

__all__ = ["LONG", "PROMPT", "drafts_again", "plain_answer"]

PROMPT = "A storm came up"
LONG = SamplingParams(max_tokens=300, temperature=0.7, seed=11, ignore_eos=True)


def plain_answer(client: Client) -> Generation:
    return client.generate(PROMPT, sampling=LONG, speculation=Speculation.off())


def drafts_again(client: Client, expected: Generation) -> bool:
    """Whether a drafter takes part in the answer, which must be the expected one in any case."""
    result = client.generate(PROMPT, sampling=LONG, speculation=Speculation.on())
    assert result.token_ids == expected.token_ids
    return result.stats.accepted_tokens > 0
