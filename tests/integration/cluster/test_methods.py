"""Every method of speculation is trained with its command, and served by a cluster with the text of plain decoding."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from outrider import Client, SamplingParams, Speculation
from typer.testing import CliRunner

from benchmarks.together import load_several
from cluster.cli import app
from cluster.local import LocalCluster, free_port
from tests.integration.cluster.conftest import application, document
from tests.integration.cluster.processes import REPLACEMENT_S

PROMPTS = ("The quick brown fox", "number 3 number 4")
OPTIMIZER = {"max_steps": 60, "epochs": 100, "batch_size": 8, "learning_rate": 0.005, "warmup_steps": 5}


def outrider_train(method: str, folder: Path, **settings: Any) -> Path:
    """`outrider train METHOD`; where its output lies."""
    path = folder / f"{method}.yaml"
    path.write_text(yaml.safe_dump({"output": str(folder / method), **settings}))
    result = CliRunner().invoke(app, ["train", method, str(path)])
    assert result.exit_code == 0, result.output
    return folder / method


@pytest.fixture(scope="module")
def served(nodes: LocalCluster, tiny_target: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Four applications beside the shared one: draft, medusa, medusa2 and layerskip; the address of all."""
    from ray import serve

    folder = tmp_path_factory.mktemp("methods")
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"number {n}"}) + "\n" for n in range(48)))
    target = str(tiny_target)
    model = {"model": target, "dtype": "float32"}
    data = str(outrider_train("data", folder, model=model, prompts=str(prompts), max_tokens=32))
    common = {"target": target, "data": data, "optimizer": OPTIMIZER}
    heads = {"num_heads": 3, "shared_head": False, "vocabulary_size": None}
    draft = outrider_train("draft", folder, **common, layers=[0, 1], vocabulary_size=400)
    medusa = outrider_train("medusa", folder, **common, heads=heads)
    medusa2 = outrider_train("medusa2", folder, **common, heads=heads, lora_rank=4, heads_first_steps=10)
    layerskip = outrider_train("layerskip", folder, model=target, data=data, optimizer=OPTIMIZER)
    applications = {
        "draft": application(tiny_target, draft, name="draft"),
        "medusa": speculating(tiny_target, "medusa", {"model": str(medusa)}),
        "medusa2": speculating(medusa2 / "model", "medusa", {"model": str(medusa2 / "heads")}, name="medusa2"),
        "layerskip": speculating(layerskip, "layerskip", {"exit_layer": 2}),
    }
    content = document(*applications.values(), grpc_port=free_port(), http_port=free_port())  # where none run yet
    nodes.deploy(load_several(content, folder))
    nodes.wait_ready(2 * REPLACEMENT_S)
    yield f"127.0.0.1:{nodes.grpc_port}"
    for name in applications:
        serve.delete(name)


def speculating(target: Path, kind: str, settings: dict[str, Any], name: str = "") -> dict[str, Any]:
    """An application whose verifier speculates by itself."""
    content: dict[str, Any] = application(target, None, name=name or kind)
    content["args"]["target"]["config"] |= {"method": kind, kind: settings}
    return content


@pytest.mark.slow
@pytest.mark.parametrize("name", ["draft", "medusa", "medusa2", "layerskip"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_that_of_plain_decoding(served: str, name: str, temperature: float) -> None:
    with Client(served, timeout=60.0, metadata={"application": name}) as client:
        accepted = 0
        for prompt in PROMPTS:
            sampling = SamplingParams(max_tokens=40, temperature=temperature, seed=11, ignore_eos=True)
            plain = client.generate(prompt, sampling=sampling, speculation=Speculation.off())
            fast = client.generate(prompt, sampling=sampling, speculation=Speculation.on())
            auto = client.generate(prompt, sampling=sampling)
            assert plain.token_ids == fast.token_ids == auto.token_ids
            assert plain.stats.drafted_tokens == 0 < fast.stats.drafted_tokens
            accepted += fast.stats.accepted_tokens
        assert accepted > 0, "trained for this target, it guesses something right"
