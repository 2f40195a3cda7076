"""python -m benchmarks.simulator run | compare | breakpoint | scale: see docs/simulator.md."""

import sys
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console

from benchmarks.simulator.cluster import Cluster
from benchmarks.simulator.compare import POLICIES, breakpoint_of, compare, with_workload
from benchmarks.simulator.scale import SCALE_AUTOSCALING, fluid, run_scale, scale_settings
from benchmarks.simulator.settings import SimulationSettings, WorkloadKind
from benchmarks.simulator.tables import breakpoint_table, comparison_table, plot_comparison, scale_table
from cluster.autoscaling.plot import plot_replay
from cluster.config.yaml_file import read_settings
from workers.core.errors import OutriderError
from workers.core.provenance import provenance, write_result

RESULTS = Path(__file__).parents[1] / "results"
KINDS: tuple[WorkloadKind, ...] = get_args(WorkloadKind)
DEFAULT = SimulationSettings(verifiers=4, drafters=4, duration_s=35.0, warmup_s=10.0)
LOADS: dict[WorkloadKind, float] = {"chat": 40.0, "system_prompts": 30.0, "agents": 30.0, "random": 30.0}

app = typer.Typer(help="Simulated replicas under the real policies.", no_args_is_help=True, add_completion=False)

Config = Annotated[Path | None, typer.Option(help="YAML file of `SimulationSettings`")]
Seed = Annotated[int | None, typer.Option(help="Instead of the file's")]
Plot = Annotated[Path | None, typer.Option(help="Write a PNG here")]
Save = Annotated[bool, typer.Option(help="Write benchmarks/results/simulator_*.json")]


def settings_of(config: Path | None, seed: int | None) -> SimulationSettings:
    settings = DEFAULT if config is None else read_settings(config, SimulationSettings)
    return settings if seed is None else settings.model_copy(update={"seed": seed})


def save(name: str, result: dict[str, Any], settings: SimulationSettings) -> None:
    path = RESULTS / f"simulator_{name}.json"
    argv = ["python", "-m", "benchmarks.simulator", *sys.argv[1:]]
    write_result(path, result, provenance(argv, seed=settings.seed, settings=settings.model_dump(mode="json")))
    Console().print(f"-> {path}")


@app.command("run")
def run(config: Config = None, seed: Seed = None, plot: Plot = None) -> None:
    """One simulation; the report as JSON."""
    settings = settings_of(config, seed)
    cluster = Cluster(settings)
    cluster.run()
    Console().print_json(data=cluster.report())
    if plot is not None and cluster.scaling.replay.rows:
        plot_replay(cluster.scaling.replay, plot)


@app.command("compare")
def compare_command(
    config: Config = None,
    seed: Seed = None,
    plot: Plot = None,
    write: Save = False,
    kinds: list[str] = list(KINDS),  # noqa: B006
) -> None:
    """All policies on the same load, for each kind of workload."""
    settings = settings_of(config, seed)
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for kind in checked(kinds):
        one = with_workload(settings, kind)
        if config is None:
            one = one.model_copy(update={"load": one.load.model_copy(update={"base": LOADS[kind]})})
        results[kind] = compare(one)
        Console(width=150).print(comparison_table(f"{kind}, {one.load.base:g} requests / s", results[kind]))
    if plot is not None:
        plot_comparison(results, plot)
    if write:
        save("compare", results, settings)


@app.command("breakpoint")
def breakpoint_command(
    config: Config = None,
    seed: Seed = None,
    write: Save = False,
    low: float = 8.0,
    high: float = 72.0,
    rounds: int = 4,
    kinds: list[str] = ["system_prompts"],  # noqa: B006
) -> None:
    """The load at which 5 % of the requests miss the SLO, by bisection."""
    settings = settings_of(config, seed)
    found: dict[str, dict[str, Any]] = {}
    for kind in checked(kinds):
        found[kind] = {}
        for policy in POLICIES:
            rate, tries = breakpoint_of(with_workload(settings, kind), policy, low=low, high=high, rounds=rounds)
            found[kind][policy] = {"requests_per_s": rate, "tries": tries}
    Console().print(breakpoint_table(found))
    if write:
        save("breakpoint", found, settings)


@app.command("scale")
def scale(verifiers: int = 1000, seed: int = 0, plot: Plot = None, write: Save = False) -> None:
    """A step to three times the load, with the autoscaler at work on both pools."""
    settings = scale_settings(verifiers, SCALE_AUTOSCALING, seed)
    _, smooth = fluid(settings)
    replay, single = run_scale(settings)
    results = {"fluid": smooth, "request by request": single}
    Console(width=120).print(scale_table(results))
    Console().print_json(data={"decision_ms": single["decision_ms"], "hit_rate": single["hit_rate"]})
    if plot is not None:
        plot_replay(replay, plot)
    if write:
        events = [vars(event) for event in replay.events]
        save("scale", {**results, "events": events}, settings)


def checked(kinds: list[str]) -> list[WorkloadKind]:
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise typer.BadParameter(f"{unknown[0]}: there is no such workload; allowed: {', '.join(KINDS)}")
    return [kind for kind in KINDS if kind in kinds]


def main() -> None:
    try:
        app()
    except OutriderError as error:
        Console(stderr=True).print(f"error: {error}", markup=False)
        sys.exit(2)


if __name__ == "__main__":
    main()
