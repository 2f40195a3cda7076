"""What a verifier tells a drafter about one session."""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.core.proposal import TreeBudget
from workers.core.request import GenerationRequest
from workers.core.sampling_params import SamplingParams, VerificationRule

__all__ = ["SessionCommit", "SessionOpening"]


@dataclass(frozen=True)
class SessionOpening:
    """Everything that a drafter needs to start drafting for one request."""

    session_id: int
    epoch: int
    token_ids: tuple[int, ...]  # prompt and output so far; the last one is the root
    prompt_tokens: int
    sampling: SamplingParams
    seed: int
    rule: VerificationRule
    budget: TreeBudget
    cache_salt: str = ""
    traceparent: str = ""  # of the trace that it belongs to; "" = none

    @staticmethod
    def of(
        request: GenerationRequest,
        *,
        session_id: int,
        token_ids: Sequence[int],
        epoch: int = 0,
        budget: TreeBudget | None = None,
    ) -> "SessionOpening":
        """Of a verifier's request with these committed tokens; `budget`: None = the request's own."""
        return SessionOpening(
            session_id=session_id,
            epoch=epoch,
            token_ids=tuple(token_ids),
            prompt_tokens=len(request.prompt_token_ids),
            sampling=request.sampling,
            seed=request.seed,
            rule=request.rule,
            budget=budget or request.budget,
            cache_salt=request.cache_salt,
            traceparent=request.traceparent,
        )


@dataclass(frozen=True)
class SessionCommit:
    """Tokens that became final. `paused`: propose nothing until a commit without it."""

    session_id: int
    epoch: int
    base_len: int  # number of committed tokens before `token_ids`
    token_ids: tuple[int, ...]
    budget: TreeBudget
    paused: bool = False
