"""Programs that start a Ray of their own end everything that they started."""

import signal
import subprocess
from pathlib import Path

import psutil
from outrider import Client

from tests.integration.cluster.processes import wait_until
from tests.integration.cluster.programs import START_S, STOP_S, program, serving


def descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def test_serve_announces_its_address_and_ctrl_c_stops_all(serve_config: Path, tmp_path: Path) -> None:
    with serving(serve_config, tmp_path) as (process, port, output):
        with Client(f"127.0.0.1:{port}", timeout=60.0) as client:
            assert client.generate("Hello", max_tokens=4, ignore_eos=True).token_ids
        started = descendants(process)
        assert len(started) > 5
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=STOP_S) == 0
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
