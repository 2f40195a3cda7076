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
from typing import Any, Literal, get_args

from workers.core.errors import ConfigurationError

__all__ = ["KINDS", "Kind", "LoadPoint", "read_trace", "synthesize", "write_trace"]

Kind = Literal["diurnal", "ramp", "spike", "step"]
KINDS: tuple[str, ...] = get_args(Kind)
COLUMNS = ("time_s", "requests_per_s", "accepted_per_tree")
REQUIRED = COLUMNS[:2]
POINTS = 120  # of a synthetic curve
DAY_S = 86_400.0
MAX_S = 7 * DAY_S


@dataclass(frozen=True)
class LoadPoint:
    """The load from `time_s` on."""

    time_s: float
    requests_per_s: float
    accepted_per_tree: float | None = None


def read_trace(path: Path) -> list[LoadPoint]:
    """Raises `ConfigurationError` with file, line and what is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error
    rows = _json_rows(path, text) if text.lstrip().startswith("{") else _csv_rows(path, text)
    points: list[LoadPoint] = []
    for line, row in rows:
        point = _point(row, f"{path}, line {line}")
        if points and point.time_s <= points[-1].time_s:
            raise ConfigurationError(
                f"{path}, line {line}: time_s {point.time_s:g} does not lie behind {points[-1].time_s:g}"
            )
        points.append(point)
    if len(points) < 2:
        raise ConfigurationError(f"{path}: {len(points)} rows; a trace needs two at least, the last one is its end")
    if points[-1].time_s - points[0].time_s > MAX_S:
        raise ConfigurationError(f"{path}: longer than {MAX_S / DAY_S:g} days")
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


def _csv_rows(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(text.splitlines())
    header = [name.strip() for name in next(reader, [])]
    unknown = [name for name in header if name not in COLUMNS]
    missing = [name for name in REQUIRED if name not in header]
    if missing or unknown or len(set(header)) != len(header):
        raise ConfigurationError(
            f"{path}, line 1: the header is {','.join(header) or 'empty'}; needed: {', '.join(REQUIRED)}, "
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


def _json_rows(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise ConfigurationError(f"{path}, line {number}: is not JSON: {error}") from None
        if not isinstance(row, dict):
            raise ConfigurationError(f"{path}, line {number}: an object is needed")
        unknown = sorted(set(row) - set(COLUMNS))
        if unknown:
            raise ConfigurationError(f"{path}, line {number}: unknown key {unknown[0]}; allowed: {', '.join(COLUMNS)}")
        yield number, row


def _point(row: Mapping[str, Any], where: str) -> LoadPoint:
    values: dict[str, float] = {}
    for name in COLUMNS:
        if name not in row:
            if name in REQUIRED:
                raise ConfigurationError(f"{where}: {name} is missing")
            continue
        value = row[name]
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number) or number < 0:
            raise ConfigurationError(f"{where}: {name} is {value!r}; a number of at least 0 is needed")
        values[name] = number
    return LoadPoint(**values)
