"""Token by token: what an answer has lost, repeated or changed against the one that is known."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

__all__ = ["Difference", "compare"]


@dataclass(frozen=True)
class Difference:
    """In tokens; all zero = equal."""

    lost: int = 0
    repeated: int = 0  # inserted, and equal to what stands just before or behind
    changed: int = 0  # replaced, or inserted out of nowhere

    def __bool__(self) -> bool:
        return self != Difference()

    def __add__(self, other: "Difference") -> "Difference":
        return Difference(self.lost + other.lost, self.repeated + other.repeated, self.changed + other.changed)


def compare(expected: Sequence[int], got: Sequence[int]) -> Difference:
    """How to get from `expected` to `got`, in the fewest edits that difflib finds."""
    if list(expected) == list(got):
        return Difference()
    found = Difference()
    for kind, start, end, got_start, got_end in SequenceMatcher(None, expected, got, autojunk=False).get_opcodes():
        inserted = list(got[got_start:got_end])
        beside = [list(got[got_start - len(inserted) : got_start]), list(got[got_end : got_end + len(inserted)])]
        if kind == "delete":
            found += Difference(lost=end - start)
        elif kind == "insert" and inserted in beside:
            found += Difference(repeated=len(inserted))
        elif kind != "equal":
            found += Difference(changed=max(end - start, len(inserted)))
    return found
