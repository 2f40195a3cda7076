"""A verifier's counters under the names of docs/observability.md."""

from collections.abc import Sequence

from workers.core.readings import ByLabel, Number, Readings
from workers.proposers.counters import LinkState, ProposerCounters
from workers.proposers.remote import RemoteProposer
from workers.verifier.engine import VerifierEngine

__all__ = ["read_verifier"]


def read_verifier(engine: VerifierEngine, remote: RemoteProposer | None) -> Readings:
    """`remote`: what works with drafters, if anything does; without it their counters stay at 0."""
    load = engine.load
    return Readings(
        totals={**_totals(engine), **_drafters(ProposerCounters() if remote is None else remote.counters)},
        levels={
            "num_requests_running": engine.num_running,
            "num_requests_waiting": engine.num_waiting,
            "num_requests_speculating": engine.num_speculating,
            "request_seats": engine.max_running,
            "waiting_prompt_tokens": engine.num_waiting_tokens,
            "kv_cache_usage_perc": engine.kv_usage,
            "draft_links": _links(remote),
        },
        observed={
            "request_queue_time_seconds": load.queue_s.take(),
            "time_to_first_token_seconds": load.ttft_s.take(),
            "inter_token_latency_seconds": load.itl_s.take(),
        },
    )


def _totals(engine: VerifierEngine) -> dict[str, Number | ByLabel]:
    counted = engine.load.counters
    meters = engine.load.queue_s, engine.load.ttft_s, engine.load.itl_s
    return {
        "requests_arrived": counted.arrived,
        "requests_refused": counted.refused,
        "requests_ended": {str(reason): count for reason, count in counted.ended_by.items()},
        "num_preemptions": engine.num_preemptions,
        "generation_tokens": counted.output_tokens,
        "prefix_cache_queries": counted.prompt_tokens,
        "prefix_cache_hits": counted.cached_prompt_tokens,
        "engine_steps": counted.steps,
        "spec_decode_num_drafts": counted.trees,
        "spec_decode_num_draft_tokens": counted.verified_nodes,
        "spec_decode_num_accepted_tokens": counted.accepted,
        "spec_decode_num_drafts_per_pos": by_position(counted.trees_by_position),
        "spec_decode_num_accepted_tokens_per_pos": by_position(counted.accepted_by_position),
        "spec_decode_num_wanted_tokens": counted.demanded_nodes,
        "spec_decode_num_delivered_tokens": counted.delivered_nodes,
        "spec_decode_step_cost_steps": counted.costed_steps,
        "spec_decode_step_cost_predicted_seconds": counted.predicted_ms / 1e3,
        "spec_decode_step_cost_measured_seconds": counted.measured_ms / 1e3,
        "spec_decode_wait_seconds": counted.wait_ms / 1e3,
        "spec_decode_local_draft_seconds": counted.draft_ms / 1e3,
        "metrics_dropped_observations": sum(one.dropped for one in meters),
    }


def _drafters(counted: ProposerCounters) -> dict[str, Number]:
    return {
        "spec_decode_num_proposals": counted.proposals,
        "spec_decode_num_used_proposals": counted.used,
        "spec_decode_num_late_proposals": counted.late,
        "spec_decode_num_stale_proposals": counted.stale,
        "spec_decode_num_lost_proposals": counted.lost,
        "spec_decode_num_invalid_proposals": counted.invalid,
        "spec_decode_num_outdated_proposals": counted.outdated,
        "draft_sessions_opened": counted.sessions,
        "draft_session_reattachments": counted.reattachments,
        "draft_session_errors": counted.session_errors,
        "draft_streams_opened": counted.streams,
        "draft_stream_failures": counted.stream_failures,
        "draft_incompatible_drafters": counted.incompatible,
        "draft_silences": counted.silences,
    }


def by_position(counts: Sequence[int]) -> dict[str, int]:
    """As vLLM names them: position 0 is the first drafted token below the root."""
    return {str(position): count for position, count in enumerate(list(counts))}


def _links(remote: RemoteProposer | None) -> dict[str, int]:
    states = [] if remote is None else [link.state for link in remote.links()]
    return {state.value: states.count(state) for state in LinkState}
