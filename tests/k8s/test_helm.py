"""The chart makes the objects that kustomize makes: of the base, every component, every overlay. No exceptions."""

import copy
import tarfile
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.k8s.chart import CHART, VALUES, differences, merged, overlay_options, render, run_helm
from tests.k8s.conftest import render as kustomize
from tests.k8s.kustomize import BASE, COMPONENTS, OVERLAYS, Manifest, build, with_components
from tests.k8s.manifests import changed, cluster, containers, of_kind, paths, pod_templates, ray_service
from tests.k8s.network import Pod, allowed
from tests.k8s.operator_rules import violations as operator_violations
from tests.k8s.references import dangling
from tests.k8s.security_profile import container_faults, image_faults, literal_secrets, violations
from tests.k8s.strict_schemas import check, own_schemas

# The values that stand for each component.
OPTIONS: dict[str, dict[str, Any]] = {
    "dra": {"dra": {"enabled": True}},
    "external-secrets": {"externalSecrets": {"enabled": True}},
    "gateway": {"gateway": {"enabled": True}},
    "gcs-ft": {"gcsFaultTolerance": {"enabled": True}},
    "incremental-upgrade": {"upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade"}},
    "model-prefetch": {"prefetch": {"enabled": True}},
    "monitoring": {"monitoring": {"enabled": True}},
    "spot-drafts": {"spotDrafts": {"enabled": True}},
    "tracing": {"tracing": {"enabled": True}},
}
# Combinations that no overlay has.

REQUIRED = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}
EXTRAS: dict[str, Any] = {
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": REQUIRED}},
    "podAnnotations": {"example.com/team": "serving"},
    "extraEnv": [
        {"name": "NCCL_DEBUG", "value": "INFO"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
    ],
}


def drafting_on_cpus() -> dict[str, str]:
    """The base's Serve config, whose drafters need no GPU."""
    document = yaml.safe_load((BASE / "serve.yaml").read_text())
    draft = document["applications"][0]["args"]["draft"]
    draft["ray_actor_options"]["num_gpus"] = 0
    draft["config"]["model"]["device"] = "cpu"
    return {"serveConfig": yaml.safe_dump(document)}


MATRIX: dict[str, dict[str, Any]] = {
    "claims-and-all-else": merged(*(one for name, one in OPTIONS.items() if name != "spot-drafts")),
    "claims-for-verifiers-alone": {
        "draft": {"gpus": 0, "acceleratorType": ""},
        "verify": {"acceleratorType": ""},
        **drafting_on_cpus(),
        **OPTIONS["dra"],
    },
    "another-registry": {
        "images": {
            "cpu": {"repository": "registry.example.com:5000/team/outrider-cpu", "digest": "sha256:" + "0" * 64},
            "cuda": {"repository": "registry.example.com:5000/team/outrider-cuda", "tag": "0.2.0"},
        },
        "imagePullSecrets": ["registry"],
        **OPTIONS["gcs-ft"],
        **OPTIONS["model-prefetch"],
    },
    "drafts-on-cpus": {
        "draft": {"gpus": 0, "acceleratorType": "", "cpuLimit": "4"},
        **drafting_on_cpus(),
        **OPTIONS["spot-drafts"],
    },
    "own-nodes": {
        "namespace": {"create": False},
        "head": {"cpu": 8, "cpuLimit": 8, "memory": "16Gi"},
        "models": {"storageClassName": "fast"},
        "verify": {"nodeSelector": {"pool": "big"}, "tolerations": [{"key": "pool", "operator": "Exists"}]},
        "networkPolicy": {"operatorNamespaces": ["operators"], "apiServerCIDRs": ["10.0.0.1/32"]},
    },
    "kept": {"keepOnUninstall": True, **OPTIONS["model-prefetch"], **OPTIONS["spot-drafts"]},
}


def test_the_defaults_are_the_base() -> None:
    assert differences(render(), build(BASE)) == []


@pytest.mark.parametrize("component", COMPONENTS)
def test_an_option_is_a_component(component: str, scratch: Path) -> None:
    objects = render(OPTIONS[component])
    assert differences(objects, with_components(scratch, component)) == []
    assert differences(objects, build(BASE)), "the option does nothing"


@pytest.mark.parametrize("overlay_name", OVERLAYS)
def test_values_of_an_overlay_are_the_overlay(overlay_name: str, scratch: Path) -> None:
    assert differences(render(None, *overlay_options(overlay_name)), kustomize(overlay_name, scratch)) == []


def test_every_difference_is_seen(base: list[Manifest]) -> None:
    """At every place of every object: another value, another type, a key more."""
    seen = 0
    for one, same in zip(copy.deepcopy(base), base, strict=True):
        for where, value in list(paths(one)):
            if where not in ((), ("metadata",)):
                other = {"x": 1} if isinstance(value, list) else [value] if isinstance(value, dict) else f"{value} "
                with changed(one, where, other):
                    assert differences([one], [same]), where
                seen += 1
            if isinstance(value, dict):
                with changed(one, (*where, "more"), True):
                    assert differences([one], [same]), where
        assert differences([one], [same]) == []
    assert seen > 900
    assert differences(base[1:], base)


@pytest.mark.parametrize("name", MATRIX)
def test_other_values_give_sound_objects_too(name: str) -> None:
    """Schemas, the operator's rules, references, the security profile."""
    objects = render(MATRIX[name])
    assert {one["metadata"]["name"]: errors for one in objects if (errors := check(one, own_schemas))} == {}
    assert operator_violations(ray_service(objects)) == []
    assert dangling(objects) == []
    for template in pod_templates(objects):
        assert violations(template) == [], template.owner
        for container in containers(template.spec):
            assert image_faults(container["image"]) == []
            assert literal_secrets(container) == []


def test_whatever_places_pods_and_annotates_them_is_as_kubernetes_wants_it() -> None:
    """By the schema of pods."""
    pools = ("head", "ingress", "draft", "verify")
    extras = {**EXTRAS, "nodeSelector": {"pool": "x"}, "tolerations": [{"key": "pool", "operator": "Exists"}]}
    service = ray_service(render(dict.fromkeys(pools, extras)))
    groups = [cluster(service)["headGroupSpec"], *cluster(service)["workerGroupSpecs"]]
    assert len(groups) == len(pools)
    for group in groups:
        template = group["template"]
        pod = {**template, "apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": "x"}}
        assert check(pod, own_schemas) == []
        assert pod["spec"]["affinity"] == EXTRAS["affinity"]
        assert pod["spec"]["nodeSelector"]["pool"] == "x"
        assert extras["tolerations"][0] in pod["spec"]["tolerations"]
        assert pod["metadata"]["annotations"]["example.com/team"] == "serving"
        assert pod["spec"]["containers"][0]["env"][-2:] == EXTRAS["extraEnv"]


