"""A verifier whose steps take a given time at least, as on a GPU that the processor waits for.

OUTRIDER_STEP_MS=100 python -m benchmarks.paced_verifier --config verifier.yaml      else as workers.verifier.server

With a tiny model the time of a step is then the same whatever else the machine does, and so is the capacity.
OUTRIDER_ROW_MS adds so much for each token that a step computes.
"""

import os
import time
from collections.abc import Sequence

from workers.core.config import VerifierConfig
from workers.rpc.by_hand import run_by_hand
from workers.verifier.request_state import ScheduledRequest
from workers.verifier.server import VerifierServer
from workers.verifier.step import StepResult

__all__ = ["ROW_VARIABLE", "STEP_VARIABLE", "main", "paced"]

STEP_VARIABLE = "OUTRIDER_STEP_MS"
ROW_VARIABLE = "OUTRIDER_ROW_MS"


def paced(server: VerifierServer) -> VerifierServer:
    """Lets every step last as long as the environment says, at least."""
    step_ms, row_ms = (float(os.environ.get(name, "0")) for name in (STEP_VARIABLE, ROW_VARIABLE))
    step = server.engine._step
    run = step.run

    def slow(scheduled: Sequence[ScheduledRequest]) -> list[StepResult]:
        started = time.monotonic()
        results = run(scheduled)
        least_s = (step_ms + row_ms * sum(one.num_tokens + one.num_nodes for one in scheduled)) / 1e3
        time.sleep(max(0.0, least_s - (time.monotonic() - started)))
        return results

    step.run = slow  # type: ignore[method-assign]
    return server


def main() -> None:
    """Run one by hand."""
    run_by_hand(
        "verifier",
        VerifierConfig,
        lambda config, name, number: paced(VerifierServer(config, verifier_id=name, incarnation=number)),
    )


if __name__ == "__main__":
    main()
