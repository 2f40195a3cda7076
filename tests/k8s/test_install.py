"""The way to production in deploy/k8s/README.md: its overlay builds, its commands exist, its names are right."""

import re
import shlex
import subprocess

import pytest
import yaml
from typer.main import get_command

from cluster.cli.main import app
from tests.k8s.binaries import kubectl
from tests.k8s.chart import differences
from tests.k8s.kustomize import K8S, ROOT, Manifest, build
from tests.k8s.manifests import containers, groups, named, of_kind, pod_templates, ray_service
from tests.k8s.operator_rules import violations
from tests.k8s.references import PREREQUISITES, dangling

TEXT = (K8S / "README.md").read_text()
SECTION = TEXT.split("## Install for production\n", 1)[1].split("\n## ", 1)[0]
MOST_STEPS = 10


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^   ```{language}\n(.*?)^   ```", SECTION, re.M | re.S)
    return [re.sub(r"^   ", "", block, flags=re.M) for block in found]


def commands() -> list[list[str]]:
    """Their words, without variables that stand before them."""
    lines = [shlex.split(line) for block in blocks("sh") for line in block.splitlines()]
    return [words[next(i for i, word in enumerate(words) if "=" not in word) :] for words in lines]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    """What the overlay of the README makes, beside a checkout as the README has it."""
    folder = tmp_path_factory.mktemp("beside")
    (folder / "outrider").symlink_to(ROOT)
    (folder / "outrider-deploy").mkdir()
    (block,) = blocks("yaml")
    (folder / "outrider-deploy/kustomization.yaml").write_text(block)
    return build(folder / "outrider-deploy")


def test_the_steps_are_ten_at_most() -> None:
    numbers = [int(one) for one in re.findall(r"^(\d+)\. \*\*", SECTION, re.M)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert 5 < len(numbers) <= MOST_STEPS


def test_the_overlay_changes_what_is_yours_and_nothing_else(
    installed: list[Manifest], production: list[Manifest]
) -> None:
    found = differences(installed, production)
    added = ["/PersistentVolumeClaim outrider-models/spec/storageClassName: only on one side"]
    assert [one for one in found if "YOUR_" not in one] == added
    (block,) = blocks("yaml")
    said = "\n".join(found)
    for name in set(re.findall(r"YOUR_[A-Z_]+", block)) - {"YOUR_STORAGE_CLASS"}:
        assert name in said
    claim = named(installed, "PersistentVolumeClaim", "outrider-models")
    assert claim["spec"]["storageClassName"] == "YOUR_STORAGE_CLASS"
    assert dangling(installed) == []
    assert violations(ray_service(installed)) == []


def test_nothing_of_our_examples_is_left(installed: list[Manifest]) -> None:
    """Hostnames, class of the gateway, store, registry, products of GPUs: all that production leaves to its owner."""
    text = yaml.safe_dump(installed)
    for word in ("example.com", "envoy", "name: outrider-secrets", "NVIDIA-"):
        assert word not in text, word
    images = {one["image"] for template in pod_templates(installed) for one in containers(template.spec)}
    ours = {one for one in images if "outrider" in one}
    assert ours == {f"YOUR_REGISTRY/outrider-{kind}@sha256:YOUR_DIGEST" for kind in ("cpu", "cuda")}


def test_groups_are_those_that_the_patches_mean(production: list[Manifest]) -> None:
    assert list(groups(ray_service(production))) == ["ingress", "draft", "verify", "draft-spot"]
    assert "# GPUs, where yours are other products: draft, verify, draft-spot." in blocks("yaml")[0]


def test_the_store_holds_what_external_secrets_read(production: list[Manifest]) -> None:
    read = {entry["remoteRef"]["key"] for one in of_kind(production, "ExternalSecret") for entry in one["spec"]["data"]}
    assert set(re.findall(r"^   \| `(outrider/[\w-]+)` \|", SECTION, re.M)) == read
    made = {one["spec"]["target"]["name"] for one in of_kind(production, "ExternalSecret")}
    by_hand = {words[6] for words in commands() if words[:5] == ["kubectl", "-n", "outrider", "create", "secret"]}
    assert made | by_hand == set(PREREQUISITES)


def test_commands_exist() -> None:
    """Of kubectl with their options, of our command line, files and targets."""
    seen = []
    for words in commands():
        seen.append(words[0])
        assert [word for word in words if word.startswith("deploy/") and not (ROOT / word).exists()] == []
        if words[0] == "outrider":
            arguments, group = words[1:], get_command(app)
            while hasattr(group, "commands"):
                group = group.commands[arguments.pop(0)]
            group.make_context("outrider", arguments, resilient_parsing=False)
        elif words[0] == "kubectl":
            rest = words[3:] if words[1] == "-n" else words[1:]
            verb = rest[: 3 if rest[:2] == ["create", "secret"] else 1]
            usage = subprocess.run([kubectl(), *verb, "--help"], capture_output=True, text=True, timeout=60).stdout
            options = [word.split("=")[0] for word in rest if word.startswith("--")]
            assert usage, words
            assert [one for one in options if not re.search(rf"{one}\b", usage)] == [], words
        elif words[:2] == ["docker", "build"]:
            target = words[words.index("--target") + 1]
            assert re.search(rf"^FROM \S+ AS {target}$", (ROOT / "deploy/docker/Dockerfile").read_text(), re.M)
            tag = words[words.index("-t") + 1]
            assert ["docker", "push", tag] in commands()
            assert tag.removeprefix("YOUR_REGISTRY/") in {
                one["image"] for template in pod_templates(build(K8S / "base")) for one in containers(template.spec)
            }
        else:
            assert words[0] in ("docker", "deploy/k8s/smoke.sh"), words
    assert {"kubectl", "docker", "outrider", "deploy/k8s/smoke.sh"} == set(seen)


def test_labels_are_those_that_policies_and_selectors_ask_for(production: list[Manifest]) -> None:
    text = yaml.safe_dump(production)
    labels = [words[-1] for words in commands() if words[1] == "label"]
    assert len(labels) == 3
    for label in labels:
        key, value = label.split("=")
        assert f"{key}: '{value}'" in text


def test_links_inside_lead_to_headings() -> None:
    headings = {
        re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-") for line in re.findall(r"^#+ (.+)$", TEXT, re.M)
    }
    links = re.findall(r"\]\(#([^)]+)\)", TEXT)
    assert "what-has-been-proven-and-what-has-not" in links[:1], "at the top"
    assert [link for link in links if link not in headings] == []


def test_the_overlay_in_the_repository_says_where_to_read() -> None:
    assert 'README.md, "Install for production"' in (K8S / "overlays/production/kustomization.yaml").read_text()
