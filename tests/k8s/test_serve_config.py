"""The Serve config in the manifests is the file beside them, and our own reader takes it."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from ray.serve import Application

from cluster.config.loader import Config, load_config
from cluster.deployments.gateway import HEALTH_PATH
from tests.k8s.kustomize import BASE, K8S, OVERLAYS, Manifest, build
from tests.k8s.manifests import cluster, containers, groups, of_kind, paths, ray_service, serve_config
from workers.core.errors import ConfigurationError

FOLDERS = [BASE, *(K8S / "overlays" / name for name in OVERLAYS)]
OPEN = ("label_selector", "autoscaling_policy")  # not typed further by Serve or by us


@pytest.fixture(params=FOLDERS, ids=lambda path: path.name)
def folder(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture
def config(folder: Path) -> Config:
    return load_config(folder / "serve.yaml")


def test_the_manifest_carries_the_file(folder: Path) -> None:
    assert ray_service(build(folder))["spec"]["serveConfigV2"] == (folder / "serve.yaml").read_text()


def test_production_logs_what_machines_read() -> None:
    config = load_config(K8S / "overlays/production/serve.yaml").serve_config
    assert config.logging_config is not None
    assert config.logging_config.encoding == "JSON"


def test_components_leave_it_alone(objects: list[Manifest]) -> None:
    text = ray_service(objects)["spec"]["serveConfigV2"]
    assert text in {(folder / "serve.yaml").read_text() for folder in FOLDERS}


def test_what_serve_imports_is_there(config: Config) -> None:
    options, application = config.serve_config.grpc_options, config.serve_config.applications[0]
    assert application.autoscaling_policy
    places = [
        *options.grpc_servicer_functions,
        application.import_path,
        application.autoscaling_policy["policy_function"],
    ]
    for place in places:
        module, _, name = place.replace(":", ".").rpartition(".")
        assert callable(getattr(import_module(module), name)), place


def test_the_application_can_be_built_of_it(config: Config) -> None:
    """By the very function that Serve calls; Ray checks selectors and resources on the way."""
    from cluster.app import build

    gateway = build(config.args)
    bound = [gateway, *(one for one in gateway._bound_deployment.init_args if isinstance(one, Application))]
    names = {one._bound_deployment.name: one._bound_deployment._replica_config for one in bound}
    assert set(names) == {"Gateway", "TargetVerifier", "DraftProposer"}
    for name, role in (("Gateway", "ingress"), ("TargetVerifier", "verify"), ("DraftProposer", "draft")):
        bundles = names[name].placement_group_bundle_label_selector
        actor = names[name].ray_actor_options.get("label_selector")
        assert all(selector == {"outrider/role": role} for selector in bundles or [actor]), name


def dictionaries(document: Manifest) -> Iterator[tuple[str | int, ...]]:
    for where, value in paths(document):
        if isinstance(value, dict) and not set(where) & set(OPEN):
            yield where


def test_a_wrong_key_is_refused_wherever_it_stands(tmp_path: Path, folder: Path) -> None:
    """Serve itself drops unknown keys of its own schema without a word."""
    document = yaml.safe_load((folder / "serve.yaml").read_text())
    file = tmp_path / "serve.yaml"
    for where in list(dictionaries(document)):
        place = document
        for key in where:
            place = place[key]
        place["replicaz"] = 1
        file.write_text(yaml.safe_dump(document))
        del place["replicaz"]
        with pytest.raises(ConfigurationError, match="replicaz"):
            load_config(file)
    assert len(list(dictionaries(document))) > 10


def test_ports_are_those_of_the_pods(objects: list[Manifest]) -> None:
    """In the Serve config, in every container, in the serve Service, in the routes, in the policies' list."""
    service = ray_service(objects)
    document = serve_config(service)
    http, grpc = document["http_options"]["port"], document["grpc_options"]["port"]
    assert document["http_options"]["host"] == "0.0.0.0", "probes and the Service come from other pods"  # noqa: S104
    everyone = {"head": cluster(service)["headGroupSpec"], **groups(service)}
    for name, group in everyone.items():
        ports = {one["name"]: one["containerPort"] for one in group["template"]["spec"]["containers"][0]["ports"]}
        assert (ports["serve"], ports["serve-grpc"]) == (http, grpc), name
        assert len(set(ports.values())) == len(ports)
        assert {"client"}.isdisjoint(ports), "Ray's client port is for developers"
    (extra,) = service["spec"]["serveService"]["spec"]["ports"]
    assert extra == {"name": "serve-grpc", "port": grpc, "targetPort": grpc, "appProtocol": "kubernetes.io/h2c"}
    for kind, port in (("GRPCRoute", grpc), ("HTTPRoute", http)):
        for route in (one for one in objects if one["kind"] == kind):
            assert [ref["port"] for rule in route["spec"]["rules"] for ref in rule["backendRefs"]] == [port]
    for monitor in (one for one in objects if one["kind"] == "PodMonitor"):
        selected = everyone.values() if "workers" in monitor["metadata"]["name"] else [everyone["head"]]
        for group in selected:
            known = {one["name"] for one in group["template"]["spec"]["containers"][0]["ports"]}
            if group is not everyone["head"] or "head" in monitor["metadata"]["name"]:
                ends = {end["port"] for end in monitor["spec"]["podMetricsEndpoints"]}
                assert ends == {name for name in known if name.endswith("metrics")}, "each port that has any"


