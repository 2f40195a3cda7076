"""The undisturbed path: what the client gets, what the verifier is asked."""

from dataclasses import replace

import pytest
from outrider.v1 import common_pb2
from outrider.v1 import generation_pb2 as pb

from cluster.router.load import ReplicaLoad
from cluster.router.membership import ReplicaRecord
from cluster.router.replica_table import key_of
from tests.fakes.fake_verifier import FakeVerifier, TokenFunction
from tests.unit.gateway.conftest import BUSY, PROMPT, StartHarness, ask, finished_of, text_of, tokens_of
from workers.core.request import GenerationRequest
from workers.core.sampling_params import SpeculationMode, VerificationRule
from workers.core.seeds import derive_seed
from workers.text.tokenizer import Tokenizer


def _expected(verifier: FakeVerifier, index: int = 0) -> list[int]:
    return list(verifier.answer(verifier.calls[index])[0])


def _spelling(tokens: list[int]) -> TokenFunction:
    def token_at(_: GenerationRequest, position: int) -> int:
        return tokens[position % len(tokens)]

    return token_at


async def test_a_stream_has_started_deltas_and_finished(gateway: StartHarness, tokenizer: Tokenizer) -> None:
    async with gateway() as harness:
        responses = await harness.run(ask())
        started = responses[0].started
        assert (started.request_id, started.model, started.seed) == ("request", "tiny", 5)
        assert started.prompt_tokens == len(tokenizer.encode(PROMPT))
        assert {one.WhichOneof("event") for one in responses[1:-1]} == {"delta"}
        assert tokens_of(responses) == _expected(harness.verifiers[0])
        assert text_of(responses) == tokenizer.decode(tokens_of(responses))
        finished = finished_of(responses)
        assert finished.finish_reason == common_pb2.FINISH_REASON_LENGTH
        assert (finished.stats.output_tokens, finished.stats.verify_steps, finished.stats.seed) == (20, 7, 5)
        assert finished.stats.prompt_tokens == started.prompt_tokens
        assert 0 < finished.stats.time_to_first_token_ms <= finished.stats.total_ms
        assert finished.stats.exact


async def test_the_verifier_gets_the_resolved_request(gateway: StartHarness, tokenizer: Tokenizer) -> None:
    async with gateway({"allow_typical": True}, replica_wait_ms=1000) as harness:
        message = ask(temperature=0.5, stop=["zzz"], logit_bias={7: 1.5}, max_tokens=None, min_tokens=2)
        message.sampling.ClearField("max_tokens")
        message.cache_salt = "salt"
        message.deadline_ms = 60_000
        message.speculation.mode = common_pb2.SPECULATION_MODE_ON
        message.speculation.rule = common_pb2.VERIFICATION_RULE_TYPICAL
        message.speculation.max_depth = 2
        await harness.run(message)
        asked = harness.verifiers[0].calls[0]
        prompt = tokenizer.encode(PROMPT)
        assert asked.prompt_token_ids == tuple(prompt)
        assert asked.sampling.max_tokens == 512 - len(prompt)  # what the context has room for
        assert (asked.sampling.temperature, asked.sampling.stop, asked.sampling.min_tokens) == (0.5, ("zzz",), 2)
        assert asked.sampling.logit_bias == {7: 1.5}
        assert (asked.seed, asked.cache_salt, asked.request_id) == (5, "salt", "request")
        assert (asked.rule, asked.mode, asked.budget.max_depth) == (VerificationRule.TYPICAL, SpeculationMode.ON, 2)
        assert asked.deadline_ms is not None
        assert 50_000 < asked.deadline_ms <= 60_000


async def test_chat_and_token_prompts(gateway: StartHarness, tokenizer: Tokenizer) -> None:
    async with gateway() as harness:
        chat = pb.GenerateRequest(
            chat=pb.ChatMessages(messages=[pb.ChatMessage(role="user", content="Hi")]),
            sampling=common_pb2.SamplingParams(max_tokens=1),
        )
        tokens = pb.GenerateRequest(
            tokens=pb.TokenIds(token_ids=[9, 8]), model="tiny", sampling=common_pb2.SamplingParams(max_tokens=1)
        )
        await harness.run(chat)
        await harness.run(tokens)
        asked = harness.verifiers[0].calls
        assert tokenizer.decode(asked[0].prompt_token_ids) == "user\nHi\nassistant\n"
        assert asked[1].prompt_token_ids == (9, 8)


async def test_id_and_seed_are_drawn_and_returned(gateway: StartHarness) -> None:
    async with gateway() as harness:
        message = pb.GenerateRequest(text=PROMPT, sampling=common_pb2.SamplingParams(max_tokens=4))
        first, second = [(await harness.run(message))[0].started for _ in range(2)]
        assert first.seed != second.seed
        assert len(first.request_id) == 32
        assert first.request_id != second.request_id
        assert harness.verifiers[0].calls[0].seed == first.seed


async def test_a_stop_string_is_cut_off_and_named(gateway: StartHarness, tokenizer: Tokenizer) -> None:
    letters = [tokenizer.encode(letter)[0] for letter in "abcdef"]
    async with gateway({"token_at": _spelling(letters), "tokens_per_step": 4}) as harness:
        responses = await harness.run(ask(stop=["de", "zz"]))
        assert text_of(responses) == "abc"
        assert tokens_of(responses) == letters[:5]
        finished = finished_of(responses)
        assert (finished.finish_reason, finished.stop_string) == (common_pb2.FINISH_REASON_STOP, "de")
        assert finished.stats.output_tokens == 5


