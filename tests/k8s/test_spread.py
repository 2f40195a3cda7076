"""What overlays/production says of the loss of a node follows from what it renders, whatever the scheduler chooses."""

import copy
from typing import Any

import pytest

from tests.k8s.kustomize import K8S, Manifest
from tests.k8s.manifests import groups, pod_templates, ray_service
from tests.k8s.spread import CLUSTER, Placed, Room, ends

NODES = ("a", "b", "c", "d")
HARD = ("ingress", "verify")


def constraints(objects: list[Manifest], name: str) -> list[Manifest]:
    found: list[Manifest] = groups(ray_service(objects))[name]["template"]["spec"].get("topologySpreadConstraints", [])
    return found


def labels(objects: list[Manifest], name: str, cluster: str = "new") -> dict[str, str]:
    return {**groups(ray_service(objects))[name]["template"]["metadata"]["labels"], CLUSTER: cluster}


def weak(objects: list[Manifest], name: str, rules: list[Manifest]) -> list[str]:
    """Situations in which the floor of two may stand on one node. An old cluster runs beside the new one in some."""
    own, old = labels(objects, name), labels(objects, name, "old")
    situations = {
        "one node": ([], Room(NODES[:1])),
        "two nodes": ([], Room(NODES[:2])),
        "four nodes": ([], Room(NODES)),
        "upgrade": ([Placed(node, old) for node in "aab"], Room(NODES[:2])),
        "upgrade onto a new node": ([Placed(node, old) for node in "aabb"], Room(NODES[:3])),
    }
    return [
        text
        for text, (before, room) in situations.items()
        if any(len(end) > 1 and len(set(end)) == 1 for end in ends(rules, own, before, room, 2))
    ]


@pytest.mark.parametrize("name", HARD)
def test_the_floor_of_two_is_never_on_one_node(production: list[Manifest], name: str) -> None:
    assert groups(ray_service(production))[name]["minReplicas"] == 2
    assert weak(production, name, constraints(production, name)) == []


@pytest.mark.parametrize("name", HARD)
def test_more_than_the_floor_leave_some_behind_too(production: list[Manifest], name: str) -> None:
    rules, own = constraints(production, name), labels(production, name)
    for number in range(2, groups(ray_service(production))[name]["maxReplicas"] + 1):
        for count in range(2, len(NODES) + 1):
            for end in ends(rules, own, [], Room(NODES[:count]), number):
                assert len(end) == number, "pods wait, though no node is full"
                lost = max(end.count(node) for node in NODES)
                assert lost <= -(-number // count), "the loss of a node takes its even share at most"


@pytest.mark.parametrize("name", HARD)
def test_what_waits_and_what_does_not(production: list[Manifest], name: str) -> None:
    """As groups.yaml says it: on one node the second waits; cordoned nodes do not count, full ones do."""
    rules, own = constraints(production, name), labels(production, name)
    assert ends(rules, own, [], Room(NODES[:1]), 2) == {("a",)}
    assert {len(end) for end in ends(rules, own, [], Room(NODES[:2], tainted=("c",)), 4)} == {4}
    assert ends(rules, own, [], Room(NODES[:2], full=("c",)), 4) == {("a", "b")}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("maxSkew", 2),
        ("minDomains", 1),
        ("whenUnsatisfiable", "ScheduleAnyway"),
        ("matchLabelKeys", []),
        ("labelSelector", {"matchLabels": {"app.kubernetes.io/component": "nobody"}}),
    ],
)
def test_nothing_of_it_can_be_left_out(production: list[Manifest], name: str, key: str, value: Any) -> None:
    rules = copy.deepcopy(constraints(production, name))
    rules[0][key] = value
    assert weak(production, name, rules)


def test_taints_must_count(production: list[Manifest]) -> None:
    """Else a node that is being drained lets the others take one pod each, and no more."""
    rules, own = copy.deepcopy(constraints(production, "verify")), labels(production, "verify")
    del rules[0]["nodeTaintsPolicy"]
    assert {len(end) for end in ends(rules, own, [], Room(NODES[:2], tainted=("c",)), 4)} == {2}


def test_drafters_are_apart_where_possible_and_wait_for_nothing(production: list[Manifest]) -> None:
    rules = constraints(production, "draft")
    assert [one["whenUnsatisfiable"] for one in rules] == ["ScheduleAnyway"]
    assert rules == constraints(production, "draft-spot")


def test_constraints_count_the_pods_that_carry_them(objects: list[Manifest]) -> None:
    for template in pod_templates(objects):
        for rule in template.spec.get("topologySpreadConstraints", []):
            wanted = rule["labelSelector"]["matchLabels"]
            assert wanted.items() <= template.labels.items(), template.owner
            assert rule["matchLabelKeys"] == [CLUSTER]
            assert CLUSTER not in wanted, "Kubernetes refuses a key that stands in both"


def test_the_promise_says_no_more_than_that(production: list[Manifest]) -> None:
    """The head and Redis are one pod each: a node can take them."""
    text = (K8S / "overlays/production/kustomization.yaml").read_text()
    assert "any one node" not in text
    assert "The head is one pod, and so is its Redis" in text
    (redis,) = (one for one in production if one["kind"] == "StatefulSet")
    assert redis["spec"]["replicas"] == 1
