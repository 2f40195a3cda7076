"""A real model: SmolLM2-135M has 9 heads and 3 K/V heads, so that 3 ranks can share it."""

from pathlib import Path

import pytest

from tests.fakes.engines import Collected, make_engine, make_request, run_all
from tests.fakes.parallel_models import load_shared
from workers.core.config import NgramConfig
from workers.core.errors import ConfigurationError
from workers.core.sampling_params import SamplingParams
from workers.models.loaded import LoadedModel
from workers.proposers.ngram import NgramProposer

MODEL = Path(__file__).parents[3] / "models" / "SmolLM2-135M-Instruct"
TEXTS = ("The quick brown fox", "one two three one two three one two")
SAMPLINGS = (
    SamplingParams(temperature=0.0, max_tokens=32, ignore_eos=True),
    SamplingParams(temperature=0.8, max_tokens=32, ignore_eos=True),
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not MODEL.is_dir(), reason="the model is not here: outrider model fetch"),
]


def answers_of(loaded: LoadedModel) -> list[Collected]:
    engine = make_engine(loaded, NgramProposer(NgramConfig()), num_blocks=128)
    requests = [make_request(loaded.tokenizer.encode(t), s, seed=i) for i, t in enumerate(TEXTS) for s in SAMPLINGS]
    results = run_all(engine, requests)
    engine.stop()
    return results


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_three_ranks_write_what_one_writes(dtype: str) -> None:
    expected = answers_of(load_shared(MODEL, 1, dtype=dtype))
    shared = load_shared(MODEL, 3, dtype=dtype)
    try:
        results = answers_of(shared)
    finally:
        shared.close()
    assert [r.token_ids for r in results] == [r.token_ids for r in expected]
    assert sum(r.stats.accepted_tokens for r in results if r.stats) > 0


def test_two_ranks_cannot_share_nine_heads() -> None:
    with pytest.raises(ConfigurationError, match=r"does not divide the 9 attention heads .* allowed: \[1, 3\]"):
        load_shared(MODEL, 2)
