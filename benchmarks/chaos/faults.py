"""The faults of the chaos run: what is done to whom, and how it is taken back."""

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

import psutil

from benchmarks.faults.connection import Shape
from benchmarks.faults.processes import controller, freeze, kill, proxies, slowed, thaw, titled
from benchmarks.faults.threaded import ThreadedProxy

__all__ = ["FAULTS", "Fault", "Stage", "endless"]

SLOW_SHARE = 0.2
SLOW_NETWORK = Shape(latency_s=0.05, jitter_s=0.1, bytes_per_s=100_000)

Undo = Callable[[], object]


class Stage(Protocol):
    """The cluster under test, as far as faults need it."""

    rank_title: str

    @property
    def front(self) -> ThreadedProxy:
        """Between the clients and Serve's proxy."""
        ...

    def proxies_of(self, role: str) -> list[ThreadedProxy]:
        """In front of the engines of this role."""
        ...

    def known(self, deployment: str) -> list[psutil.Process]: ...

    def lose_node(self) -> Undo | None: ...

    def redeploy(self) -> None: ...


@dataclass(frozen=True)
class Fault:
    """`strike` returns how to take it back, or None where there is nobody to hit."""

    kind: str
    strike: Callable[[Stage, random.Random], Undo | None]


def nothing() -> None:
    """Nothing to take back."""


def _on_process(
    find: Callable[[Stage], list[psutil.Process]], hit: Callable[[psutil.Process], Undo]
) -> Callable[[Stage, random.Random], Undo | None]:
    def strike(stage: Stage, rng: random.Random) -> Undo | None:
        found = find(stage)
        return hit(rng.choice(found)) if found else None

    return strike


def _on_network(role: str, hit: Callable[[ThreadedProxy], object]) -> Callable[[Stage, random.Random], Undo | None]:
    def strike(stage: Stage, rng: random.Random) -> Undo | None:
        found = stage.proxies_of(role)
        if not found:
            return None
        proxy = rng.choice(found)
        hit(proxy)
        return proxy.heal

    return strike


def _kill(process: psutil.Process) -> Undo:
    kill(process)
    return nothing


def _freeze(process: psutil.Process) -> Undo:
    freeze(process)
    return lambda: thaw(process)


def _slow(process: psutil.Process) -> Undo:
    stack = ExitStack()
    stack.enter_context(slowed(process, share=SLOW_SHARE))
    return stack.close


def _cut_front(stage: Stage, rng: random.Random) -> Undo | None:
    return nothing if stage.front.cut() else None


def _swallow_front(stage: Stage, rng: random.Random) -> Undo | None:
    stage.front.black_hole()
    return stage.front.heal


def _redeploy(stage: Stage, rng: random.Random) -> Undo | None:
    stage.redeploy()
    return nothing


POOLS = {"drafter": "DraftProposer", "verifier": "TargetVerifier", "gateway": "Gateway"}
FAULTS: list[Fault] = [
    *(
        Fault(f"{name}: {verb}", _on_process(lambda stage, pool=pool: stage.known(pool), hit))  # type: ignore[misc]
        for name, pool in POOLS.items()
        for verb, hit in (("kill -9", _kill), ("freeze", _freeze), ("slow-down", _slow))
    ),
    *(
        Fault(f"{role}: {verb}", _on_network(role, hit))
        for role in ("drafter", "verifier")
        for verb, hit in (
            ("connections cut", ThreadedProxy.cut),
            ("black hole", ThreadedProxy.black_hole),
            ("slow network", lambda proxy: proxy.slow(SLOW_NETWORK)),
        )
    ),
    Fault("client: connections cut", _cut_front),
    Fault("client: black hole", _swallow_front),
    Fault("Serve controller: kill -9", _on_process(lambda stage: controller(), _kill)),
    Fault("Serve proxy: kill -9", _on_process(lambda stage: proxies(), _kill)),
    Fault("TP rank: kill -9", _on_process(lambda stage: titled(stage.rank_title), _kill)),
    Fault("Ray node: loss", lambda stage, rng: stage.lose_node()),
    Fault("rolling update", _redeploy),
]


def endless(rng: random.Random) -> Iterator[Fault]:
    """All of them in random order, again and again: a long run has each about equally often."""
    while True:
        yield from rng.sample(FAULTS, len(FAULTS))
