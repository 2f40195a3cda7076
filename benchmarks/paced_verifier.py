"""A verifier whose steps take a given time at least, as on a GPU that the processor waits for.

OUTRIDER_STEP_MS=100 python -m benchmarks.paced_verifier --config verifier.yaml      else as workers.verifier.server

With a tiny model the time of a step is then the same whatever else the machine does, and so is the capacity.
"""

import os
import time
from collections.abc import Sequence

from workers.core.config import VerifierConfig
from workers.rpc.by_hand import run_by_hand
from workers.verifier.request_state import ScheduledRequest
from workers.verifier.server import VerifierServer
from workers.verifier.step import StepResult

__all__ = ["STEP_VARIABLE", "main", "paced"]

STEP_VARIABLE = "OUTRIDER_STEP_MS"


def paced(server: VerifierServer, step_ms: float) -> VerifierServer:
    """Lets every step last `step_ms` at least."""
    step = server.engine._step
    run = step.run

    def slow(scheduled: Sequence[ScheduledRequest]) -> list[StepResult]:
        started = time.monotonic()
        results = run(scheduled)
        time.sleep(max(0.0, step_ms / 1e3 - (time.monotonic() - started)))
        return results

    step.run = slow  # type: ignore[method-assign]
    return server


def main() -> None:
    """Run one by hand."""
    step_ms = float(os.environ.get(STEP_VARIABLE, "0"))
    run_by_hand(
        "verifier",
        VerifierConfig,
        lambda config, name, number: paced(VerifierServer(config, verifier_id=name, incarnation=number), step_ms),
    )


if __name__ == "__main__":
    main()
