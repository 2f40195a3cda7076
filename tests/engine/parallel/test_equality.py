"""One, two and three ranks write the same tokens, with every proposer and rule; real processes share the model."""

import dataclasses
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import torch

from tests.fakes.engines import Collected, make_engine, make_request, run_all
from tests.fakes.medusa_heads import knowing_heads, save
from tests.fakes.parallel_models import build_shared_model, load_shared
from workers.core.config import DrafterConfig, LayerSkipConfig, ModelConfig, NgramConfig
from workers.core.request import DrafterEndpoint, GenerationRequest
from workers.core.sampling_params import SamplingParams, SpeculationMode, VerificationRule
from workers.models.loaded import LoadedModel
from workers.models.tiny import build_tiny_draft
from workers.proposers.base import Proposer
from workers.proposers.layerskip.proposer import LayerSkipProposer
from workers.proposers.medusa import MedusaProposer
from workers.proposers.ngram import NgramProposer
from workers.proposers.none import NullProposer
from workers.proposers.remote import RemoteProposer
from workers.proposers.union import UnionProposer
from workers.rpc.handshake import VerifierIdentity
from workers.rpc.process import server_process

VOCAB = 512
BASES = [[random.Random(i).randrange(3, VOCAB) for _ in range(6 + 9 * i)] for i in range(3)]
PROMPTS = [base + base[:5] for base in BASES]  # they repeat themselves, so that lookup finds something
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True),
    "sampled": SamplingParams(temperature=0.8, max_tokens=16, ignore_eos=True),
}
RULES = (VerificationRule.COUPLED, VerificationRule.REJECTION)


@dataclass(frozen=True)
class Models:
    target: Path
    draft: Path
    heads: Path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("shared")
    target = build_shared_model(folder / "target")
    loaded = load_shared(target, 1)
    heads = save(folder / "heads", knowing_heads(loaded, PROMPTS, SAMPLINGS["greedy"]), loaded)
    return Models(target, build_tiny_draft(folder / "draft", target), heads)


def proposers(models: Models) -> dict[str, Callable[[LoadedModel], Proposer]]:
    """Those inside the verifier."""
    lookup = NgramConfig(prompt_lookup_min=1, prompt_lookup_max=3)
    skipping = LayerSkipConfig(exit_layer=2, min_survival=0.02)
    return {
        "none": lambda _: NullProposer(),
        "ngram": lambda _: NgramProposer(lookup),
        "medusa": lambda loaded: MedusaProposer.load(str(models.heads), loaded),
        "layerskip": lambda _: LayerSkipProposer(skipping),
        "union": lambda _: UnionProposer(LayerSkipProposer(skipping), NgramProposer(lookup)),
    }


def requests(
    sampling: str, rule: VerificationRule, mode: SpeculationMode, drafters: tuple[DrafterEndpoint, ...] = ()
) -> list[GenerationRequest]:
    made = [make_request(p, SAMPLINGS[sampling], seed=i + 1, rule=rule, mode=mode) for i, p in enumerate(PROMPTS)]
    return [dataclasses.replace(request, drafters=drafters) for request in made]


Answers = dict[tuple[str, str, VerificationRule], list[Collected]]


def answers_of(loaded: LoadedModel, models: Models) -> Answers:
    """Of every proposer inside the verifier, sampling and rule: one engine each, requests together."""
    found: Answers = {}
    for name, make in proposers(models).items():
        engine = make_engine(loaded, make(loaded), max_tokens_per_step=48)
        for sampling in SAMPLINGS:
            for rule in RULES:
                found[name, sampling, rule] = run_all(engine, requests(sampling, rule, SpeculationMode.ON))
        engine.stop()
    return found


@pytest.fixture(scope="module")
def expected(models: Models) -> Answers:
    """Of one rank. Under `coupled`, and greedily, each is the plain answer."""
    found = answers_of(load_shared(models.target, 1), models)
    for (name, sampling, rule), answers in found.items():
        if rule is VerificationRule.COUPLED or sampling == "greedy":
            plain = found["none", sampling, VerificationRule.COUPLED]
            assert [a.token_ids for a in answers] == [p.token_ids for p in plain], name
    return found


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def shared(models: Models, request: pytest.FixtureRequest) -> Iterator[LoadedModel]:
    loaded = load_shared(models.target, request.param)
    yield loaded
    loaded.close()


@pytest.mark.timeout(900)
def test_every_proposer_inside_the_verifier(shared: LoadedModel, models: Models, expected: Answers) -> None:
    assert shared.leader is not None
    found = answers_of(shared, models)
    assert {key: [a.token_ids for a in answers] for key, answers in found.items()} == {
        key: [a.token_ids for a in answers] for key, answers in expected.items()
    }
    for name in proposers(models):
        stats = [a.stats for key, answers in found.items() if key[0] == name for a in answers if a.stats]
        accepted = sum(s.accepted_tokens for s in stats)
        assert (accepted > 0) == (name != "none"), f"{name} must be right now and then, or this proves nothing"


@pytest.mark.timeout(900)
def test_a_drafter_of_as_many_ranks(shared: LoadedModel, models: Models, expected: Answers) -> None:
    """A verifier and a drafter, both shared; what the drafter sends depends on time, so the text must not."""
    model = ModelConfig(
        model=str(models.draft),
        dtype="float32",
        num_threads=1,
        tensor_parallel_size=shared.tensor_parallel_size,
        rank_timeout_s=120.0,
    )
    with server_process("draft", DrafterConfig(model=model)) as said:
        drafters = (DrafterEndpoint(said["id"], said["address"], said["incarnation"]),)
        proposer = RemoteProposer(
            VerifierIdentity("test", 1, shared.name, shared.fingerprint, shared.tokenizer_hash, shared.vocab_size)
        )
        assert proposer.connect([said["address"]], 60.0)
        engine = make_engine(shared, UnionProposer(proposer, NgramProposer(NgramConfig(prompt_lookup_min=1))))
        accepted = 0
        for sampling, rule in (("greedy", RULES[0]), ("sampled", RULES[0]), ("greedy", RULES[1])):
            answers = run_all(engine, requests(sampling, rule, SpeculationMode.ON, drafters))
            assert [a.token_ids for a in answers] == [a.token_ids for a in expected["none", sampling, RULES[0]]]
            accepted += sum(a.stats.accepted_tokens for a in answers if a.stats)
        sampled = run_all(engine, requests("sampled", RULES[1], SpeculationMode.ON, drafters))
        engine.stop()
        proposer.shutdown()
        ranks = [p for child in psutil.Process().children() for p in child.children()]
        assert len(ranks) == shared.tensor_parallel_size - 1, "of the drafter; the verifier's are children themselves"
    assert accepted > 0
    assert psutil.wait_procs(ranks, timeout=60.0)[1] == [], "a server that is told to stop takes its ranks along"
    assert all(len(a.token_ids) == 16 for a in sampled)


def test_what_the_ranks_of_a_model_are_is_no_part_of_its_identity(shared: LoadedModel, models: Models) -> None:
    alone = load_shared(models.target, 1)
    assert (shared.fingerprint, shared.vocab_size, shared.num_kv_heads) == (alone.fingerprint, VOCAB, 6)
    assert shared.kv_heads_per_rank == 6 // shared.tensor_parallel_size
    with torch.inference_mode():
        assert shared.lm_head(torch.zeros(1, 1, 96)).shape[-1] == VOCAB
