"""What a chaos run found: numbers, a table, a picture."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.chaos.load import RequestRecord
from benchmarks.chaos.run import Injected
from benchmarks.faults.comparison import Difference
from workers.core.figure import figure

__all__ = ["plot", "show", "summarize"]

BIN_S = 1.0
DIGITS = 2


def summarize(records: Sequence[RequestRecord], injected: Sequence[Injected], every_s: float) -> dict[str, Any]:
    """As JSON. `silence_s`: longest time without a token of a request that ran when the fault struck, per fault."""
    total = sum((record.difference for record in records), Difference())
    failures = Counter(record.error for record in records if record.error)
    return {
        "requests": len(records),
        "completed": sum(not record.error for record in records),
        "failed": sum(failures.values()),
        "failures": dict(failures.most_common()),
        "tokens": sum(count for record in records for _, count in record.deltas),
        "lost_tokens": total.lost,
        "repeated_tokens": total.repeated,
        "changed_tokens": total.changed,
        "different_texts": sum(record.text_differs for record in records),
        "resumed_requests": sum(record.attempts > 1 for record in records),
        "most_attempts": max((record.attempts for record in records), default=0),
        "faults": len(injected),
        "by_kind": _by_kind(records, injected, every_s),
        "timeline": [[round(one.at_s, DIGITS), one.kind] for one in injected],
    }


def _by_kind(
    records: Sequence[RequestRecord], injected: Sequence[Injected], every_s: float
) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for kind in sorted({one.kind for one in injected}):
        faults = [one for one in injected if one.kind == kind]
        silences = [_silence_s(records, one, every_s) for one in faults]
        whole = [one.whole_s - one.at_s for one in faults if one.whole_s is not None and not one.overtaken]
        found[kind] = {
            "count": len(faults),
            "silence_s": _p50_and_max(silences),
            "replicas_back_s": _p50_and_max(whole),
        }
    return found


def _silence_s(records: Sequence[RequestRecord], fault: Injected, every_s: float) -> float:
    running = [one for one in records if one.started_s < fault.at_s < (one.ended_s or float("inf"))]
    return max((one.longest_silence_s(fault.at_s, fault.at_s + every_s) for one in running), default=0.0)


def _p50_and_max(values: Sequence[float]) -> dict[str, float] | None:
    return {"p50": round(median(values), DIGITS), "max": round(max(values), DIGITS)} if values else None


def show(result: dict[str, Any], console: Console) -> None:
    table = Table(title=f"{result['faults']} faults, {result['requests']} requests, {result['tokens']} tokens")
    for name in ("fault", "times", "silence p50 s", "max", "replicas back p50 s", "max "):
        table.add_column(name, justify="left" if name == "fault" else "right")
    for kind, row in result["by_kind"].items():
        cells = [
            f"{value[key]:.1f}" if value else "-"
            for value in (row["silence_s"], row["replicas_back_s"])
            for key in ("p50", "max")
        ]
        table.add_row(kind, str(row["count"]), *cells)
    console.print(table)
    console.print(
        f"failed requests {result['failed']}, resumed {result['resumed_requests']}; tokens lost "
        f"{result['lost_tokens']}, repeated {result['repeated_tokens']}, changed {result['changed_tokens']}; "
        f"texts that differ {result['different_texts']}"
    )
    for error, count in result["failures"].items():
        console.print(f"  {count} x {error}", markup=False)


def plot(records: Sequence[RequestRecord], injected: Sequence[Injected], path: Path) -> None:
    """Tokens per second of all requests together, with the faults."""
    deltas = [delta for record in records for delta in record.deltas]
    bins = Counter[int]()
    for at, count in deltas:
        bins[int(at // BIN_S)] += count
    last = max(bins, default=0)
    with figure(path, size=(16, 6)) as axis:
        axis.plot([i * BIN_S for i in range(last + 1)], [bins[i] / BIN_S for i in range(last + 1)], linewidth=0.8)
        top = max(bins.values(), default=1) / BIN_S
        for one in injected:
            axis.axvline(one.at_s, color="tab:red", alpha=0.3, linewidth=0.8)
            axis.text(one.at_s, top * 1.02, one.kind, rotation=90, fontsize=6, va="bottom", ha="center")
        axis.set_ylim(0, top * 1.6)
        axis.set_xlabel("seconds")
        axis.set_ylabel("tokens per second, all requests together")
