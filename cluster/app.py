"""The Serve application: `import_path: cluster.app:build` in the YAML file.

Gateway (ingress) → TargetVerifier ⇄ DraftProposer. Engines are imported inside
replicas: importing this module loads no torch.
"""

from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig

from cluster.config.arguments import OutriderArgs
from cluster.config.autoscaling import AutoscalingSettings
from cluster.config.gateway import GatewayConfig
from cluster.config.pools import DrafterPool, Pool, VerifierPool
from cluster.deployments.drafter import DraftProposer
from cluster.deployments.gateway import Gateway
from cluster.deployments.verifier import TargetVerifier

__all__ = ["assemble", "build"]

CONSTRUCTOR_RETRIES = 3
POLICY = "cluster.deployments.autoscaling:Policy"
LOOK_BACK_INTERVALS = 2.5  # the policy reads the last report only; Serve wants to look back on more than one
SPARE_STREAMS = 64  # beyond the gateway's own limit, so that it answers instead of Serve's queue


def build(args: OutriderArgs) -> Application:
    """All deployments, bound to their settings. Each gets its own part of `args` only."""
    return assemble(args, TargetVerifier, DraftProposer)


def assemble(args: OutriderArgs, verifier: type, drafter: type) -> Application:
    """As `build`, with other classes for the two engine pools."""
    target, draft, gateway = args.target, args.draft, args.gateway
    plane = {"rpc": args.internal}
    verifiers = _engine_pool(verifier, target, args.autoscaling).bind(
        target.config.model_copy(update=plane), target.graceful_shutdown_timeout_s
    )
    drafters = (
        _engine_pool(drafter, draft, args.autoscaling).bind(
            draft.config.model_copy(update=plane), draft.graceful_shutdown_timeout_s
        )
        if draft
        else None
    )
    ingress = serve.deployment(
        Gateway,
        **_common(gateway),
        **_replicas(gateway, _gateway_scaling(gateway)),
        max_ongoing_requests=gateway.max_concurrent_requests + SPARE_STREAMS,
        max_surge_percent=100,  # gateways are cheap: start new ones before old ones go
    )
    return ingress.bind(
        gateway,
        args.model_name,
        target.config.model.tokenizer_model,
        draft.config.model.tokenizer_model if draft else None,
        verifiers,
        drafters,
        internal=args.internal,
    )


def _engine_pool(kind: type, pool: VerifierPool | DrafterPool, autoscaling: AutoscalingSettings) -> Any:
    """A deployment whose requests come over its own gRPC server; Serve's router only tells who lives."""
    router = RequestRouterConfig(request_router_class="cluster.router.discovery.DiscoveryRouter")
    return serve.deployment(
        kind,
        **_common(pool) | pool.placement(pool.config.model.tensor_parallel_size),
        **_replicas(pool, _engine_scaling(autoscaling)),
        request_router_config=router,
        max_constructor_retry_count=CONSTRUCTOR_RETRIES,
    )


def _replicas(pool: Pool, scaling: dict[str, Any]) -> dict[str, Any]:
    """A fixed number, or bounds and a policy; `scaling`: the policy, unless the pool has its own."""
    limits = pool.autoscaling
    if limits is None:
        return {"num_replicas": pool.num_replicas}
    if limits.policy is not None:
        scaling = {"policy": AutoscalingPolicy(**limits.policy.model_dump())}
    given = limits.model_dump(exclude={"policy"}, exclude_none=True)
    look_back_s = LOOK_BACK_INTERVALS * limits.metrics_interval_s
    return {"autoscaling_config": AutoscalingConfig(look_back_period_s=look_back_s, **{**scaling, **given})}


def _engine_scaling(settings: AutoscalingSettings) -> dict[str, Any]:
    """Our policy has its own windows, so Serve's delays are 0; its settings travel with the deployment."""
    policy = AutoscalingPolicy(policy_function=POLICY, policy_kwargs=settings.model_dump(mode="json"))
    return {"upscale_delay_s": 0.0, "downscale_delay_s": 0.0, "policy": policy}


def _gateway_scaling(gateway: GatewayConfig) -> dict[str, Any]:
    """Serve sees the requests of gateways, and its own policy scales by them."""
    return {"target_ongoing_requests": gateway.max_concurrent_requests / 2}


def _common(pool: Pool) -> dict[str, Any]:
    options: dict[str, Any] = {
        "ray_actor_options": pool.ray_actor_options.for_serve(),
        "graceful_shutdown_timeout_s": pool.graceful_shutdown_timeout_s,
        "graceful_shutdown_wait_loop_s": min(1.0, pool.graceful_shutdown_timeout_s / 10),
        "health_check_period_s": pool.health_check_period_s,
        "health_check_timeout_s": pool.health_check_timeout_s,
    }
    if pool.max_replicas_per_node is not None:
        options["max_replicas_per_node"] = pool.max_replicas_per_node
    return options
