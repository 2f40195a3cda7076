"""Policies and their settings."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cluster.config.routing import PoolRouting
from cluster.router.policies.base import cheapest_first
from cluster.router.policies.registry import build_policy
from tests.unit.router.pools import Rig, request
from workers.core.errors import ConfigurationError, InternalError


def loads(rig: Rig, times: int) -> Counter[str]:
    return Counter(rig.chosen(request(range(i, i + 64))) for i in range(times))


def test_round_robin_takes_turns_whatever_the_load() -> None:
    rig = Rig(settings={"policy": "round_robin"})
    rig.report("a", running_requests=8)
    assert loads(rig, 9) == {"a": 3, "b": 3, "c": 3}


def test_the_policy_of_the_guide_does_what_it_says() -> None:
    guide = (Path(__file__).parents[3] / "docs/routing.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", guide, re.DOTALL)
    assert code is not None
    names: dict[str, Any] = {}
    exec(code[1], names)  # noqa: S102  # our own page
    rig = Rig()
    rig.pool._policy = names["FewestFullCaches"](full_at=0.5)
    rig.report("a", free_kv_blocks=400)
    rig.report("b", running_requests=4)
    assert [rig.chosen(request(range(i, i + 64))) for i in range(4)] == ["c"] * 4


def test_least_load() -> None:
    rig = Rig(settings={"policy": "least_load"})
    rig.report("a", running_requests=4)
    assert loads(rig, 8) == {"b": 4, "c": 4}


def test_power_of_two_never_takes_the_most_loaded_of_two() -> None:
    rig = Rig(("a", "b"), settings={"policy": "power_of_two"})
    rig.report("a", running_requests=20)
    assert loads(rig, 10) == {"b": 10}
    even = Rig(tuple("abcdefgh"), settings={"policy": "power_of_two"})
    assert max(loads(even, 80).values()) <= 13


def test_consistent_hash_keeps_sessions_and_moves_few() -> None:
    names = tuple("abcdefgh")
    homes = {}
    for gone in ("", "c"):
        rig = Rig(tuple(name for name in names if name != gone), settings={"policy": "consistent_hash"})
        homes[gone] = {}
        for number in range(100):
            choice = rig.choose(request(session_id=f"s{number}"))
            rig.pool.release(choice.records[0])
            homes[gone][number] = choice.records[0].replica_id
    assert len(set(homes[""].values())) == 8
    assert all(homes["c"][n] == home for n, home in homes[""].items() if home != "c")


def test_consistent_hash_bounds_the_load_of_a_popular_session() -> None:
    rig = Rig(tuple("abcd"), settings={"policy": "consistent_hash", "max_imbalance": 1.5})
    popular = Counter(rig.chosen(request(session_id="one")) for _ in range(40))
    assert max(popular.values()) <= 15


def test_without_a_session_the_beginning_of_the_prompt_is_hashed() -> None:
    rig = Rig(tuple("abcd"), settings={"policy": "consistent_hash"})
    start = list(range(256))
    choices = [rig.choose(request([*start, *range(5000 + 100 * i, 5100 + 100 * i)])) for i in range(2)]
    assert choices[0].records[0] == choices[1].records[0]


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0, 2.5, np.inf, np.nan]), st.integers(0, 5)), min_size=1))
def test_the_pick(rows: list[tuple[float, int]]) -> None:
    total, last_chosen = np.array([row[0] for row in rows]), np.array([row[1] for row in rows])
    order = cheapest_first(total, last_chosen)
    assert sorted(order) == [i for i, row in enumerate(rows) if np.isfinite(row[0])]
    assert [rows[i] for i in order] == sorted(rows[i] for i in order)


class _Returns:
    """A policy that always returns the same."""

    def __init__(self, costs: object) -> None:
        self._costs = costs

    def costs(self, request: object, pool: object) -> object:
        return self._costs


def returning(costs: object) -> Rig:
    """Three replicas, and a policy of one's own."""
    return Rig(settings={"policy": "tests.unit.router.test_policies:_Returns", "options": {"costs": costs}})


EXPECTED = "expected: terms by name, at least one, each an array of shape (3,) of floats that are finite or +inf"


