"""What deploy/k8s/README.md says is so, as far as a test can see; and the script that it uses."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from cluster.config.loader import load_config
from tests.k8s.binaries import kubectl
from tests.k8s.kustomize import BASE, COMPONENTS, K8S, OVERLAYS, ROOT, build
from tests.k8s.manifests import containers, groups, pod_templates, quantity, ray_service
from tests.k8s.references import PREREQUISITES

TEXT = (K8S / "README.md").read_text()
MOST_COMMANDS = 10


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)


def quick_start() -> list[str]:
    section = TEXT.split("## Quick start", 1)[1].split("\n## ", 1)[0]
    (block,) = re.findall(r"^```sh\n(.*?)^```", section, re.M | re.S)
    return [line for line in block.splitlines() if line and not line.startswith("#")]


def test_the_quick_start_is_ten_commands_at_most() -> None:
    commands = quick_start()
    assert len(commands) <= MOST_COMMANDS
    images = {
        image["image"] for one in pod_templates(build(K8S / "overlays/kind-cpu")) for image in containers(one.spec)
    }
    for command in commands:
        words = shlex.split(command.removesuffix("&"))
        for word in words:
            if word.startswith("deploy/"):
                assert (ROOT / word).exists(), word
            if word.startswith("outrider-cpu:"):
                assert {word} == images


def test_commands_and_options_exist() -> None:
    """Of our own command line."""
    from typer.main import get_command

    from cluster.cli.main import app

    seen = 0
    for command in quick_start():
        inner = re.fullmatch(r"\w+=\$\((.*)\)", command)  # whose output is kept
        words = shlex.split(command.removesuffix("&") if inner is None else inner[1])
        if "outrider" in words and words[0] == "docker" and "run" in words:
            arguments = words[words.index("outrider") + 1 :]
            group = get_command(app)
            while hasattr(group, "commands"):
                group = group.commands[arguments.pop(0)]
            group.make_context("outrider", arguments, resilient_parsing=False)
            seen += 1
    assert seen == 2


def test_every_part_is_named() -> None:
    for name in (*COMPONENTS, *OVERLAYS):
        assert f"`{name}`" in TEXT, name


def test_links_lead_somewhere() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", TEXT) if "://" not in link]
    assert links
    assert [link for link in links if not (K8S / link).exists()] == []
    for path in re.findall(r"`((?:components|overlays|base)/[\w./-]+)`", TEXT):
        assert (K8S / path).exists(), path


@pytest.mark.parametrize("variant", [BASE, *(K8S / "overlays" / name for name in OVERLAYS)], ids=lambda path: path.name)
def test_the_table_of_sizes_is_that_of_the_manifests(variant: Path) -> None:
    row = next(line for line in TEXT.splitlines() if line.startswith(f"| `{variant.name}` |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    found = {role: [0, 0] for role in ("verify", "draft")}
    service = ray_service(build(variant))
    for group in groups(service).values():
        resources = group["template"]["spec"]["containers"][0]["resources"]
        gpus = int(resources["limits"].get("nvidia.com/gpu", 0))
        role = group["labels"]["outrider/role"]
        if role in found:
            found[role][0] += gpus * group["minReplicas"]
            found[role][1] += gpus * group["maxReplicas"]
        if role == "verify":
            assert resources["limits"]["memory"] in cells[2]
            assert cells[2].startswith(f"{gpus} × " if gpus else "1 CPU")
    assert cells[3:5] == ["{} to {}".format(*found[role]) for role in ("verify", "draft")]
    args = load_config(variant / "serve.yaml").args
    assert args.draft is not None
    names = [Path(pool.config.model.model).name for pool in (args.target, args.draft)]
    assert cells[1] == ", ".join(name.removesuffix("-draft") for name in names)
    config = service["spec"]["rayClusterConfig"]
    head, ingress = config["headGroupSpec"], groups(service)["ingress"]
    cpus = quantity(config["autoscalerOptions"]["resources"]["requests"]["cpu"])
    for number, group in ((1, head), (ingress["minReplicas"], ingress)):
        cpus += number * quantity(group["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    assert float(cells[5]) == cpus


def test_the_script_makes_the_secrets_and_shows_none(tmp_path: Path) -> None:
    """With the real kubectl, which only prints what it would create."""
    log, keys, made = tmp_path / "log", tmp_path / "keys.yaml", tmp_path / "made.yaml"
    keys.write_text("keys: []\n")
    shim = tmp_path / "kubectl"
    shim.write_text(
        f'#!/bin/sh\necho "$*" >> {log}\n'
        'case "$*" in *get*) exit 1 ;; esac\n'
        f'{{ echo "---"; {kubectl()} "$@" --dry-run=client -o yaml; }} >> {made}\n'
    )
    shim.chmod(0o755)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    script = K8S / "create-secrets.sh"
    subprocess.run([script, "outrider", keys], env=environ, check=True, timeout=60, capture_output=True)
    objects = [one for one in yaml.safe_load_all(made.read_text()) if one]
    secrets = {one["metadata"]["name"]: one["data"] for one in objects if one["kind"] == "Secret"}
    assert {name: set(data) for name, data in secrets.items()} == {
        name: keys for name, keys in PREREQUISITES.items() if name not in ("outrider-tls", "outrider-hf-token")
    }
    values = [value for data in secrets.values() for value in data.values()]
    assert len(set(values)) == len(values)
    assert all(value not in log.read_text() for value in values)
    drawn = [next(iter(data.values())) for name, data in secrets.items() if name != "outrider-api-keys"]
    assert all(len(value) == 88 for value in drawn), "64 hexadecimal digits, in base 64"


def test_the_script_says_what_it_wants() -> None:
    answer = subprocess.run(
        [K8S / "create-secrets.sh", "outrider", "nowhere"], capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 2
    assert "usage:" in answer.stderr


def test_what_is_not_proven_is_said() -> None:
    section = TEXT.split("**Not proven", 1)[1]
    for word in ("images build", "operator", "GPUs", "gateway", "policies", "switch"):
        assert word in section
