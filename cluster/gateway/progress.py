"""How far one answer is: its committed tokens, and the text that they mean."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cluster.gateway.admission import AdmittedRequest, ResumePoint
from workers.core.errors import InvalidRequestError
from workers.core.request import FinishReason
from workers.core.shown import shown
from workers.text.output_text import OutputText, TextStep
from workers.text.tokenizer import Tokenizer

__all__ = ["AnswerProgress", "Ending"]


@dataclass(frozen=True)
class Ending:
    reason: FinishReason
    stop_string: str = ""


class AnswerProgress:
    """Tokens in, text for the client out.

    Rebuilt from a `ResumePoint`, it goes on exactly behind what the client has: text is a function of the tokens, so
    the tokens of the resume point are detokenised again and the characters that were received are left out.
    """

    def __init__(
        self, request: AdmittedRequest, tokenizer: Tokenizer, eos_token_ids: Collection[int], index: int = 0
    ) -> None:
        """Raises `InvalidRequestError` when the resume point of answer `index` contradicts itself."""
        self._request = request
        self._end_tokens = set(request.sampling.stop_token_ids)
        if not request.sampling.ignore_eos:
            self._end_tokens.update(eos_token_ids)
        self._text = OutputText(tokenizer, request.sampling.stop)
        self.token_ids: list[int] = []
        self.ending: Ending | None = None
        point = request.resume.get(index, ResumePoint())
        self.resumed_tokens = len(point.token_ids)
        self._skip = point.text_length  # characters of the text to come that the client has
        step = self._text.push(point.token_ids)
        _check_point(point, step, len(step.text) + len(self._text.copy().finish()), index)
        _, self.resumed_text = self._take(step, point.token_ids)

    def push(self, token_ids: Sequence[int]) -> tuple[Sequence[int], str]:
        """Take committed tokens: those that belong to the answer, and the text that the client lacks."""
        return self._take(self._text.push(token_ids), token_ids)

    def finish(self) -> str:
        """The answer has ended: text that was held back and that the client lacks."""
        return self._unseen(self._text.finish())

    def _take(self, step: TextStep, token_ids: Sequence[int]) -> tuple[Sequence[int], str]:
        used = token_ids[: step.tokens_used]
        self.token_ids.extend(used)
        if used:
            self.ending = self._ending_after(step.stopped)
        return used, self._unseen(step.text)

    def _ending_after(self, stopped: str | None) -> Ending | None:
        """The verifier decides alike; knowing it here, an answer whose last message was lost needs no verifier."""
        if stopped is not None:
            return Ending(FinishReason.STOP, stopped)
        if self.token_ids[-1] in self._end_tokens and len(self.token_ids) >= self._request.sampling.min_tokens:
            return Ending(FinishReason.STOP)
        if len(self.token_ids) >= self._request.max_tokens:
            return Ending(FinishReason.LENGTH)
        return None

    def _unseen(self, text: str) -> str:
        unseen = text[self._skip :]
        self._skip = max(0, self._skip - len(text))
        return unseen


def _check_point(point: ResumePoint, step: TextStep, length: int, index: int) -> None:
    """`step` is what its tokens give, `length` their characters if the answer ended with them."""
    where = f"resume (answer {index})"
    if step.tokens_used < len(point.token_ids):
        raise InvalidRequestError(
            f"{where}: the answer ended with {shown(step.stopped)} at token {step.tokens_used} of "
            f"{len(point.token_ids)}"
        )
    if point.text_length > length:
        raise InvalidRequestError(
            f"{where}: text_length {point.text_length} exceeds the {length} characters of the given tokens"
        )
