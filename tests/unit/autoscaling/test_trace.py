"""Files of loads: both formats, and what each mistake is told."""

from pathlib import Path

import pytest

from cluster.autoscaling.trace import LoadPoint, read_trace, synthesize, write_trace
from workers.core.errors import ConfigurationError
from workers.core.shown import shown

CSV = "time_s,requests_per_s,accepted_per_tree\n0,2,1.5\n60.5,4,\n\n120,1,0\n"
JSON = '{"time_s": 0, "requests_per_s": 2, "accepted_per_tree": 1.5}\n\n{"time_s": 60.5, "requests_per_s": 4}\n'
POINTS = [LoadPoint(0.0, 2.0, 1.5), LoadPoint(60.5, 4.0, None), LoadPoint(120.0, 1.0, 0.0)]


def read(tmp_path: Path, text: str) -> list[LoadPoint]:
    path = tmp_path / "trace"
    path.write_text(text)
    return read_trace(path)


def test_both_formats(tmp_path: Path) -> None:
    assert read(tmp_path, CSV) == POINTS
    assert read(tmp_path, JSON) == POINTS[:2]


def test_what_is_written_can_be_read(tmp_path: Path) -> None:
    points = synthesize("step", base=1.0, peak=3.0, duration_s=600.0)
    write_trace(points, tmp_path / "load.csv")
    assert read_trace(tmp_path / "load.csv") == points


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"line 1: the header is empty; needed: time_s, requests_per_s"),
        ("time_s,load\n0,1\n", r"line 1: the header is time_s,load"),
        ("time_s,requests_per_s,time_s\n0,1,0\n", r"line 1: .*each once"),
        ("time_s,requests_per_s\n0,1\n1\n", r"line 3: 1 values for the 2 columns"),
        ("time_s,requests_per_s\n0,1\n1,many\n", r"line 3: requests_per_s is 'many'"),
        ("time_s,requests_per_s\n0,1\n1,nan\n", r"line 3: requests_per_s is 'nan'"),
        ("time_s,requests_per_s\n0,1\n1,-1\n", r"line 3: requests_per_s is '-1'; a number of at least 0"),
        ("time_s,requests_per_s\n0,1\n,2\n", r"line 3: time_s is missing"),
        ("time_s,requests_per_s\n5,1\n5,2\n", r"line 3: time_s 5 does not lie behind 5"),
        ("time_s,requests_per_s\n5,1\n", r"1 rows; a trace needs two"),
        ("time_s,requests_per_s\n0,1\n1e9,1\n", r"longer than 7 days"),
        ('{"time_s": 0, "requests_per_s": 1}\n{"time_s": 1,\n', r"line 2: is not JSON"),
        ('{"time_s": 0, "requests_per_s": 1}\n7\n', r"line 2: an object is needed"),
        ('{"time_s": 0, "requests_per_s": 1, "users": 3}\n', r"line 1: unknown key users; allowed: time_s"),
        ('{"time_s": 0}\n', r"line 1: requests_per_s is missing"),
        ('{"time_s": 0, "requests_per_s": true}\n', r"line 1: requests_per_s is True"),
        ('{"time_s": 0, "requests_per_s": [1]}\n', r"line 1: requests_per_s is \[1\]"),
        ("time_s,requests_per_s\n0," + "1" * 200_000, r"line 2: is not CSV: field larger than field limit"),
        ("x" * 200_000 + "\n", r"line 1: is not CSV: field larger than field limit"),
        ("x" * 100_000 + "\n", r"line 1: the header is x+\.\.\.x+; needed"),
        ("time_s,requests_per_s\n0,\0\n", r"line 2: requests_per_s is '\\x00'"),
        ("time_s,\x1b[31m\0\n0,1\n", r"line 1: the header is time_s,\\x1b\[31m\\x00; needed"),
        (f"time_s,requests_per_s\n0,{10**400}\n", r"line 2: requests_per_s is '10+\.\.\.0+'; at most 1e\+06"),
        ("time_s,requests_per_s\n0,inf\n", r"line 2: requests_per_s is 'inf'; at most 1e\+06 is allowed"),
        ("time_s,requests_per_s\n1e300,1\n", r"line 2: time_s is '1e300'; at most 1e\+12 is allowed"),
        ("time_s,requests_per_s,accepted_per_tree\n0,1,65\n", r"line 2: accepted_per_tree is '65'; at most 64"),
        ("time_s,requests_per_s\n" + ",".join("1" * 100_000), r"line 2: 100000 values for the 2 columns"),
        ("time_s,requests_per_s\n" + "".join(f"{i},1\n" for i in range(100_001)), r"line 100002: .* most 100000 rows"),
        (f'{{"time_s": 0, "requests_per_s": {10**400}}}\n', r"line 1: requests_per_s is about 10\*\*400; at most 1e"),
        ('{"time_s": ' + "1" * 5000 + "}\n", r"line 1: is not JSON: Exceeds the limit"),
        ('{"time_s": ' + "[" * 100_000 + "\n", r"line 1: is not JSON: it is nested too deeply"),
        ('{"\\u001b[31m\\u0000": 1}\n', r"line 1: unknown key \\x1b\[31m\\x00; allowed"),
        ('{"' + "x" * 10**6 + '": 1}\n', r"line 1: unknown key x+\.\.\.x+; allowed"),
        ('{"time_s": "' + "x" * 10**6 + '"}\n', r"line 1: time_s is 'x+\.\.\.x+'"),
        ('{"time_s": 0, "time_s": 5, "requests_per_s": 1}\n', r"line 1: is not JSON: a key is given twice"),
        ('{"time_s": 0, "requests_per_s": Infinity}\n', r"line 1: requests_per_s is inf; at most 1e\+06"),
    ],
    ids=shown,
)
def test_mistakes(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        read(tmp_path, text)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700


def test_files_that_are_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_trace(tmp_path / "binary")
    with pytest.raises(ConfigurationError, match="cannot be read: embedded null byte"):
        read_trace(Path("a\0b"))
    with pytest.raises(ConfigurationError, match=r"/dev/zero: is too large; at most \d+ bytes"):
        read_trace(Path("/dev/zero"))


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff" + CSV) == POINTS
