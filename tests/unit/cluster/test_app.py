"""Building the application needs neither torch nor a cluster; the router class survives Serve's pickling."""

import subprocess
import sys
from typing import Any

import pytest
from ray import cloudpickle
from ray.serve.config import RequestRouterConfig

from cluster.app import build
from cluster.config.arguments import OutriderArgs
from cluster.deployments.gateway import check_tokenizers
from cluster.router import membership
from workers.core.errors import ConfigurationError

MODEL = {"model": "models/none"}


def arguments(**target: Any) -> OutriderArgs:
    config = {"model": MODEL, **target}
    draft = None if target.get("method") else {"config": {"model": MODEL}, "num_replicas": 2}
    return OutriderArgs.model_validate({"model_name": "m", "target": {"config": config}, "draft": draft})


def test_importing_the_application_loads_no_torch() -> None:
    code = "import sys, cluster.app, cluster.cli.main; sys.exit(int('torch' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


def test_three_deployments() -> None:
    ingress = build(arguments())._bound_deployment
    assert ingress.name == "Gateway"
    verifiers, drafters = ingress.init_args[-2:]
    assert verifiers._bound_deployment.name == "TargetVerifier"
    assert drafters._bound_deployment.name == "DraftProposer"
    assert drafters._bound_deployment.num_replicas == 2


def test_all_replicas_have_the_one_internal_plane() -> None:
    args = arguments().model_dump(exclude_unset=True) | {
        "internal": {"token_file": "/token", "max_message_bytes": 10**6}
    }
    ingress = build(OutriderArgs.model_validate(args))._bound_deployment
    verifiers, drafters = ingress.init_args[-2:]
    planes = [one._bound_deployment.init_args[0].rpc for one in (verifiers, drafters)]
    assert planes == [ingress.init_kwargs["internal"]] * 2
    assert planes[0].token_file == "/token"  # noqa: S105


@pytest.mark.parametrize("pool", ["target", "draft"])
def test_an_internal_plane_of_one_pool_is_refused(pool: str) -> None:
    args = arguments().model_dump(exclude_unset=True)
    args[pool]["config"]["rpc"] = {"token_file": "/token"}
    with pytest.raises(ValueError, match=f"{pool}.config.rpc: an application has one internal plane"):
        OutriderArgs.model_validate(args)


def test_ranks_get_equal_bundles_on_one_node_and_the_labels_of_the_replica() -> None:
    pools = {
        "target": {
            "config": {"model": {**MODEL, "device": "cuda", "tensor_parallel_size": 4}},
            "ray_actor_options": {"num_cpus": 2, "num_gpus": 1, "label_selector": {"gpu-class": "large"}},
        },
        "draft": {
            "config": {"model": {**MODEL, "tensor_parallel_size": 2}},
            "ray_actor_options": {"num_cpus": 0.5, "memory": 2**30, "resources": {"small": 1}},
        },
    }
    verifiers, drafters = build(OutriderArgs.model_validate({"model_name": "m", **pools}))._bound_deployment.init_args[
        -2:
    ]
    target, draft = (one._bound_deployment._replica_config for one in (verifiers, drafters))
    assert target.placement_group_bundles == [{"CPU": 2.0, "GPU": 1.0}] * 4
    assert draft.placement_group_bundles == [{"CPU": 0.5, "memory": 2.0**30, "small": 1.0}] * 2
    assert (target.placement_group_strategy, draft.placement_group_strategy) == ("STRICT_PACK", "STRICT_PACK")
    assert target.placement_group_bundle_label_selector == [{"gpu-class": "large"}] * 4
    assert draft.placement_group_bundle_label_selector is None


def test_a_replica_of_one_process_needs_no_placement_group() -> None:
    verifiers = build(arguments())._bound_deployment.init_args[-2]
    assert verifiers._bound_deployment._replica_config.placement_group_bundles is None


def test_without_a_draft_pool() -> None:
    assert build(arguments(method="none"))._bound_deployment.init_args[-1] is None


def test_the_gateway_takes_more_streams_than_serves_default() -> None:
    assert build(arguments())._bound_deployment.max_ongoing_requests > 1000


def test_the_pickled_router_publishes_into_this_process() -> None:
    """Serve pickles the class by value; what it refers to must still be the one table of the process."""
    config = RequestRouterConfig(request_router_class="cluster.router.discovery.DiscoveryRouter")
    config._serialize_request_router_cls()
    router = cloudpickle.loads(config.get_serialized_request_router_cls())
    assert router.update_replicas.__globals__["membership"] is membership


class FakeTokenizer:
    def __init__(self, tokenizer_hash: str) -> None:
        self.tokenizer_hash = tokenizer_hash
        self.vocab_size = 64


def test_different_tokenizers_are_refused_by_name() -> None:
    check_tokenizers("t", FakeTokenizer("a"), "d", FakeTokenizer("a"))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"target 't'.*draft 'd'.*differ"):
        check_tokenizers("t", FakeTokenizer("a"), "d", FakeTokenizer("b"))  # type: ignore[arg-type]
