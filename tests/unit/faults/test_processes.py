"""Signals to processes that this test started."""

import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from benchmarks.faults.processes import frozen, kill, slowed, titled

COUNTER = "import time\nwhile True:\n    print('.', end='', flush=True)\n    time.sleep(0.001)"


@pytest.fixture
def counting() -> Iterator[psutil.Popen]:
    process = psutil.Popen([sys.executable, "-c", COUNTER], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read(1)
    yield process
    kill(process)


def cpu_time(process: psutil.Process) -> float:
    return process.cpu_times().user + process.cpu_times().system


def test_frozen_and_going_on(counting: psutil.Popen) -> None:
    with frozen(counting):
        deadline = time.monotonic() + 60
        while counting.status() != psutil.STATUS_STOPPED:
            assert time.monotonic() < deadline
    assert counting.status() != psutil.STATUS_STOPPED


def test_slowed_down_it_is_mostly_stopped(counting: psutil.Popen) -> None:
    with slowed(counting, share=0.1, period_s=0.1):
        seen = []
        for _ in range(60):
            seen.append(counting.status() == psutil.STATUS_STOPPED)
            time.sleep(0.011)
    assert sum(seen) > 0, "it was stopped now and then"
    assert counting.status() != psutil.STATUS_STOPPED


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_that_is_none(counting: psutil.Popen, share: float) -> None:
    with pytest.raises(ValueError, match="share"), slowed(counting, share=share):
        pass


def test_killed_even_when_frozen(counting: psutil.Popen) -> None:
    with frozen(counting):
        kill(counting)
        assert not counting.is_running()
    kill(counting)  # nothing happens to one that is gone


def test_found_by_its_title(counting: psutil.Popen) -> None:
    assert counting.pid in [one.pid for one in titled("time.sleep(0.001)")]
    assert titled("no process is called like this") == []
