"""What docs/observability.md says of the Prometheus operator is so for what the manifests make."""

import os
import re
from pathlib import Path

import yaml

from tests.k8s.chart import differences
from tests.k8s.kustomize import K8S, ROOT, Manifest, build
from tests.k8s.manifests import named, of_kind

SECTION = (
    (ROOT / "docs/observability.md").read_text().split("## Prometheus operator and Grafana\n", 1)[1].split("\n## ")[0]
)
BLOCKS = [yaml.safe_load(one) for one in re.findall(r"^```yaml\n(.*?)^```", SECTION, re.M | re.S)]


def test_the_component_holds_all_of_the_folder(production: list[Manifest]) -> None:
    """Applied besides, the folder would be the same objects again."""
    folder = build(K8S / "monitoring")
    assert {one["kind"] for one in folder} == {"PrometheusRule", "ConfigMap"}
    assert differences(folder, [named(production, one["kind"], one["metadata"]["name"]) for one in folder]) == []
    assert of_kind(production, "ServiceMonitor") == []


def test_the_stack_would_find_them(production: list[Manifest]) -> None:
    """What it selects by its release's label by default is what the values open, and dashboards stand where we are."""
    stack, _ = BLOCKS
    opened = {key for key, value in stack["prometheus"]["prometheusSpec"].items() if value is False}
    assert opened == {"podMonitorSelectorNilUsesHelmValues", "ruleSelectorNilUsesHelmValues"}
    assert stack["grafana"]["sidecar"]["dashboards"] == {"searchNamespace": "ALL"}
    dashboards = named(production, "ConfigMap", "outrider-dashboards")["metadata"]
    assert dashboards["labels"]["grafana_dashboard"] == "1"
    assert f'up{{namespace="{dashboards["namespace"]}"}}' in SECTION


def test_a_label_in_an_overlay_reaches_them_and_changes_nothing_else(
    tmp_path: Path, production: list[Manifest]
) -> None:
    _, labels = BLOCKS
    document = {"resources": [os.path.relpath(K8S / "overlays/production", tmp_path)], **labels}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(document))
    objects = build(tmp_path)
    for kind, number in (("PodMonitor", 2), ("PrometheusRule", 1)):
        found = of_kind(objects, kind)
        assert len(found) == number
        assert all(one["metadata"]["labels"]["release"] == "YOUR_RELEASE_OF_THE_STACK" for one in found)
    for one in objects:
        one["metadata"]["labels"].pop("release")
    for one in (*objects, *production):
        one["metadata"]["labels"] = one["metadata"].get("labels", {})
    assert differences(objects, production) == []