def test_pull_secrets_reach_every_pod_and_digests_every_image() -> None:
    objects = render(MATRIX["another-registry"])
    templates = pod_templates(objects)
    assert len(templates) == 6
    assert all(one.spec["imagePullSecrets"] == [{"name": "registry"}] for one in templates)
    images = {one["image"] for template in templates for one in containers(template.spec)}
    registry = "registry.example.com:5000/team"
    assert images == {
        f"{registry}/outrider-cpu@sha256:{'0' * 64}",
        f"{registry}/outrider-cuda:0.2.0",
        "redis:7.4.6-bookworm",
    }


def test_a_namespace_of_its_own() -> None:
    """Everything goes where the release goes, the Namespace itself where Helm is to make it."""
    everything = merged(*(one for name, one in OPTIONS.items() if name != "dra"), {"priorityClass": {"enabled": True}})
    objects = render(everything, namespace="elsewhere", tests=True)
    assert [one["metadata"]["name"] for one in of_kind(objects, "Namespace")] == ["elsewhere"]
    rest = [one for one in objects if one["kind"] not in ("Namespace", "PriorityClass")]
    assert {one["metadata"]["namespace"] for one in rest} == {"elsewhere"}
    assert of_kind(render({"namespace": {"create": False}}), "Namespace") == []


def test_what_is_kept_is_what_cannot_be_made_again() -> None:
    kept = {"helm.sh/resource-policy": "keep"}
    objects = render(MATRIX["kept"])
    assert [one["kind"] for one in objects if one["metadata"].get("annotations") == kept] == [
        "Namespace",
        "PersistentVolumeClaim",
    ]


def test_the_serve_config_is_the_file_of_the_base_or_another_as_a_whole() -> None:
    text = (BASE / "serve.yaml").read_text()
    assert (CHART / "files/serve.yaml").resolve() == BASE / "serve.yaml"
    assert ray_service(render())["spec"]["serveConfigV2"] == text
    other = text.replace("Qwen3-32B", "another")
    models = {"sources": ["x/another", "Qwen/Qwen3-0.6B"]}
    assert ray_service(render({"serveConfig": other, "models": models}))["spec"]["serveConfigV2"] == other


def test_a_package_is_whole(tmp_path: Path) -> None:
    """The links of the chart become files: it can be used where the repository is not."""
    answer = run_helm("package", CHART, "--destination", tmp_path)
    assert answer.returncode == 0, answer.stderr
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as content:
        assert all(one.isfile() or one.isdir() for one in content.getmembers())
    assert differences(render(OPTIONS["monitoring"], chart=package), render(OPTIONS["monitoring"])) == []


def test_the_versions_are_those_of_the_base() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == VALUES["images"]["cpu"]["tag"] == VALUES["images"]["cuda"]["tag"]
    assert chart["appVersion"].startswith(f"{chart['version']}-ray")


def test_helm_test_asks_from_a_pod_that_the_policies_let_in() -> None:
    objects, usual = render(tests=True), render()
    hooks = [one for one in objects if "helm.sh/hook" in one["metadata"].get("annotations", {})]
    assert differences([one for one in objects if one not in hooks], usual) == []
    policy, pod = hooks
    assert {one["metadata"]["annotations"]["helm.sh/hook"] for one in hooks} == {"test"}
    assert [check(one, own_schemas) for one in hooks] == [[], []]
    (rule,) = policy["spec"]["ingress"]
    assert rule["from"] == [{"podSelector": {"matchLabels": pod["metadata"]["labels"]}}]
    assert [one["port"] for one in rule["ports"]] == [8000, 9000]
    home = {"kubernetes.io/metadata.name": "outrider"}
    tester = Pod("tester", pod["metadata"]["labels"], home)
    for component, port in product(("head", "ingress", "draft", "verify"), (6379, 8000, 8265, 9000)):
        template = next(one for one in pod_templates(objects) if one.labels["app.kubernetes.io/component"] == component)
        target = Pod(component, template.labels, home)
        assert allowed(objects, tester, target, port) == (component != "head" and port in (8000, 9000))
        assert not allowed(usual, tester, target, port)
    spec = pod["spec"]
    assert container_faults(spec["containers"][0]) == []
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    assert {port["port"] for port in ray_service(objects)["spec"]["serveService"]["spec"]["ports"]} == {9000}
