"""`outrider keys`, and how the other commands bring a key."""

import subprocess
from pathlib import Path

import pytest
from outrider.testing import FakeServer
from typer.testing import CliRunner, Result

from cluster.cli.main import app
from cluster.security.api_keys import hash_of, looks_like_a_key
from cluster.security.key_file import read_keys


def invoke(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_a_key_is_made_listed_and_revoked(tmp_path: Path) -> None:
    file = tmp_path / "keys.yaml"
    made = invoke("keys", "new", "team-a", "--file", str(file), "--tokens-per-minute", "600", "--weight", "2")
    assert made.exit_code == 0
    key = made.stdout.strip()
    assert looks_like_a_key(key)
    assert key not in made.stderr
    entry = read_keys(file).keys["team-a"]
    assert entry.sha256 == hash_of(key)
    assert entry.limits == {"tokens_per_minute": 600, "weight": 2.0}
    assert invoke("keys", "new", "team-b", "--file", str(file)).exit_code == 0
    listed = invoke("keys", "list", "--file", str(file)).stdout
    assert "team-a" in listed
    assert "tokens_per_minute 600, weight 2.0" in listed
    assert entry.sha256 not in listed
    assert invoke("keys", "revoke", "team-a", "--file", str(file)).exit_code == 0
    assert set(read_keys(file).keys) == {"team-b"}


def test_a_file_may_have_brackets_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "[").mkdir()
    file = tmp_path / "[" / "a].yaml"  # [/a] would end a style that nobody began
    made = invoke("keys", "new", "team-a", "--file", str(file))
    assert made.exit_code == 0, made.output
    assert "[/a].yaml" in made.stderr.replace("\n", "")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["new", "team-a"], "there is a key team-a already"),
        (["new", "two words"], "two words"),
        (["new", "x", "--weight", "0"], "weight"),
        (["new", "x", "--most-urgent-priority", "-11"], "most_urgent_priority"),
        (["revoke", "nobody"], "there is no key nobody; there are: team-a"),
    ],
)
def test_what_cannot_be_done(tmp_path: Path, words: list[str], problem: str) -> None:
    file = tmp_path / "keys.yaml"
    invoke("keys", "new", "team-a", "--file", str(file))
    before = file.read_text()
    result = invoke("keys", *words, "--file", str(file))
    assert result.exit_code == 2
    assert problem in " ".join(result.stderr.split())
    assert file.read_text() == before


def test_no_file(tmp_path: Path) -> None:
    assert "cannot be read" in " ".join(invoke("keys", "list", "--file", str(tmp_path / "none")).stderr.split())
    result = invoke("keys", "new", "x", "--file", str(tmp_path / "nowhere" / "keys.yaml"))
    assert "there is no folder" in " ".join(result.stderr.split())


def test_commands_bring_the_key_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("outrider_secret\n")
    with FakeServer() as server:
        result = invoke("generate", "Hi", "--target", server.target, "--api-key-file", str(tmp_path / "key"))
        assert result.exit_code == 0
        assert server.metadata[-1]["authorization"] == "Bearer outrider_secret"
        assert invoke("generate", "Hi", "--target", server.target, "--priority", "4").exit_code == 0
        assert server.requests[-1].priority == 4


@pytest.mark.parametrize("option", ["--api-key-file", "--ca"])
def test_files_that_will_not_do(tmp_path: Path, option: str) -> None:
    (tmp_path / "empty").write_text("")
    for name, problem in (("none", "there is no such file"), ("empty", "is empty" if "key" in option else "no PEM")):
        result = invoke("status", option, str(tmp_path / name))
        assert result.exit_code == 2
        assert problem in " ".join(result.stderr.split())


def test_there_is_no_option_that_takes_the_key_itself() -> None:
    for command in ("generate", "status"):
        assert "--api-key " not in invoke(command, "--help").stdout


def test_tls_is_asked_for(tmp_path: Path) -> None:
    """Against a plaintext server it fails; that a TLS server is reached is shown with the SDK's credentials."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=x"]
    files = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "ca.pem")]
    subprocess.run(["openssl", "req", "-x509", *curve, *files], check=True, capture_output=True)
    with FakeServer() as server:
        words = ["generate", "Hi", "--target", server.target, "--deadline", "0.1"]
        assert invoke(*words, "--ca", str(tmp_path / "ca.pem")).exit_code == 1
        assert not server.requests
