"""Recording rules, and alerts whose words say what is wrong with a slow or sick cluster."""

from dataclasses import dataclass

from cluster.observability.queries import growth, level, per_second, percentile, ratio

__all__ = ["ALERTS", "RECORDINGS", "Alert", "Recording"]

# Two installations in one Prometheus are told apart by the namespace; without an operator there is no such label.
APP = "namespace, application"
POOL = f"{APP}, deployment"
OURS = 'outcome!~"ok|client_gone|invalid_argument|not_found|permission_denied|unauthenticated|resource_exhausted"'
RUNBOOK = "docs/observability.md"

# What is slow, and what pays: change it here, and generate anew.
FIRST_TOKEN_S = 2.5
TOKEN_S = 0.15
QUEUE_S = 1.0
ERRORS = 0.02
REFUSALS = 0.05


@dataclass(frozen=True)
class Recording:
    name: str
    expression: str


@dataclass(frozen=True)
class Alert:
    name: str
    expression: str
    lasts: str  # for how long it must hold
    severity: (
        str  # critical: clients get nothing; warning: they get less than they should; info: look when there is time
    )
    summary: str
    look: str  # what to look at, and what to do
    section: str  # of the page for operators


_RUNNING = {how: level("num_requests_running", APP, how=how) for how in ("sum", "max", "count")}
OF_THE_OTHERS = f"({_RUNNING['sum']} - {_RUNNING['max']}) / ({_RUNNING['count']} - 1)"  # NaN, so silent, for one alone
# While a cluster takes another's place both report.
WANTED = f"max by ({POOL}) (ray_serve_autoscaling_target_replicas)"
HEALTHY = f"sum by ({POOL}) (ray_serve_deployment_replica_healthy)"

RECORDINGS = (
    Recording(
        "outrider:spec_decode_acceptance:ratio_rate5m",
        ratio(per_second("spec_decode_num_accepted_tokens", APP), per_second("spec_decode_num_draft_tokens", APP)),
    ),
    Recording(
        "outrider:spec_decode_acceptance_length:ratio_rate5m",
        "1 + " + ratio(per_second("spec_decode_num_accepted_tokens", APP), per_second("spec_decode_num_drafts", APP)),
    ),
    Recording(
        "outrider:spec_decode_late_proposals:ratio_rate5m",
        ratio(per_second("spec_decode_num_late_proposals", APP), per_second("spec_decode_num_proposals", APP)),
    ),
    Recording(
        "outrider:spec_decode_step_cost:ratio_rate5m",
        ratio(
            per_second("spec_decode_step_cost_measured_seconds", APP),
            per_second("spec_decode_step_cost_predicted_seconds", APP),
        ),
    ),
    Recording(
        "outrider:prefix_cache_hits:ratio_rate5m",
        ratio(per_second("prefix_cache_hits", POOL), per_second("prefix_cache_queries", POOL)),
    ),
    Recording(
        "outrider:gateway_errors:ratio_rate5m",
        ratio(per_second("gateway_requests", APP, OURS), per_second("gateway_requests", APP)),
    ),
    Recording(
        "outrider:gateway_refusals:ratio_rate5m",
        ratio(per_second("gateway_requests", APP, 'outcome="resource_exhausted"'), per_second("gateway_requests", APP)),
    ),
    Recording(
        "outrider:gateway_time_to_first_token_seconds:p95_5m",
        percentile("gateway_time_to_first_token_seconds", 0.95, APP),
    ),
    Recording("outrider:inter_token_latency_seconds:p95_5m", percentile("inter_token_latency_seconds", 0.95, APP)),
    Recording("outrider:request_queue_time_seconds:p95_5m", percentile("request_queue_time_seconds", 0.95, APP)),
    Recording(
        "outrider:verifier_balance:max_over_avg",
        ratio(level("num_requests_running", APP, how="max"), level("num_requests_running", APP, how="avg")),
    ),
)

