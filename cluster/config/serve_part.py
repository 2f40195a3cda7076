"""What Serve's own part of the file may say, where Serve looks at it too late or not at all: ports, import paths,
names, policies.
"""

import math
import re
from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from typing import Any

from workers.core.settings import check_text
from workers.core.shown import printable, shown

__all__ = ["DEPLOYMENTS", "serve_problems"]

DEPLOYMENTS = ("Gateway", "TargetVerifier", "DraftProposer")  # as in cluster.app, which takes long to import
HTTP_PORT, GRPC_PORT = 8000, 9000  # Serve's defaults
LARGEST_PORT = 65535
LONGEST_TIMEOUT_S = 86_400.0
POLICY_FORM = "the import path of a function or class, such as package.module:name"
NAME_FORM = "letters, digits and . _ -, beginning with a letter or digit, at most 128"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_DOTTED = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+", re.ASCII)


def serve_problems(document: Mapping[str, Any], ours: int) -> Iterator[str]:
    """What is wrong, each in words that name the key; `ours` is the place of our application. What has not even the
    right type is left to Serve's own validation.
    """
    http, grpc = _section(document, "http_options"), _section(document, "grpc_options")
    yield from _ports(http, grpc)
    if "host" in http:
        yield from _name("http_options.host", http["host"])
    for where, options in (("http_options", http), ("grpc_options", grpc)):
        for key in ("request_timeout_s", "keep_alive_timeout_s"):
            if options.get(key) is not None:
                yield from _timeout(f"{where}.{key}", options[key])
    functions = grpc.get("grpc_servicer_functions")
    for index, one in enumerate(functions if isinstance(functions, list) else []):
        yield from _servicer(f"grpc_options.grpc_servicer_functions.{index}", one)
    for index, application in enumerate(document["applications"]):
        yield from _application(f"applications.{index}", application, index == ours)


def _section(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = document.get(key)
    return found if isinstance(found, dict) else {}


def _ports(http: Mapping[str, Any], grpc: Mapping[str, Any]) -> Iterator[str]:
    first, second = http.get("port", HTTP_PORT), grpc.get("port", GRPC_PORT)
    problems = [*_port("http_options.port", first, 0), *_port("grpc_options.port", second, 1)]
    yield from problems
    if not problems and first == second:
        yield f"grpc_options.port: {second} is the port of http_options too (its default is {HTTP_PORT}); give another"


def _port(where: str, port: object, least: int) -> Iterator[str]:
    if isinstance(port, bool) or not isinstance(port, int) or not least <= port <= LARGEST_PORT:
        free = "; 0 takes a free one" if least == 0 else ""
        yield f"{where}: a whole number from {least} to {LARGEST_PORT} is needed{free} (got {shown(port)})"


def _timeout(where: str, value: object) -> Iterator[str]:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not 0 < number <= LONGEST_TIMEOUT_S:
        yield f"{where}: seconds above 0, at most {LONGEST_TIMEOUT_S:g}, are needed, or null (got {shown(value)})"


def _servicer(where: str, path: object) -> Iterator[str]:
    """Serve's proxies import it when they start, and end where they cannot."""
    if not isinstance(path, str) or _DOTTED.fullmatch(path) is None:
        yield f"{where}: the import path of a function is needed, such as package.module.name (got {shown(path)})"
        return
    try:
        found = resolve_name(path if ":" in path else ":".join(path.rsplit(".", 1)))
    except Exception as error:  # noqa: BLE001 - whatever a module raises while it is imported
        yield f"{where}: {shown(path)} cannot be imported: {type(error).__name__}: {printable(str(error))}"
        return
    if not callable(found):
        yield f"{where}: {shown(path)} is no function"


def _application(where: str, application: Mapping[str, Any], ours: bool) -> Iterator[str]:
    name, prefix = application.get("name"), application.get("route_prefix")
    if not ours:
        yield from _name(f"{where}.name", name)
        yield from _name(f"{where}.import_path", application.get("import_path"))
    elif isinstance(name, str) and _NAME.fullmatch(name) is None:
        yield f"{where}.name: {NAME_FORM} (got {shown(name)})"
    if isinstance(prefix, str) and not prefix.startswith("/"):
        yield f"{where}.route_prefix: it begins with / (got {shown(prefix)})"
    else:
        yield from _name(f"{where}.route_prefix", prefix)
    yield from _policy(f"{where}.autoscaling_policy", application.get("autoscaling_policy"))
    deployments = application.get("deployments")
    for index, one in enumerate(deployments if isinstance(deployments, list) else []):
        if isinstance(one, dict):
            yield from _deployment(f"{where}.deployments.{index}", one, ours)


def _deployment(where: str, deployment: Mapping[str, Any], ours: bool) -> Iterator[str]:
    name, scaling = deployment.get("name"), deployment.get("autoscaling_config")
    if ours and isinstance(name, str) and name not in DEPLOYMENTS:
        yield f"{where}.name: this application has no deployment {shown(name)}; it has {', '.join(DEPLOYMENTS)}"
    if isinstance(scaling, dict):
        yield from _policy(f"{where}.autoscaling_config.policy", scaling.get("policy"))


def _policy(where: str, policy: object) -> Iterator[str]:
    """Whether it can be imported is seen where it runs: it may come with the application's runtime_env."""
    if not isinstance(policy, dict):
        return
    function = policy.get("policy_function")
    if not isinstance(function, str) or _DOTTED.fullmatch(function) is None:
        got = f" (got {shown(function)})" if "policy_function" in policy else ""
        yield f"{where}.policy_function: {POLICY_FORM}, is needed{got}"
    for key in policy:
        if key not in ("policy_function", "policy_kwargs"):
            yield f"{where}.{printable(str(key))}: unknown key; allowed: policy_function, policy_kwargs"
    if not isinstance(policy.get("policy_kwargs", {}), dict):
        yield f"{where}.policy_kwargs: a mapping is needed (got {shown(policy['policy_kwargs'])})"


def _name(where: str, value: object) -> Iterator[str]:
    try:
        if isinstance(value, str):
            check_text(value, needed=True)
    except ValueError as error:
        yield f"{where}: {error} (got {shown(value)})"
