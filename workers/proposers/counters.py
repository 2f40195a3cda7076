"""What remote drafting did, in counters; exported under the names of docs/protocol.md."""

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["LinkState", "LinkStatus", "ProposerCounters"]


class LinkState(StrEnum):
    CONNECTING = "connecting"
    UP = "up"
    DOWN = "down"  # will be tried again soon
    BARRED = "barred"  # does not fit or broke the protocol; will be tried again much later


@dataclass
class ProposerCounters:
    """Never reset, never divided. Written by the engine's thread only."""

    proposals: int = 0  # arrived and belonged to an open session
    used: int = 0  # handed to a verify step
    late: int = 0  # arrived when their base_len was already history; some could still be used
    stale: int = 0  # dropped because the committed tokens had left their tree
    lost: int = 0  # awaited when their stream broke or their session ended
    invalid: int = 0  # broke the rules
    outdated: int = 0  # of a closed session, an older epoch or an older stream
    sessions: int = 0  # opened at a drafter
    reattachments: int = 0  # of these, not the first of their request
    session_errors: int = 0  # reported by drafters
    streams: int = 0  # that got as far as a welcome
    stream_failures: int = 0
    incompatible: int = 0  # drafters that were refused
    silences: int = 0  # drafters that their requests were told to leave


@dataclass(frozen=True)
class LinkStatus:
    """One drafter as the verifier sees it."""

    address: str
    state: LinkState
    drafter_id: str  # "" before the first welcome
    incarnation: int
    sessions: int
    silent: bool
    response_ms: float | None  # moving average from a commit to the proposal for it
