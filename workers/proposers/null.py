"""The proposer that never proposes: plain decoding."""

from collections.abc import Mapping, Sequence

from workers.core.proposal import Proposal
from workers.proposers.base import CommitUpdate, DraftSession, Want

__all__ = ["NullProposer"]


class NullProposer:
    """Implements `Proposer`; every step is a plain one."""

    def open(self, session: DraftSession) -> None:
        """Nothing to start."""

    def wait(self, wants: Mapping[int, Want], timeout_s: float) -> None:
        """Nothing can come: return at once."""

    def collect(self, wants: Mapping[int, Want]) -> dict[int, Proposal]:
        """No proposals, ever."""
        return {}

    def commit(self, updates: Sequence[CommitUpdate]) -> None:
        """Nothing to tell."""

    def close(self, key: int) -> None:
        """Nothing to forget."""

    def flush(self) -> None:
        """Nothing to send."""

    def shutdown(self) -> None:
        """Nothing to give back."""
