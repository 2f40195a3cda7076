"""Where the loop runs something else than overlays/kind-cpu says, and why. What is not named here runs as it stands.

Two reasons only: all pods share one small machine (ports, files, processor time), and nobody wants to wait minutes
(periods, windows).
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.local import free_port
from tests.k8s.kustomize import Manifest
from tests.k8s.manifests import cluster, groups, replaced, serve_config

__all__ = ["Deviation", "Places", "applied", "of_manifest", "of_serve_config"]

Where = tuple[str | int, ...]
CONFIG: Where = ("spec", "rayClusterConfig")
# Nodes that died are missed after 15 s by default, and a proxy without replicas on its node stays for 30 s.
QUICK_HEAD = {"RAY_health_check_period_ms": "1000", "RAY_health_check_initial_delay_ms": "1000"}
QUICK_SERVE = {"RAY_SERVE_PROXY_MIN_DRAINING_PERIOD_S": "1"}
FREE = ("dashboard-agent-listen-port", "metrics-export-port", "min-worker-port", "max-worker-port")
ANY_PORTS = dict.fromkeys(FREE, "0")  # whichever are free
NO_LOG_MONITOR = "what it shows to drivers is in files too, and four of them cost as much as a replica's start"
DRAFT_IDLE_S = 1
FAST_UP = {"window_s": 1, "period_s": 1}
FAST_DOWN = {"window_s": 2, "period_s": 1}
SEATS = 2  # of a drafter: three quarters of them may be used, so that two requests at a time ask for another drafter


@dataclass(frozen=True)
class Deviation:
    """Another value at one place of a document."""

    where: Where
    value: Any
    why: str


@dataclass(frozen=True)
class Places:
    """What pods have as volumes and Services, on this machine."""

    target: Path
    draft: Path
    keys_file: Path
    temp_dir: Path
    dashboard_port: int
    grpc_port: int
    http_port: int


def applied(document: Manifest, deviations: Iterator[Deviation]) -> Manifest:
    """A copy with all of them. A place that is not there at all fails, except for the last key."""
    document = copy.deepcopy(document)
    for one in deviations:
        document = replaced(document, one.where, one.value)
    return document


def of_manifest(service: Manifest, places: Places) -> Iterator[Deviation]:
    """Of the RayService, its Serve config excepted."""
    head: Where = (*CONFIG, "headGroupSpec")
    params = {
        "port": str(free_port()),
        "dashboard-port": str(places.dashboard_port),
        "dashboard-host": "127.0.0.1",
        "ray-client-server-port": str(free_port()),
        "temp-dir": str(places.temp_dir),
        **ANY_PORTS,
    }
    for key, value in params.items():
        yield Deviation((*head, "rayStartParams", key), value, "all pods share the ports of one machine, and its files")
    yield Deviation((*head, "rayStartParams", "include-log-monitor"), "false", NO_LOG_MONITOR)
    yield _environment(service, head, {**QUICK_HEAD, **QUICK_SERVE}, "a dead node and an idle proxy are seen sooner")
    yield Deviation(
        (*CONFIG, "autoscalerOptions", "env"),
        [{"name": "AUTOSCALER_UPDATE_INTERVAL_S", "value": "1"}, {"name": "AUTOSCALER_METRIC_PORT", "value": "0"}],
        "the autoscaler looks every second instead of every fifth; any port for its metrics",
    )
    for index, name in enumerate(groups(service)):
        group: Where = (*CONFIG, "workerGroupSpecs", index)
        for key, value in ANY_PORTS.items():
            yield Deviation((*group, "rayStartParams", key), value, "all pods share the ports of one machine")
        yield Deviation((*group, "rayStartParams", "include-log-monitor"), "false", NO_LOG_MONITOR)
        yield _environment(service, group, QUICK_SERVE, "an idle proxy is gone sooner")
        yield Deviation((*group, "minReplicas"), 0, "no pod stands already: only the application's demands start them")
        if name == "draft":
            yield Deviation((*group, "idleTimeoutSeconds"), DRAFT_IDLE_S, "an idle pod goes within seconds")


def of_serve_config(service: Manifest, places: Places) -> Iterator[Deviation]:
    """Of the document in serveConfigV2."""
    args: Where = ("applications", 0, "args")
    yield Deviation(("http_options", "host"), "127.0.0.1", "nobody else needs to reach it")
    for kind, port in (("http_options", places.http_port), ("grpc_options", places.grpc_port)):
        yield Deviation((kind, "port"), port, "a port that is free on this machine")
    files: Mapping[tuple[str, ...], Path] = {
        ("target", "config", "model", "model"): places.target,
        ("draft", "config", "model", "model"): places.draft,
        ("gateway", "tenancy", "keys_file"): places.keys_file,
    }
    for where, path in files.items():
        yield Deviation((*args, *where), str(path), "there are no volumes")
    assert "autoscaling" not in serve_config(service)["applications"][0]["args"], "then this must respect it"
    drafters = {
        # Only sessions count: how late drafts are depends on what else this machine does.
        "max_late": 1.0,
        "min_delivery": 0.0,
        "min_accepted_per_tree": 0.0,
        "up": {"max_replicas": 1, "max_percent": 100, **FAST_UP},
        "down": {"max_replicas": 1, "max_percent": 100, **FAST_DOWN},
    }
    yield Deviation((*args, "autoscaling"), {"drafters": drafters}, "windows of seconds instead of minutes")
    yield Deviation((*args, "draft", "autoscaling", "metrics_interval_s"), 0.5, "reports twice a second")
    yield Deviation((*args, "draft", "config", "max_sessions"), SEATS, "a load that two cores carry fills a drafter")


def _environment(service: Manifest, group: Where, variables: Mapping[str, str], why: str) -> Deviation:
    """Further variables for Ray's container of a group."""
    where: Where = (*group, "template", "spec", "containers", 0, "env")
    present: Any = cluster(service)
    for key in where[len(CONFIG) :]:
        present = present[key]
    return Deviation(where, [*present, *({"name": key, "value": value} for key, value in variables.items())], why)
