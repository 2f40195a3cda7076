"""What the dashboards show. One panel a line: title, unit, what it means, its expressions with their legends."""

from dataclasses import dataclass

from cluster.observability.queries import average, growth, level, per_second, percentile, ratio

__all__ = ["DASHBOARDS", "Dashboard", "Panel", "Row"]

APP = 'application=~"$application"'
BY_POOL = "deployment"
REPLICA = "replica"

Target = tuple[str, str]  # expression, legend


@dataclass(frozen=True)
class Panel:
    title: str
    unit: str  # as Grafana names it
    words: str
    targets: tuple[Target, ...]


@dataclass(frozen=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    uid: str
    title: str
    words: str
    rows: tuple[Row, ...]


def _rate(name: str, by: str = "application", where: str = "") -> str:
    return per_second(name, by, ", ".join(filter(None, (APP, where))), "$__rate_interval")


def _level(name: str, by: str = "application", where: str = "", how: str = "sum") -> str:
    return level(name, by, ", ".join(filter(None, (APP, where))), how)


def _share(above: str, below: str, by: str = "application") -> str:
    return ratio(_rate(above, by), _rate(below, by))


def _percentiles(name: str, by: str = "application") -> tuple[Target, ...]:
    return tuple(
        (percentile(name, share, by, APP, "$__rate_interval"), f"p{round(100 * share)}") for share in (0.5, 0.95, 0.99)
    )


# fmt: off
SPECULATION = Dashboard("outrider-speculation", "Outrider: speculation", "Whether drafting pays, and what keeps it from paying", (
    Row("Does it pay", (
        Panel("Acceptance length", "none", "Tokens that a step with a tree brings. 1 = drafting gains nothing.", (("outrider:spec_decode_acceptance_length:ratio_rate5m{" + APP + "}", "{{application}}"),)),
        Panel("Acceptance by depth", "percentunit", "Of the trees that had a node at this depth, how many had an accepted one.", ((_share("spec_decode_num_accepted_tokens_per_pos", "spec_decode_num_drafts_per_pos", "position"), "depth {{position}}"),)),
        Panel("Tokens per second", "none", "Output, and how much of it was drafted.", ((_rate("generation_tokens"), "output"), (_rate("spec_decode_num_accepted_tokens"), "accepted drafts"))),
        Panel("Requests that speculate", "none", "Of the running ones. Mode auto drops drafting where it does not pay.", ((_level("num_requests_speculating"), "speculating"), (_level("num_requests_running"), "running"))),
    )),
    Row("Budget", (
        Panel("Nodes per second", "none", "What steps asked for, what was there in time, what was worth verifying, what was accepted.", ((_rate("spec_decode_num_wanted_tokens"), "wanted"), (_rate("spec_decode_num_delivered_tokens"), "delivered"), (_rate("spec_decode_num_draft_tokens"), "verified"), (_rate("spec_decode_num_accepted_tokens"), "accepted"))),
        Panel("Nodes per verified tree", "none", "The budget in use.", ((_share("spec_decode_num_draft_tokens", "spec_decode_num_drafts"), "{{application}}"),)),
        Panel("Step cost: measured over predicted", "none", "Near 1 when the budget controller knows what steps cost.", ((_share("spec_decode_step_cost_measured_seconds", "spec_decode_step_cost_predicted_seconds", REPLICA), "{{replica}}"),)),
        Panel("Step cost", "s", "Of steps without prompts.", ((_share("spec_decode_step_cost_measured_seconds", "spec_decode_step_cost_steps"), "measured"), (_share("spec_decode_step_cost_predicted_seconds", "spec_decode_step_cost_steps"), "predicted"))),
    )),
    Row("Lateness and loss", (
        Panel("Proposals by fate", "none", "Late ones can still be used in part; stale ones were for text that was not written.", tuple((_rate(f"spec_decode_num_{fate}_proposals"), fate) for fate in ("used", "late", "stale", "lost", "outdated", "invalid"))),
        Panel("Share of late proposals", "percentunit", "Above a half, drafters or the way to them are too slow.", (("outrider:spec_decode_late_proposals:ratio_rate5m{" + APP + "}", "{{application}}"),)),
        Panel("Time waited and drafted per step", "s", "What steps spend on waiting for drafters, or on drafting in the verifier itself.", ((_share("spec_decode_wait_seconds", "engine_steps"), "waiting"), (_share("spec_decode_local_draft_seconds", "engine_steps"), "drafting"))),
        Panel("Drafter links", "none", "Streams from verifiers to drafters, by state.", ((_level("draft_links", "state"), "{{state}}"),)),
        Panel("Sessions", "none", "Opened, moved to another drafter, given up by theirs.", ((_rate("draft_sessions_opened"), "opened"), (_rate("draft_session_reattachments"), "re-attached"), (_rate("draft_session_errors"), "given up"), (_rate("draft_stream_failures"), "streams broken"))),
    )),
    Row("Drafters", (
        Panel("Busy", "percentunit", "Share of the time that a drafter had something to do.", ((_rate("drafter_busy_seconds", REPLICA), "{{replica}}"),)),
        Panel("Commits that stayed in the tree", "percentunit", "Otherwise drafting began anew.", ((ratio(_rate("drafter_tree_hits"), f"({_rate('drafter_tree_hits')} + {_rate('drafter_tree_misses')})"), "{{application}}"),)),
        Panel("Sessions of seats", "percentunit", "At 1, new requests go without drafts.", ((ratio(_level("drafter_sessions", REPLICA), _level("drafter_session_seats", REPLICA)), "{{replica}}"),)),
        Panel("Backlog", "none", "Frames that wait for a drafter's engine.", ((_level("drafter_backlog_frames", REPLICA), "{{replica}}"),)),
    )),
))

ROUTING = Dashboard("outrider-routing", "Outrider: routing", "Who gets the requests, and whether they find their prefixes there", (
    Row("Hits", (
        Panel("Prefix hits", "percentunit", "Share of tokens that a pool found in its caches.", (("outrider:prefix_cache_hits:ratio_rate5m{" + APP + "}", "{{deployment}}"),)),
        Panel("Expected hits", "percentunit", "What gateways believed when they chose. Far above the real ones: their picture of the caches is old.", ((ratio(_rate("routing_expected_hit_tokens", "pool"), _rate("routing_prompt_tokens", "pool")), "{{pool}}"),)),
        Panel("Prefix hits by replica", "percentunit", "", ((_share("prefix_cache_hits", "prefix_cache_queries", REPLICA), "{{replica}}"),)),
    )),
    Row("Balance", (
        Panel("Running requests by verifier", "none", "", ((_level("num_requests_running", REPLICA), "{{replica}}"),)),
        Panel("Balance", "none", "The fullest verifier over the average one. 1 = even.", (("outrider:verifier_balance:max_over_avg{" + APP + "}", "{{application}}"),)),
        Panel("Arrivals by verifier", "none", "", ((_rate("requests_arrived", REPLICA), "{{replica}}"),)),
        Panel("Sessions by drafter", "none", "", ((_level("drafter_sessions", REPLICA), "{{replica}}"),)),
    )),
    Row("Choices", (
        Panel("Time of a choice", "s", "", _percentiles("routing_decision_seconds")),
        Panel("Choices per second", "none", "", ((_rate("routing_decisions", "pool"), "{{pool}}"),)),
        Panel("Replicas known to gateways", "none", "The least that any gateway knows of.", ((_level("routing_replicas", "pool", how="min"), "{{pool}}"),)),
        Panel("Answers that had to go on elsewhere", "none", "", ((_rate("gateway_lost_verifiers"), "{{application}}"),)),
    )),
))

POOLS = Dashboard("outrider-pools", "Outrider: pools", "Replicas, queues and memory", (
    Row("Replicas", (
        Panel("Healthy replicas", "none", "", (("sum by (deployment) (ray_serve_deployment_replica_healthy{" + APP + "})", "{{deployment}}"),)),
        Panel("Replicas that autoscaling wants", "none", "", (("max by (deployment) (ray_serve_autoscaling_target_replicas{" + APP + "})", "{{deployment}}"),)),
        Panel("Failed health checks", "none", "", (("sum by (deployment) (rate(ray_serve_health_check_failures_total{" + APP + "}[$__rate_interval]))", "{{deployment}}"),)),
    )),
    Row("Queue", (
        Panel("Requests at verifiers", "none", "", ((_level("num_requests_running"), "running"), (_level("num_requests_waiting"), "waiting"), (_level("request_seats"), "seats"))),
        Panel("Time in the queue", "s", "", _percentiles("request_queue_time_seconds")),
        Panel("Prompt tokens that wait for prefill", "none", "", ((_level("waiting_prompt_tokens", BY_POOL), "{{deployment}}"),)),
        Panel("Refused", "none", "Queue full, or a deadline out of reach.", ((_rate("requests_refused", REPLICA), "{{replica}}"),)),
    )),
    Row("K/V memory", (
        Panel("K/V blocks in use, fullest replica", "percentunit", "", ((_level("kv_cache_usage_perc", BY_POOL, how="max"), "{{deployment}}"),)),
        Panel("Preemptions", "none", "Requests that are computed again because memory was full.", ((_rate("num_preemptions", REPLICA), "{{replica}}"),)),
        Panel("Trees dropped by drafters", "none", "Because their memory was full.", ((_rate("drafter_pruned_trees", REPLICA), "{{replica}}"),)),
    )),
    Row("Nodes", (
        Panel("CPU", "percent", "", (("avg by (instance) (ray_node_cpu_utilization)", "{{instance}}"),)),
        Panel("Memory", "percentunit", "", (("max by (instance) (ray_node_mem_used / ray_node_mem_total)", "{{instance}}"),)),
        Panel("GPU", "percent", "", (("avg by (instance) (ray_node_gpus_utilization)", "{{instance}}"),)),
    )),
))

SLOS = Dashboard("outrider-slos", "Outrider: service levels", "What clients see", (
    Row("Requests", (
        Panel("Requests by outcome", "none", "", ((_rate("gateway_requests", "outcome"), "{{outcome}}"),)),
        Panel("Requests that failed", "percentunit", "By the service's fault.", (("outrider:gateway_errors:ratio_rate5m{" + APP + "}", "{{application}}"),)),
        Panel("Requests that were refused", "percentunit", "Full, or over a key's limit.", (("outrider:gateway_refusals:ratio_rate5m{" + APP + "}", "{{application}}"),)),
        Panel("Requests in progress", "none", "", ((_level("gateway_requests_running"), "{{application}}"),)),
        Panel("Answers by their end", "none", "", ((_rate("gateway_answers_ended", "reason"), "{{reason}}"),)),
        Panel("Failures in the last hour", "none", "", ((growth("gateway_requests", "outcome", APP + ', outcome!~"ok|client_gone"', "1h"), "{{outcome}}"),)),
    )),
    Row("Latency", (
        Panel("Time to first token", "s", "At the gateway: queue, prefill and everything else included.", _percentiles("gateway_time_to_first_token_seconds")),
        Panel("Time per token", "s", "At the verifiers: a step over the tokens that it brought.", _percentiles("inter_token_latency_seconds")),
        Panel("Time of a request", "s", "", (*_percentiles("gateway_request_seconds"), (average("gateway_request_seconds", "application", APP, "$__rate_interval"), "mean"))),
        Panel("Where first tokens wait", "s", "p95 at the verifier: in its queue, and from arrival to the first token.", ((percentile("request_queue_time_seconds", 0.95, "application", APP, "$__rate_interval"), "queue"), (percentile("time_to_first_token_seconds", 0.95, "application", APP, "$__rate_interval"), "first token"))),
    )),
    Row("Throughput", (
        Panel("Output tokens per second", "none", "", ((_rate("gateway_output_tokens"), "{{application}}"),)),
        Panel("Prompt tokens per second", "none", "", ((_rate("gateway_prompt_tokens"), "all"), (_rate("gateway_cached_prompt_tokens"), "found in caches"))),
    )),
))
# fmt: on

DASHBOARDS = (SPECULATION, ROUTING, POOLS, SLOS)
