"""What Ray exports of the running application: everything in the table of metrics, with the numbers of the answers."""

import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from outrider import Client, Generation, InvalidRequestError, Speculation
from prometheus_client.parser import text_string_to_metric_families

from cluster.observability.definitions import METRICS, metrics_of
from cluster.observability.metric import Kind
from tests.integration.cluster.processes import wait_until

SETTLED_S = 5.0  # several times what Ray, told so in conftest.py, takes to export
DEPLOYMENTS = {"gateway": "Gateway", "verifier": "TargetVerifier", "drafter": "DraftProposer"}
PROMPT = list(range(5, 70))

Series = tuple[str, tuple[tuple[str, str], ...]]


def scrape() -> dict[Series, float]:
    """All series of ours on all nodes, as Prometheus would see them."""
    import ray

    found: dict[Series, float] = {}
    for node in ray.nodes():
        if not node["Alive"]:
            continue
        url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            text = answer.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.startswith("ray_outrider_") and sample.labels.get("application") == "outrider":
                    found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def settled() -> dict[Series, float]:
    """Once the counters stand still."""
    moving = {one.exported for one in METRICS if one.kind is Kind.COUNTER} - {
        "ray_outrider_drafter_busy_seconds_total"  # preparing noise is work too
    }

    def counters() -> dict[Series, float]:
        return {key: value for key, value in scrape().items() if key[0] in moving}

    last, since = counters(), time.monotonic()

    def still() -> bool:
        nonlocal last, since
        now = counters()
        if now != last:
            last, since = now, time.monotonic()
        return time.monotonic() - since > SETTLED_S

    wait_until(still, timeout_s=90.0, period_s=0.5)
    return scrape()


class Growth:
    """By how much series have grown, from one scrape to another."""

    def __init__(self, before: dict[Series, float], after: dict[Series, float]) -> None:
        self._grown = {key: value - before.get(key, 0.0) for key, value in after.items()}

    def __call__(self, name: str, **labels: str) -> float:
        wanted = labels.items()
        return sum(grown for (one, have), grown in self._grown.items() if one == name and wanted <= set(have))


@pytest.fixture(scope="module")
def measured(address: str) -> tuple[list[Generation], Growth, dict[Series, float]]:
    """Answers, one refusal, and what all of it did to the metrics."""
    with Client(address, timeout=60.0) as client:
        client.generate(token_ids=PROMPT, max_tokens=8, speculation=Speculation.on())  # the stream to the drafter is up
        before = settled()
        ask: Callable[..., Generation] = client.generate
        results = [
            ask(
                token_ids=PROMPT,
                max_tokens=32,
                temperature=temperature,
                seed=seed,
                ignore_eos=True,
                request_id=f"metrics-{seed}",
                cache_salt="metrics",
                speculation=speculation,
            )
            for seed, (temperature, speculation) in enumerate(
                [(0.0, Speculation.on()), (0.7, Speculation.on()), (0.0, Speculation.off())]
            )
        ]
        with pytest.raises(InvalidRequestError):
            client.generate(token_ids=PROMPT, temperature=-1.0)
    after = settled()
    return results, Growth(before, after), after


def total(results: Sequence[Generation], field: str) -> int:
    return sum(getattr(one.stats, field) for one in results)


