"""Prompts through the SDK, the Serve ingress, a verifier process and a drafter process."""

import pytest
from outrider import Client, Speculation

PROMPT = "The quick brown fox"


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_speculation_does_not_change_the_answer(client: Client, temperature: float) -> None:
    options = {"max_tokens": 48, "temperature": temperature, "seed": 7, "ignore_eos": True}
    plain = client.generate(PROMPT, speculation=Speculation.off(), **options)
    fast = client.generate(PROMPT, speculation=Speculation.on(), **options)
    assert plain.token_ids == fast.token_ids
    assert plain.text == fast.text
    assert len(plain.token_ids) == 48
    assert plain.stats.drafted_tokens == 0
    assert fast.stats.accepted_tokens > 0
    assert fast.stats.verify_steps < plain.stats.verify_steps
