"""Settings of autoscaling: what contradicts itself is refused in words, in `args` and beside them."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from cluster.app import POLICY
from cluster.config import loader
from cluster.config.arguments import OutriderArgs
from cluster.config.autoscaling import AutoscalingSettings
from cluster.config.loader import load_config
from workers.core.errors import ConfigurationError

EXAMPLE = Path(__file__).parents[3] / "examples" / "autoscaling.yaml"
MODEL = {"config": {"model": {"model": "folder"}}}
BOUNDS = {"min_replicas": 1, "max_replicas": 4}
OWN = {"policy_function": "mine:Policy"}


def args(**changes: Any) -> dict[str, Any]:
    """Both pools scaled; `changes`: of a pool's `autoscaling` (None: without), or of the application's."""
    values: dict[str, Any] = {"model_name": "m", "target": dict(MODEL), "draft": dict(MODEL)}
    for pool in ("target", "draft"):
        limits = changes.pop(pool, BOUNDS)
        if limits is not None:
            values[pool]["autoscaling"] = limits
    return values | changes


def refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        OutriderArgs.model_validate(values)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": {"min_replicas": 3, "max_replicas": 2}}, r"min_replicas \(3\) must not exceed max_replicas \(2\)"),
        ({"target": {**BOUNDS, "initial_replicas": 5}}, r"initial_replicas \(5\) must lie between min_replicas \(1\)"),
        ({"target": {"min_replicas": 0, "max_replicas": 2}}, "greater than or equal to 1"),
        ({"target": {"min_replicas": 1}}, "max_replicas"),
        (
            {"target": {**BOUNDS, "downscale_delay_s": 5}},
            "target.autoscaling.downscale_delay_s is of Serve's own policy",
        ),
        (
            {"draft": {**BOUNDS, "target_ongoing_requests": 5}},
            "draft.autoscaling.target_ongoing_requests is of Serve's",
        ),
        ({"target": {**BOUNDS, "policy": {"policy_function": "no path"}}}, "String should match pattern"),
        ({"target": None, "draft": None, "autoscaling": {}}, "neither target nor draft has `autoscaling`"),
        ({"draft": None, "autoscaling": {"drafters_per_verifier": {"min": 1}}}, "a pool with a fixed num_replicas"),
        (
            {"target": {"min_replicas": 3, "max_replicas": 4}, "autoscaling": {"drafters_per_verifier": {"min": 2}}},
            r"min \(2\) times target.autoscaling.min_replicas \(3\) exceeds draft.autoscaling.max_replicas \(4\)",
        ),
        (
            {"draft": {"min_replicas": 3, "max_replicas": 4}, "autoscaling": {"drafters_per_verifier": {"max": 0.5}}},
            r"max \(0.5\) times target.autoscaling.max_replicas \(4\) is less than draft.autoscaling.min_replicas",
        ),
        ({"autoscaling": {"drafters_per_verifier": {"min": 3, "max": 2}}}, r"min \(3\) must not exceed max \(2\)"),
        (
            {"autoscaling": {"verifiers": {"target_utilization": 0.2}}},
            r"min_latency_utilization \(0.25\) must not exceed",
        ),
        ({"autoscaling": {"verifiers": {"down": {"max_percent": 200}}}}, "less than or equal to 100"),
        ({"autoscaling": {"stale_after_s": float("inf")}}, "a finite number"),
    ],
)
def test_contradictions(changes: dict[str, Any], message: str) -> None:
    refused(args(**changes), message)


def test_a_number_and_bounds_exclude_each_other() -> None:
    values = args()
    values["target"]["num_replicas"] = 2
    refused(values, "num_replicas and autoscaling exclude each other")
    refused(
        {"model_name": "m", "target": MODEL, "draft": MODEL, "gateway": {"num_replicas": 1, "autoscaling": BOUNDS}},
        "num_replicas and autoscaling exclude each other",
    )


def test_every_setting_has_bounds_and_a_description() -> None:
    def walk(schema: dict[str, Any]) -> None:
        for model in (schema, *schema.get("$defs", {}).values()):
            for name, field in model["properties"].items():
                nested = "$ref" in field or field.get("type") in ("boolean", "object")
                assert nested or field.get("description"), name

    walk(AutoscalingSettings.model_json_schema())


# Beside `args`, where only the file's reader can see both


def document(**application: Any) -> dict[str, Any]:
    one = {"name": "o", "route_prefix": "/", "import_path": "cluster.app:build", "args": args(), **application}
    return {"applications": [one]}


def load(tmp_path: Path, content: dict[str, Any]) -> Any:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(content))
    return load_config(path)


@pytest.mark.parametrize(
    ("application", "message"),
    [
        ({"autoscaling_policy": POLICY}, "autoscaling_policy: a mapping is needed"),
        ({"args": args(autoscaling={"drafters_per_verifier": {"min": 1}})}, "scaled one by one keep no ratio; add"),
        (
            {"args": args(target={**BOUNDS, "policy": OWN}), "autoscaling_policy": {"policy_function": POLICY}},
            "args.target.autoscaling.policy: the application's autoscaling_policy would replace it",
        ),
        ({"args": args(target=None, draft=None), "autoscaling_policy": {"policy_function": POLICY}}, "scales nothing"),
        (
            {"autoscaling_policy": {"policy_function": POLICY, "policy_kwargs": {"dry_run": True}}},
            "policy_kwargs: this policy has none; its settings stand in args.autoscaling",
        ),
    ],
)
def test_what_does_not_fit_beside_args(tmp_path: Path, application: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        load(tmp_path, document(**application))
    assert "applications.0." in str(caught.value)


def test_what_fits(tmp_path: Path) -> None:
    ratio = {"drafters_per_verifier": {"min": 1}}
    load(tmp_path, document())
    load(tmp_path, document(args=args(autoscaling=ratio), autoscaling_policy={"policy_function": POLICY}))
    load(tmp_path, document(args=args(target={**BOUNDS, "policy": OWN, "upscale_delay_s": 3})))
    mine = document(args=args(target=None, draft=None), autoscaling_policy={"policy_function": "mine:All"})
    load(tmp_path, mine)


def test_the_policys_name_stands_twice_and_is_the_same() -> None:
    assert loader.POLICY == POLICY
    content = yaml.safe_load(EXAMPLE.read_text())
    assert content["applications"][0]["autoscaling_policy"]["policy_function"] == POLICY


def test_the_example_shows_defaults_where_it_does_not_say_otherwise() -> None:
    given = copy.deepcopy(yaml.safe_load(EXAMPLE.read_text())["applications"][0]["args"]["autoscaling"])
    given["verifiers"].pop("target_ttft_ms")
    given.pop("drafters_per_verifier")
    assert AutoscalingSettings.model_validate(given) == AutoscalingSettings()