async def test_text_held_back_for_a_stop_string_comes_at_the_end(gateway: StartHarness, tokenizer: Tokenizer) -> None:
    letters = [tokenizer.encode(letter)[0] for letter in "abcdef"]
    async with gateway({"token_at": _spelling(letters)}) as harness:
        responses = await harness.run(ask(stop=["efX"], max_tokens=6))
        assert text_of(responses) == "abcdef"
        assert finished_of(responses).finish_reason == common_pb2.FINISH_REASON_LENGTH


@pytest.mark.parametrize(("ignore_eos", "wanted"), [(False, 3), (True, 9)])
async def test_the_end_of_sequence_token(
    gateway: StartHarness, tokenizer: Tokenizer, ignore_eos: bool, wanted: int
) -> None:
    async with gateway({"token_at": _spelling([10, 11, 2])}) as harness:
        responses = await harness.run(ask(max_tokens=9, ignore_eos=ignore_eos))
        assert tokens_of(responses) == ([10, 11, 2] * 3)[:wanted]
        assert text_of(responses) == tokenizer.decode([10, 11]) * (wanted // 3)


async def test_several_answers_have_seeds_of_their_own(gateway: StartHarness) -> None:
    async with gateway({"step_s": 0.001}) as harness:
        responses = await harness.run(ask(n=4))
        answers = {tuple(tokens_of(responses, index)) for index in range(4)}
        assert len(answers) == 4
        assert all(len(answer) == 20 for answer in answers)
        seeds = {call.seed for call in harness.verifiers[0].calls}
        assert seeds == {derive_seed(5, index) for index in range(4)}
        assert all(call.sampling.n == 1 for call in harness.verifiers[0].calls)
        assert [finished_of(responses, index).stats.seed for index in range(4)] == [derive_seed(5, i) for i in range(4)]
        assert tokens_of(responses) == tokens_of(await harness.run(ask()))  # answer 0 is that of n = 1


async def test_answers_run_side_by_side(gateway: StartHarness) -> None:
    async with gateway({"step_s": 0.01}) as harness:
        responses = await harness.run(ask(n=3))
        order = [one.delta.index for one in responses if one.WhichOneof("event") == "delta"]
        assert order != sorted(order)


async def test_log_probabilities_stay_with_their_tokens(gateway: StartHarness) -> None:
    async with gateway() as harness:
        responses = await harness.run(ask(logprobs=2))
        deltas = [one.delta for one in responses if one.delta.token_ids]
        assert all([entry.token_id for entry in one.logprobs] == list(one.token_ids) for one in deltas)


async def test_drafters_with_the_right_tokenizer_are_named_least_loaded_first(
    gateway: StartHarness, tokenizer: Tokenizer
) -> None:
    async with gateway(drafters_per_request=2) as harness:
        record = ReplicaRecord("drafter", "a", "127.0.0.1:1", 3, "draft", "f", tokenizer.tokenizer_hash, 16)
        foreign = replace(record, replica_id="foreign", tokenizer_hash="other")
        busy, idle, idle_too = (
            replace(record, replica_id=name, address=f"127.0.0.1:{port}")
            for port, name in enumerate(("busy", "idle", "idle-too"), start=1)
        )
        harness.directory.drafter_records = [busy, foreign, idle, idle_too]
        harness.service.refresh()
        harness.service._pool._drafters.report(key_of(busy), ReplicaLoad(running_requests=9, max_running_requests=9))
        await harness.run(ask())
        named = harness.verifiers[0].calls[0].drafters
        assert {one.drafter_id for one in named} == {"idle", "idle-too"}
        assert all(one.incarnation == 3 and one.address for one in named)


async def test_requests_spread_over_verifiers(gateway: StartHarness) -> None:
    async with gateway({"step_s": 0.01}, {"step_s": 0.01}, {"step_s": 0.01}) as harness:
        await harness.run(ask(n=6))
        assert [len(one.calls) for one in harness.verifiers] == [2, 2, 2]


async def test_reported_load_counts(gateway: StartHarness) -> None:
    async with gateway({"load": BUSY}, {}) as harness:
        await harness.settle()
        for _ in range(5):
            await harness.run(ask(max_tokens=1))
        assert [len(one.calls) for one in harness.verifiers] == [0, 5]


async def test_the_configured_ceiling_is_the_default_of_max_tokens(gateway: StartHarness) -> None:
    async with gateway(max_output_tokens=7) as harness:
        message = ask()
        message.sampling.ClearField("max_tokens")
        assert len(tokens_of(await harness.run(message))) == 7


async def test_deadline_reported_by_the_verifier_or_missed_by_it(gateway: StartHarness) -> None:
    from tests.fakes.fake_verifier import Fault

    async with gateway({"faults": [Fault(after_tokens=6, hang=True)]}) as harness:
        message = ask()
        message.deadline_ms = 150
        responses = await harness.run(message)
        assert finished_of(responses).finish_reason == common_pb2.FINISH_REASON_DEADLINE
        assert len(tokens_of(responses)) == 6
        assert harness.service.active_requests == 0
