"""A request on its way through the simulated cluster."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import xxhash

from benchmarks.simulator.blocks import Lease
from benchmarks.simulator.workloads import Prompt
from cluster.router.decision import KEY_TOKENS, RoutedRequest

if TYPE_CHECKING:
    from benchmarks.simulator.drafter import SimulatedDrafter

__all__ = ["Running", "SimulatedRequest", "routed"]


@dataclass(frozen=True)
class SimulatedRequest(RoutedRequest):
    """What a gateway routes by: its block hashes are given, there are no tokens to hash."""

    hashes: tuple[int, ...] = ()
    number: int = 0

    def block_hashes(self, fingerprint: str, block_size: int) -> list[int]:
        return list(self.hashes)

    @property
    def key(self) -> int:
        return self.number


def routed(prompt: Prompt, block_size: int) -> SimulatedRequest:
    """Its key: of the session, else of as many blocks as the real key has tokens."""
    beginning = ",".join(map(str, prompt.chain[: max(1, KEY_TOKENS // block_size)]))
    return SimulatedRequest(
        request_id="",
        token_ids=range(len(prompt.chain) * block_size),
        output_tokens=prompt.output_tokens,
        session_id=prompt.session,
        hashes=tuple(prompt.chain),
        number=xxhash.xxh3_64_intdigest((prompt.session or beginning).encode()),
    )


class Running:
    """One request at one verifier. `ended` is called with True when it is complete, with False when it was lost."""

    __slots__ = (
        "arrived_s",
        "drafter",
        "drafters",
        "ended",
        "first_s",
        "hits",
        "lease",
        "prefill_tokens",
        "prompt",
        "ready_s",
        "remaining",
        "resumed",
        "total_tokens",
    )

    def __init__(self, prompt: Prompt, arrived_s: float, ended: Callable[["Running", bool], None]) -> None:
        self.prompt = prompt
        self.arrived_s = arrived_s
        self.ended = ended
        self.drafters: list[SimulatedDrafter] = []  # that may be asked, best first
        self.drafter: SimulatedDrafter | None = None
        self.ready_s = 0.0  # when the drafter has read the prompt
        self.lease: Lease | None = None
        self.hits = 0  # blocks
        self.prefill_tokens = 0  # still to be computed
        self.remaining = float(prompt.output_tokens)
        self.first_s: float | None = None
        self.resumed = 0
        self.total_tokens = prompt.output_tokens  # of the whole answer, what a lost verifier wrote included

    def continued(self, block_size: int) -> "Running":
        """The same answer for another verifier: what was committed is part of the prompt now."""
        prompt = self.prompt
        left = max(1, math.ceil(self.remaining))
        committed = (prompt.output_tokens - left) // block_size
        chain, output = prompt.chain + prompt.output[:committed], prompt.output[committed:]
        again = Running(Prompt(chain, output, left, prompt.session), self.arrived_s, self.ended)
        again.first_s, again.resumed, again.total_tokens = self.first_s, self.resumed + 1, self.total_tokens
        return again
