"""NetworkPolicies, evaluated: may this pod open a connection to that one?"""

import ipaddress
from dataclasses import dataclass, field
from typing import Any

from tests.k8s.kustomize import Manifest
from tests.k8s.manifests import of_kind

__all__ = ["Pod", "allowed"]


@dataclass(frozen=True)
class Pod:
    """One end of a connection. `address` instead of labels: something outside the cluster."""

    name: str
    labels: dict[str, str] = field(default_factory=dict, hash=False)
    namespace: dict[str, str] = field(default_factory=dict, hash=False)  # labels of its namespace
    address: str | None = None


def allowed(objects: list[Manifest], source: Pod, target: Pod, port: int, protocol: str = "TCP") -> bool:
    """As Kubernetes combines policies: a pod that none selects is open, otherwise one rule must match, at both ends."""
    policies = of_kind(objects, "NetworkPolicy")
    return _open(policies, "Egress", source, target, port, protocol) and _open(
        policies, "Ingress", target, source, port, protocol
    )


def _open(policies: list[Manifest], direction: str, own: Pod, other: Pod, port: int, protocol: str) -> bool:
    home = {one["metadata"].get("namespace") for one in policies}
    assert len(home) <= 1, f"policies of several namespaces: {home}"
    if own.address is not None or own.namespace.get("kubernetes.io/metadata.name") not in home:
        return True  # not governed by these policies
    selecting = [one["spec"] for one in policies if _matches(one["spec"]["podSelector"], own.labels)]
    selecting = [spec for spec in selecting if direction in spec["policyTypes"]]
    if not selecting:
        return True
    key, peers = ("egress", "to") if direction == "Egress" else ("ingress", "from")
    rules = [rule for spec in selecting for rule in spec.get(key, [])]
    return any(_port(rule, port, protocol) and _peer(rule.get(peers), own, other) for rule in rules)


def _port(rule: Manifest, port: int, protocol: str) -> bool:
    ports = rule.get("ports")
    if ports is None:
        return True
    return any(
        one.get("protocol", "TCP") == protocol and one["port"] <= port <= one.get("endPort", one["port"])
        for one in ports
    )


def _peer(peers: list[Manifest] | None, own: Pod, other: Pod) -> bool:
    return peers is None or any(_one_peer(peer, own, other) for peer in peers)


def _one_peer(peer: Manifest, own: Pod, other: Pod) -> bool:
    if "ipBlock" in peer:
        block = peer["ipBlock"]
        if other.address is None or ipaddress.ip_address(other.address) not in ipaddress.ip_network(block["cidr"]):
            return False
        return not any(
            ipaddress.ip_address(other.address) in ipaddress.ip_network(one) for one in block.get("except", [])
        )
    if other.address is not None:
        return False
    if "namespaceSelector" in peer:
        here = _matches(peer["namespaceSelector"], other.namespace)
    else:
        here = other.namespace == own.namespace
    return here and _matches(peer.get("podSelector", {}), other.labels)


def _matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(_expression(one, labels) for one in selector.get("matchExpressions", []))


def _expression(one: Manifest, labels: dict[str, str]) -> bool:
    value, kind = labels.get(one["key"]), one["operator"]
    if kind == "In":
        return value in one["values"]
    if kind == "NotIn":
        return value not in one["values"]
    return (value is not None) == (kind == "Exists")