def test_the_health_route_is_what_gateways_answer(production: list[Manifest]) -> None:
    (route,) = of_kind(production, "HTTPRoute")
    (rule,) = route["spec"]["rules"]
    assert [one["path"] for one in rule["matches"]] == [{"type": "Exact", "value": HEALTH_PATH}]


def test_nodes_are_not_emptied_of_the_head(objects: list[Manifest]) -> None:
    head = cluster(ray_service(objects))["headGroupSpec"]["template"]["metadata"]
    assert head["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


def test_proxies_stand_where_replicas_do(objects: list[Manifest]) -> None:
    """Else the operator's readiness probe keeps every worker out of the Service."""
    service = ray_service(objects)
    assert serve_config(service)["proxy_location"] == "EveryNode"
    assert service["spec"]["excludeHeadPodFromServeSvc"] is True
    assert not serve_config(service)["grpc_options"]["enable_reflection"]
    for group in groups(service).values():
        assert all("readinessProbe" not in one for one in containers(group["template"]["spec"])), "the operator's own"


def test_replicas_have_the_internal_token_and_gateways_the_keys(objects: list[Manifest]) -> None:
    service = ray_service(objects)
    keys_file = serve_config(service)["applications"][0]["args"]["gateway"]["tenancy"]["keys_file"]
    for name, group in groups(service).items():
        container = group["template"]["spec"]["containers"][0]
        token = next(one for one in container["env"] if one["name"] == "OUTRIDER_INTERNAL_TOKEN")
        assert token["valueFrom"]["secretKeyRef"]["name"] == "outrider-internal-token"
        mounts = [one["mountPath"] for one in container["volumeMounts"]]
        assert any(keys_file.startswith(f"{path}/") for path in mounts) == (name == "ingress")


def test_http_and_grpc_do_not_share_a_hostname(production: list[Manifest]) -> None:
    """A gateway refuses the younger of two such routes."""
    routes = [one for one in production if one["kind"] in ("GRPCRoute", "HTTPRoute")]
    hosts = [host for one in routes for host in one["spec"]["hostnames"]]
    assert len(set(hosts)) == len(hosts) == 2
    (gateway,) = (one for one in production if one["kind"] == "Gateway")
    listeners = {one["name"]: one for one in gateway["spec"]["listeners"]}
    for route in routes:
        (parent,) = route["spec"]["parentRefs"]
        listener = listeners[parent["sectionName"]]
        assert [listener["hostname"]] == route["spec"]["hostnames"]
        assert listener["allowedRoutes"]["kinds"] == [{"kind": route["kind"]}]
        assert (listener["protocol"], listener["tls"]["mode"]) == ("HTTPS", "Terminate")
