"""The real cluster of a chaos run: Ray on two nodes, the application on it, fault proxies in between."""

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from benchmarks.chaos.hub import HUB_VARIABLE, ProxyHub
from benchmarks.faults.processes import replicas
from benchmarks.faults.threaded import ProxyThread, ThreadedProxy
from cluster.local import LocalCluster, StartError, free_port, prepare_environment

__all__ = ["LiveStage", "prepare_ray"]

READY_S = 600.0
START_ATTEMPTS = 4
JOIN_ATTEMPTS = 5
SECOND_NODE = "second_node"  # a resource that only this node has
SECOND_NODE_CPUS = 4


def prepare_ray() -> None:
    """Before anything imports Ray, which refuses a second node on the loopback interface otherwise."""
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "1"
    os.environ.setdefault("RAY_worker_niceness", "0")  # replicas against the load's own threads: equals
    prepare_environment(os.environ, private=True)


class LiveStage:
    """A context manager: everything it started ends with it. Implements `faults.Stage`."""

    def __init__(self, config: Path, *, num_cpus: int, rank_title: str, seed: int, log: Callable[[str], None]) -> None:
        from cluster.config.loader import load_config

        loaded = load_config(config)
        self.application = loaded.application
        self.rank_title = rank_title
        self.args = loaded.args
        self._serve_config = loaded.serve_config
        self._num_cpus = num_cpus
        self._seed = seed
        self._log = log
        self._stack = ExitStack()
        self._node: Any = None
        self._known: dict[str, list[psutil.Process]] = {}
        self._updates = 0

    def __enter__(self) -> Self:
        from benchmarks.faults.nodes import RayNode

        try:
            thread = self._stack.enter_context(ProxyThread(self._seed))
            self._hub = ProxyHub(thread)
            self._stack.callback(self._hub.close)
            self._cluster = self._stack.enter_context(LocalCluster(num_cpus=self._num_cpus, log=self._log))
            self._start_ray()
            self._node = RayNode({SECOND_NODE: 1}, SECOND_NODE_CPUS)
            self._stack.callback(self._end_node)
            self._stack.callback(self._shut_down_serve)
            self._deploy()
            self._cluster.wait_ready(READY_S)
            self._front = thread.open(f"127.0.0.1:{self._cluster.grpc_port}")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _end_node(self) -> None:
        if self._node is not None:
            self._node.kill()

    def _start_ray(self) -> None:
        """On a busy machine Ray gives up on itself now and then."""
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                self._cluster.start_ray()
                return
            except StartError:
                if attempt == START_ATTEMPTS:
                    raise

    @property
    def front(self) -> ThreadedProxy:
        return self._front

    def proxies_of(self, role: str) -> list[ThreadedProxy]:
        return self._hub.by_role(role)

    def lose_node(self) -> Callable[[], object] | None:
        """Taking it back starts another one, in the background: joining takes seconds. None while there is none."""
        node, self._node = self._node, None
        if node is None:
            return None
        node.kill()
        return lambda: threading.Thread(target=self._replace_node, name="new-node").start()

    def _replace_node(self) -> None:
        from benchmarks.faults.nodes import RayNode

        for _ in range(JOIN_ATTEMPTS):
            try:
                self._node = RayNode({SECOND_NODE: 1}, SECOND_NODE_CPUS)
                return
            except RuntimeError as error:
                self._log(f"         {error}; once more")

    def redeploy(self) -> None:
        """With settings that differ, so that Serve replaces every replica."""
        self._updates += 1
        self._deploy()

    def running(self) -> dict[str, int]:
        """Running replicas by deployment."""
        self._known = {name: replicas(self.application, name) for name in self.wanted()}
        return {name: len(found) for name, found in self._known.items()}

    def known(self, deployment: str) -> list[psutil.Process]:
        """Its replicas that live, of those that Serve named last: its controller may be dead right now."""
        return [one for one in self._known.get(deployment, []) if one.is_running()]

    def wanted(self) -> dict[str, int]:
        draft = {"DraftProposer": self.args.draft.num_replicas} if self.args.draft is not None else {}
        return {
            "TargetVerifier": self.args.target.num_replicas,
            "Gateway": self.args.gateway.num_replicas,
            **draft,
        }

    def is_whole(self) -> bool:
        """Whether every replica that is wanted runs and Serve is content."""
        from ray import serve

        try:
            state = serve.status().applications[self.application].status
            return state == "RUNNING" and self.running() == self.wanted()
        except Exception:  # noqa: BLE001 - Serve's controller may be the one that was killed
            return False

    def wait_whole(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self.is_whole():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.25)
        return True

    def memory_mib(self) -> dict[str, float]:
        """Resident memory of all replicas, by deployment."""
        return {
            name: round(sum(one.memory_info().rss for one in replicas(self.application, name)) / 2**20, 1)
            for name in self.wanted()
        }

    def _deploy(self) -> None:
        document = self._serve_config.model_dump(exclude_unset=True)
        document["grpc_options"]["port"] = document["grpc_options"].get("port") or free_port()
        document["http_options"]["port"] = document["http_options"].get("port") or free_port()
        document["proxy_location"] = "HeadOnly"  # two proxies on one machine would want the same port
        for application in document["applications"]:
            if application["name"] == self.application:
                application["import_path"] = "benchmarks.chaos.app:build"
                application["runtime_env"] = {"env_vars": {HUB_VARIABLE: self._hub.address}}
                application["args"] = self._args()
        self._cluster.deploy(type(self._serve_config).model_validate(document))

    def _args(self) -> dict[str, Any]:
        """As in the file, but for one limit of every pool, which differs from update to update."""
        args = self.args.model_dump(mode="json", exclude_unset=True)
        target = self.args.target.config.max_waiting_requests + self._updates
        gateway = self.args.gateway.max_concurrent_requests + self._updates
        args["target"]["config"]["max_waiting_requests"] = target
        args["gateway"] = args.get("gateway", {}) | {"max_concurrent_requests": gateway}
        if self.args.draft is not None:
            args["draft"]["config"]["max_sessions"] = self.args.draft.config.max_sessions + self._updates
        return args

    def _shut_down_serve(self) -> None:
        """While both nodes are there."""
        from ray import serve

        serve.shutdown()
