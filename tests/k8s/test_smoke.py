"""deploy/k8s/smoke.sh against a kubectl and an outrider that play a cluster, well behaved or not."""

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.k8s.binaries import shellcheck
from tests.k8s.kustomize import K8S, ROOT

SCRIPT = K8S / "smoke.sh"
TEXT = SCRIPT.read_text()
# A cluster in a folder: `pods` has the drafters, `answer` what is generated; each command that comes is in `log`.
KUBECTL = """#!/bin/bash
cd "$CLUSTER"
echo "kubectl $*" >> log
case "$*" in
  *" wait "*) [ ! -e unready ] ;;
  *component=ingress*) [ -e headless ] || echo gateway-0 ;;
  *component=draft*) cat pods ;;
  *port-forward*) [ ! -e closed ] || { echo "no way" >&2; exit 1; }
    echo "Forwarding from 127.0.0.1:4711 -> 9000"; exec sleep 60 ;;
  *" delete pod "*) [ -e lost ] || echo drafter-new > pods; [ ! -e worse ] || echo other > answer ;;
  *) echo "kubectl $*: not foreseen" >&2; exit 1 ;;
esac
"""
OUTRIDER = """#!/bin/bash
cd "$CLUSTER"
echo "outrider $*" >> log
[ ! -e unreachable ] || { echo UNAVAILABLE >&2; exit 1; }
case "$*" in *"--speculation off"*) [ ! -e wrong ] || { echo wrong; exit 0; } ;; esac
[ ! -e wavering ] || { wc -l < log; exit 0; }
cat answer
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    for name, text in (("kubectl", KUBECTL), ("outrider", OUTRIDER)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "pods").write_text("drafter-0\ndrafter-1\n")
    (tmp_path / "answer").write_text("there was a river\n")
    return tmp_path


def smoke(cluster: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    path = f"{cluster}:{os.environ['PATH']}"
    return subprocess.run(
        [SCRIPT, *arguments],
        env={**os.environ, "PATH": path, "CLUSTER": str(cluster), "POLL": "0.1", **environ},
        capture_output=True,
        text=True,
        timeout=120,
    )


def log(cluster: Path) -> list[str]:
    return (cluster / "log").read_text().splitlines()


def test_a_sound_cluster_passes(cluster: Path) -> None:
    answer = smoke(cluster, "somewhere")
    assert answer.returncode == 0, answer.stderr
    assert "OK: five answers, 0 of them different" in answer.stdout
    lines = log(cluster)
    asked = [index for index, line in enumerate(lines) if line.startswith("outrider generate")]
    (killed,) = (index for index, line in enumerate(lines) if " delete pod drafter-0 " in line)
    assert [index > killed for index in asked] == [False, False, False, True, True]
    assert all("--target 127.0.0.1:4711 --seed 7" in lines[index] for index in asked)
    assert all(line.startswith(("kubectl -n somewhere ", "outrider ")) for line in lines)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("unready", "rayservice/outrider is not ready"),
        ("headless", "no pod of the group ingress runs"),
        ("closed", "no way to pod/gateway-0: no way"),
        ("unreachable", "no answer"),
        ("wavering", "the second answer is another text"),
        ("wrong", "the answer without speculation is another text"),
        ("worse", "the answer after a drafter was killed is another text"),
        ("lost", "no new pod of the group draft after 1 s"),
    ],
)
def test_a_cluster_with_a_fault_fails(cluster: Path, fault: str, words: str) -> None:
    (cluster / fault).touch()
    answer = smoke(cluster, "somewhere", WAIT="1" if fault == "lost" else "60")
    assert answer.returncode == 1
    assert f"FAILED: {words}" in answer.stderr
    assert "OK" not in answer.stdout


def test_without_drafters_or_words_it_fails(cluster: Path) -> None:
    (cluster / "pods").write_text("")
    assert "no pod of the group draft runs" in smoke(cluster, "somewhere").stderr
    (cluster / "answer").write_text("")
    assert "an empty answer" in smoke(cluster, "somewhere").stderr


def test_rounding_may_be_allowed(cluster: Path) -> None:
    (cluster / "wrong").touch()
    answer = smoke(cluster, "somewhere", EXACT="no")
    assert answer.returncode == 0
    assert "note: the answer without speculation" in answer.stderr
    assert "1 of them different" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [((), {}), (("a", "b", "c"), {}), (("a",), {"WAIT": "20m"}), (("a",), {"CALL": "0"}), (("a",), {"EXACT": "maybe"})],
)
def test_it_says_what_it_wants(cluster: Path, arguments: tuple[str, ...], environ: dict[str, str]) -> None:
    answer = smoke(cluster, *arguments, **environ)
    assert answer.returncode == 2
    assert "usage" in answer.stderr or "whole seconds" in answer.stderr
    assert not (cluster / "log").exists()


def test_its_options_are_those_of_the_command_line() -> None:
    from typer.main import get_command

    from cluster.cli.main import app

    (call,) = re.findall(r"outrider (generate .*?)\"\$@\"", TEXT.replace("\\\n", " "), re.S)
    arguments = [*shlex.split(call.replace("$port", "9000")), "--speculation", "off"]
    group = get_command(app)
    group.commands[arguments[0]].make_context("outrider", arguments[1:])  # type: ignore[attr-defined]


def test_shell_scripts_are_clean(tmp_path: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "*.sh"], cwd=ROOT, check=True, capture_output=True, text=True)
    scripts = tracked.stdout.split()
    assert "deploy/k8s/smoke.sh" in scripts
    answer = subprocess.run([shellcheck(), *scripts], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert answer.stdout == ""
    assert answer.returncode == 0
    bad = tmp_path / "bad.sh"
    bad.write_text("#!/bin/sh\nrm -rf $1/*\n")
    assert subprocess.run([shellcheck(), bad], capture_output=True, timeout=120).returncode == 1
