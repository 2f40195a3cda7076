"""Results for the eye: tables on the console, pictures in files."""

from pathlib import Path
from typing import Any

from rich.table import Table

from workers.core.figure import figure

__all__ = ["breakpoint_table", "comparison_table", "plot_comparison", "scale_table"]


def comparison_table(workload: str, reports: dict[str, dict[str, Any]]) -> Table:
    table = Table(title=workload)
    for column in (
        "policy",
        "hits",
        "TTFT p50 / p95 / p99 ms",
        "ITL p50 / p95 / p99 ms",
        "goodput /s",
        "in SLO",
        "refused",
        "busy",
        "busiest / mean",
    ):
        table.add_column(column)
    for policy, report in reports.items():
        table.add_row(
            policy,
            f"{report['hit_rate']:.1%}",
            _three(report["ttft_ms"]),
            _three(report["itl_ms"]),
            f"{report['goodput_per_s']:.1f}",
            f"{report['in_slo']:.1%}",
            str(report["refused"]),
            f"{report['utilisation']['busy']:.0%}",
            f"{report['utilisation']['most_to_mean_busy']:.2f}",
        )
    return table


def breakpoint_table(found: dict[str, dict[str, Any]]) -> Table:
    table = Table(title="Highest load within the SLO")
    for column in ("workload", "policy", "requests / s", "against round_robin"):
        table.add_column(column)
    for workload, by_policy in found.items():
        usual = by_policy.get("round_robin", {}).get("requests_per_s")
        for policy, one in by_policy.items():
            rate = one["requests_per_s"]
            table.add_row(workload, policy, f"{rate:.1f}", f"{rate / usual:.2f}x" if usual else "")
    return table


def scale_table(results: dict[str, dict[str, Any]]) -> Table:
    table = Table(title="After a step to three times the load")
    for column in (
        "model",
        "pool",
        "before",
        "at the end",
        "most",
        "turns",
        "settled after s",
        "overshoot",
        "converged",
    ):
        table.add_column(column)
    for name, result in results.items():
        for pool, one in result["pools"].items():
            table.add_row(
                name,
                pool,
                str(one["first"]),
                str(one["last"]),
                str(one["most"]),
                str(one["turns"]),
                f"{one['settled_s']:.0f}",
                f"{one['overshoot']:.0%}",
                "yes" if one["converged"] else "NO",
            )
    return table


def plot_comparison(results: dict[str, dict[str, dict[str, Any]]], path: Path) -> None:
    """Hit rate and TTFT p95 by workload and policy. Raises `ConfigurationError` where matplotlib is not installed."""
    workloads = list(results)
    policies = list(next(iter(results.values())))
    width = 0.8 / len(policies)
    with figure(path, 2, 1, size=(10, 7), share_x=True) as (hits, ttft):
        for index, policy in enumerate(policies):
            places = [place + index * width for place in range(len(workloads))]
            hits.bar(places, [100 * results[one][policy]["hit_rate"] for one in workloads], width, label=policy)
            ttft.bar(places, [results[one][policy]["ttft_ms"].get("p95", 0.0) for one in workloads], width)
        hits.set_ylabel("prefix hits, % of prompt tokens")
        hits.legend(fontsize=8)
        ttft.set_ylabel("TTFT p95, ms")
        ttft.set_yscale("log")
        ttft.set_xticks([place + 0.4 - width / 2 for place in range(len(workloads))], workloads)


def _three(values: dict[str, float]) -> str:
    return " / ".join(f"{value:.0f}" if value >= 100 else f"{value:.1f}" for value in values.values())
