"""The shipped test double keeps the contract that the SDK relies on."""

from collections.abc import Iterator
from typing import Any

import grpc
import outrider
import pytest
from outrider.testing import FakeClock, FakeServer, Fault, prompt_text
from outrider.v1 import common_pb2, generation_pb2
from outrider.v1.generation_pb2_grpc import GenerationServiceStub


@pytest.fixture
def stub(server: FakeServer) -> Iterator[GenerationServiceStub]:
    with grpc.insecure_channel(server.target) as channel:
        yield GenerationServiceStub(channel)


def request(**fields: Any) -> generation_pb2.GenerateRequest:
    return generation_pb2.GenerateRequest(**{"text": "x", **fields})


def test_the_order_of_events(stub: GenerationServiceStub, server: FakeServer) -> None:
    server.tokens_per_delta = 6
    events = [event.WhichOneof("event") for event in stub.Generate(request())]
    assert events == ["started", "delta", "delta", "finished"]


def test_text_waits_for_whole_characters_and_for_the_lag(stub: GenerationServiceStub, server: FakeServer) -> None:
    server.reply, server.text_lag = "aü🚀", 1
    deltas = [event.delta.text for event in stub.Generate(request()) if event.HasField("delta")]
    assert deltas == ["", "", "a", "", "", "", "ü🚀"]


def test_an_answer_cut_inside_a_character(server: FakeServer) -> None:
    server.reply = "aü"
    with server.client() as client:
        assert client.generate("x", max_tokens=2).text == "a\ufffd"


def test_max_tokens_ends_an_answer(server: FakeServer) -> None:
    with server.client() as client:
        generation = client.generate("x", max_tokens=5)
    assert (generation.text, generation.finish_reason) == ("Hello", outrider.FinishReason.LENGTH)


def test_a_resumption_with_foreign_tokens_is_refused(stub: GenerationServiceStub) -> None:
    point = generation_pb2.ResumePoint(index=0, token_ids=b"Help")
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Generate(request(resume=[point])))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_finished_answer_is_not_told_again(stub: GenerationServiceStub) -> None:
    point = generation_pb2.ResumePoint(index=0, token_ids=b"Hello, world", text_length=12, finished=True)
    events = list(stub.Generate(request(resume=[point], sampling=common_pb2.SamplingParams(n=2))))
    assert {event.delta.index for event in events if event.HasField("delta")} == {1}
    assert [event.finished.index for event in events if event.HasField("finished")] == [1]


def test_an_unknown_role_is_refused_by_the_server_too(stub: GenerationServiceStub) -> None:
    chat = generation_pb2.ChatMessages(messages=[generation_pb2.ChatMessage(role="robot", content="x")])
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Generate(generation_pb2.GenerateRequest(chat=chat)))
    assert caught.value.details() == "InvalidRequestError: unknown chat role 'robot'"


def test_prompts_as_text() -> None:
    tokens = generation_pb2.GenerateRequest(tokens=generation_pb2.TokenIds(token_ids=list(b"hi")))
    assert prompt_text(tokens) == "hi"
    assert prompt_text(generation_pb2.GenerateRequest()) == ""


def test_reset_forgets(server: FakeServer) -> None:
    server.fail_next(Fault(grpc.StatusCode.NOT_FOUND))
    server.reset()
    with server.client() as client:
        client.generate("x")
        server.reset()
    assert not server.requests


def test_closing_ends_hanging_calls() -> None:
    server = FakeServer()
    server.fail_next(Fault(after_tokens=0, hang=True))
    clock = FakeClock()
    with server.client(clock=clock, sleep=clock.sleep, retry=outrider.RetryPolicy.never()) as client:
        stream = client.stream("x", n=2)
        with pytest.raises(outrider.ConnectionLostError):
            _close_then_read(server, stream)


def _close_then_read(server: FakeServer, stream: outrider.Stream) -> None:
    import threading

    threading.Timer(0.05, server.close).start()
    stream.result()
