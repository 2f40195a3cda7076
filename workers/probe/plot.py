"""The probe's picture: acceptance by depth on the left, speed-up by concurrent requests on the right."""

from pathlib import Path

from workers.core.figure import figure
from workers.probe.findings import Findings, Speed

__all__ = ["plot_findings"]


def plot_findings(findings: Findings, path: Path) -> None:
    with figure(path, 1, 2, size=(12, 5)) as (left, right):
        for acceptance in findings.acceptances:
            name = (
                f"{acceptance.proposer}, {acceptance.tree.nodes} nodes, T={acceptance.temperature:g}, {acceptance.rule}"
            )
            left.plot(range(1, len(acceptance.rates) + 1), acceptance.rates, marker="o", label=name)
        left.set_title(findings.target)
        left.set_xlabel("depth")
        left.set_ylabel("accepted, given that the parent was")
        left.set_ylim(0, 1)
        left.legend(fontsize=7)
        series: dict[tuple[str, int, float], list[Speed]] = {}
        for speed in findings.speeds:
            series.setdefault((speed.proposer, speed.tree.nodes, speed.temperature), []).append(speed)
        for (proposer, nodes, temperature), speeds in series.items():
            at = [speed.concurrency for speed in speeds]
            name = f"{proposer}, {nodes} nodes, T={temperature:g}"
            (line,) = right.plot(at, [speed.measured for speed in speeds], marker="o", label=name)
            right.plot(at, [speed.predicted for speed in speeds], linestyle=":", color=line.get_color())
        right.axhline(1.0, color="grey", linewidth=1)
        right.set_xscale("log", base=2)
        right.set_xlabel("concurrent requests (dotted: predicted)")
        right.set_ylabel("speed-up over plain decoding")
        right.legend(fontsize=7)
