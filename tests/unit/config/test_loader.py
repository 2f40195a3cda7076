"""The configuration file: what is valid, and what each mistake is told."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.config.arguments import OutriderArgs
from cluster.config.loader import load_config
from workers.core.errors import ConfigurationError

FOLDER = Path(__file__).parents[3] / "examples"
EXAMPLES = [path for path in sorted(FOLDER.glob("*.yaml")) if "applications:" in path.read_text()]


def _valid() -> dict[str, Any]:
    return {
        "grpc_options": {"port": 9000, "grpc_servicer_functions": []},
        "applications": [
            {
                "name": "outrider",
                "route_prefix": "/",
                "import_path": "cluster.app:build",
                "args": {
                    "model_name": "tiny",
                    "target": {"config": {"model": {"model": "folder"}}},
                    "draft": {"config": {"model": {"model": "folder"}}},
                },
            }
        ],
    }


def _args(document: dict[str, Any]) -> dict[str, Any]:
    args: dict[str, Any] = document["applications"][0]["args"]
    return args


def _load(tmp_path: Path, document: object) -> Any:
    path = tmp_path / "config.yaml"
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document), encoding="utf-8")
    return load_config(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_valid(path: Path) -> None:
    config = load_config(path)
    assert config.application == ("chaos" if path.name == "chaos.yaml" else "outrider")
    assert config.serve_config.applications[0].import_path == "cluster.app:build"


def test_defaults(tmp_path: Path) -> None:
    config = _load(tmp_path, _valid())
    assert config.args == OutriderArgs.model_validate(_args(_valid()))
    assert config.args.target.ray_actor_options.for_serve() == {"num_cpus": 1.0, "num_gpus": 0.0}
    assert config.args.gateway.num_replicas == 1
    assert config.serve_config.grpc_options.port == 9000
    assert not config.serve_config.grpc_options.enable_reflection


Change = Callable[[dict[str, Any]], Any]

MISTAKES: dict[str, tuple[Change, str]] = {
    "unknown key of ours": (
        lambda d: _args(d)["target"]["config"].update(kv_cach={}),
        r"applications\.0\.args\.target\.config\.kv_cach: unknown key \(did you mean kv_cache\?\); allowed: .*kv_cache",
    ),
    "unknown key of the gateway": (
        lambda d: _args(d).update(gateway={"replicas": 2}),
        r"args\.gateway\.replicas: unknown key.*allowed: .*num_replicas",
    ),
    "unknown key at the top": (lambda d: d.update(grpc={}), r"yaml: grpc: unknown key.*; allowed: applications, "),
    "unknown key of an application": (
        lambda d: d["applications"][0].update(arguments={}),
        r"applications\.0\.arguments: unknown key.*; allowed: args, ",
    ),
    "unknown key of Serve's options": (
        lambda d: d["grpc_options"].update(prot=1),
        r"grpc_options\.prot: unknown key \(did you mean port\?\)",
    ),
    "missing": (lambda d: _args(d).pop("model_name"), r"args\.model_name: Field required"),
    "no args at all": (lambda d: d["applications"][0].pop("args"), r"args\.target: Field required"),
    "bounds": (
        lambda d: _args(d)["target"]["config"].update(kv_cache={"num_blocks": 0}),
        r"kv_cache\.num_blocks: .*greater than or equal to 2 \(got 0\)",
    ),
    "choices": (
        lambda d: _args(d)["target"]["config"].update(method="magic"),
        r"config\.method: .*'draft_model', .*'ngram' or 'none' \(got 'magic'\)",
    ),
    "type": (lambda d: _args(d)["target"].update(num_replicas="many"), r"num_replicas: .*integer.* \(got 'many'\)"),
    "model name": (lambda d: _args(d).update(model_name="a b"), r"args\.model_name: .*got 'a b'"),
    "no draft pool": (lambda d: _args(d).pop("draft"), "method draft_model needs a draft pool: add `draft`, or set"),
    "idle draft pool": (
        lambda d: _args(d)["target"]["config"].update(method="ngram"),
        "a draft pool is given, but target.config.method ngram does not use it",
    ),
    "nodes below depth": (
        lambda d: _args(d)["target"]["config"].update(speculation={"max_depth": 8, "max_nodes": 4}),
        r"args\.target: config\.speculation: max_nodes \(4\) must be at least max_depth \(8\)",
    ),
    "step below tree": (
        lambda d: _args(d)["target"]["config"].update(speculation={"max_nodes": 64}, max_tokens_per_step=64),
        r"max_tokens_per_step \(64\) must exceed speculation\.max_nodes \(64\)",
    ),
    "pool below context": (
        lambda d: _args(d)["draft"]["config"].update(
            kv_cache={"num_blocks": 4}, model={"model": "m", "max_context_length": 100}
        ),
        "args.draft: config.kv_cache: 4 blocks of 16 tokens hold less than one context of 100 tokens; .* at least 7",
    ),
    "typical without permission": (
        lambda d: _args(d)["target"]["config"].update(speculation={"default_rule": "typical"}),
        "default_rule: typical needs allow_typical: true",
    ),
    "ranks and replicas of a node": (
        lambda d: _args(d)["draft"].update(
            max_replicas_per_node=1, config={"model": {"model": "m", "tensor_parallel_size": 2}}
        ),
        r"args\.draft: max_replicas_per_node cannot be set with config\.model\.tensor_parallel_size 2",
    ),
    "ranks that reserve nothing": (
        lambda d: _args(d)["target"].update(
            ray_actor_options={"num_cpus": 0}, config={"model": {"model": "m", "tensor_parallel_size": 2}}
        ),
        "ray_actor_options reserve nothing.* each rank needs a bundle of its own: set num_cpus, num_gpus or resources",
    ),
    "a rank on a part of a GPU": (
        lambda d: _args(d)["target"].update(
            ray_actor_options={"num_gpus": 0.5},
            config={"model": {"model": "m", "device": "cuda", "tensor_parallel_size": 2}},
        ),
        r"num_gpus is 0\.5 for each rank of a group of 2; every rank runs on one whole GPU: set it to 1",
    ),
    "too many ranks": (
        lambda d: _args(d)["target"]["config"].update(model={"model": "m", "tensor_parallel_size": 65}),
        r"tensor_parallel_size: .*less than or equal to 64 \(got 65\)",
    ),
    "impatience": (
        lambda d: _args(d)["target"]["config"].update(model={"model": "m", "rank_timeout_s": 0.1}),
        r"rank_timeout_s: .*greater than or equal to 1 \(got 0\.1\)",
    ),
    "gpu not reserved": (
        lambda d: _args(d)["target"]["config"].update(model={"model": "m", "device": "cuda"}),
        "config.model.device cuda needs ray_actor_options.num_gpus above 0",
    ),
    "gpu not used": (
        lambda d: _args(d)["draft"].update(ray_actor_options={"num_gpus": 1}),
        "num_gpus 1 reserves GPUs that config.model.device cpu does not use",
    ),
    "lookup bounds": (
        lambda d: _args(d)["target"]["config"].update(ngram={"prompt_lookup_min": 9}),
        r"prompt_lookup_min \(9\) must not exceed prompt_lookup_max \(4\)",
    ),
    "another application": (
        lambda d: d["applications"][0].update(import_path="other:app"),
        "exactly one needs `import_path: cluster.app:build`, found 0",
    ),
    "no list": (lambda d: d.update(applications={}), "applications: a list of applications is needed"),
    "hidden": (lambda d: d["applications"][0].update(route_prefix=None), "route_prefix: null would hide the applicat"),
    "Serve's own values": (lambda d: d["grpc_options"].update(port="x"), r"grpc_options\.port: .*got 'x'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(tmp_path: Path, mistake: str) -> None:
    _findings(tmp_path, *MISTAKES[mistake])


def _findings(tmp_path: Path, change: Change, problem: str) -> list[str]:
    """The lines about a valid file after `change`, one of which says `problem`; each names the file."""
    document = _valid()
    change(document)
    with pytest.raises(ConfigurationError, match=problem) as caught:
        _load(tmp_path, document)
    lines = str(caught.value).splitlines()
    assert all(line.startswith(str(tmp_path / "config.yaml")) for line in lines)
    return lines


def test_all_findings_are_told_at_once(tmp_path: Path) -> None:
    document = _valid()
    _args(document)["model_name"] = ""
    _args(document)["target"]["config"]["max_running_requests"] = 0
    with pytest.raises(ConfigurationError) as caught:
        _load(tmp_path, document)
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "is not valid YAML"),
        ("[1, 2]", "a mapping is needed at the top"),
        ("", "a mapping is needed at the top"),
        ("applications: []\napplications: []\n", "the key 'applications' is given twice"),
        ("? [1]\n: 2\n", "(?s)is not valid YAML: .*unhashable key"),
        ("since: 2001-99-99\n", "is not valid YAML: .*month must be"),
        ("a: !!bool abc\n", "is not valid YAML: a value does not fit its type"),
        ("a: !!map [1]\n", "is not valid YAML"),
        ("a: !!int ''\n", "is not valid YAML: a value does not fit its type"),
        ("a: !!timestamp abc\n", "is not valid YAML: a value does not fit its type"),
        ("a: " + "[" * 3000, "is not valid YAML: it is nested too deeply"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        _load(tmp_path, text)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        load_config(tmp_path / "none.yaml")


@pytest.mark.parametrize("pool", ["target", "draft"])
def test_ranks_that_do_not_divide_the_model_are_refused_while_the_file_is_read(tmp_path: Path, pool: str) -> None:
    (tmp_path / "model").mkdir()
    sizes = {"num_attention_heads": 12, "num_key_value_heads": 6, "intermediate_size": 192}
    (tmp_path / "model" / "config.json").write_text(json.dumps(sizes))
    document = _valid()
    model = {"model": str(tmp_path / "model"), "tensor_parallel_size": 4}
    _args(document)[pool]["config"]["model"] = model
    with pytest.raises(ConfigurationError, match=rf"args\.{pool}: .* the 6 KV heads of .*; allowed: \[1, 2, 3, 6\]"):
        _load(tmp_path, document)
    model["tensor_parallel_size"] = 3
    assert _load(tmp_path, document)
