"""Wire <-> core. Other rooms import conversions from here; wire types stop at this room."""

from workers.rpc.generation import (
    endpoint_from_wire,
    endpoint_to_wire,
    finish_reason_from_wire,
    finish_reason_to_wire,
    logprob_from_wire,
    logprob_to_wire,
    request_from_wire,
    request_to_wire,
    stats_from_wire,
    stats_to_wire,
    step_from_wire,
    step_to_wire,
)
from workers.rpc.params import (
    priority_from_wire,
    rule_from_wire,
    rule_to_wire,
    sampling_from_wire,
    sampling_to_wire,
    speculation_from_wire,
    speculation_to_wire,
)
from workers.rpc.sessions import commit_from_wire, commit_to_wire, opening_from_wire, opening_to_wire
from workers.rpc.trees import (
    budget_from_wire,
    budget_to_wire,
    proposal_from_wire,
    proposal_to_wire,
    tree_from_wire,
    tree_to_wire,
)
from workers.rpc.unknown_fields import reject_unknown_fields

__all__ = [
    "budget_from_wire",
    "budget_to_wire",
    "commit_from_wire",
    "commit_to_wire",
    "endpoint_from_wire",
    "endpoint_to_wire",
    "finish_reason_from_wire",
    "finish_reason_to_wire",
    "logprob_from_wire",
    "logprob_to_wire",
    "opening_from_wire",
    "opening_to_wire",
    "priority_from_wire",
    "proposal_from_wire",
    "proposal_to_wire",
    "reject_unknown_fields",
    "request_from_wire",
    "request_to_wire",
    "rule_from_wire",
    "rule_to_wire",
    "sampling_from_wire",
    "sampling_to_wire",
    "speculation_from_wire",
    "speculation_to_wire",
    "stats_from_wire",
    "stats_to_wire",
    "step_from_wire",
    "step_to_wire",
    "tree_from_wire",
    "tree_to_wire",
]
