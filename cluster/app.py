"""The Serve application: `import_path: cluster.app:build` in the YAML file.

Gateway (ingress) → TargetVerifier ⇄ DraftProposer. Engines are imported inside
replicas: importing this module loads no torch.
"""

from typing import Any

from ray import serve
from ray.serve import Application
from ray.serve.config import RequestRouterConfig

from cluster.config.arguments import OutriderArgs
from cluster.config.pools import Pool
from cluster.deployments.drafter import DraftProposer
from cluster.deployments.gateway import Gateway
from cluster.deployments.verifier import TargetVerifier

__all__ = ["assemble", "build"]

CONSTRUCTOR_RETRIES = 3
SPARE_STREAMS = 64  # beyond the gateway's own limit, so that it answers instead of Serve's queue


def build(args: OutriderArgs) -> Application:
    """All deployments, bound to their settings. Each gets its own part of `args` only."""
    return assemble(args, TargetVerifier, DraftProposer)


def assemble(args: OutriderArgs, verifier: type, drafter: type) -> Application:
    """As `build`, with other classes for the two engine pools."""
    target, draft, gateway = args.target, args.draft, args.gateway
    verifiers = _engine_pool(verifier, target).bind(target.config, target.graceful_shutdown_timeout_s)
    drafters = _engine_pool(drafter, draft).bind(draft.config, draft.graceful_shutdown_timeout_s) if draft else None
    ingress = serve.deployment(
        Gateway,
        **_common(gateway),
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
    )


def _engine_pool(kind: type, pool: Pool) -> Any:
    """A deployment whose requests come over its own gRPC server; Serve's router only tells who lives."""
    router = RequestRouterConfig(request_router_class="cluster.router.discovery.DiscoveryRouter")
    return serve.deployment(
        kind, **_common(pool), request_router_config=router, max_constructor_retry_count=CONSTRUCTOR_RETRIES
    )


def _common(pool: Pool) -> dict[str, Any]:
    options: dict[str, Any] = {
        "num_replicas": pool.num_replicas,
        "ray_actor_options": pool.ray_actor_options.for_serve(),
        "graceful_shutdown_timeout_s": pool.graceful_shutdown_timeout_s,
        "graceful_shutdown_wait_loop_s": min(1.0, pool.graceful_shutdown_timeout_s / 10),
        "health_check_period_s": pool.health_check_period_s,
        "health_check_timeout_s": pool.health_check_timeout_s,
    }
    if pool.max_replicas_per_node is not None:
        options["max_replicas_per_node"] = pool.max_replicas_per_node
    return options
