"""The operator that plays: which pods it makes, and that it deletes none that nobody has named."""

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.kubernetes.kubelet import PodError
from tests.integration.kubernetes.reconciler import FAILED_STARTS, Reconciler, runs
from tests.integration.kubernetes.store import Store
from tests.k8s.kustomize import Manifest


@dataclass
class PaperPods:
    """Pods without processes."""

    store: Store
    alive: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    stopped: list[str] = field(default_factory=list)
    failing: int = 0  # so many starts to come
    may_end: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_end.set()

    def start(self, pod: Manifest) -> None:
        name = pod["metadata"]["name"]
        assert not runs(self.store.pods()[name]), "nobody counts on it before it runs"
        if self.failing:
            self.failing -= 1
            raise PodError("no")
        self.alive.add(name)

    def ended(self, name: str) -> bool:
        return name in self.dead

    def stop(self, pod: Manifest) -> None:
        name = pod["metadata"]["name"]
        assert not runs(self.store.pods()[name]), "nobody counts on it any more"
        assert self.may_end.wait(60.0)
        self.alive.remove(name)
        self.stopped.append(name)

    def kill(self, name: str) -> None:
        self.alive.discard(name)
        self.dead.discard(name)

    def crash(self, name: str) -> None:
        self.dead.add(name)


@pytest.fixture
def pods(store: Store) -> PaperPods:
    return PaperPods(store)


@pytest.fixture
def reconciler(store: Store, pods: PaperPods) -> Reconciler:
    return Reconciler(store, pods)


def change(store: Store, field_name: str, value: Any, group: int = 1) -> None:
    store.patch_cluster([{"op": "replace", "path": f"/spec/workerGroupSpecs/{group}/{field_name}", "value": value}])


def test_it_starts_what_is_asked_for_within_the_bounds(store: Store, pods: PaperPods, reconciler: Reconciler) -> None:
    reconciler.round()
    assert pods.alive == set()
    change(store, "replicas", 7)  # of a group of two at most
    reconciler.round()
    assert pods.alive == set(store.pods())
    assert len(pods.alive) == 2
    assert all("-draft-worker-" in name and runs(pod) for name, pod in store.pods().items())


def test_it_starts_as_many_as_must_always_stand(store: Store, reconciler: Reconciler) -> None:
    cluster = store.cluster()
    cluster["spec"]["workerGroupSpecs"][0]["minReplicas"] = 1
    store = Store(cluster)
    pods = PaperPods(store)
    Reconciler(store, pods).round()
    assert len(pods.alive) == 1


def test_fewer_replicas_alone_delete_nothing(store: Store, pods: PaperPods, reconciler: Reconciler) -> None:
    change(store, "replicas", 2)
    reconciler.round()
    change(store, "replicas", 1)
    reconciler.round()
    assert (len(pods.alive), pods.stopped) == (2, [])


def test_named_pods_go_and_names_that_are_gone_do_no_harm(
    store: Store, pods: PaperPods, reconciler: Reconciler
) -> None:
    change(store, "replicas", 2)
    reconciler.round()
    first, second = sorted(pods.alive)
    change(store, "replicas", 1)
    change(store, "scaleStrategy", {"workersToDelete": [first, "never-there"]})
    for _ in range(2):
        reconciler.round()
        reconciler.settle()
    assert (pods.alive, pods.stopped, list(store.pods())) == ({second}, [first], [second])
    assert store.group("draft")["scaleStrategy"] == {"workersToDelete": [first, "never-there"]}, "not its to clear"


def the_only_one_is_to_go(store: Store, pods: PaperPods, reconciler: Reconciler) -> str:
    """A pod that runs, and that the autoscaler has named; its name."""
    change(store, "replicas", 1)
    reconciler.round()
    (first,) = pods.alive
    change(store, "scaleStrategy", {"workersToDelete": [first]})
    return first


def test_a_pod_that_ends_slowly_holds_up_nobody(store: Store, pods: PaperPods, reconciler: Reconciler) -> None:
    first = the_only_one_is_to_go(store, pods, reconciler)
    pods.may_end.clear()
    for _ in range(3):
        reconciler.round()
    assert len(pods.alive - {first}) == 1, "another in its place"
    assert [name for name, pod in store.pods().items() if not runs(pod)] == [first]
    pods.may_end.set()
    reconciler.settle()
    assert (pods.stopped, pods.alive, reconciler.error) == ([first], set(store.pods()), None)


def test_it_tells_when_a_pod_cannot_end(store: Store, pods: PaperPods, reconciler: Reconciler) -> None:
    the_only_one_is_to_go(store, pods, reconciler)
    pods.alive.clear()
    reconciler.round()
    reconciler.settle()
    assert isinstance(reconciler.error, KeyError)


def test_a_pod_whose_ray_has_ended_is_replaced_a_round_later(
    store: Store, pods: PaperPods, reconciler: Reconciler
) -> None:
    change(store, "replicas", 1)
    reconciler.round()
    (lost,) = pods.alive
    pods.crash(lost)
    reconciler.round()
    assert (pods.alive, store.pods(), pods.stopped) == (set(), {}, [])
    reconciler.round()
    assert len(pods.alive) == 1
    assert lost not in pods.alive


def test_it_tries_again_but_not_forever(store: Store, pods: PaperPods, reconciler: Reconciler) -> None:
    pods.failing = FAILED_STARTS
    change(store, "replicas", 1)
    for _ in range(FAILED_STARTS - 1):
        reconciler.round()
        assert store.pods() == {}
    with pytest.raises(PodError):
        reconciler.round()


def test_the_head_comes_first_and_is_tried_again(store: Store, pods: PaperPods, reconciler: Reconciler) -> None:
    pods.failing = FAILED_STARTS - 1
    assert reconciler.start_head() == "outrider-test-head"
    assert runs(store.pods()["outrider-test-head"])
    reconciler.round()
    assert pods.alive == set(store.pods()) == {"outrider-test-head"}
    pods.failing = FAILED_STARTS
    with pytest.raises(PodError):
        reconciler.start_head()


def test_its_thread_tells_why_it_ended(store: Store, pods: PaperPods) -> None:
    pods.failing = FAILED_STARTS
    change(store, "replicas", 1)
    with Reconciler(store, pods) as running:
        running.join(60.0)
    assert isinstance(running.error, PodError)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("replicas"), st.integers(0, 3)),
        st.tuples(st.just("name"), st.integers(0, 2)),
        st.tuples(st.just("crash"), st.integers(0, 2)),
        st.tuples(st.just("round"), st.just(0)),
    ),
    max_size=20,
)


@given(ACTIONS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_only_named_and_ended_pods_go(store: Store, actions: list[tuple[str, int]]) -> None:
    store = Store(store.cluster())
    pods, named, ended = PaperPods(store), set(), set()
    reconciler, seen = Reconciler(store, pods), set()
    for action, number in actions:
        present = sorted(pods.alive)
        if action == "replicas":
            change(store, "replicas", number)
        elif action == "name" and number < len(present):
            named.add(present[number])
            change(store, "scaleStrategy", {"workersToDelete": [present[number]]})
        elif action == "crash" and number < len(present):
            ended.add(present[number])
            pods.crash(present[number])
        elif action == "round":
            reconciler.round()
            reconciler.settle()
        seen |= pods.alive
        assert seen - pods.alive <= named | ended
    for _ in range(3):
        reconciler.round()
        reconciler.settle()
    assert reconciler.error is None
    assert len(pods.alive) >= min(store.group("draft")["replicas"], 2)
    assert set(store.pods()) == pods.alive
