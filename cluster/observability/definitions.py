"""The table of all metrics. Counters are never divided by anything before they are exported; names follow vLLM's."""

from cluster.observability.metric import Kind, Metric, Pool

__all__ = ["METRICS", "metrics_of"]

GATEWAY: tuple[Pool, ...] = ("gateway",)
VERIFIER: tuple[Pool, ...] = ("verifier",)
DRAFTER: tuple[Pool, ...] = ("drafter",)
ENGINES: tuple[Pool, ...] = ("verifier", "drafter")

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
DECISION_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1)


def _counter(name: str, unit: str, pools: tuple[Pool, ...], words: str, label: str = "") -> Metric:
    return Metric(name, Kind.COUNTER, unit, pools, words, label)


def _gauge(name: str, unit: str, pools: tuple[Pool, ...], words: str, label: str = "") -> Metric:
    return Metric(name, Kind.GAUGE, unit, pools, words, label)


def _histogram(name: str, pools: tuple[Pool, ...], buckets: tuple[float, ...], words: str, label: str = "") -> Metric:
    return Metric(name, Kind.HISTOGRAM, "seconds", pools, words, label, buckets)


# fmt: off
_GATEWAY = (
    _counter("gateway_requests", "requests", GATEWAY, "Requests by how they ended: ok, client_gone, or the code of the error", "outcome"),
    _counter("gateway_answers_ended", "answers", GATEWAY, "Answers that came to an end, by its reason", "reason"),
    _counter("gateway_prompt_tokens", "tokens", GATEWAY, "Tokens of the prompts of admitted requests"),
    _counter("gateway_output_tokens", "tokens", GATEWAY, "Tokens sent to clients"),
    _counter("gateway_cached_prompt_tokens", "tokens", GATEWAY, "Prompt tokens that answers found in their verifier's cache"),
    _counter("gateway_lost_verifiers", "attempts", GATEWAY, "Attempts of answers that lost their verifier, or were turned away by it, and had to go on elsewhere"),
    _counter("routing_decisions", "choices", GATEWAY, "Choices of a replica, by pool", "pool"),
    _counter("routing_prompt_tokens", "tokens", GATEWAY, "Tokens that the chosen replicas got, by pool", "pool"),
    _counter("routing_expected_hit_tokens", "tokens", GATEWAY, "Of these, tokens in blocks that the chosen replica was believed to hold", "pool"),
    _gauge("gateway_requests_running", "requests", GATEWAY, "Requests in progress"),
    _gauge("routing_replicas", "replicas", GATEWAY, "Replicas that this gateway knows of, by pool", "pool"),
    _histogram("gateway_time_to_first_token_seconds", GATEWAY, SECONDS, "From the request to its first token, as the gateway sees it"),
    _histogram("gateway_request_seconds", GATEWAY, SECONDS, "From the request to its end, however it ended"),
    _histogram("routing_decision_seconds", GATEWAY, DECISION_SECONDS, "What one choice of a replica took", "pool"),
)

_REQUESTS = (
    _counter("requests_arrived", "requests", VERIFIER, "Answers that were submitted and taken"),
    _counter("requests_refused", "requests", VERIFIER, "Answers that were refused: the queue was full, or their deadline out of reach"),
    _counter("requests_ended", "requests", VERIFIER, "Answers that ended: stop, length, cancelled, deadline or error", "reason"),
    _counter("num_preemptions", "preemptions", VERIFIER, "Running requests that gave their K/V blocks to others and are computed again"),
    _counter("generation_tokens", "tokens", VERIFIER, "Committed output tokens"),
    _counter("prefix_cache_queries", "tokens", ENGINES, "Tokens that were looked up in the prefix cache: of requests admitted first, of sessions opened"),
    _counter("prefix_cache_hits", "tokens", ENGINES, "Of these, tokens that were found"),
    _counter("engine_steps", "steps", VERIFIER, "Forward passes of the target model"),
    _gauge("num_requests_running", "requests", VERIFIER, "Requests that hold K/V blocks"),
    _gauge("num_requests_waiting", "requests", VERIFIER, "Requests in the queue"),
    _gauge("num_requests_speculating", "requests", VERIFIER, "Requests that drafts are wanted for now"),
    _gauge("request_seats", "requests", VERIFIER, "max_running_requests"),
    _gauge("waiting_prompt_tokens", "tokens", ENGINES, "Committed tokens that a prefill is still to compute"),
    _gauge("kv_cache_usage_perc", "share (0 to 1)", ENGINES, "Share of the K/V blocks that is in use"),
    _histogram("request_queue_time_seconds", VERIFIER, SECONDS, "From arrival to the first step"),
    _histogram("time_to_first_token_seconds", VERIFIER, SECONDS, "From arrival at the verifier to the first token"),
    _histogram("inter_token_latency_seconds", VERIFIER, TOKEN_SECONDS, "Time of a step over the tokens that a request got from it"),
)

