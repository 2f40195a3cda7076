"""promtool's own opinion of the Prometheus rules: they are valid, and fire on what they should fire on."""

import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "deploy/k8s/monitoring"


@pytest.fixture(scope="module")
def promtool() -> str:
    """Its path. Where it cannot be had, the tests fail and say what to do."""
    found = subprocess.run([ROOT / "scripts/promtool.sh"], capture_output=True, text=True)
    if found.returncode:
        pytest.fail(found.stderr)
    return found.stdout.strip()


def run(promtool: str, *words: str | Path) -> str:
    done = subprocess.run([promtool, *words], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_rules_are_valid(promtool: str) -> None:
    assert "SUCCESS" in run(promtool, "check", "rules", MONITORING / "rules.yaml")


def test_the_rules_do_what_their_tests_say(promtool: str) -> None:
    assert "SUCCESS" in run(promtool, "test", "rules", MONITORING / "tests/rules_test.yaml")


def test_a_wrong_expectation_is_noticed(promtool: str, tmp_path: Path) -> None:
    """With an alert that is not expected, promtool fails: it does look at the series that it is given."""
    scenarios = yaml.safe_load((MONITORING / "tests/rules_test.yaml").read_text())
    (errors,) = [one for one in scenarios["tests"] if one["name"] == "errors"]
    errors["promql_expr_test"][0]["exp_samples"] = []
    wrong = {"rule_files": [str(MONITORING / "rules.yaml")], "evaluation_interval": "1m", "tests": [errors]}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong))
    done = subprocess.run([promtool, "test", "rules", tmp_path / "wrong.yaml"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "OutriderErrors" in done.stdout + done.stderr
