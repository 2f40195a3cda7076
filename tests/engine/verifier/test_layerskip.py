"""Early exits change no token: LayerSkip against plain decoding of the same engine, and its books."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.chi_square import p_value
from tests.engine.verifier.test_equality import PROMPTS, SAMPLINGS, requests_for
from tests.fakes.engines import Collected, Collector, make_engine, make_request, run_all, tiny_loaded
from tests.unit.models.test_execution import runner_for
from workers.attention.forward_context import SequenceChunk, causal_mask
from workers.core.config import LayerSkipConfig, NgramConfig, VerifierConfig
from workers.core.errors import ConfigurationError
from workers.core.proposal import TreeBudget
from workers.core.request import GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, VerificationRule
from workers.models.loaded import LoadedModel
from workers.models.tiny import build_tiny_model
from workers.proposers.layerskip.proposer import LayerSkipProposer
from workers.proposers.ngram import NgramProposer
from workers.proposers.union import UnionProposer
from workers.sampling.request_sampler import RequestSampler
from workers.verifier.assembly import build_engine
from workers.verifier.proposer import build_proposer

EXIT = 2  # of 4 layers
Plain = Callable[[str], list[Collected]]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A tiny model whose later layers say little, so that early exits are often right."""
    folder = build_tiny_model(tmp_path_factory.mktemp("skippable"), num_layers=4)
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if name.startswith(("model.layers.2.", "model.layers.3.")) and ("o_proj" in name or "down_proj" in name):
            weight.mul_(0.15)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return tiny_loaded(folder)


@pytest.fixture(scope="module")
def plain(loaded: LoadedModel) -> Iterator[Plain]:
    known: dict[str, list[Collected]] = {}
    engine = make_engine(loaded)

    def answers(name: str) -> list[Collected]:
        if name not in known:
            known[name] = [run_all(engine, [request])[0] for request in requests_for(name, SpeculationMode.OFF)]
        return known[name]

    yield answers
    engine.stop()


def proposer(exit_layer: int = EXIT) -> LayerSkipProposer:
    return LayerSkipProposer(LayerSkipConfig(exit_layer=exit_layer, min_survival=0.02))


def acceptance_length(results: list[Collected]) -> float:
    stats = [r.stats for r in results if r.stats]
    return sum(s.output_tokens for s in stats) / sum(s.verify_steps for s in stats)


@pytest.mark.parametrize("name", list(SAMPLINGS))
@pytest.mark.parametrize("limits", [TreeBudget(5, 4, 12), TreeBudget(4, 1, 4), TreeBudget(1, 3, 3)], ids=str)
def test_every_token_equals_plain_decoding(loaded: LoadedModel, plain: Plain, name: str, limits: TreeBudget) -> None:
    expected = plain(name)
    requests = [make_request(p, SAMPLINGS[name], seed=i + 1, limits=limits) for i, p in enumerate(PROMPTS)]
    engine = make_engine(loaded, proposer())
    results = run_all(engine, requests[:1]) + run_all(engine, requests)
    engine.stop()
    engine._kv_cache.check_invariants()
    assert [r.token_ids for r in results] == [r.token_ids for r in [expected[0], *expected]]
    assert [r.finish_reason for r in results[1:]] == [r.finish_reason for r in expected]
    assert acceptance_length(results) > 1.3, "the draft must be right now and then, or this test proves nothing"


@pytest.mark.parametrize("exit_layer", [1, 3])
def test_every_exit_gives_the_same_text(loaded: LoadedModel, plain: Plain, exit_layer: int) -> None:
    engine = make_engine(loaded, proposer(exit_layer))
    results = run_all(engine, requests_for("sampled"))
    engine.stop()
    assert [r.token_ids for r in results] == [r.token_ids for r in plain("sampled")]


@pytest.mark.parametrize("rule", [VerificationRule.REJECTION, VerificationRule.TYPICAL])
def test_temperature_zero_is_argmax_under_other_rules(
    loaded: LoadedModel, plain: Plain, rule: VerificationRule
) -> None:
    engine = make_engine(loaded, proposer())
    requests = [make_request(p, SAMPLINGS["greedy"], seed=i + 1, rule=rule) for i, p in enumerate(PROMPTS)]
    results = run_all(engine, requests)
    engine.stop()
    assert [r.token_ids for r in results] == [r.token_ids for r in plain("greedy")]


def test_plain_and_speculating_requests_share_steps(loaded: LoadedModel, plain: Plain) -> None:
    """Prefills in chunks, requests without speculation and drafts in one batch."""
    modes = [SpeculationMode.ON, SpeculationMode.OFF, SpeculationMode.ON, SpeculationMode.OFF]
    requests = [
        make_request(p, SAMPLINGS["sampled"], seed=i + 1, mode=mode)
        for i, (p, mode) in enumerate(zip(PROMPTS, modes, strict=True))
    ]
    engine = make_engine(loaded, proposer(), max_tokens_per_step=16)
    results = run_all(engine, requests * 2)
    engine.stop()
    engine._kv_cache.check_invariants()
    assert [r.token_ids for r in results] == [r.token_ids for r in plain("sampled")] * 2
    assert all(r.stats and r.stats.drafted_tokens == 0 for r in results[1::2])


