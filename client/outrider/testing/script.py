"""What a fake server says, and how it fails. Pure: turns a request into events.

Its tokens are the bytes of the text in UTF-8, so that a character may span
several tokens and text lags behind tokens, as with real tokenizers.
"""

from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc

from outrider.v1 import common_pb2, generation_pb2

__all__ = ["Answer", "Fault", "Reply", "answers", "prompt_text", "prompt_token_ids"]

Reply = str | Callable[[generation_pb2.GenerateRequest, int], str]
"""The text of every answer, or a function of the request and the answer's index."""


@dataclass(frozen=True)
class Fault:
    """How one call of Generate goes wrong.

    Attributes:
        code: gRPC status that ends the stream; OK = it ends without telling that answers are finished.
        details: Details of that status; the server's own errors read "ErrorName: message".
        after_tokens: Tokens (over all answers) that this call sends before, or all that it has when these are fewer;
            None = fail before the first message.
        hang: Do not end the stream at all, but stay silent until the client goes away.
    """

    code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE
    details: str = ""
    after_tokens: int | None = None
    hang: bool = False


def prompt_text(request: generation_pb2.GenerateRequest | generation_pb2.CountTokensRequest) -> str:
    """The request's prompt as one text; a conversation as lines "role: content"."""
    match request.WhichOneof("prompt"):
        case "text":
            return request.text
        case "chat":
            return "\n".join(f"{message.role}: {message.content}" for message in request.chat.messages)
        case "tokens" if isinstance(request, generation_pb2.GenerateRequest):
            return bytes(token % 256 for token in request.tokens.token_ids).decode(errors="replace")
        case _:
            return ""


def prompt_token_ids(request: generation_pb2.GenerateRequest | generation_pb2.CountTokensRequest) -> list[int]:
    if isinstance(request, generation_pb2.GenerateRequest) and request.HasField("tokens"):
        return list(request.tokens.token_ids)
    return list(prompt_text(request).encode())


class Answer:
    """One answer, from the point where the client wants it to go on."""

    def __init__(self, index: int, text: str, request: generation_pb2.GenerateRequest, *, text_lag: int) -> None:
        self.index = index
        self._text_lag = text_lag
        whole = list(text.encode())
        limit = request.sampling.max_tokens if request.sampling.HasField("max_tokens") else len(whole)
        self.token_ids = whole[:limit]
        self._whole_text = bytes(self.token_ids).decode(errors="replace")
        self._whole_characters = _whole_characters(bytes(self.token_ids))
        self._reason = common_pb2.FINISH_REASON_LENGTH if limit < len(whole) else common_pb2.FINISH_REASON_STOP
        point = next((point for point in request.resume if point.index == index), generation_pb2.ResumePoint())
        self.resumed_wrongly = list(point.token_ids) != self.token_ids[: len(point.token_ids)]
        self._sent = len(point.token_ids)
        self._text_sent = point.text_length
        self.finished = point.finished

    def deltas(self, tokens_per_delta: int, *, logprobs: bool) -> Iterator[generation_pb2.GenerationDelta]:
        """The rest of the answer; every delta but a last, which may bring lagging text only, has tokens."""
        while not self.finished and (self._sent < len(self.token_ids) or self._text_sent < len(self._text(final=True))):
            start, self._sent = self._sent, min(self._sent + tokens_per_delta, len(self.token_ids))
            text = self._text(final=start == self._sent or self._sent == len(self.token_ids))
            new_ids = self.token_ids[start : self._sent]
            yield generation_pb2.GenerationDelta(
                index=self.index,
                token_ids=new_ids,
                text=text[self._text_sent :],
                logprobs=[common_pb2.TokenLogprob(token_id=token, logprob=-0.5) for token in new_ids if logprobs],
                offset=start,
            )
            self._text_sent = max(self._text_sent, len(text))

    def end(self, prompt_tokens: int, seed: int, tokens_per_delta: int) -> generation_pb2.GenerationFinished:
        """The closing message, with statistics as if each full delta had been one step with its draft accepted."""
        self.finished = True
        tokens = len(self.token_ids)
        steps = -(-tokens // tokens_per_delta)
        stats = common_pb2.GenerationStats(
            prompt_tokens=prompt_tokens,
            output_tokens=tokens,
            verify_steps=steps,
            drafted_tokens=steps * (tokens_per_delta - 1),
            accepted_tokens=tokens - steps,
            total_ms=10.0 * steps,
            time_to_first_token_ms=10.0,
            exact=True,
            seed=seed,
        )
        return generation_pb2.GenerationFinished(index=self.index, finish_reason=self._reason, stats=stats)

    def _text(self, *, final: bool) -> str:
        """Text that may be sent after `_sent` tokens; only the end of an answer flushes what lags."""
        if final and self._sent == len(self.token_ids):
            return self._whole_text
        return self._whole_text[: max(0, self._whole_characters[self._sent] - self._text_lag)]


def _whole_characters(data: bytes) -> list[int]:
    """How many characters the first 0, 1, 2, ... bytes hold in full."""
    decoder = getincrementaldecoder("utf-8")()
    counts = [0]
    for byte in data:
        counts.append(counts[-1] + len(decoder.decode(bytes([byte]))))
    return counts


def answers(reply: Reply, request: generation_pb2.GenerateRequest, *, text_lag: int) -> list[Answer]:
    """All answers that the request asks for."""
    texts = [reply if isinstance(reply, str) else reply(request, index) for index in range(max(1, request.sampling.n))]
    return [Answer(index, text, request, text_lag=text_lag) for index, text in enumerate(texts)]
