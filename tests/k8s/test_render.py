"""Everything renders, and what comes out is whole."""

import re
from pathlib import Path

import pytest

from tests.k8s.kustomize import BASE, COMPONENTS, K8S, OVERLAYS, ROOT, Manifest, build, with_components
from tests.k8s.manifests import cluster, containers, groups, of_kind, paths, pod_templates, ray_service

PYPROJECT = (ROOT / "pyproject.toml").read_text()
CONSTRAINTS = (ROOT / "constraints.txt").read_text()


def test_every_overlay_and_component_is_looked_at() -> None:
    assert set(OVERLAYS) == {"kind-cpu", "production", "small"}
    assert len(COMPONENTS) == 9
    folders = {path.parent for path in K8S.rglob("kustomization.yaml")}
    assert folders == {
        BASE,
        K8S / "monitoring",  # generated, part of the component of that name
        *(K8S / "overlays" / one for one in OVERLAYS),
        *(K8S / "components" / one for one in COMPONENTS),
    }


def test_objects_are_whole(objects: list[Manifest]) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(set(names)) == len(names)
    for one in objects:
        assert one["metadata"].get("namespace") == (
            None if one["kind"] in ("Namespace", "PriorityClass") else "outrider"
        )
    assert [name for kind, name in names if kind == "RayService"] == ["outrider"]
    assert not of_kind(objects, "Secret"), "secrets belong into no file"


def test_no_placeholder_is_left(objects: list[Manifest]) -> None:
    assert "put here by" not in ray_service(objects)["spec"]["serveConfigV2"]
    assert not re.search(r"\$\([A-Z]+\)|TODO", str(objects))
    assert not any(where[-1:] == ("<<",) for where, _ in paths(objects)), "a merge that nobody did"


def test_groups_stand_where_patches_look_for_them(objects: list[Manifest]) -> None:
    assert list(groups(ray_service(objects)))[:3] == ["ingress", "draft", "verify"]


def test_images_ray_and_code_have_one_version(objects: list[Manifest]) -> None:
    """The tag says both, and Ray demands the same Ray everywhere."""
    version = re.search(r'^version = "(.+)"$', PYPROJECT, re.M)
    ray = re.search(r"^ray==(.+)$", CONSTRAINTS, re.M)
    assert version
    assert ray
    assert cluster(ray_service(objects))["rayVersion"] == ray[1]
    images = {one["image"] for template in pod_templates(objects) for one in containers(template.spec)}
    ours = {image for image in images if image.startswith("outrider-")}
    assert ours
    assert {image.partition(":")[2] for image in ours} == {f"{version[1]}-ray{ray[1]}"}


def test_a_patch_that_meets_another_base_stops_the_build(tmp_path: Path) -> None:
    """By the `test` operations: what an overlay takes for the drafters must be the drafters."""
    for path in [*K8S.glob("overlays/*/groups.yaml"), K8S / "components/dra/groups.yaml"]:
        text = path.read_text()
        touched = set(re.findall(r"workerGroupSpecs/(\d)/", text))
        tested = set(re.findall(r"op: test\n  path: /spec/rayClusterConfig/workerGroupSpecs/(\d)/groupName", text))
        assert touched <= tested, path
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "kustomization.yaml").write_text(
        "resources: [service.yaml]\npatches: [{path: patch.yaml, target: {kind: RayService}}]\n"
    )
    (broken / "service.yaml").write_text(
        "apiVersion: ray.io/v1\nkind: RayService\nmetadata: {name: x}\n"
        "spec: {rayClusterConfig: {workerGroupSpecs: [{groupName: other}, {groupName: ingress}]}}\n"
    )
    (broken / "patch.yaml").write_text((K8S / "overlays/small/groups.yaml").read_text())
    with pytest.raises(AssertionError, match="testing value"):
        build(broken)


@pytest.mark.parametrize(
    ("on", "names"),
    [
        (BASE, ("dra", "spot-drafts")),
        (BASE, ("spot-drafts", "dra")),
        (K8S / "overlays/production", ("dra",)),  # which has drafters on spot nodes
        (K8S / "overlays/production", ("spot-drafts",)),
    ],
)
def test_components_that_do_not_go_together_stop_the_build(on: Path, names: tuple[str, ...], scratch: Path) -> None:
    with pytest.raises(AssertionError, match=r"kubectl kustomize .*spec/rayClusterConfig/workerGroupSpecs"):
        with_components(scratch, *names, on=on)


def test_spot_drafters_are_drafters(base: list[Manifest], scratch: Path) -> None:
    """The group that is added differs from the drafters' in what makes it spot, and in nothing else."""
    found = groups(ray_service(with_components(scratch, "spot-drafts")))
    assert list(found) == ["ingress", "draft", "verify", "draft-spot"]
    usual, spot = found["draft"], found["draft-spot"]
    assert usual == groups(ray_service(base))["draft"]
    assert (spot.pop("groupName"), spot.pop("priority"), spot.pop("minReplicas")) == ("draft-spot", 10, 0)
    assert spot["labels"].pop("ray.io/market-type") == "spot"
    assert spot["template"]["spec"]["tolerations"].pop()["key"] == "outrider/spot"
    assert spot["template"]["spec"]["nodeSelector"].pop("outrider/spot") == "true"
    del usual["groupName"], usual["minReplicas"]
    assert spot == usual


def test_upgrades_need_no_more_gpus_than_an_overlay_says(
    overlay: list[Manifest], request: pytest.FixtureRequest
) -> None:
    small = "[small]" in request.node.name
    assert ray_service(overlay)["spec"]["upgradeStrategy"] == {"type": "None" if small else "NewCluster"}
