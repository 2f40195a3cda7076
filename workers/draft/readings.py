"""A drafter's counters under the names of docs/observability.md."""

from workers.core.readings import Readings
from workers.draft.engine import DraftEngine

__all__ = ["read_drafter"]


def read_drafter(engine: DraftEngine) -> Readings:
    counted, manager = engine.counters, engine.manager
    return Readings(
        totals={
            "prefix_cache_queries": counted.opened_tokens,
            "prefix_cache_hits": counted.cached_tokens,
            "drafter_forwards": counted.forwards,
            "drafter_fed_tokens": counted.fed_tokens,
            "drafter_expanded_nodes": counted.expanded_nodes,
            "drafter_proposals": counted.proposals,
            "drafter_proposed_nodes": counted.proposed_nodes,
            "drafter_early_proposals": counted.early_proposals,
            "drafter_tree_hits": counted.hits,
            "drafter_tree_misses": counted.misses,
            "drafter_sessions_opened": counted.opened,
            "drafter_sessions_closed": counted.closed,
            "drafter_session_failures": counted.failures,
            "drafter_stale_messages": counted.stale_messages,
            "drafter_pruned_trees": engine.num_pruned_trees,
            "drafter_busy_seconds": counted.busy_s,
        },
        levels={
            "drafter_sessions": engine.num_sessions,
            "drafter_session_seats": engine.max_sessions,
            "drafter_backlog_frames": engine.backlog,
            "waiting_prompt_tokens": engine.num_waiting_tokens,
            "kv_cache_usage_perc": 1.0 - manager.num_free_blocks / manager.num_blocks,
        },
    )
