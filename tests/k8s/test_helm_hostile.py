"""The chart and values that look right and are not: words that YAML reads as something else, sections that are gone,
quantities that do not fit, a Serve config that no object fits.
"""

import copy
import ipaddress
import re
from typing import Any

import jsonschema
import pytest
import yaml

from tests.k8s.chart import CHART, VALUES, merged, render, render_or_error
from tests.k8s.kustomize import BASE, Manifest
from tests.k8s.manifests import env, groups, paths
from tests.k8s.test_helm_values import ON, SCHEMA, leaves, nested

VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
SERVE = (BASE / "serve.yaml").read_text()
FREE = ("serveConfig", "prefetch.script", "gateway.healthHostname")  # the last may not be the other hostname
# Not one of them is a text to YAML, but in quotes.
WORDS = ("0", "1e3", "0x10", "true", "null", "on", "1.5", "2001-01-01", "3m", "5")


def valid(where: tuple[str, ...], value: object) -> bool:
    return VALIDATOR.is_valid(merged(VALUES, nested(where, value)))


def types(objects: list[Manifest]) -> dict[tuple[Any, ...], type]:
    return {
        (one["kind"], place, *where): type(value) for place, one in enumerate(objects) for where, value in paths(one)
    }


@pytest.mark.parametrize("word", WORDS)
def test_texts_stay_texts_whatever_they_look_like(word: str) -> None:
    """All at once, wherever the schema takes the word; nothing in any object may change its type."""
    worded: dict[str, Any] = {}
    for where, value in leaves(VALUES):
        name = ".".join(where)
        if isinstance(value, str) and name not in FREE and "cpu" not in where[-1]:
            worded = merged(worded, nested(where, word)) if valid(where, word) else worded
    assert worded
    for extra in ({"spotDrafts": {"enabled": True}}, {"dra": {"enabled": True}}):
        usual = types(render(merged(ON, extra)))
        found = types(render(merged(ON, extra, worded), namespace=word.replace(".", "-")))
        assert {where: kind for where, kind in found.items() if usual.get(where, kind) is not kind} == {}


def test_whatever_comes_from_outside_is_quoted_or_a_number() -> None:
    """Also what Python's reader takes for a text and Kubernetes' does not."""
    outside = re.compile(r"\.Values\.|\.Release\.|\$pool\.|\.pool\b|outrider\.image|\$image\b")
    safe = re.compile(r"\| (quote|nindent \d+)$|^(int|toJson) |^include \"outrider\.(resources|env|scratchVolumes)\"")
    seen = 0
    for path in sorted((CHART / "templates").rglob("*.*")):
        for line in path.read_text(encoding="utf-8").splitlines():
            for text in re.findall(r"(?:[:\[{-]) ?\{\{-? (.+?) -?\}\}", line) if path.name != "NOTES.txt" else []:
                if outside.search(text) and not text.startswith(("if ", "with ", "range ", "fail ", "$")):
                    assert safe.search(text), f"{path.name}: {line.strip()}"
                    seen += 1
    assert seen > 50


def test_what_is_taken_away_is_missed_by_its_name() -> None:
    """Helm takes away what is set to null."""
    for where, _ in list(paths(VALUES)):
        if where and not any(isinstance(key, int) for key in where):
            values = copy.deepcopy(VALUES)
            inner = values
            for key in where[:-1]:
                inner = inner[key]
            del inner[where[-1]]
            messages = [(tuple(one.path), one.message) for one in VALIDATOR.iter_errors(values)]
            assert messages == [(where[:-1], f"'{where[-1]}' is a required property")]


def serve(**changes: Any) -> dict[str, str]:
    return {"serveConfig": yaml.safe_dump(yaml.safe_load(SERVE) | changes)}


OURS = yaml.safe_load(SERVE)["applications"][0]


def with_args(*where: str, value: Any) -> dict[str, str]:
    """The base's Serve config with another value below `args`; None takes it away."""
    ours = copy.deepcopy(OURS)
    inner = ours["args"]
    for key in where[:-1]:
        inner = inner[key]
    if value is None:
        del inner[where[-1]]
    else:
        inner[where[-1]] = value
    return serve(applications=[ours])