ALERTS = (
    Alert(
        "OutriderNoVerifier",
        level("routing_replicas", APP, 'pool="verifier"', how="max") + " == 0",
        "1m",
        "critical",
        "No verifier is alive: no request of {{ $labels.application }} is answered",
        "State and logs of the TargetVerifier replicas: they do not start, or their health checks fail.",
        "sick",
    ),
    Alert(
        "OutriderNoGateway",
        f'max by ({APP}) (ray_serve_autoscaling_target_replicas{{deployment="Gateway"}}) > 0 '
        f"unless on ({APP}) {level('routing_replicas', APP, how='max')}",
        "5m",
        "critical",
        "No gateway is alive: {{ $labels.application }} takes no request",
        "Pending pods of the ingress group, and state and logs of the Gateway replicas: they do not start.",
        "sick",
    ),
    Alert(
        "OutriderNothingReports",
        "absent(ray_outrider_routing_replicas)",
        "10m",
        "critical",
        "No gateway of any application reports: nothing is served, or nothing is scraped",
        "Pods of the namespace, the head first; then Prometheus' targets, and the label outrider/monitoring of its namespace.",
        "sick",
    ),
    Alert(
        "OutriderErrors",
        f"outrider:gateway_errors:ratio_rate5m > {ERRORS}",
        "5m",
        "critical",
        "{{ $value | humanizePercentage }} of the requests of {{ $labels.application }} fail, and not by their own fault",
        "Panel 'Requests by outcome': unavailable = no verifier left, internal = the logs of gateways and verifiers.",
        "sick",
    ),
    Alert(
        "OutriderVerifiersLost",
        growth("gateway_lost_verifiers", APP, window="5m") + " > 10",
        "2m",
        "warning",
        "Answers of {{ $labels.application }} lose their verifiers, or are turned away, and go on elsewhere",
        "Restarts of TargetVerifier replicas and nodes; full queues when OutriderRefusing fires as well.",
        "sick",
    ),
    Alert(
        "OutriderRefusing",
        f"outrider:gateway_refusals:ratio_rate5m > {REFUSALS}",
        "5m",
        "warning",
        "{{ $value | humanizePercentage }} of the requests of {{ $labels.application }} are refused: full, or over a key's limit",
        "The error's text names the limit. Queues full: more verifiers. A key's limit: that client.",
        "slow",
    ),
    Alert(
        "OutriderFirstTokenSlow",
        f"outrider:gateway_time_to_first_token_seconds:p95_5m > {FIRST_TOKEN_S}",
        "10m",
        "warning",
        "One in twenty first tokens of {{ $labels.application }} takes more than {{ $value | humanizeDuration }}",
        "Queue time (more verifiers), waiting prompt tokens (long prompts), prefix hits (routing), in this order.",
        "slow",
    ),
    Alert(
        "OutriderTokensSlow",
        f"outrider:inter_token_latency_seconds:p95_5m > {TOKEN_S}",
        "10m",
        "warning",
        "One in twenty tokens of {{ $labels.application }} takes more than {{ $value | humanizeDuration }}",
        "Requests running for each verifier, time waited for proposals, step cost against its prediction.",
        "slow",
    ),
    Alert(
        "OutriderQueueing",
        f"outrider:request_queue_time_seconds:p95_5m > {QUEUE_S}",
        "10m",
        "warning",
        "Requests of {{ $labels.application }} wait {{ $value | humanizeDuration }} for a place at a verifier",
        "All verifiers busy: more of them, or larger max_running_requests. One of them busy: OutriderUnbalanced.",
        "slow",
    ),
    Alert(
        "OutriderKvMemoryShort",
        per_second("num_preemptions", APP) + " > 0.1",
        "10m",
        "warning",
        "Verifiers of {{ $labels.application }} compute requests again because K/V memory is full",
        "kv_cache.num_blocks is too small for max_running_requests answers of this length.",
        "slow",
    ),
    Alert(
        "OutriderUnbalanced",
        f"{level('num_requests_running', APP, how='max')} > 2 * {OF_THE_OTHERS} and on ({APP}) "
        + level("num_requests_running", APP, how="avg")
        + " > 2",
        "10m",
        "warning",
        "One verifier of {{ $labels.application }} runs more than twice as many requests as the others on average",
        "outrider status --explain of a request: a session or a prefix that everybody shares; weights of gateway.routing.",
        "slow",
    ),
    Alert(
        "OutriderStepCostOff",
        "outrider:spec_decode_step_cost:ratio_rate5m > 1.5 or outrider:spec_decode_step_cost:ratio_rate5m < 0.67",
        "15m",
        "info",
        "Steps of {{ $labels.application }} take {{ $value | humanize }} times what the budget controller believes",
        "Something else uses the verifiers' devices, or their clocks change: budgets are wrong until it has learned.",
        "speculation",
    ),
    Alert(
        "OutriderDraftsDoNotPay",
        f"outrider:spec_decode_acceptance_length:ratio_rate5m < 1.2 and on ({APP}) "
        + per_second("spec_decode_num_drafts", APP)
        + " > 1",
        "30m",
        "info",
        "Verified trees of {{ $labels.application }} bring {{ $value | humanize }} tokens a step: hardly more than none would",
        "outrider probe with prompts of your own; a better draft, or method: none and the GPUs for verifiers.",
        "speculation",
    ),
    Alert(
        "OutriderDraftsLate",
        "outrider:spec_decode_late_proposals:ratio_rate5m > 0.5",
        "15m",
        "warning",
        "{{ $value | humanizePercentage }} of the proposals of {{ $labels.application }} come after the step they were for",
        "Drafters busy (more of them), their backlog, or the network between the pools.",
        "speculation",
    ),
    Alert(
        "OutriderDraftStreamsBreak",
        growth("draft_stream_failures", APP) + " > 5",
        "0m",
        "warning",
        "Streams from verifiers to drafters of {{ $labels.application }} keep breaking",
        "Restarts of DraftProposer replicas; the network; certificates and token of the internal plane.",
        "speculation",
    ),
    Alert(
        "OutriderDrafterSilent",
        growth("draft_silences", APP) + " > 0",
        "0m",
        "warning",
        "A drafter of {{ $labels.application }} gave no sign of life, and verifiers have stopped waiting for it",
        "The verifier's log names its address: a frozen process, or a network that loses everything.",
        "speculation",
    ),
    Alert(
        "OutriderProposalsInvalid",
        growth("spec_decode_num_invalid_proposals", APP) + " > 0",
        "0m",
        "warning",
        "A drafter of {{ $labels.application }} breaks the protocol; answers are not affected",
        "The verifier's log names its address. A drafter of others: its version; one of ours: report it.",
        "speculation",
    ),
    Alert(
        "OutriderDraftersFull",
        ratio(level("drafter_sessions", APP), level("drafter_session_seats", APP)) + " > 0.95",
        "10m",
        "warning",
        "Drafters of {{ $labels.application }} have no sessions left: more requests go on without drafts",
        "More drafters, or larger max_sessions where their K/V memory allows it.",
        "speculation",
    ),
    Alert(
        "OutriderDrafterMemoryShort",
        per_second("drafter_pruned_trees", APP) + " > 1",
        "10m",
        "info",
        "Drafters of {{ $labels.application }} drop trees because their K/V memory is full",
        "draft.config.kv_cache.num_blocks, or fewer max_sessions.",
        "speculation",
    ),
    Alert(
        "OutriderReplicasMissing",
        # The second half: a deployment that never had a healthy replica has no series of them.
        f"{WANTED} > on ({POOL}) {HEALTHY} or {WANTED} > 0 unless on ({POOL}) {HEALTHY}",
        "15m",
        "warning",
        "{{ $labels.deployment }} of {{ $labels.application }} has fewer healthy replicas than it should",
        "Pending pods (no room, no GPUs), replicas that fail to start: serve status and the controller's log.",
        "sick",
    ),
    Alert(
        "OutriderMetricsDropped",
        per_second("metrics_dropped_observations", POOL) + " > 0",
        "15m",
        "info",
        "More latencies in {{ $labels.deployment }} than are exported: their counts are too low, percentiles still hold",
        "Nothing to repair. More replicas make it go away.",
        "exporting",
    ),
)