@pytest.mark.parametrize(
    ("costs", "problem"),
    [
        (None, "it returned a NoneType"),
        (np.zeros(3), "it returned a ndarray"),
        ({}, "it returned no term"),
        ({7: np.zeros(3)}, "the name 7 is a int"),
        ({"a": 1.0}, "term 'a' is a float"),
        ({"a": np.float64(1.0)}, "term 'a' is a float64"),
        ({"a": [0.0] * 3}, "term 'a' is a list"),
        ({"a": np.zeros(3), "b": [0.0] * 3}, "term 'b' is a list"),
        ({"a": np.zeros(1)}, "term 'a' is an array of shape (1,) of float64"),
        ({"a": np.zeros(2)}, "term 'a' is an array of shape (2,) of float64"),
        ({"a": np.zeros(3), "b": np.zeros(5)}, "term 'b' is an array of shape (5,) of float64"),
        ({"a": np.zeros((3, 1))}, "term 'a' is an array of shape (3, 1) of float64"),
        ({"a": np.zeros((1, 3))}, "term 'a' is an array of shape (1, 3) of float64"),
        ({"a": np.array(0.0)}, "term 'a' is an array of shape () of float64"),
        ({"a": np.zeros(3, bool)}, "term 'a' is an array of shape (3,) of bool"),
        ({"a": np.zeros(3, complex)}, "term 'a' is an array of shape (3,) of complex128"),
        ({"a": np.array(["1"] * 3)}, "term 'a' is an array of shape (3,) of <U1"),
        ({"a": np.array([None] * 3)}, "term 'a' is an array of shape (3,) of object"),
        ({"a": np.zeros(3), "b": np.array([np.nan, 1.0, 1.0])}, "term 'b' holds NaN or -inf"),
        ({"a": np.full(3, np.nan)}, "term 'a' holds NaN or -inf"),
        ({"a": np.array([1.0, -np.inf, 1.0])}, "term 'a' holds NaN or -inf"),
        ({"a": np.full(3, np.inf), "b": np.full(3, -np.inf)}, "term 'b' holds NaN or -inf"),
        ({"a": np.full(3, 1e308), "b": np.full(3, 1e308)}, "the sum of its terms overflows"),
        ({"a": np.full(3, -1e308), "b": np.full(3, -1e308)}, "the sum of its terms overflows"),
    ],
)
def test_what_no_policy_may_return(costs: object, problem: str) -> None:
    rig = returning(costs)
    with pytest.raises(InternalError, match=re.escape(f"test_policies:_Returns: {problem}; {EXPECTED}")):
        rig.choose()
    assert not rig.in_flight(), "nobody was chosen"


@pytest.mark.parametrize(
    ("costs", "order"),
    [
        ({"a": np.array([3.0, np.inf, -2.0])}, "ca"),
        ({"a": np.array([3, 1, 2])}, "bca"),
        ({"a": np.array([200, 100, 0], np.uint8), "b": np.array([100, 100, 255], np.uint8)}, "bca"),
        ({"a": np.array([2e4, 6e4, 1e4], np.float16), "b": np.array([3e4, 3e4, 3e4], np.float16)}, "cab"),
        ({"a": np.array([1e308, 1e308, -1e308])}, "cab"),
    ],
)
def test_what_policies_may_return(costs: object, order: str) -> None:
    assert "".join(one.replica_id for one in returning(costs).choose(count=3).records) == order


class _NoCosts:
    pass


class _WithOptions:
    def __init__(self, zone: str) -> None:
        self.zone = zone

    def costs(self, request: object, pool: object) -> dict[str, object]:
        return {}


@pytest.mark.parametrize(
    ("policy", "options", "problem"),
    [
        ("nowhere.at_all:Policy", {}, "No module named 'nowhere'"),
        ("cluster.router.pool:Missing", {}, "has no attribute 'Missing'"),
        ("tests.unit.router.test_policies:_NoCosts", {}, "has no method `costs"),
        ("tests.unit.router.test_policies:_WithOptions", {"zones": 1}, "does not take the options {'zones': 1}"),
    ],
)
def test_classes_that_cannot_be_had(policy: str, options: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(problem)):
        build_policy(PoolRouting(policy=policy, options=options))


def test_a_class_of_ones_own() -> None:
    config = PoolRouting(policy="tests.unit.router.test_policies:_WithOptions", options={"zone": "a"})
    assert build_policy(config).zone == "a"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"policy": "best"}, "should match pattern"),
        ({"options": {"a": 1}}, "options are for policies of your own; policy is kv_aware"),
        ({"kv_aware": {"load_weight": 0.0}}, "greater than 0"),
        ({"kv_aware": {"kv_pressure_weight": 0.0}}, "greater than 0"),
        ({"kv_aware": {"kv_pressure_begins_at": 1.0}}, "less than 1"),
        ({"kv_aware": {"prefill_wieght": 1.0}}, "Extra inputs are not permitted"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        PoolRouting(**settings)  # type: ignore[arg-type]
