"""`outrider serve CONFIG`: the whole application on a Ray of its own, or on one that already runs."""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from cluster.cli.output import BAD_INPUT, err_console, fail, friendly_errors, out_console, plain
from cluster.local import LocalCluster, StartError, prepare_environment, tcp_port_is_free
from cluster.progress import progress

if TYPE_CHECKING:
    from ray.serve.schema import ServeDeploySchema

__all__ = ["serve"]

WATCH_PERIOD_S = 2.0


def serve(
    config: Annotated[Path, typer.Argument(help="YAML file in Serve's format, with `import_path: cluster.app:build`")],
    port: Annotated[int | None, typer.Option(help="gRPC port instead of the file's", min=1, max=65535)] = None,
    http_port: Annotated[int | None, typer.Option(help="HTTP port instead of the file's", min=0, max=65535)] = None,
    address: Annotated[
        str | None,
        typer.Option(help="Join this Ray (auto = one on this machine) instead of starting one", envvar="RAY_ADDRESS"),
    ] = None,
    num_cpus: Annotated[int | None, typer.Option(help="CPUs of the Ray that is started; default: all", min=1)] = None,
    blocking: Annotated[bool, typer.Option(help="Stay until Ctrl-C; --no-blocking needs --address")] = True,
    timeout: Annotated[float, typer.Option(help="Seconds to wait until everything is ready", min=1.0)] = 600.0,
    check: Annotated[bool, typer.Option("--check", help="Only say whether the file is right")] = False,
) -> None:
    """Serve a model. Prints the address when it is ready; Ctrl-C stops what was started."""
    with friendly_errors():
        if not blocking and address is None:
            raise fail("--no-blocking needs --address: a Ray that this command starts ends with it", BAD_INPUT)
        if address is not None and num_cpus is not None:
            raise fail("--num-cpus is for a Ray that is started; with --address there is one already", BAD_INPUT)
        # First of all: Ray reads the environment while it is imported, which the reader of the file does.
        prepare_environment(os.environ, private=address is None)
        from cluster.config.loader import load_config
        from cluster.config.text_file import name_of

        document = load_config(config).serve_config
        if check:
            out_console().print(f"{plain(name_of(config))} is right", soft_wrap=True)
            return
        apply_ports(document, port, http_port)
        run(document, LocalCluster(address=address, num_cpus=num_cpus), blocking=blocking, timeout_s=timeout)


def apply_ports(document: "ServeDeploySchema", port: int | None, http_port: int | None) -> None:
    if port is not None:
        document.grpc_options.port = port
    if http_port is not None:
        document.http_options.port = http_port


def run(document: "ServeDeploySchema", cluster: LocalCluster, *, blocking: bool, timeout_s: float) -> None:
    """Start, announce, stay."""
    console = err_console()
    if cluster.private and not tcp_port_is_free(document.grpc_options.port):
        raise StartError(f"port {document.grpc_options.port} is in use; choose another with --port")
    _stop_on_signals()
    try:
        with progress(console, "Starting") as report:
            cluster.log = report
            cluster.start_ray()
            _stop_on_signals()  # Ray has put its own in place
            cluster.deploy(document)
            cluster.wait_ready(timeout_s)
        out_console().print(f"Ready: 127.0.0.1:{cluster.grpc_port}", soft_wrap=True)
        sys.stdout.flush()
        if not blocking:
            cluster.leave()
            return
        console.print("[dim]Ctrl-C stops it[/]")
        watch(cluster, console)
    except KeyboardInterrupt:
        pass  # the ordinary end
    finally:
        cluster.log = console.print
        cluster.stop()


def watch(cluster: LocalCluster, console: Console) -> None:
    """Report every change of the replicas' numbers until interrupted."""
    shown = None
    while True:
        counts = cluster.replica_counts()
        if counts != shown and shown is not None:
            console.print(f"[dim]replicas: {counts}[/]", soft_wrap=True)
        shown = counts
        time.sleep(WATCH_PERIOD_S)


def _stop_on_signals() -> None:
    """SIGINT too: a shell starts background jobs with it ignored."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