PLACE = ("ray_actor_options", "label_selector")
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a section": ({"draft": None}, "missing property 'draft'"),
    "a value": ({"draft": {"cpu": None}}, "at '/draft': missing property 'cpu'"),
    "a part of an image": ({"images": {"cpu": {"tag": None}}}, "at '/images/cpu': missing property 'tag'"),
    "more CPUs than the limit": ({"head": {"cpu": "8"}}, "head.cpu: at most head.cpuLimit = 4 (got 8)"),
    "thousandths of CPUs": ({"ingress": {"cpu": "4001m"}}, "ingress.cpu: at most ingress.cpuLimit = 4 (got 4001m)"),
    "fractions of CPUs": (
        {"autoscaler": {"cpu": "1.001"}},
        "autoscaler.cpu: at most autoscaler.cpuLimit = 1 (got 1.001)",
    ),
    "a limit in thousandths": ({"draft": {"cpuLimit": "3999m"}}, "draft.cpu: at most draft.cpuLimit = 3999m (got 4)"),
    "no CPU": ({"head": {"cpu": "0.0"}}, "/head/cpu"),
    "a number of CPUs": ({"verify": {"cpu": 33, "cpuLimit": 32}}, "verify.cpu: at most verify.cpuLimit = 32 (got 33)"),
    "memory beyond all bounds": ({"head": {"memory": "1" + "0" * 30 + "Ti"}}, "/head/memory"),
    "an object store beyond /dev/shm": (
        {"ingress": {"objectStoreMemory": "3000000000"}},
        "ingress.objectStoreMemory: at most the size of /dev/shm, which is 2Gi (got 3000000000)",
    ),
    "an object store beyond memory": (
        {"draft": {"memory": "900M"}},
        "draft.objectStoreMemory: less than draft.memory = 900M (got 1000000000)",
    ),
    "a label's name": (
        {"draft": {"nodeSelector": {"a b": "x"}}},
        "at '/draft/nodeSelector': additional properties 'a b'",
    ),
    "a label's value": ({"draft": {"nodeSelector": {"a": "x y"}}}, "at '/draft/nodeSelector/a'"),
    "a label that is true": (
        {"draft": {"nodeSelector": {"a": True}}},
        "'/draft/nodeSelector/a': got boolean, want string",
    ),
    "labels as a list": ({"draft": {"nodeSelector": ["a"]}}, "at '/draft/nodeSelector': got array, want object"),
    "a label that is set already": (
        {"draft": {"nodeSelector": {"nvidia.com/gpu.product": "x"}}},
        "draft.nodeSelector: nvidia.com/gpu.product is set by draft.gpuProduct; give one of both",
    ),
    "tolerations as a mapping": (
        {"draft": {"tolerations": {"a": 1}}},
        "at '/draft/tolerations': got object, want array",
    ),
    "an empty toleration": ({"draft": {"tolerations": [{}]}}, "/draft/tolerations/0"),
    "a toleration's key": ({"draft": {"tolerations": [{"key": "a b"}]}}, "/draft/tolerations/0/key"),
    "a toleration's number": ({"draft": {"tolerations": [{"key": "a", "value": 1}]}}, "/draft/tolerations/0/value"),
    "a toleration of nothing": (
        {"verify": {"tolerations": [{"key": "a"}, {"value": "x"}]}},
        "verify.tolerations[1].key: is needed, but with operator Exists",
    ),
    "a toleration of any value": (
        {"ingress": {"tolerations": [{"key": "a", "operator": "Exists", "value": "x"}]}},
        "ingress.tolerations[0].value: operator Exists takes none (got x)",
    ),
    "a toleration's time": (
        {"draft": {"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 3}]}},
        "draft.tolerations[0].tolerationSeconds: needs effect NoExecute",
    ),
    "a name": ({"imagePullSecrets": ["a..b"]}, "/imagePullSecrets/0"),
    "a namespace's name": ({"networkPolicy": {"operatorNamespaces": ["a.b"]}}, "/networkPolicy/operatorNamespaces/0"),
    "two models, one folder": (
        {"models": {"sources": ["a/x", "b/x"]}},
        "models.sources: a/x and b/x would share the fol",
    ),
    "one hostname for two": (
        {"gateway": {"enabled": True, "hostname": "a.example", "healthHostname": "a.example"}},
        "gateway.healthHostname: must differ from gateway.hostname",
    ),
    "a blank script": ({"prefetch": {"script": " \n"}}, "/prefetch/script"),
    "a script with control characters": ({"prefetch": {"script": "echo \0"}}, "/prefetch/script"),
    "no application": (
        serve(applications=[]),
        "serveConfig: exactly one application needs `import_path: cluster.app:bu",
    ),
    "two applications": (serve(applications=[OURS, OURS]), "needs `import_path: cluster.app:build`, found 2"),
    "no mapping": (serve(applications=[1]), "serveConfig: each of `applications` must be a mapping"),
    "no args": (serve(applications=[OURS | {"args": {}}]), "serveConfig: `args` of the application must be a mapping"),
    "args as text": (
        serve(applications=[OURS | {"args": "x"}]),
        "serveConfig: `args` of the application must be a map",
    ),
    "options as text": (serve(grpc_options="x"), "serveConfig: `grpc_options` must be a mapping"),
    "http port": (serve(http_options={"port": 80}), "serveConfig: http_options.port must be 8000"),
    "grpc port": (serve(grpc_options={"port": 9001}), "serveConfig: grpc_options.port must be 9000"),
    "loopback": (serve(http_options={"host": "127.0.0.1"}), "serveConfig: http_options.host must be 0.0.0.0 or ::"),
    "no proxies": (serve(proxy_location="HeadOnly"), "serveConfig: proxy_location must be EveryNode"),
    "no servicer": (serve(grpc_options={}), "serveConfig: grpc_options.grpc_servicer_functions must have outrider.v1."),
    "less time than answers may take": (
        {"verify": {"drainSeconds": 10}},
        "verify.drainSeconds: at least graceful_shutdown_timeout_s of `target` in the Serve config, which is 120 (go",
    ),
    "more time for answers than there is": (
        with_args("draft", "graceful_shutdown_timeout_s", value="61"),
        "draft.drainSeconds: at least graceful_shutdown_timeout_s of `draft` in the Serve config, which is 61 (got 60)",
    ),
    "as much time as answers have by default": (
        with_args("gateway", "graceful_shutdown_timeout_s", value=None),
        "ingress.drainSeconds: at least graceful_shutdown_timeout_s of `gateway` in the Serve config, which is 120",
    ),
    "fewer GPUs than ranks": (
        {"verify": {"gpus": 3}},
        "needs 4 of ray_actor_options.num_gpus in one pod, over all 4 ranks, and a pod of verify has 3: none could",
    ),
    "more ranks than GPUs": (
        with_args("target", "config", "model", "tensor_parallel_size", value=5),
        "needs 5 of ray_actor_options.num_gpus",
    ),
    "drafters without GPUs": ({"draft": {"gpus": 0}}, "needs 1 of ray_actor_options.num_gpus in one pod"),
    "fewer CPUs than ranks need": ({"verify": {"cpu": "22999m"}}, "needs 24 of ray_actor_options.num_cpus"),
    "a limit of CPUs": (
        {"draft": {"cpu": "1", "cpuLimit": "2"}},
        "and a pod of draft has 2: none could ever be placed",
    ),
    "one CPU by default": (
        merged(with_args("target", "ray_actor_options", "num_cpus", value=None), {"verify": {"cpu": "3"}}),
        "needs 4 of ray_actor_options.num_cpus",
    ),
    "a pool without its label": (
        with_args("draft", *PLACE, value=None),
        "`draft` needs ray_actor_options.label_selector {outrider/role: draft}, by which Ray finds its pods (got {})",
    ),
    "a pool with another's label": (
        with_args("target", *PLACE, value={"outrider/role": "draft"}),
        "`target` needs ray_",
    ),
    "a label as text": (with_args("gateway", *PLACE, value="ingress"), "{outrider/role: ingress}, by which Ray finds"),
    "options of actors as text": (with_args("gateway", "ray_actor_options", value="x"), "`gateway` needs ray_actor_op"),
    "no gateway": (with_args("gateway", value=None), "ingress.drainSeconds: at least graceful_shutdown_timeout_s"),
    "keys that nobody mounts": (
        with_args("gateway", "tenancy", "keys_file", value="/etc/keys.yaml"),
        "gateway.tenancy.keys_file must lie in /etc/outrider/keys, where the Secret outrider-api-keys is (got /etc/",
    ),
    "a second document": ({"serveConfig": SERVE + "\n---\napplications: []\n"}, "one YAML document is expected"),
    "an old cluster that goes too soon": (
        {"verify": {"terminationGracePeriodSeconds": 301}},
        "rayClusterDeletionDelaySeconds: at least twice verify.terminationGracePeriodSeconds",
    ),
    "a label's prefix": ({"draft": {"nodeSelector": {"a..b/c": "x"}}}, "additional properties 'a..b/c'"),
    "an annotation that is true": ({"head": {"podAnnotations": {"a": True}}}, "/head/podAnnotations/a"),
    "a toleration of the head": ({"head": {"tolerations": [{"value": "x"}]}}, "head.tolerations[0].key: is needed"),
    "a variable without value": ({"head": {"extraEnv": [{"name": "A"}]}}, "/head/extraEnv/0"),
    "a variable that is a number": ({"draft": {"extraEnv": [{"name": "A", "value": 1}]}}, "/draft/extraEnv/0/value"),
    "a variable twice": (
        {"verify": {"extraEnv": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}},
        "verify.extraEnv[1].name: A is set already",
    ),
    "another kind of affinity": ({"ingress": {"affinity": {"nodes": {}}}}, "additional properties 'nodes'"),
    "a Serve config with control characters": (
        {"serveConfig": SERVE + "\0"},
        "serveConfig: must be the text of a Serve",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_in_a_sentence(name: str) -> None:
    values, words = REFUSED[name]
    answer = render_or_error(values)
    assert isinstance(answer, str), "helm took it"
    assert words in answer
    assert "nil pointer" not in answer


@pytest.mark.parametrize("namespace", ["default", "kube-system", "kube-public", "kube-node-lease"])
def test_the_release_has_a_namespace_of_its_own(namespace: str) -> None:
    answer = render_or_error(namespace=namespace)
    assert isinstance(answer, str)
    assert f"the namespace {namespace} belongs to Kubernetes: install into one of its own" in answer


@pytest.mark.parametrize(("cpu", "limit"), [("1000m", "1"), ("0.5", "500m"), (4, "4"), ("4", 4), ("1.999", "2")])
def test_cpus_that_fit(cpu: object, limit: object) -> None:
    assert render({"head": {"cpu": cpu, "cpuLimit": limit}})


GOOD = (
    "0.0.0.0/0 10.0.0.1/32 255.255.255.255/9 ::/0 ::1/128 fd00::/8 1:2:3:4:5:6:7:8/64 1::8/64 1:2:3:4:5:6:7::/64 "
    + ("::2:3:4:5:6:7:8/64 ABCD::/16")
)
BAD = "256.0.0.0/8 1.2.3/8 1.2.3.4/33 01.2.3.4/8 ::/129 1::2::3/64 :1:2:3:4:5:6:7/64 1:2:3:4:5:6:7/64 12345::/16 " + (
    ":::/4 1:2:3:4:5:6:7:8:9/64 1:2:3:4:5:6:7:8::/64 1:/8 :/8 ..../1"
)


def test_blocks_of_addresses() -> None:
    good = GOOD.split()
    assert all(ipaddress.ip_network(one, strict=False) for one in good)
    assert good[-1] in str(render({"networkPolicy": {"apiServerCIDRs": good}}))


@pytest.mark.parametrize("block", BAD.split())
def test_what_is_no_block_of_addresses(block: str) -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        ipaddress.ip_network(block, strict=False)
    answer = render_or_error({"networkPolicy": {"apiServerCIDRs": ["10.0.0.0/8", block]}})
    assert isinstance(answer, str), "helm took it"
    assert "networkPolicy.apiServerCIDRs[1]: an address and the length of its prefix are needed" in answer


@pytest.mark.parametrize(
    "values",
    [
        with_args("gateway", "tenancy", value=None),
        with_args("target", "ray_actor_options", "num_cpus", value=8),
        merged(with_args("draft", "ray_actor_options", "num_gpus", value=0.5), {"draft": {"cpu": "2001m"}}),
        {"gateway": {"enabled": True, "hostname": "*.a.example", "healthHostname": "health.a.example"}},
        {"draft": {"nodeSelector": {"pool.example.com/name": "small"}}},
        {"head": {"cpuLimit": ""}, "autoscaler": {"cpuLimit": ""}},
        {"serveConfig": "# first\n---\n" + SERVE},
    ],
)
def test_serve_configs_and_values_that_fit(values: dict[str, Any]) -> None:
    assert render(values)


def test_no_variable_may_stand_twice() -> None:
    """The list of the check has all that stand in the pods."""
    (service,) = [one for one in render() if one["kind"] == "RayService"]
    pools = {"head": service["spec"]["rayClusterConfig"]["headGroupSpec"]} | groups(service)
    for pool, group in pools.items():
        for name in env(group["template"]["spec"]["containers"][0]):
            answer = render_or_error({pool: {"extraEnv": [{"name": name, "value": "x"}]}})
            assert isinstance(answer, str), f"{pool}: helm took {name}"
            assert f"{pool}.extraEnv[0].name: {name} is set already" in answer


def test_the_users_annotation_of_the_head_wins() -> None:
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    for given, wanted in (({}, "false"), ({key: "true"}, "true"), ({"a": "b"}, "false")):
        (service,) = [one for one in render({"head": {"podAnnotations": given}}) if one["kind"] == "RayService"]
        found = service["spec"]["rayClusterConfig"]["headGroupSpec"]["template"]["metadata"]["annotations"]
        assert found == {key: "false"} | given
        assert found[key] == wanted


def test_a_volume_that_is_there_already() -> None:
    objects = render({"models": {"existingClaim": "mine"}, "prefetch": {"enabled": True}})
    assert not any(one["kind"] == "PersistentVolumeClaim" for one in objects)
    text = yaml.safe_dump_all(objects)
    assert text.count("claimName: mine") == 4
    assert "claimName: outrider-models" not in text


def test_a_script_may_begin_as_it_likes() -> None:
    for script in ("  echo a\necho b\n", "\techo", "# one\n---\n{{ two }}"):
        objects = render({"prefetch": {"enabled": True, "script": script}})
        (job,) = [one for one in objects if one["kind"] == "Job"]
        assert job["spec"]["template"]["spec"]["containers"][0]["args"] == [script]
