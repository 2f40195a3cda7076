"""Life cycle of a Ray and Serve that this process starts, or of Serve on a Ray that already runs.

Import it before Ray: the environment that it sets is read while Ray is imported.
"""

import contextlib
import logging
import os
import re
import secrets
import socket
import sys
import time
from collections.abc import Callable, MutableMapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import psutil

if TYPE_CHECKING:
    from ray.serve.schema import ServeDeploySchema

__all__ = ["LocalCluster", "StartError", "free_port", "prepare_environment", "tcp_port_is_free"]

OBJECT_STORE_BYTES = 100 * 2**20
START_ATTEMPTS = 2  # on a busy machine Ray gives up on its own agents after 15 s
HOPELESS = ("ConfigurationError", "NotFoundError", "IncompatibleError")
POLL_S = 0.25
INTERNAL_TOKEN_VARIABLE = "OUTRIDER_INTERNAL_TOKEN"  # noqa: S105  # as in workers.rpc, which would load gRPC before Ray
STOP_TIMEOUT_S = 10.0

Report = Callable[[str], None]


class StartError(Exception):
    """The cluster or the application did not come up; the text says why."""


def free_port() -> int:
    """A TCP port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def prepare_environment(environ: MutableMapping[str, str], *, private: bool) -> None:
    """Set what Ray reads from the environment, without overriding what the user has set.

    Token authentication is always on. A `private` Ray (one node, started by this
    process) gets a token of its own and listens on the loopback interface only;
    joining a running cluster uses the user's token. The replicas of a private Ray
    get an internal token of their own, which they inherit from this process.
    """
    environ.setdefault("RAY_AUTH_MODE", "token")
    environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # A Serve proxy that died is replaced after three checks: with Ray's own 10 s, its node takes no requests for 28 s.
    environ.setdefault("RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S", "1")
    environ.setdefault("RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S", "5")
    if private:
        if "RAY_AUTH_TOKEN_PATH" not in environ:
            environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        environ.setdefault(INTERNAL_TOKEN_VARIABLE, secrets.token_hex(32))
        if "ray" not in sys.modules:  # read once, at import
            environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # in spite of its name: "0" = loopback only


class LocalCluster:
    """Starts (or joins) Ray, starts Serve, deploys; `stop` takes back exactly what it started.

    A context manager: `stop` also runs on errors and on Ctrl-C.
    """

    def __init__(self, *, address: str | None = None, num_cpus: int | None = None, log: Report | None = None) -> None:
        """`address`: of a running Ray ("auto" finds a local one); None starts a private one with `num_cpus`.

        `log` gets a line whenever something new is going on; it may be replaced at any time.
        """
        self._address = address
        self._num_cpus = num_cpus
        self.log: Report = log or (lambda text: None)
        self._applications: list[str] = []
        self._connected = False
        self._started_serve = False
        self.grpc_port = 0

    @property
    def private(self) -> bool:
        """Whether Ray itself is started and stopped here."""
        return self._address is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start_ray(self) -> None:
        """Start or join Ray. Raises `StartError` when there is none at the address."""
        prepare_environment(os.environ, private=self.private)
        import ray

        options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if self.private:
            self.log("Starting Ray on this machine")
            options |= {
                "address": "local",
                "num_cpus": self._num_cpus,
                "num_gpus": None,
                "include_dashboard": False,
                "object_store_memory": OBJECT_STORE_BYTES,
            }
        else:
            self.log(f"Joining Ray at {self._address}")
            options["address"] = self._address
        self._connected = True  # also an interrupted start leaves processes to stop
        for attempt in range(1, (START_ATTEMPTS if self.private else 1) + 1):
            try:
                ray.init(**options)
                return
            except Exception as error:  # Ray raises Exception itself when a node does not come up
                ray.shutdown()
                if attempt == START_ATTEMPTS or not self.private:
                    what = "Ray did not start" if self.private else f"the Ray at {self._address} cannot be joined"
                    raise StartError(f"{what}: {last_line(str(error))}") from error
                self.log("Ray did not start in the time that it gives itself; trying again")

    def deploy(self, config: "ServeDeploySchema") -> None:
        """Start Serve where it does not run yet, and submit the applications, as `serve run CONFIG` does.

        On a Serve that already runs, its own ports stay: `grpc_port` says which.
        """
        from ray import serve
        from ray.serve.config import gRPCOptions
        from ray.serve.context import _get_global_client

        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        if _get_global_client(raise_if_no_controller_running=False) is None:
            self.log("Starting Ray Serve")
            self._started_serve = True
        elif not self._started_serve:
            self.log("Ray Serve already runs: keeping its ports")
        serve.start(
            proxy_location=config.proxy_location,
            http_options=config.http_options.model_dump(),
            grpc_options=gRPCOptions(**config.grpc_options.model_dump()),
            logging_config=config.logging_config,
        )
        client = _get_global_client()
        details = client.get_serve_details()
        self.grpc_port = int(details["grpc_options"]["port"])
        self._applications = [one.name for one in config.applications]
        # Serve deletes what a configuration does not name: what others run here stays only if it is named.
        others = [
            one["deployed_app_config"]
            for name, one in details["applications"].items()
            if one["deployed_app_config"] is not None and name not in self._applications
        ]
        document = config.model_dump(exclude_unset=True)
        client.deploy_apps(type(config).model_validate(document | {"applications": document["applications"] + others}))

    def wait_ready(self, timeout_s: float) -> None:
        """Return when every application runs and the gRPC port answers.

        Raises `StartError` with the reason when one fails, or after `timeout_s`.
        """
        from ray import serve

        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            applications = serve.status().applications
            states = [applications[name] for name in self._applications if name in applications]
            for state in states:
                reason = failure_of(state)
                if reason is not None:
                    raise StartError(reason)
                self.log(f"Starting replicas: {replica_counts(state)}")
            running = len(states) == len(self._applications) and all(one.status == "RUNNING" for one in states)
            if running and port_answers(self.grpc_port):
                return
            time.sleep(POLL_S)
        raise StartError(f"the application did not become ready within {timeout_s:.0f} s{self._obstacles()}")

    def _obstacles(self) -> str:
        """What Serve says about deployments that do not come up, such as resources that no node has."""
        from ray import serve

        applications = serve.status().applications
        states = [applications[name] for name in self._applications if name in applications]
        said = [one.message for state in states for one in state.deployments.values() if one.message]
        return "".join(f"\n{message.strip()}" for message in said)

    def replica_counts(self) -> str:
        """For progress displays: `Gateway 1/1, TargetVerifier 0/1`."""
        from ray import serve

        applications = serve.status().applications
        return ", ".join(replica_counts(applications[name]) for name in self._applications if name in applications)

    def leave(self) -> None:
        """Disconnect and leave what was deployed running."""
        import ray

        self._connected = False
        ray.shutdown()

    def stop(self) -> None:
        """Undo `deploy` and `start_ray`. Returns when the processes are gone; may be called again."""
        if not self._connected:
            return
        import ray
        from ray import serve

        children = _children() if self.private else []
        self._connected = False
        self.log("Stopping")
        # Serve ends by killing its controller, which Ray reports as a failure on stdout.
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            if self._started_serve:
                serve.shutdown()
            elif ray.is_initialized():
                for name in self._applications:
                    serve.delete(name)
            ray.shutdown()
        _await_exit(children)


def failure_of(state: Any) -> str | None:
    """Why an application cannot start, from its Serve status; None while it may still."""
    messages = [state.message, *(one.message for one in state.deployments.values())]
    if state.status in ("DEPLOY_FAILED", "UNHEALTHY"):
        return next((last_line(one) for one in reversed(messages) if one), "the application failed to start")
    # What another try cannot mend is not waited for until Serve gives up.
    return next((last_line(one) for one in messages if any(name in one for name in HOPELESS)), None)


def replica_counts(state: Any) -> str:
    """How many replicas of each deployment run, of how many that exist."""
    counts = []
    for name, deployment in state.deployments.items():
        replicas = deployment.replica_states
        counts.append(f"{name} {replicas.get('RUNNING', 0)}/{sum(replicas.values())}")
    return ", ".join(counts) or "building the application"


def last_line(text: str) -> str:
    """The line of a traceback that says what happened, without the module of the error's class."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = next((line for line in reversed(lines) if "Error:" in line), lines[-1] if lines else "no message")
    return re.sub(r"^(\w+\.)+(?=\w+Error:)", "", found)


def tcp_port_is_free(port: int) -> bool:
    """Whether a server could listen on it, on all interfaces as Serve's gRPC proxy does."""
    with socket.socket(socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def port_answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return True
    except OSError:
        return False


def _children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _await_exit(children: list[psutil.Process]) -> None:
    """Wait for the processes that our private Ray consisted of; psutil compares start times, so pids are safe."""
    _, alive = psutil.wait_procs(children, timeout=STOP_TIMEOUT_S)
    for process in alive:
        process.kill()
    psutil.wait_procs(alive, timeout=STOP_TIMEOUT_S)
