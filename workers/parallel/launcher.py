"""How the ranks 1..N-1 of a group come to life. A cluster passes a launcher of its own in (`cluster.deployments`)."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Protocol, Self

from workers.core.config import ModelConfig
from workers.parallel.group import Seat

__all__ = ["OnEnd", "RankLauncher", "RankProcess", "RankSpec", "SubprocessLauncher", "die_with_parent"]

LOOPBACK = "127.0.0.1"
RANK_MODULE = "workers.runner.rank"
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


@dataclass(frozen=True)
class RankSpec:
    """All that a rank has to know to join a group and to load its shard."""

    seat: Seat
    config: ModelConfig

    def to_json(self) -> str:
        return json.dumps({"seat": asdict(self.seat), "config": self.config.model_dump(mode="json")})

    @classmethod
    def from_json(cls, text: str) -> Self:
        values = json.loads(text)
        return cls(Seat(**values["seat"]), ModelConfig.model_validate(values["config"]))


OnEnd = Callable[[int, str], None]
"""Called once, from any thread, when a rank's process has ended: its rank, and what is known about why."""


class RankProcess(Protocol):
    """A rank that was started."""

    def wait(self, timeout_s: float) -> bool:
        """True when it has ended."""
        ...

    def kill(self) -> None:
        """End it at once, frozen or not; nothing happens when it has ended."""
        ...


class RankLauncher(Protocol):
    """Starts ranks. `host` is the address at which rank 0, in this process, waits for them."""

    @property
    def host(self) -> str: ...

    def device_of(self, rank: int, device: str) -> str:
        """The device of a rank, where the settings say `device`. Rank 0 is asked for its own, too."""
        ...

    def start(self, spec: RankSpec, on_end: OnEnd) -> RankProcess: ...


class SubprocessLauncher:
    """Plain child processes on this machine, for servers by hand, the probe and everything offline.

    They die with this process, however it ends.
    """

    host = LOOPBACK

    def device_of(self, rank: int, device: str) -> str:
        return f"{device}:{rank}" if device == "cuda" else device

    def start(self, spec: RankSpec, on_end: OnEnd) -> RankProcess:
        return _Subprocess(spec, on_end)


class _Subprocess:
    """Linux ends a child with the *thread* that started it, so that one thread starts the child and waits for it."""

    def __init__(self, spec: RankSpec, on_end: OnEnd) -> None:
        self._spec = spec
        self._on_end = on_end
        self._started = threading.Event()
        self._ended = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        threading.Thread(target=self._run, name=f"rank-{spec.seat.rank}", daemon=True).start()
        self._started.wait()

    def wait(self, timeout_s: float) -> bool:
        return self._ended.wait(timeout_s)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _run(self) -> None:
        words = "it could not be started"
        try:
            command = [sys.executable, "-m", RANK_MODULE, str(os.getpid())]
            # A session of its own: Ctrl-C is for rank 0, which lets requests end and then tells the others.
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, start_new_session=True)  # noqa: S603
            self._started.set()
            with contextlib.suppress(BrokenPipeError):
                self._process.communicate(self._spec.to_json())
            words = _status(self._process.wait())
        except OSError as error:
            words = f"it could not be started ({error})"
        finally:
            self._started.set()
            self._ended.set()
            self._on_end(self._spec.seat.rank, words)


def _status(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def die_with_parent(parent: int) -> None:
    """Let Linux kill this process when the one that started it (`parent`, its pid) ends; elsewhere, do nothing."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os.kill(os.getpid(), signal.SIGKILL)
