"""Between Serve's controller and the pure decision of `cluster.autoscaling`.

It runs inside the controller, on its event loop, and an exception there would stop all applications from being
reconciled. So nothing here waits for anything, and whatever goes wrong leads to the present number of replicas.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from ray.serve.autoscaling_policy import replica_queue_length_autoscaling_policy

from cluster.autoscaling.decide import decide
from cluster.autoscaling.snapshot import DrafterSignals, PoolDecision, PoolView, Snapshot, State, VerifierSignals
from cluster.config.autoscaling import AutoscalingSettings

__all__ = ["DRAFTERS", "VERIFIERS", "Autoscaler", "Reports"]

VERIFIERS = "TargetVerifier"
DRAFTERS = "DraftProposer"
REPEAT_S = 300.0
NONE = -1.0  # what replicas report for a latency that they have not seen
VERIFIER_NUMBERS = tuple(one.name for one in fields(VerifierSignals) if one.name != "age_s")  # as they are reported
DRAFTER_NUMBERS = tuple(one.name for one in fields(DrafterSignals) if one.name != "age_s")
LATENCIES = {VERIFIER_NUMBERS.index(name) for name in ("ttft_ms", "itl_ms")}

logger = logging.getLogger("ray.serve")

Clock = Callable[[], float]


class Reports:
    """The last report of each replica of a deployment, with its age on the controller's own clock.

    A report is new when its time stamp is: clocks of other machines are compared with themselves only. A report that
    was read before is not read again, for there are thousands.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """`names`: of the numbers in a report; a report without one of them is none."""
        self._names = names
        self._seen: dict[Any, tuple[float, float, tuple[float, ...]]] = {}  # time stamp, ours at first sight, numbers

    def read(self, raw: Mapping[str, Mapping[Any, Any]], now_s: float) -> list[tuple[float, tuple[float, ...]]]:
        """Age in seconds and numbers of each replica. `raw` as in `AutoscalingContext.raw_metrics`."""
        seen: dict[Any, tuple[float, float, tuple[float, ...]]] = {}
        for replica, row in self._rows(raw):
            if not all(row):
                continue
            stamp = row[0][-1].timestamp
            before = self._seen.get(replica)
            if before is not None and before[0] == stamp:
                seen[replica] = before
            else:
                seen[replica] = stamp, now_s, tuple([float(series[-1].value) for series in row])
        self._seen = seen
        return [(now_s - since_s, numbers) for _, since_s, numbers in seen.values()]

    def _rows(self, raw: Mapping[str, Mapping[Any, Any]]) -> Iterable[tuple[Any, Sequence[Any]]]:
        """Each replica with its series in the order of the names."""
        columns = [raw.get(name, {}) for name in self._names]
        replicas = list(columns[0])
        if all(list(column) == replicas for column in columns):  # as Serve fills them; ids are slow to look up
            return zip(replicas, zip(*(column.values() for column in columns), strict=True), strict=True)
        return ((replica, [column.get(replica, ()) for column in columns]) for replica in replicas)


