"""Reads the YAML file that `outrider serve` and `serve run` both take.

It is Serve's own format; our part is `args` of the application whose
import_path is `cluster.app:build`. Serve ignores unknown keys at its top level,
so they are refused here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from cluster.config.arguments import OutriderArgs
from cluster.config.explain import MAX_FINDINGS, explain, unknown_key
from cluster.config.serve_part import serve_problems
from cluster.config.text_file import name_of
from cluster.config.yaml_file import read_mapping
from workers.core.errors import ConfigurationError
from workers.core.shown import printable

if TYPE_CHECKING:
    from ray.serve.schema import ServeDeploySchema

__all__ = ["Config", "IMPORT_PATH", "load_config", "our_application"]

IMPORT_PATH = "cluster.app:build"
POLICY = "cluster.deployments.autoscaling:Policy"  # as in cluster.app, which takes long to import


@dataclass(frozen=True)
class Config:
    """A valid file. `serve_config` is all of it, as Serve takes it; `args` the part that is ours."""

    path: Path
    application: str
    args: OutriderArgs
    serve_config: "ServeDeploySchema"


def load_config(path: Path | str) -> Config:
    """Read and check. Raises `ConfigurationError` with the file, the key, the bad value and what is allowed."""
    from ray.serve.schema import ServeDeploySchema  # takes a while

    path = Path(path)
    document = read_mapping(path, "a mapping is needed at the top (Serve's format, with `applications`)")
    _check_keys(document, ServeDeploySchema, path, ())
    try:
        index, application = our_application(document)
    except ConfigurationError as error:
        raise _wrong(path, str(error)) from None
    problems = list(serve_problems(document, index))
    if problems:
        raise _wrong(path, "\n".join(problems[:MAX_FINDINGS]))
    if "route_prefix" in application and application["route_prefix"] is None:
        raise _wrong(path, f"applications.{index}.route_prefix: null would hide the application from gRPC; use /")
    grpc_options = document.setdefault("grpc_options", {})
    if isinstance(grpc_options, dict):
        grpc_options.setdefault("enable_reflection", False)  # Serve's default tells strangers what is served
    prefix = ("applications", str(index), "args")
    try:
        given = application.get("args")
        args = OutriderArgs.model_validate({} if given is None else given)
    except ValidationError as error:
        raise _wrong(path, explain(error, OutriderArgs, prefix)) from None
    problem = autoscaling_problem(args, application.get("autoscaling_policy"))
    if problem is not None:
        raise _wrong(path, f"applications.{index}.{problem}")
    try:
        serve_config = ServeDeploySchema.model_validate(document)
    except ValidationError as error:
        raise _wrong(path, explain(error, ServeDeploySchema)) from None
    except Exception as error:  # it imports what deployments name
        problem = printable(f"{type(error).__name__}: {error}")
        raise _wrong(path, f"applications: Serve cannot take this configuration ({problem})") from error
    return Config(path, str(application.get("name", "default")), args, serve_config)


def our_application(document: Mapping[str, Any]) -> tuple[int, Mapping[str, Any]]:
    """Where the application of ours stands in the list, and what it is; raises `ConfigurationError`."""
    applications = document.get("applications")
    if not isinstance(applications, list) or not all(isinstance(one, dict) for one in applications):
        raise ConfigurationError("applications: a list of applications is needed")
    ours = [(i, one) for i, one in enumerate(applications) if one.get("import_path") == IMPORT_PATH]
    if len(ours) != 1:
        raise ConfigurationError(f"applications: exactly one needs `import_path: {IMPORT_PATH}`, found {len(ours)}")
    return ours[0]


def autoscaling_problem(args: OutriderArgs, policy: object) -> str | None:
    """What does not fit between `args` and the application's own `autoscaling_policy`, which is not part of them."""
    if policy is not None and not isinstance(policy, dict):
        return f"autoscaling_policy: a mapping is needed, such as {{policy_function: {POLICY}}}"
    pools = {"target": args.target, "draft": args.draft}
    limits = {name: pool.autoscaling for name, pool in pools.items() if pool is not None and pool.autoscaling}
    if policy is None:
        if "drafters_per_verifier" in args.autoscaling.model_fields_set:
            return (
                "args.autoscaling.drafters_per_verifier: pools that are scaled one by one keep no ratio; add "
                f"autoscaling_policy: {{policy_function: {POLICY}}} to the application"
            )
        return None
    for name, one in limits.items():
        if one.policy is not None:
            return f"args.{name}.autoscaling.policy: the application's autoscaling_policy would replace it; remove one"
    if str(policy.get("policy_function", "")).replace(":", ".") != POLICY.replace(":", "."):
        return None  # the user's own
    if not limits:
        return "autoscaling_policy: it scales nothing; give args.target or args.draft `autoscaling` with bounds"
    if policy.get("policy_kwargs"):
        return "autoscaling_policy.policy_kwargs: this policy has none; its settings stand in args.autoscaling"
    return None


def _check_keys(value: object, model: type[BaseModel], path: Path, where: tuple[str, ...]) -> None:
    """Refuse unknown keys of Serve's own settings, wherever Serve would ignore them."""
    if not isinstance(value, dict):
        return  # Serve's own validation says what is needed
    for key, inner in value.items():
        field = model.model_fields.get(str(key))
        if field is None:
            raise _wrong(
                path, f"{'.'.join([*where, printable(str(key))])}: {unknown_key(str(key), list(model.model_fields))}"
            )
        kinds = (field.annotation, *getattr(field.annotation, "__args__", ()))
        nested = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
        if nested is None:
            continue
        entries = enumerate(inner) if isinstance(inner, list) else [(None, inner)]
        for index, entry in entries:
            _check_keys(entry, nested, path, (*where, str(key), *(() if index is None else (str(index),))))


def _wrong(path: Path, message: str) -> ConfigurationError:
    return ConfigurationError("\n".join(f"{name_of(path)}: {line}" for line in message.splitlines()))
