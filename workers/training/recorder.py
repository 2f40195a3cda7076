"""`HiddenStateRecorder`: a proposer that proposes nothing and keeps the hidden states of what was committed."""

from collections.abc import Sequence

import numpy as np

from workers.proposers.base import CommitUpdate, DraftSession
from workers.proposers.none import NullProposer
from workers.training.answers import Rows

__all__ = ["HiddenStateRecorder"]


class HiddenStateRecorder(NullProposer):
    """`take` is called from another thread, once for each request, after its last output."""

    def __init__(self) -> None:
        self._rows: dict[int, list[Rows]] = {}

    def open(self, session: DraftSession) -> None:
        self._rows[session.key] = []

    def commit(self, updates: Sequence[CommitUpdate]) -> None:
        for update in updates:
            if update.hidden is None:
                raise RuntimeError("the engine gave no hidden states")
            self._rows[update.key].append(update.hidden.half().cpu().numpy())

    def take(self, key: int) -> Rows:
        """fp16 [tokens, hidden_size]; the tokens of the step that ended the request have none."""
        rows = self._rows.pop(key)
        return np.concatenate(rows) if rows else np.empty((0, 0), dtype=np.float16)
