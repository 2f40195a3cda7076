"""The adapter between Serve's controller and the decision: what it reads, and that nothing gets out of it."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from ray import cloudpickle
from ray.serve._private.common import DeploymentID, ReplicaID, TimeStampedValue
from ray.serve.config import AutoscalingConfig, AutoscalingContext, AutoscalingPolicy

from cluster.app import POLICY, build
from cluster.autoscaling.decide import decide
from cluster.config.arguments import OutriderArgs
from cluster.config.autoscaling import AutoscalingSettings
from cluster.deployments.autoscaler import DRAFTERS, VERIFIERS, Autoscaler, Reports
from cluster.deployments.autoscaling import Policy

BUSY = {
    "running": 32.0,
    "waiting": 2.0,
    "seats": 32.0,
    "kv_usage": 0.1,
    "ttft_ms": -1.0,
    "itl_ms": -1.0,
} | dict.fromkeys(
    ("arrived", "finished", "refused", "demanded_nodes", "delivered_nodes", "proposals", "late", "trees", "accepted"),
    0.0,
)
DRAFTING = {"sessions": 64.0, "max_sessions": 64.0, "busy": 1.0}
AT_ONCE = {"window_s": 0, "period_s": 0, "max_replicas": 100, "max_percent": 100}
SETTINGS = {kind: {"up": AT_ONCE, "down": AT_ONCE} for kind in ("verifiers", "drafters")}


@dataclass
class Clock:
    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Pool:
    """One deployment as Serve's controller sees it."""

    name: str
    values: Mapping[str, float]
    replicas: int = 2
    target: int = 2
    stamp: float = 1.0
    requests: float = 0.0
    settings: dict[str, Any] = field(default_factory=lambda: dict(SETTINGS))

    @property
    def identifier(self) -> DeploymentID:
        return DeploymentID(self.name, "app")

    def context(self) -> AutoscalingContext:
        ids = [ReplicaID(f"r{n}", self.identifier) for n in range(self.replicas)]
        raw = {
            name: {one: [TimeStampedValue(self.stamp - 1, -5.0), TimeStampedValue(self.stamp, value)] for one in ids}
            for name, value in self.values.items()
        }
        config = AutoscalingConfig(
            min_replicas=1,
            max_replicas=10,
            upscale_delay_s=0,
            downscale_delay_s=0,
            target_ongoing_requests=10,
            policy=AutoscalingPolicy(policy_function=POLICY, policy_kwargs=self.settings),
        )
        return AutoscalingContext(
            deployment_id=self.identifier,
            deployment_name=self.name,
            app_name="app",
            current_num_replicas=self.replicas,
            target_num_replicas=self.target,
            running_replicas=ids,
            total_num_requests=self.requests,
            total_queued_requests=0.0,
            aggregated_metrics=None,
            raw_metrics=lambda: raw,
            capacity_adjusted_min_replicas=1,
            capacity_adjusted_max_replicas=10,
            policy_state={},
            last_scale_up_time=None,
            last_scale_down_time=None,
            current_time=0.0,
            config=config,
        )


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    serve = logging.getLogger("ray.serve")
    before, serve.propagate = serve.propagate, True
    with caplog.at_level(logging.INFO, logger="ray.serve"):
        yield caplog
    serve.propagate = before


def scaled(policy: Autoscaler, *pools: Pool) -> dict[str, float]:
    answer, states = policy({one.identifier: one.context() for one in pools})
    assert states == {}
    return {identifier.name: count for identifier, count in answer.items()}


def test_both_pools_and_gateways_together(log: pytest.LogCaptureFixture) -> None:
    pools = Pool(VERIFIERS, BUSY), Pool(DRAFTERS, DRAFTING), Pool("Gateway", {}, requests=40.0)
    assert scaled(Autoscaler(Clock()), *pools) == {VERIFIERS: 3, DRAFTERS: 3, "Gateway": 4.0}
    assert "autoscaling scales TargetVerifier from 2 to 3: running asks for 2.83" in log.text


def test_a_deployment_alone() -> None:
    assert Autoscaler(Clock())(Pool(VERIFIERS, BUSY).context()) == (3, {})
    assert Autoscaler(Clock())(Pool(DRAFTERS, DRAFTING).context()) == (3, {})


