"""Values of the chart: all are documented, all do something, and what makes no sense is refused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.k8s.chart import CHART, VALUES, merged, overlay_options, render, render_or_error, run_helm
from tests.k8s.kustomize import BASE, OVERLAYS
from tests.k8s.manifests import changed, paths

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
README = (CHART / "README.md").read_text()
SERVE = (BASE / "serve.yaml").read_text()
ENGINE_PARTS = r"num_[cg]pus: \d+|tensor_parallel_size: \d+"
MODEST = re.sub(ENGINE_PARTS, lambda found: found[0].split(":")[0] + ": 1", SERVE).replace("num_gpus: 1", "num_gpus: 0")
FREE = ("nodeSelector", "podAnnotations")  # whose keys are the user's own
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
        answer = run_helm("lint", "--strict", CHART, *([] if name is None else overlay_options(name)))
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


# Values that cannot carry a number of their own: another value of each, and what must then stand in the objects.
SPECIAL: dict[str, tuple[Any, str]] = {
    "images.cuda.digest": ("sha256:" + "c" * 64, "@sha256:" + "c" * 64),
    "rayClusterDeletionDelaySeconds": (7123, "7123"),  # at least twice what pods have to end
    "images.redis.digest": ("sha256:" + "d" * 64, "@sha256:" + "d" * 64),
    "serveConfig": (MODEST + "# marked\n", "# marked"),
    "models.sources": (["a/marked-model", *VALUES["models"]["sources"]], "a/marked-model"),
    "models.accessModes": (["ReadWriteOnce"], "ReadWriteOnce"),
    "networkPolicy.operatorNamespaces": (["marked-operators"], "marked-operators"),
    "networkPolicy.apiServerCIDRs": (["10.9.8.7/32"], "10.9.8.7/32"),
    "imagePullSecrets": (["marked-registry"], "marked-registry"),
    "gateway.hostname": ("marked.example.com", "marked.example.com"),
    "gateway.healthHostname": ("health.marked.example.com", "health.marked.example.com"),
    "externalSecrets.refreshInterval": ("77m", "77m"),
}
# What parity with the components shows, or a test of its own: `another-registry` and `test_small_numbers_...`.
ELSEWHERE = re.compile(
    r".*\.(enabled|create)|keepOnUninstall|serveConfigRequired|models\.existingClaim|upgradeStrategy\.type|images\.cpu\.digest|images\.(cuda|redis)\.(tag|repository)"
)
SMALL: dict[str, Any] = {  # bounded too closely to be found by a number of their own
    "upgradeStrategy.maxSurgePercent": 50,
    "upgradeStrategy.stepSizePercent": 7,
    "ingress.minReplicas": 3,
    "draft.minReplicas": 3,
    "draft.gpus": 3,
    "verify.minReplicas": 3,
    "verify.gpus": 3,
    "spotDrafts.minReplicas": 3,
    "ingress.spread": "require",
    "draft.spread": "prefer",
    "verify.spread": "require",
}


def marked(where: tuple[str, ...], value: Any, number: int) -> tuple[Any, str]:
    """Another value, with a number that no other has, and how it looks in the objects."""
    key, name = where[-1], ".".join(where)
    if name in SPECIAL:
        return SPECIAL[name]
    if key in FREE:
        return {f"own/{number}": "yes"}, f"own/{number}"
    if key == "affinity":
        return {"podAffinity": {f"own{number}": 1}}, f"own{number}"
    if key == "extraEnv":
        return [{"name": f"OWN_{number}", "value": "x"}], f"OWN_{number}"
    if key == "tolerations":
        return [{"key": f"own-{number}", "operator": "Exists"}], f"own-{number}"
    if isinstance(value, int):
        number += 2000 if key == "terminationGracePeriodSeconds" else 0  # far above all drains
        return number, str(number)
    if key == "objectStoreMemory":
        return (text := f"{number}000000"), text
    if key in ("cpu", "cpuLimit"):
        return (text := f"{number}m"), text
    text = f"{number}Mi" if re.fullmatch(r"\d+Gi", value) else f"marked-{number}"
    return text, text


def test_helm_knows_the_options_of_the_readme() -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", README, re.M | re.S)
    calls = [line for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.startswith("helm ")]
    assert len(calls) == 3
    for call in calls:
        words = call.split()
        command = next(word for word in words[1:] if word in ("upgrade", "test"))
        usage = run_helm(command, "--help").stdout
        assert [word for word in words if word.startswith("--") and not re.search(rf"{word}\b", usage)] == []


def test_every_value_does_something() -> None:
    """All are set to something else at once, and each must be found again in the objects."""
    other: dict[str, Any] = {}
    missing = {}
    for number, (where, value) in enumerate(leaves(VALUES), 701):
        name = ".".join(where)
        if name not in SMALL and not ELSEWHERE.fullmatch(name):
            new, missing[name] = marked(where, value, number)
            other = merged(other, nested(where, new))
    assert len(missing) > 50
    for extra in ({"spotDrafts": {"enabled": True}}, {"dra": {"enabled": True}}):
        text = json.dumps(render(merged(other, ON, extra)))
        missing = {name: mark for name, mark in missing.items() if mark not in text}
    assert missing == {}


@pytest.mark.parametrize("name", SMALL)
def test_small_numbers_do_something_too(name: str) -> None:
    before = merged(ON, {"spotDrafts": {"enabled": True}, "serveConfig": MODEST})
    assert render(merged(before, nested(tuple(name.split(".")), SMALL[name]))) != render(before)


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
        ({"verify": {"spread": "always"}}, "/verify/spread"),
        (
            {"verify": {"drainSeconds": 170}},
            "verify.terminationGracePeriodSeconds: must be at least preStop (5) + drainSeconds + 15 = 190",
        ),
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
        ({"dra": {"enabled": True}, "spotDrafts": {"enabled": True}}, "dra and spotDrafts: not both"),
        ({"spotDrafts": {"enabled": True, "minReplicas": 9}}, "spotDrafts.minReplicas: at most maxReplicas = 8"),
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


@pytest.mark.parametrize("name", OVERLAYS)
def test_an_overlay_without_its_serve_config_is_refused(name: str) -> None:
    """Else the base's would be rendered, whose models and bounds are others."""
    options = overlay_options(name)
    assert isinstance(render_or_error(None, *options), list)
    answer = render_or_error(None, *options[:2])
    assert isinstance(answer, str), "helm took it"
    assert "--set-file serveConfig=FILE" in answer


