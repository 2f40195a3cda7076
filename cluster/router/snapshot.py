"""What a policy sees: a request and one pool, as arrays with an entry for each replica.

Arrays rather than objects, because a choice among a thousand replicas may take a few milliseconds only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

__all__ = ["Bools", "Costs", "Floats", "Ints", "PoolSnapshot", "RequestShape"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

Costs = Mapping[str, Floats]
"""Terms by name, each [replicas]. The replica with the least sum is chosen; infinite = not this one."""


@dataclass(frozen=True)
class RequestShape:
    """What matters of a request."""

    prompt_tokens: int  # all that a prefill would compute, tokens of a resumed answer included
    output_tokens: int  # at most
    key: int  # 64 bits: of its session, else of the beginning of its prompt
    draws: tuple[float, float] = (0.0, 0.0)  # random, in [0, 1)


@dataclass(frozen=True)
class PoolSnapshot:
    """Replicas that could take the request. All arrays are [replicas] and read-only."""

    identity: npt.NDArray[np.uint64]  # hash of each replica's id
    cached_tokens: Ints  # of the prompt, whose K/V it is believed to hold
    requests: Ints  # running and waiting, choices that it has not reported yet included
    seats: Ints  # requests that it runs at the same time; at least 1
    waiting_tokens: Ints  # prompt tokens still to be computed, choices that it has not reported yet included
    prefill_tokens_per_s: Floats  # 0 = unknown
    response_ms: Floats  # of a drafter; 0 = unknown
    block_size: Ints
    free_blocks: Ints
    total_blocks: Ints  # 0 = unknown
    last_chosen: Ints  # number of this gateway's choice that took it last; 0 = never
    session_home: Bools  # it took the session's latest request

    @cached_property
    def usual_prefill_tokens_per_s(self) -> float:
        """The median of what is known, else 0.

        Replicas of a pool are alike, and what one measures depends on its prompts: one that finds most of them in its
        cache computes short rests, slowly for each token, and would be punished for its cache.
        """
        known = np.sort(self.prefill_tokens_per_s[self.prefill_tokens_per_s > 0])
        if not len(known):
            return 0.0
        return float(known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2  # np.median takes a third of a choice

    def __len__(self) -> int:
        return len(self.identity)