_SPECULATION = (
    _counter("spec_decode_num_drafts", "trees", VERIFIER, "Token trees that were verified"),
    _counter("spec_decode_num_draft_tokens", "tokens", VERIFIER, "Nodes of these trees"),
    _counter("spec_decode_num_accepted_tokens", "tokens", VERIFIER, "Of these, accepted"),
    _counter("spec_decode_num_drafts_per_pos", "trees", VERIFIER, "Verified trees with a node at this depth; position 0 is the first below the root", "position"),
    _counter("spec_decode_num_accepted_tokens_per_pos", "tokens", VERIFIER, "Accepted tokens at this depth", "position"),
    _counter("spec_decode_num_wanted_tokens", "tokens", VERIFIER, "Draft nodes that steps asked for: the budget"),
    _counter("spec_decode_num_delivered_tokens", "tokens", VERIFIER, "Draft nodes that were there in time; not all of them are worth verifying"),
    _counter("spec_decode_step_cost_steps", "steps", VERIFIER, "Steps without prompts, which the cost model is about"),
    _counter("spec_decode_step_cost_predicted_seconds", "seconds", VERIFIER, "What these steps were expected to take"),
    _counter("spec_decode_step_cost_measured_seconds", "seconds", VERIFIER, "What they took, without waiting and drafting"),
    _counter("spec_decode_wait_seconds", "seconds", VERIFIER, "Time that steps waited for proposals"),
    _counter("spec_decode_local_draft_seconds", "seconds", VERIFIER, "Time that steps drafted in the verifier itself (heads, early exits, prompt lookup)"),
    _counter("spec_decode_num_proposals", "proposals", VERIFIER, "Proposals that came for open sessions"),
    _counter("spec_decode_num_used_proposals", "proposals", VERIFIER, "Of these, handed to a step"),
    _counter("spec_decode_num_late_proposals", "proposals", VERIFIER, "Of these, late: their base had been extended; some could still be used"),
    _counter("spec_decode_num_stale_proposals", "proposals", VERIFIER, "Of these, dropped: the committed tokens had left their tree"),
    _counter("spec_decode_num_lost_proposals", "proposals", VERIFIER, "Awaited when their stream broke or their session ended"),
    _counter("spec_decode_num_invalid_proposals", "proposals", VERIFIER, "Proposals that broke the rules of the protocol"),
    _counter("spec_decode_num_outdated_proposals", "proposals", VERIFIER, "Messages of a closed session, an older epoch or an older stream"),
    _counter("draft_sessions_opened", "sessions", VERIFIER, "Sessions opened at drafters"),
    _counter("draft_session_reattachments", "sessions", VERIFIER, "Of these, not the first of their request: it changed drafters or came back"),
    _counter("draft_session_errors", "sessions", VERIFIER, "Sessions that a drafter gave up"),
    _counter("draft_streams_opened", "streams", VERIFIER, "Streams to drafters that got a welcome"),
    _counter("draft_stream_failures", "streams", VERIFIER, "Streams to drafters that ended or did not come up"),
    _counter("draft_incompatible_drafters", "streams", VERIFIER, "Drafters that were refused: their model or protocol does not fit"),
    _counter("draft_silences", "drafters", VERIFIER, "Times that a drafter fell silent, so that its requests leave it when there is another"),
    _gauge("draft_links", "drafters", VERIFIER, "Drafters that it knows, by the state of their stream", "state"),
)

_DRAFTER = (
    _counter("drafter_forwards", "forwards", DRAFTER, "Forward passes of the draft model"),
    _counter("drafter_fed_tokens", "tokens", DRAFTER, "Committed tokens that were computed"),
    _counter("drafter_expanded_nodes", "nodes", DRAFTER, "Tree nodes that were computed"),
    _counter("drafter_proposals", "proposals", DRAFTER, "Proposals that were sent"),
    _counter("drafter_proposed_nodes", "nodes", DRAFTER, "Nodes in them"),
    _counter("drafter_early_proposals", "proposals", DRAFTER, "Of these, sent from what survived a commit, without a forward"),
    _counter("drafter_tree_hits", "commits", DRAFTER, "Commits whose new root was a node of the tree"),
    _counter("drafter_tree_misses", "commits", DRAFTER, "Commits that left the tree: drafting began anew"),
    _counter("drafter_sessions_opened", "sessions", DRAFTER, "Sessions that were opened"),
    _counter("drafter_sessions_closed", "sessions", DRAFTER, "Sessions that have ended"),
    _counter("drafter_session_failures", "messages", DRAFTER, "Sessions and messages that were refused"),
    _counter("drafter_stale_messages", "messages", DRAFTER, "Messages of another epoch or of no session"),
    _counter("drafter_pruned_trees", "trees", DRAFTER, "Trees that gave way to others: K/V memory was full"),
    _counter("drafter_busy_seconds", "seconds", DRAFTER, "Time spent on iterations that had something to do"),
    _gauge("drafter_sessions", "sessions", DRAFTER, "Open sessions"),
    _gauge("drafter_session_seats", "sessions", DRAFTER, "max_sessions"),
    _gauge("drafter_backlog_frames", "frames", DRAFTER, "Frames that wait for the engine"),
)

_EXPORT = (
    _counter("metrics_dropped_observations", "observations", ("gateway", "verifier"), "Observations beyond what histograms take in a second: their counts are too low, their shape is right"),
)
# fmt: on

METRICS = (*_GATEWAY, *_REQUESTS, *_SPECULATION, *_DRAFTER, *_EXPORT)


def metrics_of(pool: Pool) -> tuple[Metric, ...]:
    """What a replica of this pool exports."""
    return tuple(metric for metric in METRICS if pool in metric.pools)
