"""A client that comes back gets exactly the rest, wherever its stream broke."""

import pytest
from outrider.v1 import generation_pb2 as pb

from tests.unit.gateway.conftest import StartHarness, ask, finished_of, text_of, tokens_of
from workers.core.errors import InvalidRequestError

STOPS = ["e ", "ing", "�"]


def _points(received: list[pb.GenerateResponse], n: int) -> list[pb.ResumePoint]:
    """What a client knows, per answer of which anything has arrived."""
    points = []
    for index in range(n):
        finished = any(one.WhichOneof("event") == "finished" and one.finished.index == index for one in received)
        tokens, text = tokens_of(received, index), text_of(received, index)
        if tokens or text or finished:
            points.append(pb.ResumePoint(index=index, token_ids=tokens, text_length=len(text), finished=finished))
    return points


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stop", [[], STOPS])
@pytest.mark.parametrize("seed", [1, 2])
async def test_every_break_of_a_stream(gateway: StartHarness, n: int, stop: list[str], seed: int) -> None:
    """Tokens are drawn from all bytes: half characters and beginnings of stop strings are held back all the time."""
    async with gateway({"tokens_per_step": 2}) as harness:
        request = ask(n=n, stop=stop, seed=seed, max_tokens=16)
        whole = await harness.run(request)
        for received in range(1, len(whole) + 1):
            again = pb.GenerateRequest()
            again.CopyFrom(request)
            again.resume.extend(_points(whole[:received], n))
            rest = await harness.run(again)
            assert rest[0].WhichOneof("event") == "started"
            for index in range(n):
                assert tokens_of(whole[:received], index) + tokens_of(rest, index) == tokens_of(whole, index)
                assert text_of(whole[:received], index) + text_of(rest, index) == text_of(whole, index)
                if any(point.index == index and point.finished for point in again.resume):
                    assert all(one.delta.index != index or not one.HasField("delta") for one in rest)
                    continue
                ending, wanted = finished_of(rest, index), finished_of(whole, index)
                assert (ending.finish_reason, ending.stop_string) == (wanted.finish_reason, wanted.stop_string)
                assert ending.stats.output_tokens == wanted.stats.output_tokens


async def test_text_that_did_not_arrive_is_sent_before_anything_else(gateway: StartHarness) -> None:
    async with gateway() as harness:
        whole = await harness.run(ask(max_tokens=12))
        tokens, text = tokens_of(whole), text_of(whole)
        for length in range(len(text) + 1):
            again = ask(max_tokens=12)
            again.resume.add(index=0, token_ids=tokens[:6], text_length=min(length, 3))
            rest = await harness.run(again)
            assert text[: min(length, 3)] + text_of(rest) == text


async def test_the_verifier_continues_behind_the_tokens(gateway: StartHarness) -> None:
    async with gateway() as harness:
        tokens = tokens_of(await harness.run(ask()))
        again = ask()
        again.resume.add(index=0, token_ids=tokens[:7])
        rest = await harness.run(again)
        assert harness.verifiers[0].calls[-1].output_token_ids == tuple(tokens[:7])
        stats = finished_of(rest).stats
        assert (stats.output_tokens, stats.verify_steps, stats.plain_steps) == (20, 7 + 5, 7)


async def test_an_answer_that_is_complete_needs_no_verifier(gateway: StartHarness) -> None:
    async with gateway() as harness:
        whole = await harness.run(ask())
        harness.directory.verifier_records = []
        again = ask()
        again.resume.extend(_points(whole[:-1], 1))
        rest = await harness.run(again)
        assert [one.WhichOneof("event") for one in rest] == ["started", "finished"]
        assert finished_of(rest).finish_reason == finished_of(whole).finish_reason
        again.resume[0].finished = True
        assert [one.WhichOneof("event") for one in await harness.run(again)] == ["started"]


@pytest.mark.parametrize(
    ("points", "problem"),
    [
        ([pb.ResumePoint(index=1)], r"resume \(answer 1\): the request has answers 0 to 0 only"),
        ([pb.ResumePoint(), pb.ResumePoint()], r"resume \(answer 0\): given twice"),
        (
            [pb.ResumePoint(token_ids=[512])],
            r"resume \(answer 0\): token id 512 is outside the vocabulary \(0 to 511\)",
        ),
        ([pb.ResumePoint(token_ids=[5] * 21)], r"21 tokens are more than max_tokens \(20\)"),
        ([pb.ResumePoint(token_ids=[5, 6], text_length=3)], "text_length 3 exceeds the 2 characters"),
        ([pb.ResumePoint(token_ids=[38, 5, 6])], "the answer ended with 'D' at token 1 of 3"),
    ],
)
async def test_points_that_cannot_be(gateway: StartHarness, points: list[pb.ResumePoint], problem: str) -> None:
    async with gateway() as harness:
        message = ask(stop=["D"])
        message.resume.extend(points)
        with pytest.raises(InvalidRequestError, match=problem):
            await harness.run(message)


@pytest.mark.parametrize("missing", ["request_id", "seed"])
async def test_resuming_needs_id_and_seed(gateway: StartHarness, missing: str) -> None:
    async with gateway() as harness:
        message = ask()
        message.resume.add(index=0, token_ids=[5])
        (message if missing == "request_id" else message.sampling).ClearField(missing)
        with pytest.raises(InvalidRequestError, match=r"resume: request_id and sampling\.seed are needed"):
            await harness.run(message)
