"""When a request ends: checked after every step, on the tokens that the step committed."""

from collections.abc import Sequence

from workers.core.request import FinishReason
from workers.verifier.request_state import Finish, RequestState

__all__ = ["finish_of"]


def finish_of(
    state: RequestState, new_tokens: Sequence[int], eos_token_ids: Sequence[int]
) -> tuple[Finish | None, int]:
    """Why the request ends now (None = it goes on), and how many of `new_tokens` are kept.

    The walk through the tree has already stopped at end tokens and at max_tokens; only stop strings, which know
    text, can end in the middle of it.
    """
    if state.stop_text is not None:
        step = state.stop_text.push(new_tokens)
        if step.stopped is not None:
            return Finish(FinishReason.STOP, step.stopped), step.tokens_used
    sampling = state.request.sampling
    last = new_tokens[-1]
    ended = last in sampling.stop_token_ids or (last in eos_token_ids and not sampling.ignore_eos)
    if ended and state.num_output >= sampling.min_tokens:
        return Finish(FinishReason.STOP), len(new_tokens)
    if state.remaining_tokens <= 0:
        return Finish(FinishReason.LENGTH), len(new_tokens)
    return None, len(new_tokens)
