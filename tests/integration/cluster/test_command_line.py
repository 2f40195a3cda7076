"""The commands as processes of their own, against the shared cluster."""

import json
import subprocess
import sys
from pathlib import Path

import yaml

from cluster.local import LocalCluster

OUTRIDER = (sys.executable, "-m", "cluster.cli")
TIMEOUT_S = 120.0


def outrider(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OUTRIDER, *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_generate_streams_text_and_ends_with_statistics(address: str) -> None:
    done = outrider("generate", "Once upon", "--target", address, "--text", "--max-tokens", "12", "--seed", "3")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "12 tokens in" in done.stderr
    assert "seed 3" in done.stderr


def test_generate_json_is_reproducible_and_equal_without_speculation(address: str) -> None:
    common = ("generate", "Once upon", "--target", address, "--max-tokens", "16", "--seed", "3", "--json")
    on = json.loads(outrider(*common, "--speculation", "on").stdout)
    off = json.loads(outrider(*common, "--speculation", "off").stdout)
    assert on["text"] == off["text"]
    assert off["stats"]["drafted_tokens"] == 0
    assert on["stats"]["output_tokens"] == 16
    assert on["seed"] == 3


def test_generate_refuses_bad_input_with_code_2_and_one_line(address: str) -> None:
    for words in (("--temperature", "-1"), ("--speculation", "fast"), ("--logit-bias", "x"), ("--model-size", "7")):
        done = outrider("generate", "Hi", "--target", address, *words)
        assert done.returncode == 2, words
        assert "Traceback" not in done.stderr
        assert done.stderr.strip()


def test_no_server_is_code_1() -> None:
    done = outrider("status", "--target", "127.0.0.1:1")
    assert done.returncode == 1
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr


def test_status_shows_model_limits_and_pools(address: str) -> None:
    shown = outrider("status", "--target", address)
    assert shown.returncode == 0, shown.stderr
    assert all(word in shown.stdout for word in ("tiny", "verifier", "drafter", "coupled"))
    document = json.loads(outrider("status", "--target", address, "--json").stdout)
    assert {one["role"] for one in document["server"]["replicas"]} == {"verifier", "drafter"}
    assert document["model"]["max_nodes"] == 8


def test_serve_explains_what_is_wrong_with_a_file(tmp_path: Path, serve_config: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(serve_config.read_text().replace("max_depth:", "max_dept:"))
    done = outrider("serve", str(wrong))
    assert done.returncode == 2
    assert "max_dept" in done.stderr
    assert "max_depth" in done.stderr  # what is allowed
    assert "Traceback" not in done.stderr
    assert outrider("serve", str(tmp_path / "none.yaml")).returncode == 2


def test_serve_can_check_a_file_and_do_no_more(tmp_path: Path, serve_config: Path) -> None:
    done = outrider("serve", str(serve_config), "--check")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{serve_config} is right\n", "")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(serve_config.read_text().replace("max_depth:", "max_dept:"))
    done = outrider("serve", str(wrong), "--check")
    assert (done.returncode, done.stdout) == (2, "")
    assert "max_dept" in done.stderr


def test_serve_no_blocking_needs_a_running_ray(serve_config: Path) -> None:
    done = outrider("serve", str(serve_config), "--no-blocking")
    assert done.returncode == 2
    assert "--address" in done.stderr


def test_serve_on_a_running_ray_takes_back_what_cannot_work(cluster: LocalCluster, serve_config: Path) -> None:
    """The reason of a replica's failure reaches the terminal; what runs beside it is left alone."""
    import ray
    from ray import serve

    document = yaml.safe_load(serve_config.read_text())
    (application,) = document["applications"]
    application |= {"name": "wrong", "route_prefix": "/wrong"}
    application["args"]["target"]["config"]["model"]["model"] = "models/nowhere"
    wrong = serve_config.with_name("wrong.yaml")
    wrong.write_text(yaml.safe_dump(document))
    done = outrider("serve", str(wrong), "--address", ray.get_runtime_context().gcs_address)
    assert done.returncode == 1
    assert "models/nowhere" in done.stderr
    assert "Traceback" not in done.stderr
    assert set(serve.status().applications) == {"outrider"}
