"""`kubectl kustomize`, on overlays and on components. binaries.py finds kubectl."""

import os
import pickle
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.k8s.binaries import kubectl

__all__ = ["BASE", "COMPONENTS", "K8S", "OVERLAYS", "ROOT", "Manifest", "build", "with_components"]

ROOT = Path(__file__).resolve().parents[2]
K8S = ROOT / "deploy/k8s"
BASE = K8S / "base"
OVERLAYS = sorted(path.parent.name for path in (K8S / "overlays").glob("*/kustomization.yaml"))
COMPONENTS = sorted(path.parent.name for path in (K8S / "components").glob("*/kustomization.yaml"))

Manifest = dict[str, Any]


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


def with_components(scratch: Path, *names: str, on: Path = BASE) -> list[Manifest]:
    """The base, or an overlay, with these components, through a kustomization in `scratch`."""
    folder = scratch / "-".join((on.name, *names))
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "resources": [os.path.relpath(on, folder)],
        "components": [os.path.relpath(K8S / "components" / name, folder) for name in names],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
    return build(folder)
