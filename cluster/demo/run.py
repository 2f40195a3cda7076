"""The demonstration as a program: start everything, compare, stop everything."""

import os
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import psutil
from outrider import Client, OutriderError
from rich.console import Console
from rich.markup import escape

from cluster.demo.compare import PROMPTS, Comparison, compare, comparison_table, show_difference, warm_up
from cluster.demo.model import ModelUnavailableError, fetch_demo_model
from cluster.demo.settings import demo_document, write_document
from cluster.local import LocalCluster, StartError, free_port, prepare_environment
from cluster.progress import progress

__all__ = ["DemoModel", "demo", "resident_bytes"]

READY_TIMEOUT_S = 240.0
CALL_TIMEOUT_S = 300.0
INTERRUPTED = 130
SLOWER = (
    "Slower with speculation: draft and target share the cores here, which are what limits both (README, Numbers). "
    "Asked for `auto`, a server does without it where it does not pay."
)


@dataclass(frozen=True)
class DemoModel:
    """What is served, as folders."""

    target: Path
    draft: Path


def demo(console: Console, folder: Path, draft: Path, *, tiny: bool = False) -> int:
    """Run it; the exit code: 0 = all answers are equal with and without speculation.

    `folder` receives the model if it is not there; `draft` is a draft checkpoint of it.
    """
    prepare_environment(os.environ, private=True)
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="outrider-demo-") as work, _interruptible():
            model = _built_in(Path(work)) if tiny else _model(console, folder, draft, Path(work))
            ready = time.monotonic()
            comparisons, memory = _serve_and_compare(console, model, Path(work))
    except KeyboardInterrupt:
        console.print("Interrupted; everything that was started is stopped.")
        return INTERRUPTED
    except (StartError, OutriderError, OSError) as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    _report(console, comparisons)
    console.print(
        f"[dim]{time.monotonic() - ready:.0f} s without downloads ({time.monotonic() - started:.0f} s in all), "
        f"at most {memory / 2**30:.1f} GiB resident in all processes; everything that was started is stopped[/]"
    )
    return 0 if all(one.equal for one in comparisons) else 1


def _model(console: Console, folder: Path, draft: Path, work: Path) -> DemoModel:
    try:
        with progress(console, "Looking for the model") as report:
            fetch_demo_model(folder, report)
    except ModelUnavailableError as error:
        console.print(f"[yellow]{escape(str(error))}[/]\nGoing on with a tiny built-in model of random weights.")
        return _built_in(work)
    if not draft.is_dir():
        raise StartError(f"there is no draft in {str(draft)!r}: give the folder of one, or --tiny")
    return DemoModel(folder, draft)


def _built_in(work: Path) -> DemoModel:
    from workers.models.tiny import build_tiny_draft, build_tiny_model

    target = build_tiny_model(work / "tiny")
    return DemoModel(target, build_tiny_draft(work / "tiny-draft", target))


def _serve_and_compare(console: Console, model: DemoModel, work: Path) -> tuple[list[Comparison], int]:
    """All comparisons, and the most memory seen (bytes)."""
    from cluster.config.loader import load_config

    document = demo_document(model.target, model.draft, grpc_port=free_port(), http_port=free_port())
    config = load_config(write_document(work / "demo.yaml", document)).serve_config
    comparisons, memory = [], 0
    with LocalCluster(num_cpus=max(2, os.cpu_count() or 2)) as cluster:
        with progress(console, "Starting") as report:
            cluster.log = report
            cluster.start_ray()
            cluster.deploy(config)
            cluster.wait_ready(READY_TIMEOUT_S)
            report("Warming up")
            client = Client(f"127.0.0.1:{cluster.grpc_port}", timeout=CALL_TIMEOUT_S)
            warm_up(client)
        with client:
            for number, prompt in enumerate(PROMPTS, 1):
                console.print(f"[bold]{number}. {escape(prompt.text)}[/]", end="")
                comparisons.append(compare(client, prompt, _Printer(console)))
                console.print("\n")
                memory = max(memory, resident_bytes())
        cluster.log = lambda text: console.print(f"[dim]{text}[/]")
    return comparisons, memory


class _Printer:
    """Prints text as it arrives, the second answer below the first."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._label = ""

    def __call__(self, label: str, text: str) -> None:
        if label != self._label:
            self._label = label
            self._console.print(f"\n[bold cyan]{label}[/]: ", end="")
        self._console.print(text, end="", markup=False, soft_wrap=True)


def _report(console: Console, comparisons: Sequence[Comparison]) -> None:
    console.print(comparison_table(comparisons))
    if any(one.slower for one in comparisons):
        console.print(SLOWER)
    for one in comparisons:
        if not one.equal:
            show_difference(console, one)


def resident_bytes() -> int:
    """Memory of this process and all below it; pages that they share count once in all (PSS), where Linux tells."""
    total = 0
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        try:
            memory = process.memory_full_info()
            total += getattr(memory, "pss", memory.rss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM like Ctrl-C, so that nothing that was started survives."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
