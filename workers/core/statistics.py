"""Counters of one request. Never pre-divided; ratios are derived properties."""

from dataclasses import dataclass, field

__all__ = ["GenerationStats"]


@dataclass
class GenerationStats:
    """Filled by the verifier's engine while the request runs; sent with its last message."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_prompt_tokens: int = 0
    verify_steps: int = 0
    plain_steps: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    drafted_per_depth: list[int] = field(default_factory=list)
    accepted_per_depth: list[int] = field(default_factory=list)
    stale_proposals: int = 0
    invalid_proposals: int = 0
    drafter_changes: int = 0
    preemptions: int = 0
    queue_ms: float = 0.0
    time_to_first_token_ms: float = 0.0
    total_ms: float = 0.0
    exact: bool = True
    seed: int = 0

    @property
    def acceptance_length(self) -> float:
        """Tokens emitted per verify step (1.0 = speculation gained nothing)."""
        return self.output_tokens / self.verify_steps if self.verify_steps else 0.0

    @property
    def acceptance_rate(self) -> float:
        """Accepted / drafted tokens."""
        return self.accepted_tokens / self.drafted_tokens if self.drafted_tokens else 0.0

    def record_step(self, tree_depth: int, tree_nodes: int, accepted: int, emitted: int) -> None:
        """Count one verify step: a tree of `tree_nodes` nodes, `accepted` of them kept, `emitted` tokens."""
        self.verify_steps += 1
        self.plain_steps += tree_nodes == 0
        self.drafted_tokens += tree_nodes
        self.accepted_tokens += accepted
        self.output_tokens += emitted
        grow = tree_depth - len(self.drafted_per_depth)
        self.drafted_per_depth.extend([0] * grow)
        self.accepted_per_depth.extend([0] * grow)
        for depth in range(tree_depth):
            self.drafted_per_depth[depth] += 1
            self.accepted_per_depth[depth] += depth < accepted
