"""`NullProposer`: plain decoding, for `method: none`."""

from collections.abc import Mapping, Sequence

from workers.core.proposal import Proposal
from workers.proposers.base import CommitUpdate, DraftSession, Want

__all__ = ["NullProposer"]


class NullProposer:
    """A `Proposer` that proposes nothing."""

    in_process = False

    def open(self, session: DraftSession) -> None: ...

    def wait(self, wants: Mapping[int, Want], timeout_s: float) -> None: ...

    def collect(self, wants: Mapping[int, Want]) -> dict[int, Proposal]:
        return {}

    def commit(self, updates: Sequence[CommitUpdate]) -> None: ...

    def close(self, key: int) -> None: ...

    def flush(self) -> None: ...

    def shutdown(self) -> None: ...