def test_between_decisions_the_answer_stays() -> None:
    clock, policy = Clock(), Autoscaler(Clock())
    policy = Autoscaler(clock)
    assert scaled(policy, Pool(VERIFIERS, BUSY))[VERIFIERS] == 3
    idle = BUSY | {"running": 0.0, "waiting": 0.0, "kv_usage": 0.0}
    clock.now_s += 0.5
    assert scaled(policy, Pool(VERIFIERS, idle, target=3, stamp=2.0))[VERIFIERS] == 3
    clock.now_s += 0.5
    assert scaled(policy, Pool(VERIFIERS, idle, target=3, stamp=2.0))[VERIFIERS] == 1


def test_dry_run_changes_nothing_not_even_gateways(log: pytest.LogCaptureFixture) -> None:
    dry = SETTINGS | {"dry_run": True}
    pools = Pool(VERIFIERS, BUSY, settings=dry), Pool("Gateway", {}, requests=40.0)
    policy = Autoscaler(Clock())
    assert scaled(policy, *pools) == {VERIFIERS: 2, "Gateway": 2}
    assert "would scale TargetVerifier from 2 to 3" in log.text


def test_new_settings_are_taken_up() -> None:
    clock = Clock()
    policy = Autoscaler(clock)
    assert scaled(policy, Pool(VERIFIERS, BUSY, settings=SETTINGS | {"dry_run": True}))[VERIFIERS] == 2
    clock.now_s += 1.0
    assert scaled(policy, Pool(VERIFIERS, BUSY))[VERIFIERS] == 3


def test_the_age_of_a_report_is_measured_with_our_own_clock() -> None:
    """Replicas on machines whose clocks are wrong by hours are as good as others; repeated reports grow old."""
    clock = Clock()
    policy = Autoscaler(clock)
    idle = BUSY | {"running": 0.0, "waiting": 0.0, "kv_usage": 0.0}
    assert scaled(policy, Pool(VERIFIERS, idle, stamp=-9e9))[VERIFIERS] == 1
    clock.now_s += 31.0
    assert scaled(policy, Pool(VERIFIERS, idle, stamp=-9e9))[VERIFIERS] == 2
    assert scaled(policy, Pool(VERIFIERS, idle, stamp=-8e9))[VERIFIERS] == 2  # no decision is due
    clock.now_s += 1.0
    assert scaled(policy, Pool(VERIFIERS, idle, stamp=-8e9))[VERIFIERS] == 1


def test_reports_of_replicas_that_are_gone_or_broken() -> None:
    def series(*points: tuple[float, float]) -> list[SimpleNamespace]:
        return [SimpleNamespace(timestamp=stamp, value=value) for stamp, value in points]

    reports = Reports(("a", "b"))
    a = {1: series((0.0, 9), (1.0, 2)), 2: series((5.0, 3)), 3: [], 4: series((5.0, 3))}
    b = {1: series((1.0, 7)), 2: series((5.0, 8)), 3: series((5.0, 8))}
    assert reports.read({"a": a, "b": b}, 10.0) == [(0.0, (2.0, 7.0)), (0.0, (3.0, 8.0))]
    assert reports.read({"a": {1: a[1]}, "b": b}, 12.0) == [(2.0, (2.0, 7.0))]
    assert reports.read({"a": a, "b": b}, 13.0) == [(3.0, (2.0, 7.0)), (0.0, (3.0, 8.0))]
    assert reports.read({"a": a}, 14.0) == []


@pytest.mark.parametrize("values", [{}, {"running": 3.0}, {"nonsense": 1.0}])
def test_replicas_that_report_something_else_are_missing(values: dict[str, float]) -> None:
    assert scaled(Autoscaler(Clock()), Pool(VERIFIERS, values))[VERIFIERS] == 2


def test_it_never_raises_and_says_it_once(log: pytest.LogCaptureFixture) -> None:
    policy, clock = Autoscaler(Clock()), Clock()
    policy = Autoscaler(clock)
    broken = Pool(VERIFIERS, BUSY, settings=SETTINGS | {"stale_after_s": "never"})
    for _ in range(5):
        clock.now_s += 1.0
        assert scaled(policy, broken, Pool("Gateway", {}, requests=40.0)) == {VERIFIERS: 2, "Gateway": 2}
    assert len([record for record in log.records if record.levelno == logging.ERROR]) == 1
    assert "autoscaling holds all pools as they are: ValidationError" in log.text
    assert scaled(policy, Pool(VERIFIERS, BUSY))[VERIFIERS] == 3  # mended


