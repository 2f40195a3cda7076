"""A replay's picture: load, queue, verifiers and drafters over time."""

from pathlib import Path

from cluster.autoscaling.replay import Replay
from workers.core.figure import figure

__all__ = ["plot_replay"]


def plot_replay(result: Replay, path: Path) -> None:
    """Raises `ConfigurationError` where matplotlib is not installed."""
    rows = result.rows
    minutes = [row.time_s / 60 for row in rows]
    with figure(path, 4, 1, size=(11, 10), share_x=True) as (load, queue, verifiers, drafters):
        load.plot(minutes, [row.requests_per_s for row in rows])
        load.set_ylabel("requests / s")
        queue.plot(minutes, [row.waiting for row in rows], label="waiting")
        queue.plot(minutes, [row.running for row in rows], label="running")
        queue.set_ylabel("requests")
        queue.legend(fontsize=8)
        verifiers.step(minutes, [row.needed for row in rows], where="post", linestyle=":", label="needed for this load")
        verifiers.step(minutes, [row.verifier_target for row in rows], where="post", label="target")
        verifiers.step(minutes, [row.verifiers for row in rows], where="post", label="running")
        verifiers.set_ylabel("verifiers")
        verifiers.legend(fontsize=8)
        drafters.step(minutes, [row.drafter_target for row in rows], where="post", label="target")
        drafters.step(minutes, [row.drafters for row in rows], where="post", label="running")
        drafters.set_ylabel("drafters")
        drafters.legend(fontsize=8)
        drafters.set_xlabel("minutes")
        for axes, pool in ((verifiers, "verifiers"), (drafters, "drafters")):
            for event in result.events:
                if event.pool == pool:
                    axes.axvline(event.time_s / 60, color="grey", linewidth=0.4)
