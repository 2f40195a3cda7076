"""Values of the chart: all are documented, all do something, and what makes no sense is refused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.k8s.chart import CHART, VALUES, merged, render, render_or_error, run_helm
from tests.k8s.kustomize import OVERLAYS
from tests.k8s.manifests import changed, paths

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
README = (CHART / "README.md").read_text()
FREE = ("nodeSelector",)  # whose keys are the user's own
ON = {
    name: {"enabled": True}
    for name in ("prefetch", "gateway", "gcsFaultTolerance", "monitoring", "externalSecrets", "priorityClass")
}
ON |= {"upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade"}}  # type: ignore[dict-item]


def leaves(value: Any, where: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every value that one may set, as README.md names it: `draft.gpus`."""
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from leaves(inner, (*where, key))
        else:
            yield (*where, key), inner


def nested(where: tuple[str, ...], value: Any) -> dict[str, Any]:
    for key in reversed(where):
        value = {key: value}
    return dict(value)


def faults(values: dict[str, Any]) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(values)]


def test_lint_finds_nothing() -> None:
    """Neither with the defaults nor with the values of any overlay."""
    for name in (None, *OVERLAYS):
        values = [] if name is None else ["--values", CHART / f"values-{name}.yaml"]
        answer = run_helm("lint", "--strict", CHART, *values)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        assert "WARNING" not in answer.stdout
    assert {path.name for path in CHART.glob("values-*.yaml")} == {f"values-{name}.yaml" for name in OVERLAYS}


def test_lint_would_find_something() -> None:
    answer = run_helm("lint", "--strict", CHART, "--set", "draft.gpus=many")
    assert answer.returncode != 0
    assert "draft/gpus" in answer.stdout + answer.stderr


def test_the_table_of_the_readme_is_values_yaml() -> None:
    rows = dict(re.findall(r"^\| `([\w.]+)` \| `([^`]*)` \| .+ \|$", README, re.M))
    assert rows == {".".join(where): json.dumps(value) for where, value in leaves(VALUES)}


def test_commands_and_links_of_the_readme() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    assert links
    assert [link for link in links if not (CHART / link).exists()] == []
    root = CHART.parents[3]
    named = re.findall(r"(?<![\w/])deploy/k8s/[\w./-]+", README)
    assert named
    assert [path for path in named if not (root / path).exists()] == []


def test_every_value_does_something() -> None:
    """All are set to something else at once, and each must be found again in the objects (or change them, for
    switches).
    """
    other: dict[str, Any] = {}
    expected: dict[str, str] = {}
    number = 21
    for where, value in leaves(merged(VALUES, ON)):
        name = ".".join(where)
        number += 1
        marks: dict[str, tuple[Any, str]] = {
            "images.cuda.digest": ("sha256:" + "c" * 64, "@sha256:" + "c" * 64),
            "images.redis.digest": ("sha256:" + "d" * 64, "@sha256:" + "d" * 64),
            "serveConfig": ("applications: []  # marked", "# marked"),
            "prefetch.script": ("echo marked", "echo marked"),
            "models.sources": (["a/marked-model"], "a/marked-model"),
            "models.accessModes": (["ReadWriteOnce"], "ReadWriteOnce"),
            "networkPolicy.operatorNamespaces": (["marked-operators"], "marked-operators"),
            "networkPolicy.apiServerCIDRs": (["10.9.8.7/32"], "10.9.8.7/32"),
            "imagePullSecrets": (["marked-registry"], "marked-registry"),
            "externalSecrets.refreshInterval": ("77m", "77m"),
            "models.storageClassName": ("marked-class", "marked-class"),
        }
        if name in marks:
            new, found = marks[name]
        elif isinstance(value, bool) or name in ("images.cpu.digest", "upgradeStrategy.type"):
            continue  # by the tests of parity, of digests and of namespaces
        elif where[-1] == "nodeSelector":
            new, found = {f"own/{number}": "yes"}, f"own/{number}"
        elif where[-1] == "tolerations":
            new, found = [{"key": f"own-{number}", "operator": "Exists"}], f"own-{number}"
        elif where[-1] in ("tag", "repository") and where[1] != "cpu":
            continue  # in place of which the digest stands; `another-registry` has them
        elif where[-1] == "objectStoreMemory":
            new = found = f"{number}00000000"
        elif where[-1] in ("minReplicas", "stepSizePercent", "gpus"):
            new, found = number % 16 + 1 if where[-1] == "gpus" else number % 20 + 1, ""
        elif where[-1] == "terminationGracePeriodSeconds":
            new, found = 2000 + number, str(2000 + number)
        elif where[-1] == "maxSurgePercent":
            new, found = 83, "83"
        elif isinstance(value, int):
            new, found = 700 + number, str(700 + number)
        elif re.fullmatch(r"\d+[GM]i", str(value)):
            new = found = f"{700 + number}Mi"
        elif where[-1] in ("cpu", "cpuLimit"):
            new = found = f"{700 + number}m"
        else:
            new = found = f"marked-{number}" + (".example.com" if "ost" in where[-1] else "")
        other, expected[name] = merged(other, nested(where, new)), found
    for extra in ({"spotDrafts": {"enabled": True}}, {"dra": {"enabled": True}}):
        text = json.dumps(render(merged(other, ON, extra)), ensure_ascii=False)
        expected = {name: mark for name, mark in expected.items() if not mark or mark not in text}
    assert sorted(name for name, mark in expected.items() if mark) == []
    counted = {name for name in expected}
    assert counted == {
        "upgradeStrategy.stepSizePercent", "ingress.minReplicas", "draft.minReplicas", "draft.gpus",
        "verify.minReplicas", "verify.gpus", "spotDrafts.minReplicas",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("upgradeStrategy", "stepSizePercent"), 7),
        (("ingress", "minReplicas"), 3),
        (("draft", "minReplicas"), 3),
        (("draft", "gpus"), 3),
        (("verify", "minReplicas"), 3),
        (("verify", "gpus"), 3),
        (("spotDrafts", "minReplicas"), 3),
    ],
)
def test_small_numbers_do_something_too(where: tuple[str, ...], value: int) -> None:
    before = merged(ON, {"spotDrafts": {"enabled": True}})
    assert render(merged(before, nested(where, value))) != render(before)


