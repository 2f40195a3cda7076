"""Serve's own part of the file: what Serve would take and fail on later is refused, by the key's name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster import app
from cluster.config.loader import load_config
from cluster.config.serve_part import DEPLOYMENTS
from tests.unit.config.test_loader import _findings, _load, _valid
from workers.core.errors import ConfigurationError

EXAMPLE = Path(__file__).parents[3] / "examples" / "tiny.yaml"
Document = dict[str, Any]
Change = Callable[[Document], Any]

HTTP = r"http_options\.port: a whole number from 0 to 65535 is needed; 0 takes a free one"
GRPC = r"grpc_options\.port: a whole number from 1 to 65535 is needed"
SERVICER = r"grpc_options\.grpc_servicer_functions\.0: "
POLICY = "the import path of a function or class, such as package.module:name, is needed"
NAME = r"applications\.0\.name: letters, digits and \. _ -, beginning with a letter or digit, at most 128"


def _http(**options: object) -> Change:
    return lambda document: document.update(http_options=options)


def _grpc(**options: object) -> Change:
    return lambda document: document["grpc_options"].update(options)


def _ours(**keys: object) -> Change:
    return lambda document: document["applications"][0].update(keys)


def _deployment(**keys: object) -> Change:
    return _ours(deployments=[{"name": "Gateway", **keys}])


def _other(**keys: object) -> Change:
    return lambda document: document["applications"].append({"name": "o", "import_path": "a:b", **keys})


MISTAKES: dict[str, tuple[Change, str]] = {
    "http port above": (_http(port=70000), rf"{HTTP} \(got 70000\)"),
    "http port below": (_http(port=-1), rf"{HTTP} \(got -1\)"),
    "http port true": (_http(port=True), rf"{HTTP} \(got True\)"),
    "http port as text": (_http(port="8000"), rf"{HTTP} \(got '8000'\)"),
    "http host": (_http(host="a\0b"), r"http_options\.host: character 2 is U\+0000.* \(got 'a\\x00b'\)"),
    "no http host": (_http(host=" "), r"http_options\.host: the text is blank"),
    "keep-alive": (_http(keep_alive_timeout_s=0), r"http_options\.keep_alive_timeout_s: seconds above 0"),
    "grpc port above": (_grpc(port=70000), rf"{GRPC} \(got 70000\)"),
    "grpc port 0": (_grpc(port=0), rf"{GRPC} \(got 0\)"),
    "grpc port huge": (_grpc(port=10**400), r"grpc_options\.port: the number about 10\*\*400 is out of all bounds"),
    "equal ports": (_http(port=9000), r"grpc_options\.port: 9000 is the port of http_options too"),
    "the other's default": (_grpc(port=8000), r"grpc_options\.port: 8000 is the port of http_options too"),
    "timeout": (
        _grpc(request_timeout_s=float("nan")),
        r"grpc_options\.request_timeout_s: seconds above 0.*\(got nan\)",
    ),
    "servicer of nowhere": (
        _grpc(grpc_servicer_functions=["no.such.module.f"]),
        SERVICER + r"'no\.such\.module\.f' cannot be imported: ModuleNotFoundError: No module named 'no'",
    ),
    "servicer that is not there": (
        _grpc(grpc_servicer_functions=["outrider.v1.generation_pb2_grpc.add_All"]),
        SERVICER + r".* cannot be imported: AttributeError: .* has no attribute 'add_All'",
    ),
    "servicer that is a number": (_grpc(grpc_servicer_functions=[3]), SERVICER + r"the import path .*\(got 3\)"),
    "servicer without a module": (_grpc(grpc_servicer_functions=["f"]), SERVICER + r"the import path .*\(got 'f'\)"),
    "servicer that is blank": (_grpc(grpc_servicer_functions=[""]), SERVICER + r"the import path .*\(got ''\)"),
    "servicer that is no function": (_grpc(grpc_servicer_functions=["math.pi"]), SERVICER + r"'math\.pi' is no funct"),
    "servicers as text": (_grpc(grpc_servicer_functions="a.b"), r"grpc_servicer_functions: .*list \(got 'a\.b'\)"),
    "no policy": (_ours(autoscaling_policy={}), rf"applications\.0\.autoscaling_policy\.policy_function: {POLICY}$"),
    "a blank policy": (_ours(autoscaling_policy={"policy_function": " "}), rf"policy_function: {POLICY} \(got ' '\)"),
    "a policy by another key": (
        _ours(autoscaling_policy={"policy_function": "a:b", "kwargs": {}}),
        r"autoscaling_policy\.kwargs: unknown key; allowed: policy_function, policy_kwargs",
    ),
    "policy settings as a list": (
        _ours(autoscaling_policy={"policy_function": "a:b", "policy_kwargs": [1]}),
        r"autoscaling_policy\.policy_kwargs: a mapping is needed \(got \[1\]\)",
    ),
    "no policy of a deployment": (
        _deployment(autoscaling_config={"policy": {}}),
        rf"applications\.0\.deployments\.0\.autoscaling_config\.policy\.policy_function: {POLICY}$",
    ),
    "policy of a deployment from nowhere": (
        _deployment(autoscaling_config={"policy": {"policy_function": "nope:x"}, "max_replicas": 3}),
        r"applications: Serve cannot take this configuration \(ModuleNotFoundError: No module named 'nope'\)",
    ),
    "no such deployment": (
        _ours(deployments=[{"name": "Verifier", "num_replicas": 2}]),
        r"deployments\.0\.name: this application has no deployment 'Verifier'; it has Gateway, TargetVerifier, Draft",
    ),
    "name": (_ours(name="a\x1b[31mb"), NAME + r" \(got 'a\\x1b\[31mb'\)"),
    "no name": (_ours(name=""), NAME),
    "a name that Serve takes apart": (_ours(name="a#b"), NAME),
    "a name with an end of line": (_ours(name="a\n"), NAME),
    "an endless name": (_ours(name="a" * 1000), NAME),
    "another's name": (_other(name="a\nb"), r"applications\.1\.name: character 2 is U\+000A"),
    "another's import path": (_other(import_path="a\0:b"), r"applications\.1\.import_path: character 2 is U\+0000"),
    "route": (_ours(route_prefix=""), r"route_prefix: it begins with / \(got ''\)"),
    "a route with an end of line": (_ours(route_prefix="/a\nb"), r"route_prefix: character 3 is U\+000A"),
    "args that are false": (_ours(args=0), r"applications\.0\.args: .*\(got 0\)"),
    "an unknown key that would steer the terminal": (
        lambda document: document.update({"a\x1b[31m\0\n" + "z" * 1000: 1}),
        r"yaml: a\\x1b\[31m\\x00\\nz+\.\.\.z+: unknown key; allowed: applications, ",
    ),
    "an unknown key of ours likewise": (
        lambda document: document["applications"][0]["args"].update({"\x1b\n" + "z" * 1000: 1}),
        r"args\.\\x1b\\nz+\.\.\.z+: unknown key; allowed: autoscaling, ",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(tmp_path: Path, mistake: str) -> None:
    for line in _findings(tmp_path, *MISTAKES[mistake]):
        assert line.isprintable()
        assert len(line) < 2500


def test_all_findings_are_told_at_once(tmp_path: Path) -> None:
    document = _valid()
    document["http_options"] = {"port": -1}
    document["applications"][0]["name"] = "#"
    with pytest.raises(ConfigurationError) as caught:
        _load(tmp_path, document)
    assert len(str(caught.value).splitlines()) == 2


def test_what_is_right_is_taken(tmp_path: Path) -> None:
    document = _valid()
    document["http_options"] = {"port": 0, "request_timeout_s": None, "host": "::"}
    document["grpc_options"] = {
        "port": 65535,
        "request_timeout_s": 30,
        "grpc_servicer_functions": ["outrider.v1.generation_pb2_grpc:add_GenerationServiceServicer_to_server"],
    }
    document["applications"][0]["deployments"] = [{"name": name, "num_replicas": 2} for name in DEPLOYMENTS]
    document["applications"].append({"name": "another one", "route_prefix": "/other", "import_path": "a:b"})
    assert _load(tmp_path, document).serve_config.grpc_options.port == 65535
    assert load_config(EXAMPLE)


def test_the_deployments_names_stand_twice_and_are_the_same() -> None:
    kinds = (app.Gateway, app.TargetVerifier, app.DraftProposer)
    assert tuple(kind.__name__ for kind in kinds) == DEPLOYMENTS
