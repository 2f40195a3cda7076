"""Writes what follows from the tables: Grafana dashboards, Prometheus rules, and the operators' table of metrics.

python -m cluster.observability.generate            # in the root of the repository
"""

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cluster.observability.dashboards import DASHBOARDS, Dashboard, Panel
from cluster.observability.definitions import METRICS
from cluster.observability.rules import ALERTS, RECORDINGS, RUNBOOK

__all__ = ["FOLDER", "PAGE", "generated", "main", "alert_table", "metric_table", "with_tables"]

FOLDER = Path("deploy/k8s/monitoring")
PAGE = Path("docs/observability.md")
NOTE = "# Written by `python -m cluster.observability.generate`; change the tables in cluster/observability.\n"
COLUMNS, HEIGHT = 24, 8
_LABEL = re.compile(r"\{\{ \$(?:labels\.)?(\w+)[^}]*\}\}")
_NAMES = {"application": "(application)", "deployment": "(pool)", "value": "(value)"}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def generated() -> dict[Path, str]:
    """Contents by path, from the root of the repository; the page for operators is not among them."""
    groups = rule_groups()
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "outrider", "namespace": "outrider", "labels": {"app.kubernetes.io/part-of": "outrider"}},
        "spec": groups,
    }
    files = {FOLDER / "rules.yaml": NOTE + _yaml(groups), FOLDER / "prometheusrule.yaml": NOTE + _yaml(resource)}
    for dashboard in DASHBOARDS:
        name = dashboard.uid.removeprefix("outrider-")
        files[FOLDER / "dashboards" / f"{name}.json"] = json.dumps(dashboard_json(dashboard), indent=1) + "\n"
    return files


def rule_groups() -> dict[str, Any]:
    """As Prometheus reads them from a file."""
    recordings = [{"record": one.name, "expr": one.expression} for one in RECORDINGS]
    alerts = [
        {
            "alert": one.name,
            "expr": one.expression,
            "for": one.lasts,
            "labels": {"severity": one.severity},
            "annotations": {"summary": one.summary, "description": one.look, "runbook": f"{RUNBOOK}#{one.section}"},
        }
        for one in ALERTS
    ]
    return {
        "groups": [
            {"name": "outrider-recordings", "interval": "30s", "rules": recordings},
            {"name": "outrider-alerts", "rules": alerts},
        ]
    }


def dashboard_json(dashboard: Dashboard) -> dict[str, Any]:
    """As Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in dashboard.rows:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
        panels.append({"id": len(panels) + 1, "type": "row", "title": row.title, "gridPos": place, "panels": []})
        y += 1
        width = COLUMNS // min(len(row.panels), 3)
        for number, panel in enumerate(row.panels):
            across, down = number % (COLUMNS // width), number // (COLUMNS // width)
            place = {"h": HEIGHT, "w": width, "x": across * width, "y": y + down * HEIGHT}
            panels.append(_panel(panel, len(panels) + 1, place))
        y = panels[-1]["gridPos"]["y"] + HEIGHT
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "description": dashboard.words,
        "tags": ["outrider"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def metric_table() -> str:
    """Of the page for operators."""
    lines = ["| metric | kind, unit | exported by | what it is |", "|---|---|---|---|"]
    for one in METRICS:
        name = f"`{one.exported}{{{one.label}}}`" if one.label else f"`{one.exported}`"
        lines.append(f"| {name} | {one.kind}, {one.unit} | {', '.join(one.pools)} | {one.help} |")
    return "\n".join(lines)


def alert_table(section: str) -> str:
    """Of one section of that page."""
    lines = ["| alert | severity | what it says | where to look |", "|---|---|---|---|"]
    for one in ALERTS:
        if one.section == section:
            words = _LABEL.sub(lambda found: _NAMES[found[1]], one.summary)
            lines.append(f"| `{one.name}` | {one.severity} | {words} | {one.look} |")
    return "\n".join(lines)


def with_tables(page: str) -> str:
    """The page with its tables as they should be; `ValueError` without a place for each."""
    tables = {"metrics": metric_table(), **{one.section: alert_table(one.section) for one in ALERTS}}
    for name, table in tables.items():
        begin, end = f"<!-- table: {name} -->", f"<!-- end of table: {name} -->"
        before, found, rest = page.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise ValueError(f"{PAGE} needs the lines {begin} and {end}")
        page = f"{before}{begin}\n{table}\n{end}{after}"
    return page


def _panel(panel: Panel, number: int, place: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.words,
        "datasource": SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for at, (expression, legend) in enumerate(panel.targets)
        ],
    }


def _variables() -> list[dict[str, Any]]:
    application = f"label_values({METRICS[0].exported}, application)"
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        {
            "name": "application",
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": application, "refId": "application"},
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
            "refresh": 2,
        },
    ]


def _yaml(content: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(content), sort_keys=False, width=1000, allow_unicode=True)


def main() -> None:
    """Write all files that differ."""
    parser = argparse.ArgumentParser(description="Write dashboards, rules and the table of metrics.")
    parser.add_argument("--root", type=Path, default=Path(), help="root of the repository")
    root = parser.parse_args().root
    page = root / PAGE
    for path, content in {**generated(), PAGE: with_tables(page.read_text())}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)


if __name__ == "__main__":
    main()
