"""`TimedProposer`: what a proposer costs the step that waits for it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workers.core.proposal import Proposal
from workers.proposers.base import CommitUpdate, DraftSession, Proposer, Want

__all__ = ["TimedProposer"]


@dataclass
class TimedProposer:
    """Delegates; `spent_ms` and `steps` count what happened between two calls of `reset`. Read while idle."""

    inner: Proposer
    spent_ms: float = 0.0
    steps: int = 0
    _started: float = field(default=0.0, init=False)

    def reset(self) -> None:
        self.spent_ms, self.steps = 0.0, 0

    @property
    def ms_per_step(self) -> float:
        return self.spent_ms / max(1, self.steps)

    def open(self, session: DraftSession) -> None:
        self.inner.open(session)

    def wait(self, wants: Mapping[int, Want], timeout_s: float) -> None:
        started = time.perf_counter()
        self.inner.wait(wants, timeout_s)
        self._spend(started)

    def collect(self, wants: Mapping[int, Want]) -> dict[int, Proposal]:
        started = time.perf_counter()
        proposals = self.inner.collect(wants)
        self._spend(started)
        self.steps += 1
        return proposals

    def commit(self, updates: Sequence[CommitUpdate]) -> None:
        started = time.perf_counter()
        self.inner.commit(updates)
        self._spend(started)

    def close(self, key: int) -> None:
        self.inner.close(key)

    def flush(self) -> None:
        started = time.perf_counter()
        self.inner.flush()
        self._spend(started)

    def shutdown(self) -> None:
        self.inner.shutdown()

    def _spend(self, started: float) -> None:
        self.spent_ms += (time.perf_counter() - started) * 1e3