@pytest.mark.parametrize(
    ("sources", "pool", "model", "missing"),
    [
        (
            ["tiny", "tiny-draft"],
            "target",
            "/models/tiny",
            "/models/Qwen3-0.6B of `draft` is in none of models.sources (tiny,",
        ),
        (["Qwen/Qwen3-0.6B"], "target", "/models/Qwen3-32B/", "/models/Qwen3-32B of `target` is in none"),
        (["Qwen/Qwen3-0.6B"], "target", "/models//Qwen3-32B/deeper", "of `target` is in none"),
        (["Qwen/Qwen3-0.6B"], "target", "/elsewhere/Qwen3-32B", ""),
        (["a/T", "Qwen/Qwen3-0.6B", "more"], "target", "/models/T", ""),
        (["Qwen/Qwen3-32B"], "draft", None, ""),
    ],
)
def test_models_come_from_the_sources(sources: list[str], pool: str, model: str | None, missing: str) -> None:
    document = yaml.safe_load(SERVE)
    args = document["applications"][0]["args"]
    if model is None:
        args[pool] = None
    else:
        args[pool]["config"]["model"]["model"] = model
    answer = render_or_error({"models": {"sources": sources}, "serveConfig": yaml.safe_dump(document)})
    assert isinstance(answer, str) == bool(missing)
    if isinstance(answer, str):
        assert missing in answer
        assert "--set-file serveConfig=FILE" in answer


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
