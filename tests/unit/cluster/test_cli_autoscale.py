"""`outrider autoscale`: from a load to a table, a picture and numbers."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cluster.autoscaling.trace import MAX_RATE, read_trace
from cluster.cli import app
from cluster.cli import autoscale as command
from workers.core.shown import shown

ENDLESS = ("inf", "-inf", "nan", "-1", "1e308", "1" + "0" * 400)
EXAMPLE = Path(__file__).parents[3] / "examples" / "autoscaling.yaml"


def autoscale(*words: object) -> Result:
    return CliRunner().invoke(app, ["autoscale", *(str(word) for word in words)], env={"COLUMNS": "200"})


def test_a_built_in_load_with_the_examples_settings(tmp_path: Path) -> None:
    picture, numbers = tmp_path / "replay.png", tmp_path / "replay.json"
    load = ("step", "--base", "0.2", "--peak", "0.6", "--duration", "1800")
    result = autoscale("replay", *load, "--config", EXAMPLE, "--plot", picture, "--json", numbers)
    assert result.exit_code == 0, result.output
    assert "Scale events" in result.output
    assert "needed at the peak, overshoot" in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    document = json.loads(numbers.read_text())
    written = document["result"]
    assert document["provenance"]["config"]["model"]["seats"] == 8  # the example's max_running_requests
    assert max(row["verifier_target"] for row in written["rows"]) <= 3
    assert any(event["pool"] == "verifiers" for event in written["events"])
    assert {"requests", "refused", "violations", "overshoot", "pools"} <= set(written)


def test_what_synth_writes_can_be_changed_and_replayed(tmp_path: Path) -> None:
    load, model = tmp_path / "load.csv", tmp_path / "model.yaml"
    assert autoscale("synth", "spike", "--out", load, "--base", 1, "--peak", 9).exit_code == 0
    assert [point.requests_per_s for point in read_trace(load)] == [1.0, 9.0, 1.0, 1.0]
    model.write_text("service_s: 2.0\nseats: 4\n")
    result = autoscale("replay", load, "--model", model)
    assert result.exit_code == 0, result.output
    assert "verifiers" in result.output


def test_a_dry_run_says_so(tmp_path: Path) -> None:
    config = tmp_path / "dry.yaml"
    config.write_text(EXAMPLE.read_text().replace("dry_run: false", "dry_run: true"))
    result = autoscale("replay", "step", "--config", config, "--duration", 900)
    assert "What it would do (dry run)" in result.output


def test_without_a_draft_pool(tmp_path: Path) -> None:
    config = tmp_path / "plain.yaml"
    config.write_text(
        "applications:\n- import_path: cluster.app:build\n  args:\n    model_name: m\n    target:\n"
        "      autoscaling: {max_replicas: 3}\n      config: {model: {model: m}, method: none}\n"
    )
    result = autoscale("replay", "step", "--config", config, "--duration", 900)
    assert result.exit_code == 0, result.output
    assert "drafters" not in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("replay", "none.csv"), "there is no such file"),
        (("replay", "step", "--config", "none.yaml"), "there is no such file"),
        (("replay", "step", "--plot", "picture.jpg"), "does not end in .png"),
        (("replay", "step", "--json", "nowhere/x.json"), "there is no folder nowhere"),
        (("synth", "sawtooth", "--out", "x.csv"), "there is no such load; allowed: diurnal, ramp, spike, step"),
        (("synth", "step", "--out", "nowhere/x.csv"), "there is no folder nowhere"),
        (("synth", "\x1b[31m" + "x" * 9000, "--out", "x.csv"), "there is no such load; allowed"),
        (("replay", "a\0b"), "error: a\\x00b: cannot be read: embedded null byte"),
        (("replay", "\x1b[31m"), "error: \\x1b[31m: there is no such file"),
        (("replay", "x" * 9000), "cannot be read: File name too long"),
        *(
            ((*command, option, value), f"Invalid value for '{option}'")
            for command in (("replay", "step"), ("synth", "step", "--out", "x.csv"))
            for option, values in (("--base", ENDLESS), ("--peak", ENDLESS), ("--duration", (*ENDLESS, "604801")))
            for value in values
        ),
    ],
    ids=shown,
)
def test_mistakes(words: tuple[str, ...], message: str) -> None:
    result = autoscale(*words)
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert all(line.isprintable() for line in result.output.splitlines())
    assert len(result.output) < 1500


def test_mistakes_in_files_name_the_line(tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("time_s,requests_per_s\n0,1\n5,x\n")
    result = autoscale("replay", tmp_path / "load.csv")
    assert result.exit_code == 2
    assert "line 3: requests_per_s is 'x'" in result.output
    (tmp_path / "model.yaml").write_text("service: 2.0\n")
    result = autoscale("replay", "step", "--model", tmp_path / "model.yaml")
    assert result.exit_code == 2
    assert "did you mean service_s?" in result.output


def test_absurd_files_end_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "load.csv").write_text("time_s,requests_per_s\n0," + "1" * 200_000)
    result = autoscale("replay", tmp_path / "load.csv")
    assert result.exit_code == 2
    assert result.stderr == f"error: {tmp_path}/load.csv, line 2: is not CSV: field larger than field limit (131072)\n"


def test_the_largest_load_stands_twice_and_is_the_same_and_can_be_replayed() -> None:
    assert command.MAX_RATE == MAX_RATE
    result = autoscale("replay", "step", "--base", MAX_RATE, "--peak", MAX_RATE, "--duration", 120)
    assert result.exit_code == 0, result.output
