"""What the training is for: half of the layers draft well for a model trained with early exits, less well without."""

from pathlib import Path

import pytest

from tests.fakes.engines import make_engine, make_request, run_all, tiny_loaded
from workers.core.config import LayerSkipConfig
from workers.core.proposal import TreeBudget
from workers.core.sampling_params import SamplingParams
from workers.proposers.layerskip.proposer import LayerSkipProposer
from workers.training.prompt_set import write_prompts
from workers.training.small_model import EARLY_EXITS, PLAIN, train_small_model, write_small_model

HALF = 3  # of 6 layers
CHAIN, TREE = TreeBudget(4, 1, 4), TreeBudget(4, 3, 12)


def acceptance_length(folder: Path, limits: TreeBudget) -> float:
    """Greedy, on beginnings of texts that were not trained on."""
    loaded = tiny_loaded(folder)
    texts = [text for text in write_prompts(60, seed=99) if len(text) > 80][:16]
    sampling = SamplingParams(temperature=0.0, max_tokens=48, ignore_eos=True)
    proposer = LayerSkipProposer(LayerSkipConfig(exit_layer=HALF, min_survival=0.02))
    engine = make_engine(loaded, proposer, num_blocks=1024, max_tokens_per_step=256, max_running_requests=16)
    prompts = [loaded.tokenizer.encode(text)[:20] for text in texts]
    results = run_all(engine, [make_request(p, sampling, seed=i, limits=limits) for i, p in enumerate(prompts)])
    engine.stop()
    stats = [result.stats for result in results if result.stats]
    return sum(s.output_tokens for s in stats) / sum(s.verify_steps for s in stats)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_early_exits_pay_where_they_were_trained(tmp_path: Path) -> None:
    untrained = write_small_model(tmp_path / "untrained")
    with_exits = train_small_model(tmp_path / "exits", EARLY_EXITS, untrained=untrained)
    without = train_small_model(tmp_path / "plain", PLAIN, untrained=untrained)
    chain, tree = (acceptance_length(with_exits, limits) for limits in (CHAIN, TREE))
    assert chain >= 1.5
    assert tree > chain
    assert acceptance_length(without, CHAIN) < chain - 0.15
    assert acceptance_length(without, TREE) < tree - 0.25
