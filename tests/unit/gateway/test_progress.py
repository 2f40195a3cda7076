"""A resume point is rebuilt in one pass, whatever its tokens are."""

from pathlib import Path

import pytest
from outrider.v1 import common_pb2

from cluster.gateway.admission import AdmittedRequest, ResumePoint
from cluster.gateway.progress import AnswerProgress
from tests.fakes.counting_tokenizer import CountingTokenizer
from tests.unit.gateway.conftest import StartHarness, ask, finished_of, text_of
from workers.core.sampling_params import SamplingParams, SpeculationParams
from workers.text.source import read_source
from workers.text.tokenizer import Tokenizer

TOKENS = 3000  # more than are rebuilt on the event loop


@pytest.fixture(scope="module")
def counting(tiny_target: Path) -> CountingTokenizer:
    return CountingTokenizer(read_source(str(tiny_target)))


def _part_of_a_character(tokenizer: Tokenizer) -> int:
    return tokenizer.encode("🙂")[-1]


@pytest.mark.parametrize("stop", [(), ("never", "��a")])
@pytest.mark.parametrize("received", [0, TOKENS - 1, TOKENS])
def test_each_token_is_decoded_once(counting: CountingTokenizer, stop: tuple[str, ...], received: int) -> None:
    point = ResumePoint((_part_of_a_character(counting),) * TOKENS, received)
    sampling = SamplingParams(max_tokens=TOKENS, stop=stop)
    request = AdmittedRequest("request", (5,), sampling, SpeculationParams(), 5, "", "", None, {0: point})
    before = counting.decoded_tokens
    progress = AnswerProgress(request, counting, ())
    assert counting.decoded_tokens - before <= TOKENS + 20
    assert progress.resumed_text + progress.finish() == "�" * (TOKENS - received)


@pytest.mark.parametrize("stop", [[], ["��a"]])
async def test_a_long_resume_point(gateway: StartHarness, tokenizer: Tokenizer, stop: list[str]) -> None:
    token = _part_of_a_character(tokenizer)
    async with gateway({"context_length": 4096, "token_at": lambda *_: token}) as harness:
        message = ask(max_tokens=TOKENS + 40, stop=stop)
        message.resume.add(index=0, token_ids=[token] * TOKENS, text_length=TOKENS - 7)
        responses = await harness.run(message)
        assert text_of(responses) == "�" * 47
        assert finished_of(responses).finish_reason == common_pb2.FINISH_REASON_LENGTH
