"""What a replica says about its load."""

import math
from dataclasses import dataclass, fields

from outrider.v1 import verifier_pb2

__all__ = ["ReplicaLoad"]


@dataclass(frozen=True)
class ReplicaLoad:
    """As the replica reported it last; zeros before its first report. See `ReplicaLoad` in verifier.proto."""

    running_requests: int = 0
    waiting_requests: int = 0
    total_kv_blocks: int = 0
    free_kv_blocks: int = 0
    waiting_tokens: int = 0
    prefill_tokens_per_s: float = 0.0
    max_running_requests: int = 0
    response_ms: float = 0.0

    @staticmethod
    def from_wire(load: verifier_pb2.ReplicaLoad) -> "ReplicaLoad":
        """Numbers that measure nothing (negative, infinite, not a number) count as not known."""
        values = {field.name: getattr(load, field.name) for field in fields(ReplicaLoad)}
        return ReplicaLoad(**{name: value if 0 <= value < math.inf else 0 for name, value in values.items()})
