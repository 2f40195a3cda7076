"""Files that are made to cost: endless ones, thousands of millions of values in nine lines, numbers without end."""

from pathlib import Path

import pytest

from cluster.autoscaling.model import ReplayModel
from cluster.config.yaml_file import parse_mapping, read_mapping, read_settings
from workers.core.errors import ConfigurationError

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (LAUGHS, "its aliases stand for more than 200000 values"),
        ("a: &a [*a]\n", "its aliases stand for more than 200000 values"),
        ("a: &a {b: *a}\n", "its aliases stand for more than 200000 values"),
        (f"a: [1, {{b: {10**400}}}]\n", r"a\.1\.b: the number about 10\*\*400 is out of all bounds"),
        (f"a: 0x{'f' * 9000}\n", r"a: the number about 10\*\*\d+ is out of all bounds"),
        (f"a: {'9' * 5000}\n", r"a value does not fit its type \(Exceeds the limit"),
        (f"? {10**400}\n: 1\n", r"key: the number about 10\*\*400"),
        (f'"{"k" * 10**6}": [\n', "is not valid YAML"),
        (f"a: !{'t' * 10**5} 1\n", "is not valid YAML: could not determine a constructor"),
        ('"a\\e[31m": 1\n"a\\e[31m": 2\n', r"the key 'a\\x1b\[31m' is given twice"),
    ],
)
def test_text_that_is_made_to_cost(text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        parse_mapping(text, "the text", "a mapping is expected")
    assert len(str(caught.value)) < 1000
    assert all(line.isprintable() for line in str(caught.value).splitlines())


def test_aliases_that_make_sense_are_taken() -> None:
    assert parse_mapping("a: &a {b: 1}\nc: *a\n", "the text", "")["c"] == {"b": 1}


def test_files_without_an_end_are_not_read_to_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"^/dev/zero: is too large; at most 1048576 bytes are allowed$"):
        read_mapping(Path("/dev/zero"), "")
    (tmp_path / "large.yaml").write_text("a: 1\n" + "# \n" * 2**19)
    with pytest.raises(ConfigurationError, match="is too large"):
        read_mapping(tmp_path / "large.yaml", "")


@pytest.mark.parametrize("path", ["a\0b", "a\x1b[31mb", "x" * 5000, "/tmp"])  # noqa: S108
def test_paths_that_cannot_be_read(path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no such file|cannot be read") as caught:
        read_mapping(Path(path), "")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "bom.yaml").write_bytes(b"\xef\xbb\xbfseats: 3\n")
    assert read_settings(tmp_path / "bom.yaml", ReplayModel).seats == 3


def test_a_thousand_findings_are_told_in_fifty_lines(tmp_path: Path) -> None:
    (tmp_path / "many.yaml").write_text("".join(f"k{i}: 1\n" for i in range(1000)))
    with pytest.raises(ConfigurationError) as caught:
        read_settings(tmp_path / "many.yaml", ReplayModel)
    assert len(str(caught.value).splitlines()) == 52
    assert str(caught.value).endswith("... and 950 more")
