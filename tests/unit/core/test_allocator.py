"""Freed memory stays with the process, so that the next tensor of that size costs no page faults."""

import platform
import subprocess
import sys

import pytest

from workers.core.allocator import keep_freed_memory

COUNT_FAULTS = """
import resource, sys, torch
from workers.core.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(30):  # small blocks split some of the first holes: the heap has settled after about ten
    torch.ones(64 << 18)
before = faults()
for _ in range(10):
    torch.ones(64 << 18)  # 64 MiB
print(faults() - before)
"""
NUM_PAGES = 10 * (64 << 20) // 4096

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no mallopt")


def faults(mode: str) -> int:
    command = [sys.executable, "-c", COUNT_FAULTS, mode]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@glibc
def test_large_tensors_are_allocated_without_page_faults() -> None:
    assert faults("keep") < NUM_PAGES / 100


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    assert keep_freed_memory() is False
