"""Shows that drafting hides behind verification: a timeline of both, for one request.

python -m benchmarks.timeline TARGET DRAFT [--tokens 48] [--out timeline]

Verifier and drafter run in this process, on a thread each, and speak real gRPC. Writes OUT.json (Chrome trace: open it
in chrome://tracing or Perfetto) and OUT.png, and prints which share of the drafter's time fell into verify steps.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.core.config import DrafterConfig, KvCacheConfig, ModelConfig, SpeculationConfig, VerifierConfig
from workers.core.figure import figure
from workers.core.request import DrafterEndpoint, GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, SpeculationParams
from workers.draft.server import DraftServer
from workers.models.loader import load_model
from workers.proposers.remote import RemoteProposer
from workers.rpc.handshake import VerifierIdentity
from workers.rpc.loop_thread import LoopThread
from workers.verifier.assembly import build_engine
from workers.verifier.offline import run_together

__all__ = ["Span", "hidden_share", "main"]

PROMPT_TOKENS = 24
SHOWN_S = 3.0  # of the timeline in the picture


@dataclass(frozen=True)
class Span:
    """One forward pass."""

    who: str
    started_s: float
    ended_s: float
    rows: int


@dataclass
class Recorder:
    """Takes the place of a runner's `forward`."""

    spans: list[Span] = field(default_factory=list)

    def watch(self, who: str, runner: Any) -> None:
        forward: Callable[..., Any] = runner.forward

        def timed(chunks: Sequence[Any], *rest: Any) -> Any:
            started = time.perf_counter()
            outputs = forward(chunks, *rest)
            rows = sum(chunk.num_tokens for chunk in chunks)
            self.spans.append(Span(who, started, time.perf_counter(), rows))
            return outputs

        runner.forward = timed


def hidden_share(spans: Sequence[Span]) -> float:
    """Share of the drafter's time that lies within verify steps."""
    verifies = [s for s in spans if s.who == "verifier"]
    drafts = [s for s in spans if s.who == "drafter"]
    hidden = sum(max(0.0, min(d.ended_s, v.ended_s) - max(d.started_s, v.started_s)) for d in drafts for v in verifies)
    return hidden / max(sum(d.ended_s - d.started_s for d in drafts), 1e-9)


def record(target: str, draft: str, num_tokens: int) -> list[Span]:
    """Forward passes of one answer, prefill left out."""
    recorder, loop = Recorder(), LoopThread("drafter")
    cache = KvCacheConfig(num_blocks=256)
    drafter = DraftServer(
        DrafterConfig(model=ModelConfig(model=draft, num_threads=1), kv_cache=cache), drafter_id="d", incarnation=1
    )
    recorder.watch("drafter", drafter.engine._runner)
    address = asyncio.run_coroutine_threadsafe(drafter.start(), loop.loop).result()
    loaded = load_model(ModelConfig(model=target, num_threads=1))
    proposer = RemoteProposer(
        VerifierIdentity("v", 1, loaded.name, loaded.fingerprint, loaded.tokenizer_hash, loaded.vocab_size)
    )
    engine = build_engine(
        VerifierConfig(model=ModelConfig(model=target), kv_cache=cache, speculation=SpeculationConfig()),
        loaded,
        proposer,
    )
    recorder.watch("verifier", engine._step._runner)
    proposer.connect([address], 10.0)
    engine.start()
    request = GenerationRequest.build(
        "timeline",
        tuple(range(10, 10 + PROMPT_TOKENS)),
        SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True),
        seed=1,
        limits=SpeculationConfig().limits,
        speculation=SpeculationParams(mode=SpeculationMode.ON),
        drafters=(DrafterEndpoint("d", address),),
    )
    try:
        run_together(engine, [request])
    finally:
        engine.stop()
        proposer.shutdown()
        asyncio.run_coroutine_threadsafe(drafter.stop(), loop.loop).result()
        loop.stop()
    first = next(s.ended_s for s in recorder.spans if s.who == "verifier")
    return [s for s in recorder.spans if s.started_s >= first]


def as_chrome_trace(spans: Sequence[Span]) -> dict[str, Any]:
    start = spans[0].started_s
    return {
        "traceEvents": [
            {
                "name": f"{'verify' if s.who == 'verifier' else 'draft'} {s.rows} rows",
                "ph": "X",
                "pid": 1,
                "tid": s.who,
                "ts": (s.started_s - start) * 1e6,
                "dur": (s.ended_s - s.started_s) * 1e6,
                "args": {"rows": s.rows},
            }
            for s in spans
        ]
    }


def plot(spans: Sequence[Span], path: Path) -> None:
    """The first seconds, one line for each engine."""
    start = spans[0].started_s
    with figure(path, size=(14, 2.6)) as axis:
        for height, (who, color) in enumerate((("drafter", "tab:orange"), ("verifier", "tab:blue"))):
            bars = [((s.started_s - start) * 1e3, (s.ended_s - s.started_s) * 1e3) for s in spans if s.who == who]
            axis.broken_barh(bars, (height - 0.35, 0.7), facecolors=color, edgecolor="white", linewidth=0.4)
        axis.set_yticks([0, 1], ["drafter", "verifier"])
        axis.set_xlim(0, min(SHOWN_S, spans[-1].ended_s - start) * 1e3)
        axis.set_xlabel("ms")
        axis.set_title(
            f"forward passes; {hidden_share(spans):.0%} of the drafting happens during verify steps", fontsize=10
        )


def main() -> None:
    """Record one answer, write the trace and the picture."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("target", help="hub id or folder")
    parser.add_argument("draft", help="hub id or folder")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--out", type=Path, default=Path("timeline"))
    arguments = parser.parse_args()
    spans = record(arguments.target, arguments.draft, arguments.tokens)
    trace, picture = arguments.out.with_suffix(".json"), arguments.out.with_suffix(".png")
    trace.write_text(json.dumps(as_chrome_trace(spans)))
    plot(spans, picture)
    print(f"{hidden_share(spans):.0%} of the drafting happens during verify steps\n-> {trace}\n-> {picture}")


if __name__ == "__main__":
    main()