class Autoscaler:
    """Takes all contexts of an application (its policy), or one (a deployment's policy), as Serve does."""

    def __init__(self, clock: Clock) -> None:
        """`clock`: monotonic seconds."""
        self._clock = clock
        self._state = State()
        self._reports = {VERIFIERS: Reports(VERIFIER_NUMBERS), DRAFTERS: Reports(DRAFTER_NUMBERS)}
        self._given: Mapping[str, Any] | None = None
        self._settings = AutoscalingSettings()
        self._decided_s: float | None = None
        self._targets: dict[str, int] = {}
        self._said: dict[str, tuple[int, float]] = {}  # by pool: the number that was logged last, and when
        self._told: set[str] = set()

    def __call__(self, contexts: Any) -> tuple[Any, dict[Any, Any]]:
        """Never raises. `{DeploymentID: context}` gives `{DeploymentID: replicas}`, one context gives one number."""
        if not isinstance(contexts, dict):
            return self._scale({contexts.deployment_name: contexts})[contexts.deployment_name], {}
        by_name = {identifier.name: context for identifier, context in contexts.items()}
        answer = self._scale(by_name)
        return {identifier: answer[identifier.name] for identifier in contexts}, {}

    def _scale(self, contexts: Mapping[str, Any]) -> dict[str, int | float]:
        answer: dict[str, int | float] = {name: context.target_num_replicas for name, context in contexts.items()}
        try:
            answer |= self._engine_pools(contexts)
            if not self._settings.dry_run:
                answer |= self._others(contexts)
        except Exception as error:  # noqa: BLE001  # whatever it is: Serve must go on
            self._tell_once(f"autoscaling holds all pools as they are: {type(error).__name__}: {error}", error)
        return answer

    def _others(self, contexts: Mapping[str, Any]) -> dict[str, int | float]:
        """Gateways: by the requests that Serve sees, with Serve's own delays."""
        return {
            name: replica_queue_length_autoscaling_policy(context)[0]
            for name, context in contexts.items()
            if name not in self._reports
        }

    def _engine_pools(self, contexts: Mapping[str, Any]) -> dict[str, int]:
        pools = {name: contexts[name] for name in self._reports if name in contexts}
        if not pools:
            return {}
        self._read_settings(next(iter(pools.values())), alone=len(contexts) == 1)
        now_s = self._clock()
        if self._decided_s is None or now_s - self._decided_s >= self._settings.interval_s:
            self._decided_s = now_s
            snapshot = Snapshot(
                now_s,
                self._view(VERIFIERS, pools, now_s, verifier_signals),
                self._view(DRAFTERS, pools, now_s, drafter_signals),
            )
            decision = decide(snapshot, self._settings, self._state)
            self._state = decision.state
            for name, one in ((VERIFIERS, decision.verifiers), (DRAFTERS, decision.drafters)):
                if one is not None:
                    self._targets[name] = one.target
                    self._report(name, one, pools[name].target_num_replicas, now_s)
        return {name: self._targets[name] for name in pools if name in self._targets}

    def _view(
        self, name: str, pools: Mapping[str, Any], now_s: float, signals: Callable[[float, Sequence[float]], Any]
    ) -> PoolView | None:
        context = pools.get(name)
        if context is None:
            return None
        reports = self._reports[name].read(context.raw_metrics or {}, now_s)
        return PoolView(
            current=context.current_num_replicas,
            target=context.target_num_replicas,
            min_replicas=context.capacity_adjusted_min_replicas,
            max_replicas=context.capacity_adjusted_max_replicas,
            replicas=tuple([signals(age_s, numbers) for age_s, numbers in reports]),
        )

    def _read_settings(self, context: Any, *, alone: bool) -> None:
        """`cluster.app` puts them into the policy of each deployment; the application's policy finds them there."""
        given = context.config.policy.policy_kwargs
        if given == self._given:
            return
        self._settings = AutoscalingSettings.model_validate(given)
        self._given = given
        if context.config.upscale_delay_s or context.config.downscale_delay_s:
            self._tell_once("autoscaling: upscale_delay_s and downscale_delay_s of this pool must be 0 in Serve")
        if alone and self._settings.drafters_per_verifier != AutoscalingSettings().drafters_per_verifier:
            self._tell_once(
                "autoscaling: drafters_per_verifier has no effect without the application's autoscaling_policy"
            )

    def _report(self, name: str, one: PoolDecision, target: int, now_s: float) -> None:
        """Every change into the controller's log, and now and then why there is none. A dry run repeats itself."""
        said, said_s = self._said.get(name, (0, -math.inf))
        if now_s - said_s < REPEAT_S and one.proposed in (said, target):
            return
        self._said[name] = one.proposed, now_s
        why = "; ".join(one.reasons)
        if one.proposed == target:
            logger.info("autoscaling keeps %s at %d: %s", name, target, why)
            return
        verb = "would scale" if self._settings.dry_run else "scales"
        logger.info("autoscaling %s %s from %d to %d: %s", verb, name, target, one.proposed, why)

    def _tell_once(self, text: str, error: Exception | None = None) -> None:
        """Once for each kind: this runs ten times a second."""
        kind = text if error is None else type(error).__name__
        if kind not in self._told:
            self._told.add(kind)
            logger.error(text, exc_info=error)


def verifier_signals(age_s: float, numbers: Sequence[float]) -> VerifierSignals:
    """`numbers` in the order of VERIFIER_NUMBERS."""
    values = [None if value == NONE and at in LATENCIES else value for at, value in enumerate(numbers)]
    return VerifierSignals(age_s, *values)  # type: ignore[arg-type]  # None for latencies only


def drafter_signals(age_s: float, numbers: Sequence[float]) -> DrafterSignals:
    """`numbers` in the order of DRAFTER_NUMBERS."""
    return DrafterSignals(age_s, *numbers)
