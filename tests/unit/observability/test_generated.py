"""Dashboards, rules and the page for operators say nothing that is not exported."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import ray
import yaml

from cluster.observability.dashboards import DASHBOARDS
from cluster.observability.definitions import METRICS, metrics_of
from cluster.observability.generate import FOLDER, PAGE, dashboard_json, generated, metric_table, with_tables
from cluster.observability.metric import Kind
from cluster.observability.queries import per_second
from cluster.observability.rules import ALERTS, RECORDINGS

ROOT = Path(__file__).resolve().parents[3]
RAYS: dict[str, str] = yaml.safe_load((ROOT / FOLDER / "ray_metrics.yaml").read_text())
OURS = {name: metric for metric in METRICS for name in metric.series}
RECORDED = {one.name for one in RECORDINGS}
FROM_OUTSIDE = {"application", "deployment", "replica", "instance", "namespace"}  # Ray's, and Prometheus' of the target
PANELS = [(board.uid, panel) for board in DASHBOARDS for row in board.rows for panel in row.panels]
EXPRESSIONS = [
    *((one.name, one.expression) for one in RECORDINGS),
    *((one.name, one.expression) for one in ALERTS),
    *((f"{uid}: {panel.title}", expression) for uid, panel in PANELS for expression, _ in panel.targets),
]


def parsed(expression: str) -> Any:
    """Grafana's variables filled in."""
    return promql_parser.parse(expression.replace("$__rate_interval", "5m").replace("$application", ".*"))


def nodes(expression: Any) -> Iterator[Any]:
    yield expression
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        child = getattr(expression, name, None)
        if child is not None:
            yield from nodes(child)
    for child in getattr(expression, "args", ()):
        yield from nodes(child)


def selectors(expression: Any) -> list[Any]:
    return [one for one in nodes(expression) if isinstance(one, promql_parser.VectorSelector)]


def problems(expression: str) -> list[str]:
    """Names and labels that nobody exports."""
    found, known = [], set(FROM_OUTSIDE)
    tree = parsed(expression)
    for selector in selectors(tree):
        metric = OURS.get(selector.name)
        if metric is None and selector.name not in RAYS and selector.name not in RECORDED:
            found.append(selector.name)
        if metric is not None:
            known |= {metric.label} if metric.label else set()
            known |= {"le"} if metric.kind is Kind.HISTOGRAM else set()
    for selector in selectors(tree):
        found += [one.name for one in selector.matchers.matchers if one.name not in known]
    for node in nodes(tree):
        if isinstance(node, promql_parser.AggregateExpr):
            labels = node.modifier.labels if node.modifier is not None else []
            found += [label for label in labels if label not in known]
    return found


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
def test_every_expression_parses_and_stands_on_what_is_exported(where: str, expression: str) -> None:
    assert problems(expression) == []


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("sum(rate(ray_outrider_gateway_request_total[5m]))", "ray_outrider_gateway_request_total"),
        ("sum by (outcome) (ray_outrider_num_requests_running)", "outcome"),
        ('ray_outrider_num_requests_running{pod="x"}', "pod"),
        (
            "histogram_quantile(0.5, rate(ray_outrider_gateway_request_seconds[5m]))",
            "ray_outrider_gateway_request_seconds",
        ),
    ],
)
def test_the_check_finds_what_is_wrong(expression: str, wrong: str) -> None:
    assert problems(expression) == [wrong]


def test_an_expression_that_does_not_parse_is_found() -> None:
    with pytest.raises(ValueError, match="unclosed"):
        problems("sum by (application (x)")


def test_queries_take_names_of_the_table_only() -> None:
    with pytest.raises(ValueError, match="is no counter"):
        per_second("num_requests_running", "application")
    with pytest.raises(ValueError, match="is no counter"):
        per_second("spec_decode_drafts", "application")


def test_what_is_checked_in_is_what_the_generator_writes() -> None:
    stale = [str(path) for path, content in generated().items() if (ROOT / path).read_text() != content]
    assert stale == [], "run: python -m cluster.observability.generate"
    page = (ROOT / PAGE).read_text()
    assert with_tables(page) == page, "run: python -m cluster.observability.generate"
    others = {path.relative_to(ROOT) for path in (ROOT / FOLDER / "dashboards").iterdir()} - set(generated())
    assert others == set()