def test_speculation_adds_up(measured: tuple[list[Generation], Growth, dict[Series, float]]) -> None:
    results, grown, _ = measured
    spec = "ray_outrider_spec_decode_num_"
    assert grown(spec + "draft_tokens_total") == total(results, "drafted_tokens") > 0
    assert grown(spec + "accepted_tokens_total") == total(results, "accepted_tokens") > 0
    assert grown(spec + "drafts_total") == total(results, "verify_steps") - total(results, "plain_steps")
    for name, field in (("drafts", "drafted_per_depth"), ("accepted_tokens", "accepted_per_depth")):
        summed: Counter[int] = Counter()
        for one in results:
            summed.update(dict(enumerate(getattr(one.stats, field))))
        for depth, count in summed.items():
            assert grown(f"{spec}{name}_per_pos_total", position=str(depth)) == count
    verified, delivered = grown(spec + "draft_tokens_total"), grown(spec + "delivered_tokens_total")
    assert grown(spec + "accepted_tokens_total") <= verified <= delivered <= grown(spec + "wanted_tokens_total")
    assert 0 < grown(spec + "used_proposals_total") <= grown(spec + "proposals_total")
    assert grown(spec + "proposals_total") <= grown("ray_outrider_drafter_proposals_total")
    assert grown("ray_outrider_draft_sessions_opened_total") == grown("ray_outrider_drafter_sessions_opened_total") == 2


def test_requests_add_up(measured: tuple[list[Generation], Growth, dict[Series, float]]) -> None:
    results, grown, after = measured
    count, output = len(results), total(results, "output_tokens")
    assert grown("ray_outrider_gateway_requests_total", outcome="ok") == count
    assert grown("ray_outrider_gateway_requests_total", outcome="invalid_argument") == 1
    assert grown("ray_outrider_gateway_requests_total") == count + 1
    assert grown("ray_outrider_gateway_output_tokens_total") == output == 32 * count
    assert grown("ray_outrider_generation_tokens_total") == output
    assert grown("ray_outrider_requests_ended_total", reason="length") == count
    assert grown("ray_outrider_requests_arrived_total") == count
    cached = total(results, "cached_prompt_tokens")
    assert grown("ray_outrider_prefix_cache_hits_total", deployment="TargetVerifier") == cached > 0
    assert grown("ray_outrider_prefix_cache_queries_total", deployment="TargetVerifier") == count * len(PROMPT)
    assert grown("ray_outrider_routing_decisions_total", pool="verifier") == count
    assert grown("ray_outrider_routing_expected_hit_tokens_total", pool="verifier") == cached
    for name in ("gateway_time_to_first_token_seconds", "time_to_first_token_seconds", "request_queue_time_seconds"):
        assert grown(f"ray_outrider_{name}_count") == count
    assert grown("ray_outrider_inter_token_latency_seconds_count") > 0
    level = {name: value for (name, _), value in after.items()}
    assert level["ray_outrider_num_requests_running"] == level["ray_outrider_gateway_requests_running"] == 0
    assert level["ray_outrider_request_seats"] > 0


def test_every_metric_of_the_table_is_there(
    measured: tuple[list[Generation], Growth, dict[Series, float]],
) -> None:
    """Counters also while they are 0, so that their first rise is seen; histograms once there is something in them."""
    _, _, after = measured
    there = {(name, dict(labels)["deployment"]) for name, labels in after}
    for pool, deployment in DEPLOYMENTS.items():
        for metric in metrics_of(pool):  # type: ignore[arg-type]
            assert {(name, deployment) for name in metric.series} <= there, metric.name
    known = {name for metric in METRICS for name in metric.series}
    assert {name for name, _ in there} <= known, "exported, and not in the table"


def test_the_gateways_log_has_a_line_of_json_for_each(
    measured: tuple[list[Generation], Growth, dict[Series, float]],
) -> None:
    import ray

    folder = Path(ray._private.worker._global_node.get_session_dir_path()) / "logs/serve"
    lines = [
        json.loads(line)
        for path in folder.glob("replica_outrider_Gateway_*.log")
        for line in path.read_text().splitlines()
        if '"outrider_request_id": "metrics-' in line
    ]
    assert {one["outrider_request_id"] for one in lines} == {"metrics-0", "metrics-1", "metrics-2"}
    for one in lines:
        assert (one["outcome"], one["output_tokens"], one["tenant"]) == ("ok", 32, "tests")
        assert (one["deployment"], one["application"], one["levelname"]) == ("outrider_Gateway", "outrider", "INFO")
