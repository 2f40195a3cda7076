"""Round trip of a proposal over the real stream, without any model time.

A scripted drafter (`python -m benchmarks.roundtrip`) runs in a process of its
own and answers at once. One round trip is what a verifier's engine thread sees:
commit and flush, wait until all proposals are in, collect them.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.fakes.behaviours import ConstantToken
from tests.fakes.scripted_drafter import ThreadedDrafter
from workers.core.proposal import TreeBudget
from workers.core.request import DrafterEndpoint, GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, VerificationRule
from workers.core.statistics import GenerationStats
from workers.proposers.base import CommitUpdate, DraftSession, Want
from workers.proposers.remote import RemoteProposer
from workers.rpc.handshake import VerifierIdentity

__all__ = ["connected_proposer", "measure_roundtrip"]

BUDGET = TreeBudget(max_depth=16, max_width=4, max_nodes=16)
STEPS = 2000
SESSIONS = (1, 8, 32)


@contextmanager
def connected_proposer() -> Iterator[tuple[RemoteProposer, DrafterEndpoint]]:
    """With a stream to the scripted drafter, which ends with it."""
    command = [sys.executable, "-m", "benchmarks.roundtrip"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as drafter:
        assert drafter.stdout is not None  # noqa: S101 - it is a pipe
        address = drafter.stdout.readline().strip()
        proposer = RemoteProposer(VerifierIdentity("benchmark", 1, "none", "none", "none", vocab_size=1000))
        try:
            if not proposer.connect([address], 10.0):
                raise RuntimeError(f"no stream to the drafter at {address}")
            yield proposer, DrafterEndpoint("drafter", address)
        finally:
            proposer.shutdown()
            drafter.communicate(timeout=10)  # closes its standard input: it ends


def measure_roundtrip(steps: int = STEPS) -> dict[str, Any]:
    """Milliseconds per round trip (p50, p99) by number of sessions that share the stream."""
    with connected_proposer() as (proposer, drafter):
        results = [_measure(proposer, drafter, sessions, steps) for sessions in SESSIONS]
    return {"tree_nodes": BUDGET.max_nodes, "steps": steps, "round_trips": results}


def _measure(proposer: RemoteProposer, drafter: DrafterEndpoint, sessions: int, steps: int) -> dict[str, float]:
    prompt = (1, 2, 3)
    request = GenerationRequest(
        request_id="r",
        prompt_token_ids=prompt,
        sampling=SamplingParams(),
        seed=1,
        rule=VerificationRule.COUPLED,
        mode=SpeculationMode.ON,
        budget=BUDGET,
        drafters=(drafter,),
    )
    for key in range(sessions):
        proposer.open(DraftSession(key, request, prompt, GenerationStats()))
    proposer.flush()
    times_ms: list[float] = []
    missed = 0
    for base_len in range(len(prompt), len(prompt) + steps):
        started = time.perf_counter()
        proposer.commit([CommitUpdate(key, base_len, (1,), BUDGET) for key in range(sessions)])
        proposer.flush()
        wants = {key: Want(base_len + 1, BUDGET) for key in range(sessions)}
        proposer.wait(wants, 1.0)
        missed += sessions - len(proposer.collect(wants))
        times_ms.append(1000 * (time.perf_counter() - started))
    for key in range(sessions):
        proposer.close(key)
    proposer.flush()
    times_ms = sorted(times_ms[steps // 10 :])  # the first tenth warms up
    return {
        "sessions": sessions,
        "p50_ms": round(times_ms[len(times_ms) // 2], 3),
        "p99_ms": round(times_ms[len(times_ms) * 99 // 100], 3),
        "missed": missed,
    }


def _serve() -> None:
    """Be the drafter: print the address, live until standard input ends."""
    with ThreadedDrafter(ConstantToken(1)) as drafter:
        print(drafter.address, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _serve()
