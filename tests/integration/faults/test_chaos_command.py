"""The chaos run itself, in small."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_short_chaos_run(tiny_target: Path, tiny_draft: Path, tmp_path: Path) -> None:
    text = (ROOT / "examples" / "chaos.yaml").read_text()
    config = tmp_path / "chaos.yaml"
    config.write_text(text.replace("models/tiny-draft", str(tiny_draft)).replace("models/tiny,", f"{tiny_target},"))
    command = [sys.executable, "-m", "benchmarks.chaos", str(config), "--minutes", "1", "--every", "6"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "chaos")], cwd=ROOT, capture_output=True, text=True, timeout=1400
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    result = json.loads((tmp_path / "chaos.json").read_text())["result"]
    assert result["faults"] >= 8
    assert result["completed"] == result["requests"] > 0
    assert result["lost_tokens"] == result["repeated_tokens"] == result["changed_tokens"] == 0
    assert result["whole_at_the_end"]
    assert all(one["requests"] == one["blocks_in_use"] == 0 for one in result["levels_at_the_end"])
    assert (tmp_path / "chaos.png").stat().st_size > 10_000


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.chaos", str(tmp_path / "none.yaml")]
    for arguments, said in (([], "there is no such file"), (["--minutes", "0"], "must be above 0")):
        done = subprocess.run([*command, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=200)
        assert done.returncode == 2
        assert said in done.stderr
