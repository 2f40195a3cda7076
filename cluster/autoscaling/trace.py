"""Load over time: files, and a few shapes to try.

A trace is CSV with a header, or JSON lines, one row for each moment at which the load changes:

time_s              seconds from the start, ascending
requests_per_s      new requests per second from then on
accepted_per_tree   optional: draft tokens that are accepted per verified tree from then on

The last row is the end.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from cluster.config.text_file import name_of, read_text
from workers.core.errors import ConfigurationError
from workers.core.shown import printable, shown

if TYPE_CHECKING:
    import _csv

__all__ = ["KINDS", "MAX_RATE", "Kind", "LoadPoint", "read_trace", "synthesize", "write_trace"]

Kind = Literal["diurnal", "ramp", "spike", "step"]
KINDS: tuple[str, ...] = get_args(Kind)
MAX_RATE = 1e6  # requests per second
LARGEST = {"time_s": 1e12, "requests_per_s": MAX_RATE, "accepted_per_tree": 64.0}
COLUMNS = tuple(LARGEST)
REQUIRED = COLUMNS[:2]
POINTS = 120  # of a synthetic curve
DAY_S = 86_400.0
MAX_S = 7 * DAY_S
MAX_ROWS = 100_000
MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class LoadPoint:
    """The load from `time_s` on."""

    time_s: float
    requests_per_s: float
    accepted_per_tree: float | None = None


def read_trace(path: Path) -> list[LoadPoint]:
    """Raises `ConfigurationError` with file, line and what is wrong."""
    text, name = read_text(path, MAX_BYTES), name_of(path)
    rows = _json_rows(name, text) if text.lstrip().startswith("{") else _csv_rows(name, text)
    points: list[LoadPoint] = []
    for line, row in rows:
        point = _point(row, f"{name}, line {line}")
        if points and point.time_s <= points[-1].time_s:
            raise ConfigurationError(
                f"{name}, line {line}: time_s {point.time_s:g} does not lie behind {points[-1].time_s:g}"
            )
        if len(points) == MAX_ROWS:
            raise ConfigurationError(f"{name}, line {line}: a trace has at most {MAX_ROWS} rows")
        points.append(point)
    if len(points) < 2:
        raise ConfigurationError(f"{name}: {len(points)} rows; a trace needs two at least, the last one is its end")
    if points[-1].time_s - points[0].time_s > MAX_S:
        raise ConfigurationError(f"{name}: longer than {MAX_S / DAY_S:g} days")
    return points


def write_trace(points: Sequence[LoadPoint], path: Path) -> None:
    """As CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(REQUIRED)
        for point in points:
            writer.writerow((f"{point.time_s:g}", f"{point.requests_per_s:g}"))


def synthesize(kind: Kind, *, base: float, peak: float, duration_s: float) -> list[LoadPoint]:
    """From `base` to `peak` requests per second and, but for `ramp` and `step`, back.

    step: at a tenth of the time. ramp: from one to two fifths. spike: for a tenth, in the middle. diurnal: one sine.
    """
    if kind == "step":
        return [LoadPoint(0.0, base), LoadPoint(duration_s / 10, peak), LoadPoint(duration_s, peak)]
    if kind == "spike":
        times = ((0.0, base), (0.45, peak), (0.55, base), (1.0, base))
        return [LoadPoint(share * duration_s, rate) for share, rate in times]
    points = []
    for index in range(POINTS + 1):
        share = index / POINTS
        wave = (1 - math.cos(2 * math.pi * share)) / 2
        height = min(1.0, max(0.0, 5 * share - 1)) if kind == "ramp" else wave
        points.append(LoadPoint(share * duration_s, base + (peak - base) * height))
    return points


def _csv_rows(path: str, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(text.splitlines())
    try:
        yield from _table(path, reader)
    except csv.Error as error:
        raise ConfigurationError(f"{path}, line {reader.line_num}: is not CSV: {error}") from None


def _table(path: str, reader: "_csv.Reader") -> Iterator[tuple[int, Mapping[str, Any]]]:
    header = [name.strip() for name in next(reader, [])]
    unknown = [name for name in header if name not in COLUMNS]
    missing = [name for name in REQUIRED if name not in header]
    if missing or unknown or len(set(header)) != len(header):
        raise ConfigurationError(
            f"{path}, line 1: the header is {printable(','.join(header)) or 'empty'}; needed: {', '.join(REQUIRED)}, "
            f"allowed: {', '.join(COLUMNS[2:])}, each once"
        )
    for values in reader:
        if not values:
            continue
        if len(values) != len(header):
            raise ConfigurationError(
                f"{path}, line {reader.line_num}: {len(values)} values for the {len(header)} columns of the header"
            )
        filled = {name: value for name, value in zip(header, values, strict=True) if value.strip()}
        yield reader.line_num, filled


def _json_rows(path: str, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):  # JSON may hold other line breaks
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_each_once)
        except RecursionError:
            raise ConfigurationError(f"{path}, line {number}: is not JSON: it is nested too deeply") from None
        except ValueError as error:
            raise ConfigurationError(f"{path}, line {number}: is not JSON: {printable(str(error))}") from None
        if not isinstance(row, dict):
            raise ConfigurationError(f"{path}, line {number}: an object is needed")
        unknown = sorted(set(row) - set(COLUMNS))
        if unknown:
            raise ConfigurationError(
                f"{path}, line {number}: unknown key {printable(unknown[0])}; allowed: {', '.join(COLUMNS)}"
            )
        yield number, row


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ValueError("a key is given twice")
    return row


def _point(row: Mapping[str, Any], where: str) -> LoadPoint:
    values: dict[str, float] = {}
    for name in COLUMNS:
        if name not in row:
            if name in REQUIRED:
                raise ConfigurationError(f"{where}: {name} is missing")
            continue
        values[name] = _number(row[name], LARGEST[name], f"{where}: {name}")
    return LoadPoint(**values)


def _number(value: object, largest: float, what: str) -> float:
    """Texts too: CSV has nothing else."""
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float | str) else float(value)
    except ValueError:
        number = math.nan
    except OverflowError:
        number = math.inf
    if math.isnan(number) or number < 0:
        raise ConfigurationError(f"{what} is {shown(value)}; a number of at least 0 is needed")
    if number > largest:
        raise ConfigurationError(f"{what} is {shown(value)}; at most {largest:g} is allowed")
    return number
