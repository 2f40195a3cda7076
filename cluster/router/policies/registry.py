"""From settings to a policy."""

import importlib
from typing import Any

from cluster.config.routing import KvAwareConfig, PoolRouting
from cluster.router.policies.base import RoutingPolicy
from cluster.router.policies.kv_aware import KvAware
from cluster.router.policies.scorers import kv_pressure_ms, lateness_ms, load_ms, prefill_ms, queue_ms, session_ms
from cluster.router.policies.simple import ConsistentHash, LeastLoad, PowerOfTwo, RoundRobin
from workers.core.errors import ConfigurationError

__all__ = ["build_policy"]


def build_policy(config: PoolRouting) -> RoutingPolicy:
    """Raises `ConfigurationError` when a class of the user's own cannot be had."""
    match config.policy:
        case "kv_aware":
            return _kv_aware(config.kv_aware)
        case "least_load":
            return LeastLoad()
        case "power_of_two":
            return PowerOfTwo()
        case "round_robin":
            return RoundRobin()
        case "consistent_hash":
            return ConsistentHash(config.max_imbalance)
    return _imported(config.policy, config.options)


def _kv_aware(config: KvAwareConfig) -> KvAware:
    rate = config.default_prefill_tokens_per_s
    return KvAware(
        {
            "prefill": (config.prefill_weight, prefill_ms(rate)),
            "queue": (config.queue_weight, queue_ms(rate)),
            "load": (config.load_weight, load_ms(config.load_ms)),
            "kv_pressure": (
                config.kv_pressure_weight,
                kv_pressure_ms(config.kv_pressure_ms, config.kv_pressure_begins_at),
            ),
            "session": (config.session_weight, session_ms(config.session_ms)),
            "lateness": (config.lateness_weight, lateness_ms()),
        }
    )


def _imported(path: str, options: dict[str, Any]) -> RoutingPolicy:
    module_name, _, class_name = path.partition(":")
    try:
        kind = getattr(importlib.import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"routing policy {path!r}: {error}") from error
    try:
        policy = kind(**options)
    except TypeError as error:
        raise ConfigurationError(f"routing policy {path!r} does not take the options {options}: {error}") from error
    if not callable(getattr(policy, "costs", None)):
        raise ConfigurationError(f"routing policy {path!r} has no method `costs(request, pool)`")
    made: RoutingPolicy = policy
    return made
