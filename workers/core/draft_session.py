"""What a verifier tells a drafter about one session."""

from dataclasses import dataclass

from workers.core.proposal import TreeBudget
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


@dataclass(frozen=True)
class SessionCommit:
    """Tokens that became final. `paused`: propose nothing until a commit without it."""

    session_id: int
    epoch: int
    base_len: int  # number of committed tokens before `token_ids`
    token_ids: tuple[int, ...]
    budget: TreeBudget
    paused: bool = False