def test_little_memory_drafts_less_and_loses_nothing(loaded: LoadedModel, plain: Plain) -> None:
    longest = max(len(p) for p in PROMPTS) + 16
    engine = make_engine(loaded, proposer(), num_blocks=longest // 4 + 2, max_tokens_per_step=16)
    results = run_all(engine, requests_for("sampled") * 2)
    engine.stop()
    engine._kv_cache.check_invariants()
    assert [r.token_ids for r in results] == [r.token_ids for r in plain("sampled")] * 2
    assert sum(r.stats.preemptions for r in results if r.stats) > 0, "the pool was meant to be too small"


def test_no_block_to_spare_means_plain_decoding(loaded: LoadedModel, plain: Plain) -> None:
    """A pool that holds the answer and nothing else."""
    blocks = -(-(len(PROMPTS[1]) + 16) // 4)
    engine = make_engine(loaded, proposer(), num_blocks=blocks, max_tokens_per_step=16)
    [result] = run_all(engine, requests_for("sampled")[1:2])
    engine.stop()
    engine._kv_cache.check_invariants()
    assert result.token_ids == plain("sampled")[1].token_ids


def test_prefix_hits_change_nothing(loaded: LoadedModel, plain: Plain) -> None:
    """Blocks that were written in two parts are shared with the requests that follow."""
    expected = plain("sampled")[3].token_ids
    engine = make_engine(loaded, proposer())
    request = make_request(PROMPTS[3], SAMPLINGS["sampled"], seed=4)
    whole = [*PROMPTS[3], *expected]
    longer = make_request(whole, SAMPLINGS["greedy"], seed=4)
    results = [run_all(engine, [r])[0] for r in (request, request, longer)]
    engine.stop()
    fresh = make_engine(loaded)
    [right] = run_all(fresh, [make_request(whole, SAMPLINGS["greedy"], seed=4, mode=SpeculationMode.OFF)])
    fresh.stop()
    assert [r.token_ids for r in results] == [expected, expected, right.token_ids]
    cached = [r.stats.cached_prompt_tokens for r in results if r.stats]
    assert cached[2] > len(PROMPTS[3]), "the answer's own blocks were meant to be found"


def test_cancelled_requests_give_their_blocks_back(loaded: LoadedModel) -> None:
    engine = make_engine(loaded, proposer())
    collectors = [Collector() for _ in range(4)]
    keys = [
        engine.submit(request, collector) for request, collector in zip(requests_for("greedy"), collectors, strict=True)
    ]
    collectors[0].first.wait(30)
    for key in keys:
        engine.cancel(key)
    for collector in collectors:
        collector.wait()
    engine.stop()
    engine._kv_cache.check_invariants()
    assert engine.num_free_blocks == 256


def test_an_exit_outside_the_layers_is_refused_when_loading(loaded: LoadedModel) -> None:
    with pytest.raises(ConfigurationError, match="has 4 layers, allowed are 1 to 3"):
        make_engine(loaded, proposer(4))
    with pytest.raises(ValueError, match="needs layerskip"):
        VerifierConfig.model_validate({"model": {"model": "m"}, "method": "layerskip"})


def test_no_token_goes_through_the_first_layers_twice(loaded: LoadedModel) -> None:
    """A chain's root and inner nodes were drafted: the step runs layers 1..E for its leaf only."""
    layers = loaded.model.base_model.layers
    rows = {0: 0, EXIT: 0}

    def counter(layer: int) -> Callable[..., None]:
        def count(_: object, inputs: tuple[torch.Tensor, ...], __: object) -> None:
            rows[layer] += inputs[0].shape[1]

        return count

    engine = make_engine(loaded, proposer())
    hooks = [layers[layer].register_forward_hook(counter(layer)) for layer in rows]
    limits = TreeBudget(4, 1, 4)
    [result] = run_all(engine, [make_request(PROMPTS[0], SAMPLINGS["greedy"], seed=1, limits=limits)])
    engine.stop()
    for hook in hooks:
        hook.remove()
    assert result.stats is not None
    assert result.stats.drafted_tokens > 8
    assert rows[0] == rows[EXIT] == len(PROMPTS[0]) + result.stats.verify_steps - 1 + result.stats.drafted_tokens


def test_rejection_follows_the_target(loaded: LoadedModel) -> None:
    """Chi-square of all answers of three tokens; the first comes from a plain step, the others from trees."""
    sampling = SamplingParams(temperature=1.5, top_k=3, max_tokens=3, ignore_eos=True)
    prompt = PROMPTS[0]
    engine = make_engine(loaded, proposer(), max_running_requests=64, max_waiting_requests=2000, num_blocks=1024)
    rule = VerificationRule.REJECTION
    requests = [
        make_request(prompt, sampling, seed=i, rule=rule, limits=TreeBudget(2, 2, 4), cache_salt="s")
        for i in range(400)
    ]
    results = run_all(engine, requests)
    engine.stop()
    counts = Counter(tuple(r.token_ids) for r in results)
    probs = exact_probabilities(loaded, requests[0], 3)
    assert set(counts) <= set(probs), "a token outside the filters was emitted"
    assert sum(r.stats.accepted_tokens for r in results if r.stats) > 120
    total = len(results)
    common = {k: p for k, p in probs.items() if total * p >= 5}
    cells = [(counts[k], total * p) for k, p in common.items()]
    rest = total - sum(expected for _, expected in cells)
    if rest >= 5:
        cells.append((total - sum(seen for seen, _ in cells), rest))
    seen, expected = zip(*cells, strict=True)
    assert p_value(seen, expected) > 1e-4


def exact_probabilities(loaded: LoadedModel, request: GenerationRequest, length: int) -> dict[tuple[int, ...], float]:
    """Of every answer of `length` tokens."""
    sampler = RequestSampler(request, loaded.vocab_size, ())
    runner = runner_for(loaded)
    probs: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(length):
        longer: dict[tuple[int, ...], float] = {}
        for path, prob in probs.items():
            tokens = [*request.prompt_token_ids, *path]
            slots = np.arange(len(tokens))
            last = (len(tokens) - 1,)
            whole = SequenceChunk(tokens, range(len(tokens)), slots, slots[:0], slots, causal_mask(len(tokens)), last)
            log_probs = sampler.log_probs(runner.forward([whole])[0].logits[0], path)
            for token in (log_probs > -torch.inf).nonzero().flatten().tolist():
                longer[(*path, token)] = prob * float(log_probs[token].exp())
        probs = longer
    return probs


@pytest.mark.parametrize("name", list(SAMPLINGS))
@pytest.mark.parametrize("limits", [TreeBudget(5, 4, 12), TreeBudget(4, 1, 4)], ids=str)
def test_a_union_with_prompt_lookup_changes_no_token(loaded: LoadedModel, name: str, limits: TreeBudget) -> None:
    """Prompts that hold their own answer, so that lookup finds something."""
    sampling = SAMPLINGS[name]
    plain_engine = make_engine(loaded)
    off = [make_request(p, sampling, seed=i, mode=SpeculationMode.OFF) for i, p in enumerate(PROMPTS)]
    prompts = [[*p, *r.token_ids, *p] for p, r in zip(PROMPTS, run_all(plain_engine, off), strict=True)]
    off = [make_request(p, sampling, seed=i, mode=SpeculationMode.OFF) for i, p in enumerate(prompts)]
    expected = [r.token_ids for r in run_all(plain_engine, off)]
    plain_engine.stop()
    lookup = NgramProposer(NgramConfig(prompt_lookup_min=1, prompt_lookup_max=3))
    engine = make_engine(loaded, UnionProposer(proposer(), lookup))
    results = run_all(engine, [make_request(p, sampling, seed=i, limits=limits) for i, p in enumerate(prompts)])
    engine.stop()
    engine._kv_cache.check_invariants()
    assert [r.token_ids for r in results] == expected
    assert acceptance_length(results) > 1.2


def test_half_precision_weights(loaded: LoadedModel) -> None:
    half = tiny_loaded(Path(loaded.name), "float16")
    answers = []
    for drafts in (None, proposer()):
        engine = make_engine(half, drafts)
        answers.append([r.token_ids for r in run_all(engine, requests_for("sampled"))])
        engine.stop()
    assert answers[0] == answers[1]


def test_settings_choose_the_proposer(loaded: LoadedModel) -> None:
    settings: dict[str, object] = {"model": {"model": loaded.name}, "method": "layerskip"}
    config = VerifierConfig.model_validate({**settings, "layerskip": {"exit_layer": EXIT}})
    assert isinstance(build_proposer(config, loaded, "v", 1), LayerSkipProposer)
    united = VerifierConfig.model_validate({**settings, "layerskip": {"exit_layer": EXIT}, "ngram": {"combine": True}})
    both = build_proposer(united, loaded, "v", 1)
    assert isinstance(both, UnionProposer)
    engine = build_engine(united, loaded, both)
    engine.start()
    [result] = run_all(engine, requests_for("greedy")[:1])
    engine.stop()
    assert result.stats is not None
    assert result.stats.drafted_tokens > 0
    with pytest.raises(ValueError, match="needs a method to combine with"):
        VerifierConfig.model_validate({"model": {"model": "m"}, "method": "ngram", "ngram": {"combine": True}})
