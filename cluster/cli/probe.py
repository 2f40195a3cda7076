"""`outrider probe CONFIG`: is speculation worth it for these models and these prompts?"""

from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cluster.cli.output import BAD_INPUT, check_output, err_console, fail, friendly_errors, out_console
from cluster.config.yaml_file import read_settings
from cluster.progress import progress

if TYPE_CHECKING:
    from workers.probe.findings import Findings
    from workers.probe.verdict import Verdict

__all__ = ["probe"]


def probe(
    config: Annotated[Path, typer.Argument(help="YAML file: target, proposers, prompts")],
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all numbers here, with provenance")] = None,
    plot: Annotated[Path | None, typer.Option(help="Write a PNG here")] = None,
) -> None:
    """Measure acceptance, costs and speed-up of proposers on your prompts, and say whether speculation pays."""
    from workers.core.provenance import provenance, write_result
    from workers.probe.config import ProbeConfig
    from workers.probe.measure import probe as measure
    from workers.probe.plot import plot_findings
    from workers.probe.verdict import judge

    with friendly_errors():
        check_output(json_path, "--json")
        check_plot(plot)
        settings = read_settings(config, ProbeConfig)
        with progress(err_console(), "Probing") as report:
            findings = measure(settings, report)
        verdicts = judge(findings)
        if json_path is not None:
            result = {"findings": asdict(findings), "verdicts": [asdict(verdict) for verdict in verdicts]}
            write_result(json_path, result, provenance(config=settings.model_dump(mode="json")))
        if plot is not None:
            plot_findings(findings, plot)
        show(out_console(), findings, verdicts)


def check_plot(path: Path | None) -> None:
    """Fail where the picture could not be drawn or written."""
    check_output(path, "--plot")
    if path is not None and path.suffix != ".png":
        raise fail(f"--plot: the picture is a PNG; {path} does not end in .png", BAD_INPUT)
    if path is not None and find_spec("matplotlib") is None:
        raise fail("--plot needs matplotlib, which comes with the extra outrider-server[train]", BAD_INPUT)


def show(console: Console, findings: "Findings", verdicts: "list[Verdict]") -> None:
    console.print(_acceptance(findings))
    console.print(_speed(findings))
    for verdict in verdicts:
        word = "[green]worth it[/]" if verdict.worth_it else "[yellow]not worth it[/]"
        console.print(
            f"{escape(verdict.proposer)}, temperature {verdict.temperature:g}, {verdict.concurrency} at a time: {word} "
            f"({verdict.speedup:.2f}x with {verdict.tree}): {verdict.reason}",
            soft_wrap=True,
        )


def _acceptance(findings: "Findings") -> Table:
    table = Table(title=f"{escape(findings.target)}: acceptance over {findings.prompts} prompts")
    for column in ("proposer", "tree", "rule", "temperature", "acceptance length", "accepted at depth 1, 2, …"):
        table.add_column(column)
    for one in findings.acceptances:
        rates = "  ".join(f"{rate:.2f}" for rate in one.rates)
        table.add_row(escape(one.proposer), str(one.tree), one.rule, f"{one.temperature:g}", f"{one.length:.2f}", rates)
    return table


def _speed(findings: "Findings") -> Table:
    table = Table(title="Speed against plain decoding, same run")
    columns = (
        "proposer",
        "tree",
        "temperature",
        "requests",
        "off tok/s",
        "predicted",
        "always",
        "auto",
        "draft ms",
    )
    for column in columns:
        table.add_column(column)
    for one in findings.speeds:
        table.add_row(
            escape(one.proposer),
            str(one.tree),
            f"{one.temperature:g}",
            str(one.concurrency),
            f"{median(one.off_tokens_per_s):.1f}",
            f"{one.predicted:.2f}x",
            f"{one.measured:.2f}x",
            f"{one.auto:.2f}x",
            f"{findings.cost.draft_ms(one.proposer, one.tree, one.concurrency):.1f}",
        )
    return table
