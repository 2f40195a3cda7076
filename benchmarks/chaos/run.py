"""Injects one fault after the other while the load runs, and notes when each was over."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.chaos.faults import Fault, endless
from benchmarks.chaos.load import Load
from benchmarks.chaos.stage import LiveStage

__all__ = ["Injected", "torment"]

LASTS = 0.8  # share of the time between two faults after which one is taken back
POLL_S = 0.25


@dataclass
class Injected:
    """One fault; times in seconds since the start of the load."""

    kind: str
    at_s: float
    undone_s: float = 0.0
    whole_s: float | None = None  # when every replica ran again; None: not before the end
    overtaken: bool = False  # a later fault came before that


class _WholeWatch:
    """Notes in a thread of its own when the cluster is whole again after each fault."""

    def __init__(self, stage: LiveStage, load: Load, injected: list[Injected]) -> None:
        self._stage = stage
        self._load = load
        self._injected = injected
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="whole-watch")
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(POLL_S):
            whole = self._stage.is_whole()  # asked in any case: the stage learns who lives
            waiting = [one for one in list(self._injected) if one.whole_s is None]
            if waiting and whole:
                for one in waiting:
                    one.overtaken = one is not waiting[-1]
                    one.whole_s = self._load.now()


def torment(
    stage: LiveStage, load: Load, *, seconds: float, every_s: float, seed: int, log: Callable[[str], None]
) -> list[Injected]:
    """A fault every `every_s` seconds for `seconds`; each is taken back before the next."""
    rng = random.Random(seed)
    faults = endless(rng)
    injected: list[Injected] = []
    watch = _WholeWatch(stage, load, injected)
    try:
        next_s = every_s / 2
        while next_s < seconds:
            _sleep_until(load, next_s)
            fault, undo = _strike(faults, stage, rng, injected, load)
            log(f"{load.now():6.1f} s  {fault.kind}")
            _sleep_until(load, next_s + LASTS * every_s)
            undo()
            injected[-1].undone_s = load.now()
            next_s = max(next_s + every_s, load.now() + (1.0 - LASTS) * every_s)  # no two at once when one was late
        _sleep_until(load, seconds)
    finally:
        watch.stop()
    return injected


def _strike(
    faults: Iterator[Fault], stage: LiveStage, rng: random.Random, injected: list[Injected], load: Load
) -> tuple[Fault, Callable[[], object]]:
    """The next fault that finds somebody to hit."""
    while True:
        fault = next(faults)
        at_s = load.now()
        try:
            undo = fault.strike(stage, rng)
        except Exception as error:  # noqa: BLE001 - Serve may be between two controllers: another fault then
            print(f"        {fault.kind}: not possible now ({type(error).__name__})")
            continue
        if undo is not None:
            injected.append(Injected(fault.kind, at_s))
            return fault, undo


def _sleep_until(load: Load, at_s: float) -> None:
    time.sleep(max(0.0, at_s - load.now()))
