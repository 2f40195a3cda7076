"""Who asks what: prompts as chains of block hashes, so that sharing is exact and nothing needs to be hashed."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from benchmarks.simulator.settings import LoadSettings, WorkloadSettings
from cluster.autoscaling.trace import LoadPoint, synthesize

__all__ = ["Prompt", "Workload", "arrival_times", "load_points"]

BURST_S = 0.2  # agents of one burst start within


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request. The answer is as long as this says; a client would not know."""

    chain: list[int]  # hashes of its blocks
    output: list[int]  # of the answer's
    output_tokens: int
    session: str = ""
    delay_s: float = 0.0  # after its arrival


class Workload:
    """Draws from `rng` only."""

    def __init__(self, settings: WorkloadSettings, block_size: int, rng: random.Random) -> None:
        self._settings = settings
        self._block_size = block_size
        self._rng = rng
        self._sessions = 0
        self._shared = [self._blocks(settings.shared_tokens, fixed=True) for _ in range(settings.shared_prompts)]
        self._popularity = list(accumulate(1.0 / rank**settings.zipf for rank in range(1, settings.shared_prompts + 1)))

    @property
    def requests_per_arrival(self) -> float:
        """On average: further turns and the rest of a burst included."""
        return {"chat": self._settings.turns, "agents": float(self._settings.burst)}.get(self._settings.kind, 1.0)

    def arrive(self) -> list[Prompt]:
        """What comes with one arrival."""
        settings = self._settings
        match settings.kind:
            case "chat":
                self._sessions += 1
                return [self._prompt(self._blocks(settings.turn_tokens), f"chat-{self._sessions}")]
            case "system_prompts":
                (shared,) = self._rng.choices(self._shared, cum_weights=self._popularity)
                return [self._prompt(shared + self._blocks(settings.turn_tokens))]
            case "agents":
                common = self._blocks(settings.shared_tokens, fixed=True)
                prompts = (common + self._blocks(settings.turn_tokens) for _ in range(settings.burst))
                return [self._prompt(chain, delay_s=BURST_S * self._rng.random()) for chain in prompts]
        return [self._prompt(self._blocks(settings.random_tokens))]

    def follow(self, prompt: Prompt) -> Prompt | None:
        """The chat's next turn; its delay is the time to think. None: that was the last one."""
        settings = self._settings
        if settings.kind != "chat" or self._rng.random() < 1.0 / settings.turns:
            return None
        chain = prompt.chain + prompt.output + self._blocks(settings.turn_tokens)
        return self._prompt(chain, prompt.session, self._rng.expovariate(1.0 / max(settings.think_s, 1e-9)))

    def _prompt(self, chain: list[int], session: str = "", delay_s: float = 0.0) -> Prompt:
        tokens = 1 + int(self._rng.expovariate(1.0 / self._settings.output_tokens))
        output = self._hashes(tokens // self._block_size)
        return Prompt(chain, output, tokens, session, delay_s)

    def _blocks(self, mean_tokens: int, *, fixed: bool = False) -> list[int]:
        tokens = mean_tokens if fixed else 1 + int(self._rng.expovariate(1.0 / mean_tokens))
        return self._hashes(math.ceil(tokens / self._block_size))

    def _hashes(self, count: int) -> list[int]:
        bits = self._rng.getrandbits
        return [bits(64) for _ in range(count)]


def load_points(load: LoadSettings, duration_s: float) -> list[LoadPoint]:
    """The last point is the end."""
    if load.kind == "poisson":
        return [LoadPoint(0.0, load.base), LoadPoint(duration_s, load.base)]
    return synthesize(load.kind, base=load.base, peak=load.peak, duration_s=duration_s)


def arrival_times(points: Sequence[LoadPoint], per_arrival: float, rng: random.Random) -> Iterator[float]:
    """Poisson, with the rate of each stretch over `per_arrival` requests that come together, ascending seconds."""
    for point, end in pairwise(points):
        rate, time_s = point.requests_per_s / per_arrival, point.time_s
        while rate > 0.0 and (time_s := time_s + rng.expovariate(rate)) < end.time_s:
            yield time_s
