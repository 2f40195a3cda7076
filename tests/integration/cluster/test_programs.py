"""Programs that start a Ray of their own end everything that they started."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import yaml
from outrider import Client

from cluster.local import free_port
from tests.integration.cluster.processes import wait_until

START_S = 180.0
STOP_S = 60.0
ROOT = Path(__file__).parents[3]


def fresh_environment() -> dict[str, str]:
    """Without what this test session has set for its own Ray."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


@contextmanager
def program(*words: str, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    with output.open("wb") as sink:
        process = subprocess.Popen(
            [sys.executable, *words], stdout=sink, stderr=subprocess.STDOUT, env=fresh_environment(), cwd=ROOT
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=STOP_S)


def descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def test_serve_announces_its_address_and_ctrl_c_stops_all(serve_config: Path, tmp_path: Path) -> None:
    document = yaml.safe_load(serve_config.read_text())
    document["http_options"]["port"] = free_port()
    del document["applications"][0]["args"]["draft"]["ray_actor_options"]["resources"]  # its Ray has one node
    config = tmp_path / "own.yaml"
    config.write_text(yaml.safe_dump(document))
    port = free_port()
    output = tmp_path / "output"
    with program("-m", "cluster.cli", "serve", str(config), "--port", str(port), output=output) as serving:
        wait_until(lambda: "Ready:" in output.read_text() or serving.poll() is not None, START_S)
        assert f"Ready: 127.0.0.1:{port}" in output.read_text(), output.read_text()
        with Client(f"127.0.0.1:{port}", timeout=60.0) as client:
            assert client.generate("Hello", max_tokens=4, ignore_eos=True).token_ids
        started = descendants(serving)
        assert len(started) > 5
        serving.send_signal(signal.SIGINT)
        assert serving.wait(timeout=STOP_S) == 0
    assert "Traceback" not in output.read_text()
    assert not [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def test_demo_succeeds_and_leaves_nothing_behind(tmp_path: Path) -> None:
    output = tmp_path / "output"
    with program("scripts/demo.py", "--tiny", output=output) as demo:
        wait_until(lambda: "plain" in output.read_text() or demo.poll() is not None, START_S)
        started = descendants(demo)
        assert demo.wait(timeout=START_S) == 0, output.read_text()
    text = output.read_text()
    assert text.count("yes") == 3
    assert "acceptance" in text
    assert len(started) > 5
    assert not [one for one in started if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