def test_an_unknown_value_is_refused_wherever_it_stands() -> None:
    assert faults(VALUES) == []
    for where, value in list(paths(VALUES)):
        if isinstance(value, dict) and where[-1:] not in [(key,) for key in FREE]:
            with changed(VALUES, (*where, "replicaz"), 1):
                assert faults(VALUES), where


def test_a_wrong_type_is_refused_wherever_it_stands() -> None:
    for where, value in list(leaves(VALUES)):
        wrong: tuple[Any, ...] = ("yes", 1) if isinstance(value, bool) else (True, None, ["x", 1], {"x": 1})
        for one in wrong:
            with changed(VALUES, where, one):
                assert faults(VALUES), (where, one)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"draft": {"gpuz": 1}}, "gpuz"),
        ({"draft": {"gpus": -1}}, "/draft/gpus"),
        ({"draft": {"memory": "16 GB"}}, "/draft/memory"),
        ({"draft": {"minReplicas": 9}}, "draft.minReplicas: at most maxReplicas = 8"),
        ({"verify": {"minReplicas": 0}}, "/verify/minReplicas"),
        ({"verify": {"drainSeconds": 170}}, "verify.terminationGracePeriodSeconds: must be at least"),
        ({"ingress": {"objectStoreMemory": "1Gi"}}, "/ingress/objectStoreMemory"),
        ({"ingress": {"tolerations": [{"keyy": "x"}]}}, "keyy"),
        ({"images": {"cpu": {"tag": "latest"}}}, "/images/cpu/tag"),
        ({"images": {"cpu": {"digest": "sha256:12"}}}, "/images/cpu/digest"),
        ({"images": {"cpu": {"repository": "Not A Name"}}}, "/images/cpu/repository"),
        ({"upgradeStrategy": {"type": "Recreate"}}, "/upgradeStrategy/type"),
        (
            {"upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade", "stepSizePercent": 50}},
            "upgradeStrategy.stepSizePercent: at most maxSurgePercent = 20",
        ),
        ({"rayClusterDeletionDelaySeconds": 5}, "/rayClusterDeletionDelaySeconds"),
        ({"dra": {"enabled": True}, "spotDrafts": {"enabled": True}}, "not"),
        ({"serveConfig": "just words"}, "serveConfig: must be the text of a Serve config"),
        ({"serveConfig": "a: [1"}, "serveConfig: must be the text of a Serve config"),
        ({"serveConfig": {"applications": []}}, "/serveConfig"),
        ({"models": {"sources": []}}, "/models/sources"),
        ({"models": {"sources": ["a b"]}}, "/models/sources/0"),
        ({"models": {"sources": ["../x"]}}, "/models/sources/0"),
        ({"models": {"accessModes": ["ReadOnlyMany"]}}, "/models/accessModes/0"),
        ({"networkPolicy": {"apiServerCIDRs": ["10.0.0.1"]}}, "/networkPolicy/apiServerCIDRs/0"),
        ({"gateway": {"hostname": "https://outrider.example.com"}}, "/gateway/hostname"),
    ],
)
def test_bad_values_are_refused_by_helm(values: dict[str, Any], words: str) -> None:
    answer = render_or_error(values)
    assert isinstance(answer, str), "helm took it"
    assert words in answer


def test_notes_say_what_is_left_to_do(tmp_path: Path) -> None:
    """Without a cluster: `helm install` as a dry run of the client alone."""

    def notes(*options: str | Path) -> str:
        answer = run_helm("install", "rel", CHART, "--namespace", "ns", "--dry-run=client", *options)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout.split("NOTES:", 1)[1]

    usual = notes()
    for words in ("create-secrets.sh ns", "/models/Qwen3-32B", "helm -n ns test rel", "keepOnUninstall"):
        assert words in usual
    values = tmp_path / "values.yaml"
    switches: dict[str, Any] = {"externalSecrets": {"enabled": True}, "prefetch": {"enabled": True}}
    values.write_text(yaml.safe_dump({**switches, "keepOnUninstall": True}))
    fewer = notes("--values", values)
    assert "create-secrets" not in fewer
    assert "/models/" not in fewer
    assert "keepOnUninstall" not in fewer
