"""Whatever one object names of another is there."""

from pathlib import Path

import pytest

from cluster.config.loader import load_config
from tests.k8s.kustomize import BASE, K8S, OVERLAYS, Manifest
from tests.k8s.manifests import changed, named, of_kind, pod_templates
from tests.k8s.references import PREREQUISITES, dangling, references

README = K8S / "README.md"


def test_nothing_dangles(objects: list[Manifest]) -> None:
    assert dangling(objects) == []


def test_every_broken_reference_is_found(production: list[Manifest]) -> None:
    """Each one of all: name another object, or another key of it."""
    seen = set()
    for one in production:
        for reference in list(references(one)):
            seen.add(reference.kind)
            if reference.where[-1] != "redisAddress":
                with changed(one, reference.where, "elsewhere"):
                    assert dangling(production), reference
            if isinstance(reference.part, str) and reference.kind in ("Secret", "ConfigMap"):
                with changed(one, (*reference.where[:-1], "key"), "elsewhere"):
                    assert dangling(production), reference
    assert seen == {
        "ConfigMap",
        "Gateway",
        "PersistentVolumeClaim",
        "PriorityClass",
        "Secret",
        "Service",
        "ServiceAccount",
    }


def test_a_mount_without_a_volume_is_found(production: list[Manifest]) -> None:
    for template in pod_templates(production):
        for index, volume in enumerate(template.spec.get("volumes", [])):
            with changed(template.spec["volumes"], (index,), {**volume, "name": "other"}):
                assert len(dangling(production)) >= 2, (template.owner, volume)


def test_external_secrets_make_what_the_readme_asks_for(production: list[Manifest]) -> None:
    made = {one["spec"]["target"]["name"]: one["spec"]["data"] for one in of_kind(production, "ExternalSecret")}
    for name, data in made.items():
        assert {entry["secretKey"] for entry in data} == PREREQUISITES[name]
    assert set(PREREQUISITES) - set(made) == {"outrider-tls", "outrider-hf-token"}
    for name, keys in PREREQUISITES.items():
        assert name in README.read_text()
        assert all(key in README.read_text() for key in keys - {"tls.crt", "tls.key"}), name


@pytest.mark.parametrize("variant", [BASE, *(K8S / "overlays" / name for name in OVERLAYS)], ids=lambda path: path.name)
def test_pods_wait_for_the_models_that_they_load(variant: Path, request: pytest.FixtureRequest) -> None:
    from tests.k8s.kustomize import build

    sources = named(build(variant), "ConfigMap", "outrider-models")["data"]["sources"].split()
    fetched = {f"/models/{source.rsplit('/', 1)[-1]}" for source in sources}
    args = load_config(variant / "serve.yaml").args
    assert args.draft is not None
    assert {args.target.config.model.model, args.draft.config.model.model} == fetched


def test_everybody_who_loads_models_waits(objects: list[Manifest]) -> None:
    loading = 0
    for template in pod_templates(objects):
        mounts = [one for each in template.spec["containers"] for one in each.get("volumeMounts", [])]
        if template.group is not None and any(one["name"] == "models" for one in mounts):
            loading += 1
            assert [one["name"] for one in template.spec["initContainers"]] == ["wait-for-models"]
            assert all(one.get("readOnly") for one in mounts if one["name"] == "models")
    assert loading >= 3
