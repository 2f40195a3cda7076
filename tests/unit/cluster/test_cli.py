"""The commands against the SDK's scripted server."""

import json
from pathlib import Path

import pytest
from outrider import Speculation, SpeculationMode
from outrider.testing import FakeServer
from typer.testing import CliRunner, Result

from cluster.cli.generate import parse_bias, parse_speculation
from cluster.cli.main import app


def invoke(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(words), input=stdin)


def test_generate_prints_the_text_and_its_statistics() -> None:
    with FakeServer("Hello, world") as server:
        result = invoke("generate", "Hi", "--target", server.target, "--seed", "5")
    assert result.exit_code == 0
    assert "Hello, world" in result.stdout
    assert "tokens/s" in result.stderr
    assert "seed 5" in result.stderr


def test_chat_is_the_default_and_carries_the_system_message() -> None:
    with FakeServer() as server:
        invoke("generate", "Hi", "--target", server.target, "--system", "Be brief.")
        invoke("generate", "Hi", "--target", server.target, "--text")
    chat, text = server.requests
    assert [(one.role, one.content) for one in chat.chat.messages] == [("system", "Be brief."), ("user", "Hi")]
    assert text.text == "Hi"


def test_all_options_reach_the_server() -> None:
    words = "--temperature 0.5 --top-k 3 --top-p 0.9 --min-p 0.1 --max-tokens 7 --min-tokens 2 --stop END --ignore-eos"
    more = "--logit-bias 4=-1.5 --stop-token-id 9 --speculation on --depth 3 --width 2 --nodes 5 --rule rejection"
    with FakeServer() as server:
        invoke("generate", "Hi", "--target", server.target, *words.split(), *more.split(), "--cache-salt", "s")
    (request,) = server.requests
    sampling, speculation = request.sampling, request.speculation
    assert (sampling.temperature, sampling.top_k, sampling.max_tokens, sampling.min_tokens) == (0.5, 3, 7, 2)
    assert list(sampling.stop) == ["END"]
    assert dict(sampling.logit_bias) == {4: -1.5}
    assert list(sampling.stop_token_ids) == [9]
    assert sampling.ignore_eos
    assert (speculation.max_depth, speculation.max_width, speculation.max_nodes) == (3, 2, 5)
    assert request.cache_salt == "s"


def test_the_prompt_may_come_from_standard_input() -> None:
    with FakeServer() as server:
        invoke("generate", "-", "--target", server.target, "--text", stdin="from a pipe")
    assert server.requests[0].text == "from a pipe"


def test_json_holds_text_and_ratios() -> None:
    with FakeServer("Hello") as server:
        result = invoke("generate", "Hi", "--target", server.target, "--json", "--n", "2")
    document = json.loads(result.stdout)
    assert document["text"] == "Hello"
    assert len(document["outputs"]) == 2
    assert "acceptance_length" in document["stats"]


def test_several_answers_are_printed_one_after_another() -> None:
    with FakeServer("Hello") as server:
        result = invoke("generate", "Hi", "--target", server.target, "--n", "2")
    assert result.stdout.count("Hello") == 2
    assert "answer 1" in result.stdout


def test_status() -> None:
    with FakeServer(model="fake-model") as server:
        shown = invoke("status", "--target", server.target)
        document = json.loads(invoke("status", "--target", server.target, "--json").stdout)
    assert "fake-model" in shown.stdout
    assert document["model"]["model"] == "fake-model"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--speculation", "fast"], "off, auto or on"),
        (["--speculation", "off", "--depth", "3"], "--speculation on"),
        (["--speculation", "off", "--rule", "coupled"], "--speculation auto or on"),
        (["--logit-bias", "x=1"], "TOKEN_ID=BIAS"),
        (["--text", "--system", "s"], "--chat"),
        (["--rule", "lucky"], "coupled"),
    ],
)
def test_bad_options_are_code_2_and_say_what_is_allowed(words: list[str], said: str) -> None:
    result = invoke("generate", "Hi", "--target", "127.0.0.1:1", *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_a_file_that_does_not_exist_is_code_2(tmp_path: Path) -> None:
    result = invoke("serve", str(tmp_path / "none.yaml"))
    assert result.exit_code == 2
    assert "no such file" in result.stderr


def test_serve_refuses_options_that_contradict_each_other() -> None:
    for words in (["--no-blocking"], ["--address", "127.0.0.1:1", "--num-cpus", "2"]):
        result = invoke("serve", "x.yaml", *words)
        assert result.exit_code == 2
        assert "--address" in result.stderr


def test_biases_and_limits() -> None:
    assert parse_bias(["3=-2.5", "7=1"]) == {3: -2.5, 7: 1.0}
    assert parse_bias([]) is None
    assert parse_speculation(None, None, None, None, None) == Speculation.auto()
    limited = parse_speculation(None, 2, None, None, None)
    assert limited is not None
    assert (limited.mode, limited.depth) == (SpeculationMode.ON, 2)
