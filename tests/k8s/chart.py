"""`helm template` on the chart, and how two lists of objects differ."""

import copy
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.k8s.binaries import helm
from tests.k8s.kustomize import K8S, Manifest

__all__ = ["CHART", "VALUES", "differences", "merged", "overlay_options", "render", "render_or_error", "run_helm"]

CHART = K8S / "helm/outrider"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
LINKS = "found symbolic link in path"  # what helm says, to no harm, of the files that the chart shares with the base

Values = dict[str, Any]


def run_helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Its answer; of standard error without what it says of links."""
    answer = subprocess.run([helm(), *map(str, arguments)], capture_output=True, text=True, timeout=120)
    answer.stderr = "".join(line for line in answer.stderr.splitlines(keepends=True) if LINKS not in line)
    return answer


def render_or_error(
    values: Values | None = None, *options: str, namespace: str = "outrider", chart: Path = CHART, tests: bool = False
) -> list[Manifest] | str:
    """All objects that an installation with these values makes (with `tests`, the hooks of `helm test` too), or why
    helm refuses them.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(values or {}, file)
        file.flush()
        arguments = ["template", "outrider", str(chart), "--namespace", namespace, "--values", file.name, *options]
        answer = run_helm(*arguments, *([] if tests else ["--skip-tests"]))
    if answer.returncode != 0:
        return answer.stderr
    assert not answer.stderr, f"helm template warns: {answer.stderr}"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return [one for one in yaml.load_all(answer.stdout, Loader=loader) if one]  # both safe


def render(
    values: Values | None = None, *options: str, namespace: str = "outrider", chart: Path = CHART, tests: bool = False
) -> list[Manifest]:
    """As `render_or_error`, where nothing may be refused."""
    objects = render_or_error(values, *options, namespace=namespace, chart=chart, tests=tests)
    assert not isinstance(objects, str), objects
    return objects


def overlay_options(name: str) -> list[str]:
    """As the README and the files of values say: values of the overlay, and its Serve config."""
    serve = K8S / "overlays" / name / "serve.yaml"
    return ["--values", str(CHART / f"values-{name}.yaml"), "--set-file", f"serveConfig={serve}"]


def merged(*values: Values) -> Values:
    """Values on top of values, as helm does it: maps are merged, all else is replaced."""
    result: Values = {}
    for one in values:
        for key, value in one.items():
            before = result.get(key)
            both = isinstance(value, dict) and isinstance(before, dict)
            result[key] = merged(before, value) if both else copy.deepcopy(value)  # type: ignore[arg-type]
    return result


def differences(ours: list[Manifest], theirs: list[Manifest]) -> list[str]:
    """Every place at which two lists of objects differ, whatever their order. Types count: 1 is not "1", nor True."""
    found: list[str] = []
    _compare(_by_name(ours), _by_name(theirs), "", found)
    return found


def _by_name(objects: list[Manifest]) -> dict[str, Manifest]:
    named = {f"{one['kind']} {one['metadata']['name']}": one for one in objects}
    assert len(named) == len(objects), "two objects of one name"
    return named


def _compare(one: Any, other: Any, where: str, found: list[str]) -> None:
    if isinstance(one, dict) and isinstance(other, dict):
        found += [f"{where}/{key}: only on one side" for key in sorted(one.keys() ^ other.keys(), key=str)]
        for key in one.keys() & other.keys():
            _compare(one[key], other[key], f"{where}/{key}", found)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (mine, yours) in enumerate(zip(one, other, strict=True)):
            _compare(mine, yours, f"{where}/{index}", found)
    elif type(one) is not type(other) or one != other:
        found.append(f"{where}: {one!r} is not {other!r}")
