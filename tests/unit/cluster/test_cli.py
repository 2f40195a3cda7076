"""The commands against the SDK's scripted server."""

import io
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from outrider import ReplicaInfo, ServerInfo, Speculation, SpeculationMode
from outrider.testing import FakeServer, Fault
from rich.console import Console
from typer.testing import CliRunner, Result

from cluster.cli.generate import parse_bias, parse_speculation
from cluster.cli.main import app
from cluster.cli.status import model_table, replica_table
from cluster.local import free_port


def invoke(*words: str, stdin: str | bytes | None = None) -> Result:
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


def test_status_prints_names_as_they_are_and_no_control_characters() -> None:
    with FakeServer(model="[/a]\x1b[31m[b]") as server:
        shown = invoke("status", "--target", server.target)
    assert shown.exit_code == 0, shown.output
    assert "[/a]\\x1b[31m[b]" in shown.stdout
    assert "\x1b" not in shown.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--speculation", "fast"], "off, auto or on"),
        (["--speculation", "off", "--depth", "3"], "--speculation on"),
        (["--speculation", "off", "--rule", "coupled"], "--speculation auto or on"),
        (["--logit-bias", "x=1"], "TOKEN_ID=BIAS"),
        (["--text", "--system", "s"], "--chat"),
        (["--rule", "lucky"], "coupled"),
        (["--stop", "a\udcff"], "--stop: not valid UTF-8: byte 0xff at character 1"),
        (["--stop", "ok", "--stop", "\udcff"], "--stop: not valid UTF-8: byte 0xff at character 0"),
        (["--system", "a\udcff"], "--system: not valid UTF-8"),
        (["--cache-salt", "a\udcff"], "--cache-salt: not valid UTF-8"),
        (["--rule", "a\udcff"], "coupled"),
        (["--top-k", "2147483648"], "top_k: expected an integer from 0 to 2147483647, got 2147483648"),
        (["--depth", "-1"], "error: depth: expected an integer"),
        (["--target", "localhost:99999"], "target: expected host:port with a port from 1 to 65535"),
        (["--target", "a\udcff:9000"], "target: expected host:port"),
    ],
)
def test_bad_options_are_code_2_and_say_what_is_allowed(words: list[str], said: str) -> None:
    result = invoke("generate", "Hi", "--target", "127.0.0.1:1", *words)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize("kind", ["--chat", "--text"])
def test_a_prompt_that_is_not_unicode_is_code_2(kind: str) -> None:
    for words, stdin in ((["a\udcff"], None), (["-"], b"a\xff")):
        result = invoke("generate", *words, "--target", "127.0.0.1:1", kind, stdin=stdin)
        assert result.exit_code == 2
        source = "standard input" if stdin else "prompt"
        assert result.stderr == f"error: {source}: not valid UTF-8: byte 0xff at {'byte' if stdin else 'character'} 1\n"


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_bytes_that_are_not_utf_8_are_one_line_for_a_real_process(locale: str) -> None:
    words = [sys.executable, "-m", "cluster.cli", "generate", "--target", "127.0.0.1:1"]
    environment = {**os.environ, "LC_ALL": locale}
    for more, stdin in (([b"a\xff"], b""), (["-"], b"\xff")):
        done = subprocess.run([*words, *more], input=stdin, capture_output=True, env=environment, check=False)
        assert done.returncode == 2
        assert done.stderr.startswith(b"error: ")
        assert done.stderr.count(b"\n") == 1


def test_generate_tells_what_it_waits_for() -> None:
    with FakeServer() as server:
        full = "OverloadedError: the key's limit of tokens\x1b[2J; retry after 300 ms"
        server.fail_next(Fault(grpc.StatusCode.RESOURCE_EXHAUSTED, full))
        result = invoke("generate", "Hi", "--target", server.target)
    assert result.exit_code == 0
    first, _ = result.stderr.split("\n", 1)
    assert re.fullmatch(r"attempt 2 in 0\.\d s, after: the key's limit of tokens\\x1b\[2J; retry after 300 ms", first)
    assert "attempt" not in result.stdout


def test_a_server_that_is_not_there_is_told_once_and_asked_for() -> None:
    target = f"127.0.0.1:{free_port()}"
    result = invoke("generate", "Hi", "--target", target)
    assert result.exit_code == 1
    first, *later, last = result.stderr.splitlines()
    assert first.startswith("attempt 2 in 0.")
    assert ", after: " in first
    assert [bool(re.fullmatch(r"attempt \d in \d\.\d s", line)) for line in later] == [True] * 4
    assert last.startswith("error: ")
    assert last.endswith(f"(gave up after 6 attempts); does a server run at {target}?")


def test_a_refused_tree_is_described_by_the_option() -> None:
    with FakeServer() as server:
        server.fail_next(Fault(grpc.StatusCode.INVALID_ARGUMENT, "InvalidRequestError: max_depth: at least 1 (got 0)"))
        result = invoke("generate", "Hi", "--target", server.target, "--depth", "0")
    assert result.exit_code == 2
    assert result.stderr == "error: depth: at least 1 (got 0)\n"


@pytest.mark.parametrize("target", ["localhost:99999", "nonsense", ":", "host:", "host:abc", ""])
def test_status_refuses_an_address_that_cannot_work(target: str) -> None:
    result = invoke("status", "--target", target)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: target: expected host:port with a port from 1 to 65535, ")
    assert result.stderr.endswith(f"got {target!r}\n")


@pytest.mark.parametrize("address", ["127.0.0.1:43127", "192.168.100.100:50051", "[2001:db8::8a2e:370:7334]:50051"])
def test_addresses_stay_whole_on_a_narrow_terminal(address: str) -> None:
    model = "/models/SmolLM2-135M-Instruct"
    replicas = tuple(
        ReplicaInfo(role, f"outrider#{role}#a1b2c3d4", address, 1, model, 10, 200, 4096, 1024)
        for role in ("verifier", "drafter")
    )
    out = io.StringIO()
    Console(width=80, file=out).print(replica_table(ServerInfo("0.1.0", replicas)))
    shown = out.getvalue()
    assert shown.count(address) == 2
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_fingerprints_are_folded_not_cut() -> None:
    with FakeServer() as server, server.client() as client:
        model = replace(client.model_info(), model_fingerprint="f" * 64 + "0" * 64, tokenizer_hash="a" * 64)
    out = io.StringIO()
    Console(width=80, file=out).print(model_table(model))
    assert "…" not in out.getvalue()
    assert out.getvalue().count("0") >= 64


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