def test_a_page_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the lines"):
        with_tables("# Observability")


def test_the_kustomization_has_all_dashboards() -> None:
    kustomization = yaml.safe_load((ROOT / FOLDER / "kustomization.yaml").read_text())
    (config_map,) = kustomization["configMapGenerator"]
    written = {path.relative_to(FOLDER).as_posix() for path in generated()}
    assert set(config_map["files"]) == {name for name in written if name.startswith("dashboards/")}
    assert set(kustomization["resources"]) <= written


@pytest.mark.parametrize("name", RAYS)
def test_rays_own_metrics_are_rays(name: str) -> None:
    source = Path(ray.__file__).parent / RAYS[name]
    assert name in {selector.name for _, one in EXPRESSIONS for selector in selectors(parsed(one))}, "not used any more"
    assert re.search(rf'"{name.removeprefix("ray_").removesuffix("_total")}(_total)?"', source.read_text())


def test_every_metric_has_a_place_where_operators_see_it() -> None:
    shown = {selector.name for _, one in EXPRESSIONS for selector in selectors(parsed(one))}
    unseen = [one.name for one in METRICS if not shown & set(one.series)]
    assert set(unseen) <= DETAILS, "add it to a dashboard, or to the details"
    assert set(unseen) >= DETAILS, "it is on a dashboard now"


# For whoever looks closer; on no dashboard.
DETAILS = {
    "drafter_early_proposals",
    "drafter_expanded_nodes",
    "drafter_fed_tokens",
    "drafter_forwards",
    "drafter_proposals",
    "drafter_proposed_nodes",
    "drafter_session_failures",
    "drafter_sessions_closed",
    "drafter_sessions_opened",
    "drafter_stale_messages",
    "draft_incompatible_drafters",
    "draft_streams_opened",
    "requests_ended",
}


def test_names_are_unique_and_as_prometheus_wants_them() -> None:
    assert len({one.name for one in METRICS}) == len(METRICS)
    for one in METRICS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", one.name)
        assert not one.name.endswith("_total"), "Ray adds it"
        assert one.label not in FROM_OUTSIDE | {"le", "quantile"}
        assert (one.kind is Kind.HISTOGRAM) == bool(one.buckets)
        assert list(one.buckets) == sorted(set(one.buckets))
        assert all(bound > 0 for bound in one.buckets)
        assert one.help
        assert "|" not in one.help
        assert one.pools


def test_the_names_of_vllm() -> None:
    wanted = {
        f"ray_outrider_{name}"
        for name in (
            "spec_decode_num_drafts_total",
            "spec_decode_num_draft_tokens_total",
            "spec_decode_num_accepted_tokens_total",
            "spec_decode_num_accepted_tokens_per_pos_total",
            "num_requests_running",
            "num_requests_waiting",
            "kv_cache_usage_perc",
            "num_preemptions_total",
            "generation_tokens_total",
            "prefix_cache_queries_total",
            "prefix_cache_hits_total",
            "time_to_first_token_seconds",
            "inter_token_latency_seconds",
            "request_queue_time_seconds",
        )
    }
    assert wanted <= {one.exported for one in metrics_of("verifier")}


def test_the_table_of_the_page_has_them_all() -> None:
    table = metric_table()
    assert len(table.splitlines()) == len(METRICS) + 2
    assert all(one.exported in table for one in METRICS)


def test_every_alert_is_tried_out_and_explained() -> None:
    scenarios = (ROOT / FOLDER / "tests/rules_test.yaml").read_text()
    page = (ROOT / PAGE).read_text().lower()
    for alert in ALERTS:
        assert f'alertname="{alert.name}"' in scenarios, f"no scenario in which {alert.name} fires"
        assert re.search(rf"^##+ {alert.section}$", page, re.MULTILINE), f"no section {alert.section!r} on the page"
        assert alert.severity in ("critical", "warning", "info")


def test_panels_lie_side_by_side() -> None:
    for board in DASHBOARDS:
        places = [panel["gridPos"] for panel in dashboard_json(board)["panels"]]
        taken = {
            (x, y)
            for at in places
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert len(taken) == sum(at["w"] * at["h"] for at in places), "two panels overlap"
        assert all(at["x"] + at["w"] <= 24 for at in places)