def test_a_context_that_cannot_be_read_holds() -> None:
    context = Pool(VERIFIERS, BUSY).context()
    context._raw_metrics_value = lambda: 1 / 0
    assert Autoscaler(Clock())(context) == (2, {})


def test_what_cannot_work_is_said(log: pytest.LogCaptureFixture) -> None:
    context = Pool(VERIFIERS, BUSY, settings=SETTINGS | {"drafters_per_verifier": {"min": 2}}).context()
    context.config.upscale_delay_s = 30.0
    Autoscaler(Clock())(context)
    assert "upscale_delay_s and downscale_delay_s of this pool must be 0" in log.text
    assert "drafters_per_verifier has no effect without the application's autoscaling_policy" in log.text


def test_serve_can_pickle_and_instantiate_the_class() -> None:
    """By value, as Serve does with the module of a policy; what it refers to stays the one of the process."""
    policy = AutoscalingPolicy(policy_function=POLICY, policy_kwargs={"dry_run": True})
    made = policy.get_policy()(**policy.policy_kwargs)
    assert made(Pool(VERIFIERS, BUSY).context()) == (3, {})
    again = cloudpickle.loads(cloudpickle.dumps(Policy))
    assert again(dry_run=True)._engine_pools.__func__.__globals__["decide"] is decide


# What cluster.app tells Serve

MODEL = {"model": "models/none"}
BOUNDS = {"min_replicas": 2, "max_replicas": 6}


def built(**args: Any) -> tuple[Any, Any, Any]:
    """Gateway, verifiers, drafters."""
    pools = {"target": {"config": {"model": MODEL}}, "draft": {"config": {"model": MODEL}}, "gateway": {}}
    for name, more in args.pop("pools", {}).items():
        pools[name] |= more
    ingress = build(OutriderArgs.model_validate({"model_name": "m", **pools, **args}))._bound_deployment
    verifiers, drafters = (one._bound_deployment for one in ingress.init_args[-2:])
    return ingress, verifiers, drafters


def scaling_of(deployment: Any) -> AutoscalingConfig | None:
    config: AutoscalingConfig | None = deployment._deployment_config.autoscaling_config
    return config


def test_without_settings_numbers_are_fixed() -> None:
    for deployment in built(pools={"target": {"num_replicas": 3}}):
        assert scaling_of(deployment) is None
    assert built(pools={"target": {"num_replicas": 3}})[1].num_replicas == 3


def test_settings_travel_with_the_deployment() -> None:
    scaled_pools = {name: {"autoscaling": BOUNDS} for name in ("target", "draft", "gateway")}
    ingress, verifiers, drafters = built(pools=scaled_pools, autoscaling={"dry_run": True, "interval_s": 2})
    for deployment in (verifiers, drafters):
        config = scaling_of(deployment)
        assert config is not None
        assert (config.min_replicas, config.max_replicas) == (2, 6)
        assert (config.upscale_delay_s, config.downscale_delay_s) == (0, 0)
        assert config.policy.policy_function == POLICY
        assert AutoscalingSettings.model_validate(config.policy.policy_kwargs).dry_run
        assert config.look_back_period_s > config.metrics_interval_s == 2.0
    config = scaling_of(ingress)
    assert config is not None
    assert config.policy.is_default_policy_function()
    assert (config.target_ongoing_requests, config.upscale_delay_s, config.downscale_delay_s) == (512, 30, 600)


def test_a_pool_may_have_a_policy_of_its_own() -> None:
    own = {"policy_function": "math:ceil"}
    limits = {**BOUNDS, "policy": own, "upscale_delay_s": 5, "target_ongoing_requests": 3, "initial_replicas": 4}
    config = scaling_of(built(pools={"target": {"autoscaling": limits}})[1])
    assert config is not None
    assert config.policy.policy_function == "math:ceil"
    assert (config.upscale_delay_s, config.target_ongoing_requests, config.initial_replicas) == (5, 3, 4)
