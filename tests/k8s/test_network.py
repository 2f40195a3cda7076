"""Who may speak to whom: every pair of pods and every port, against one table."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

from tests.k8s.kustomize import Manifest, with_components
from tests.k8s.manifests import changed, named, of_kind, pod_templates
from tests.k8s.network import Pod, allowed

HOME = {"kubernetes.io/metadata.name": "outrider"}
PORTS = (22, 53, 80, 443, 4317, 6379, 6443, 8000, 8080, 8265, 9000, 10001, 10002, 44217, 44227)
RAY = ("head", "ingress", "draft", "verify")
SERVING = ("ingress", "draft", "verify")
METRICS = (8080, 44217, 44227)


def ours(component: str) -> Pod:
    return Pod(component, {"app.kubernetes.io/part-of": "outrider", "app.kubernetes.io/component": component}, HOME)


OPERATOR = {"app.kubernetes.io/name": "kuberay", "app.kubernetes.io/component": "kuberay-operator"}
TRACING = {"kubernetes.io/metadata.name": "tracing", "outrider/tracing": "true"}
PODS = [
    *(ours(one) for one in (*RAY, "model-prefetch", "redis")),
    Pod("stranger", {"app": "x"}, {"kubernetes.io/metadata.name": "x"}),
    Pod("operator", OPERATOR, {"kubernetes.io/metadata.name": "kuberay-system"}),
    Pod("no operator", OPERATOR, {"kubernetes.io/metadata.name": "x"}),
    Pod("dns", {"k8s-app": "kube-dns"}, {"kubernetes.io/metadata.name": "kube-system"}),
    Pod("no dns", {"k8s-app": "kube-dns"}, {"kubernetes.io/metadata.name": "x"}),
    Pod("client", {}, {"kubernetes.io/metadata.name": "gateways", "outrider/clients": "true"}),
    Pod("prometheus", {}, {"kubernetes.io/metadata.name": "monitoring", "outrider/monitoring": "true"}),
    Pod("collector", {"app.kubernetes.io/name": "opentelemetry-collector"}, TRACING),
    Pod("operator's collector", {"app.kubernetes.io/component": "opentelemetry-collector"}, TRACING),
    Pod("beside a collector", {"app": "x"}, TRACING),
    Pod("no collector", {"app.kubernetes.io/name": "opentelemetry-collector"}, {"kubernetes.io/metadata.name": "x"}),
    Pod("internet", address="203.0.113.7"),
    Pod("API server", address="10.96.0.1"),
]


def expected(source: str, target: str, port: int, protocol: str, tracing: bool = False) -> bool:
    """The table. Only pairs with one of ours are asked. `tracing`: with that component."""
    if source in RAY and target in RAY:
        return True
    if target == "dns" and port == 53:
        return True
    if protocol != "TCP":
        return False
    if source == "head" and target not in (*RAY, "redis", "model-prefetch") and port in (443, 6443):
        return True  # the API server, whose address the base does not know
    if source == "model-prefetch" and target not in (*RAY, "redis") and port == 443:
        return True
    if source in SERVING and target in ("collector", "operator's collector"):
        return tracing and port == 4317
    if source == "head" and target == "redis":
        return port == 6379
    if source == "operator" and target == "head":
        return port == 8265
    if source == "client" and target in SERVING:
        return port in (8000, 9000)
    return source == "prometheus" and target in RAY and port in METRICS


def wrong_flows(objects: list[Manifest], tracing: bool = False) -> Iterator[tuple[str, str, int, str]]:
    """Where policies and table disagree."""
    mine = {one.name for one in PODS if one.namespace == HOME}
    for source, target, port, protocol in product(PODS, PODS, PORTS, ("TCP", "UDP")):
        if source.name == target.name or not {source.name, target.name} & mine:
            continue
        answer = allowed(objects, source, target, port, protocol)
        if answer != expected(source.name, target.name, port, protocol, tracing):
            yield source.name, target.name, port, protocol


def test_exactly_the_flows_of_the_table(production: list[Manifest]) -> None:
    assert list(wrong_flows(production)) == []


def test_traces_go_to_collectors_and_nowhere_else(scratch: Path) -> None:
    objects = with_components(scratch, "model-prefetch", "gcs-ft", "tracing")
    assert list(wrong_flows(objects, tracing=True)) == []
    (egress,) = named(objects, "NetworkPolicy", "outrider-tracing")["spec"]["egress"]
    for where, value in ((("to", 0), {}), (("to", 1, "podSelector"), {}), (("ports",), [{"port": 4318}])):
        with changed(egress, where, value):
            assert any(wrong_flows(objects, tracing=True)), where


def test_every_pod_is_governed_both_ways(objects: list[Manifest]) -> None:
    stranger, internet = Pod("stranger", {}, {"kubernetes.io/metadata.name": "x"}), Pod("net", address="203.0.113.7")
    for template in pod_templates(objects):
        pod = Pod(template.owner, template.labels, HOME)
        assert not allowed(objects, stranger, pod, 8265)
        assert not allowed(objects, pod, internet, 80)


def test_every_component_of_the_table_exists(production: list[Manifest]) -> None:
    there = {template.labels["app.kubernetes.io/component"] for template in pod_templates(production)}
    assert there == {one.name for one in PODS if one.namespace == HOME}
    for template in pod_templates(production):
        assert template.labels["app.kubernetes.io/part-of"] == "outrider"


def test_each_policy_is_needed(production: list[Manifest]) -> None:
    """Without any one of them the table is broken: none is dead, and the table sees each."""
    for index, one in enumerate(production):
        if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] != "outrider-deny":
            with changed(production, (index,), {"kind": "Nothing"}):
                assert any(wrong_flows(production)), one["metadata"]["name"]
    assert len(of_kind(production, "NetworkPolicy")) == 10


def test_a_rule_that_opens_everything_is_found(production: list[Manifest]) -> None:
    for policy in of_kind(production, "NetworkPolicy"):
        for key in ("ingress", "egress"):
            if key in policy["spec"]:
                with changed(policy["spec"][key], (0,), {}):
                    assert any(wrong_flows(production)), policy["metadata"]["name"]
