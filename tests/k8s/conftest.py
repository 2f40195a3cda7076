"""What all tests of the manifests look at: the base, every overlay, and the base with each component."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.k8s.kustomize import BASE, COMPONENTS, K8S, OVERLAYS, Manifest, build, with_components

VARIANTS = ["base", *OVERLAYS, *(f"base+{name}" for name in COMPONENTS)]


@pytest.fixture(scope="session")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("kustomize")
    yield folder
    shutil.rmtree(folder)


def render(variant: str, scratch: Path) -> list[Manifest]:
    if variant == "base":
        return build(BASE)
    if variant in OVERLAYS:
        return build(K8S / "overlays" / variant)
    return with_components(scratch, variant.removeprefix("base+"))


@pytest.fixture(params=VARIANTS)
def objects(request: pytest.FixtureRequest, scratch: Path) -> list[Manifest]:
    """All objects of one variant."""
    return render(request.param, scratch)


@pytest.fixture(params=["base", *OVERLAYS])
def overlay(request: pytest.FixtureRequest, scratch: Path) -> list[Manifest]:
    """All objects of what one would apply as it is."""
    return render(request.param, scratch)


@pytest.fixture
def base(scratch: Path) -> list[Manifest]:
    return render("base", scratch)


@pytest.fixture
def production(scratch: Path) -> list[Manifest]:
    return render("production", scratch)
