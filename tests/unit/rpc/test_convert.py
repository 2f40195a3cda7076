"""Wire <-> core, both ways, and what is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from outrider.v1 import common_pb2, draft_pb2, generation_pb2, verifier_pb2

from workers.core.draft_session import SessionCommit, SessionOpening
from workers.core.errors import InvalidRequestError, ProtocolViolationError
from workers.core.proposal import DraftDistribution, Proposal, TreeBudget
from workers.core.request import DrafterEndpoint, FinishReason, GenerationRequest, StepOutput, TenantShare, TokenLogprob
from workers.core.sampling_params import SamplingParams, SpeculationMode, SpeculationParams, VerificationRule
from workers.core.statistics import GenerationStats
from workers.core.token_tree import TokenTree
from workers.rpc import convert

LIMITS = TreeBudget(5, 4, 16)
SAMPLING = SamplingParams(
    temperature=0.5,
    top_k=7,
    top_p=0.9,
    min_p=0.1,
    repetition_penalty=1.1,
    presence_penalty=-1.0,
    frequency_penalty=2.0,
    logit_bias={3: -100.0, 9: 1.5},
    stop=("end", "\n\n"),
    stop_token_ids=(1, 2),
    max_tokens=9,
    min_tokens=2,
    seed=2**64 - 1,
    logprobs=0,
    n=3,
    ignore_eos=True,
)


@pytest.mark.parametrize("params", [SAMPLING, SamplingParams(), SamplingParams(temperature=0.0, n=1)])
def test_sampling_parameters_survive(params: SamplingParams) -> None:
    assert convert.sampling_from_wire(convert.sampling_to_wire(params)) == params


def test_unset_fields_take_the_defaults_and_zero_is_not_unset() -> None:
    assert convert.sampling_from_wire(common_pb2.SamplingParams()) == SamplingParams()
    assert convert.sampling_from_wire(common_pb2.SamplingParams(temperature=0.0)).temperature == 0.0
    assert convert.sampling_from_wire(common_pb2.SamplingParams(logprobs=0)).logprobs == 0


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"temperature": -0.1}, ["temperature", "greater than or equal to 0", "-0.1"]),
        ({"temperature": float("nan")}, ["temperature"]),
        ({"temperature": float("inf")}, ["temperature"]),
        ({"top_k": 2**31}, ["top_k", "less than 2147483648"]),
        ({"top_p": 0.0}, ["top_p", "greater than 0"]),
        ({"top_p": 1.01}, ["top_p", "less than or equal to 1"]),
        ({"min_p": 1.5}, ["min_p", "less than or equal to 1"]),
        ({"repetition_penalty": 0.0}, ["repetition_penalty", "greater than or equal to 0.01"]),
        ({"presence_penalty": 2.1}, ["presence_penalty", "less than or equal to 2"]),
        ({"frequency_penalty": -2.1}, ["frequency_penalty", "greater than or equal to -2"]),
        ({"logit_bias": {4: 101.0}}, ["logit_bias", "100"]),
        ({"logit_bias": dict.fromkeys(range(1025), 0.0)}, ["logit_bias", "1024"]),
        ({"stop": [""]}, ["stop", "at least 1 character"]),
        ({"stop": ["x" * 257]}, ["stop", "256"]),
        ({"stop": ["x"] * 17}, ["stop", "16"]),
        ({"stop_token_ids": [1] * 65}, ["stop_token_ids", "64"]),
        ({"max_tokens": 0}, ["max_tokens", "greater than or equal to 1"]),
        ({"max_tokens": 3, "min_tokens": 4}, ["min_tokens (4)", "max_tokens (3)"]),
        ({"logprobs": 21}, ["logprobs", "less than or equal to 20"]),
        ({"n": 0}, ["n:", "greater than or equal to 1"]),
        ({"n": 17}, ["n:", "less than or equal to 16"]),
    ],
)
def test_bad_sampling_values_are_refused_with_the_allowed_range(fields: dict[str, object], words: list[str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        convert.sampling_from_wire(common_pb2.SamplingParams(**fields))  # type: ignore[arg-type]
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "params",
    [
        SpeculationParams(),
        SpeculationParams(
            mode=SpeculationMode.ON, max_depth=1, max_width=2, max_nodes=3, rule=VerificationRule.REJECTION
        ),
        SpeculationParams(mode=SpeculationMode.OFF, rule=VerificationRule.TYPICAL),
    ],
)
def test_speculation_parameters_survive(params: SpeculationParams) -> None:
    assert convert.speculation_from_wire(convert.speculation_to_wire(params)) == params


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"max_depth": 0}, ["max_depth", "greater than or equal to 1"]),
        ({"max_width": 65}, ["max_width", "64"]),
        ({"max_nodes": 1025}, ["max_nodes", "1024"]),
        ({"mode": 9}, ["mode", "9", "SPECULATION_MODE_AUTO (2)"]),
        ({"rule": 9}, ["rule", "9", "VERIFICATION_RULE_COUPLED (1)"]),
    ],
)
def test_bad_speculation_values_are_refused(fields: dict[str, object], words: list[str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        convert.speculation_from_wire(common_pb2.SpeculationParams(**fields))  # type: ignore[arg-type]
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("rule", [None, *VerificationRule])
def test_rules_survive(rule: VerificationRule | None) -> None:
    assert convert.rule_from_wire(convert.rule_to_wire(rule)) is rule


@pytest.mark.parametrize("reason", [None, *FinishReason])
def test_finish_reasons_survive(reason: FinishReason | None) -> None:
    assert convert.finish_reason_from_wire(convert.finish_reason_to_wire(reason)) is reason
    assert convert.finish_reason_from_wire(77) is None


TREES = st.integers(0, 20).flatmap(
    lambda n: st.tuples(*(st.integers(-1, node - 1) for node in range(n))).map(
        lambda parents: TokenTree(tuple(range(len(parents))), parents)
    )
)


@settings(max_examples=60, deadline=None)
@given(tree=TREES, base_len=st.integers(0, 2**32 - 1))
def test_proposals_survive(tree: TokenTree, base_len: int) -> None:
    distributions = {
        node: DraftDistribution(tuple(tree.token_ids[c] for c in children), (1.0 / len(children),) * len(children))
        for node, children in tree.children.items()
    }
    wire = draft_pb2.Proposal.FromString(
        convert.proposal_to_wire(4, 5, Proposal(base_len, tree, distributions)).SerializeToString()
    )
    assert (wire.session_id, wire.epoch) == (4, 5)
    back = convert.proposal_from_wire(wire, vocab_size=20, max_nodes=20, with_distributions=True)
    assert (back.base_len, back.tree) == (base_len, tree)
    assert {n: d.token_ids for n, d in back.distributions.items()} == {n: d.token_ids for n, d in distributions.items()}
    plain = convert.proposal_from_wire(wire, vocab_size=20, max_nodes=20, with_distributions=False)
    assert plain == Proposal(base_len, tree)


@pytest.mark.parametrize("with_distributions", [True, False])
def test_survival_hints_survive(with_distributions: bool) -> None:
    message = wire_proposal(log_survival=[-0.5, -2.0])
    proposal = convert.proposal_from_wire(message, vocab_size=9, max_nodes=2, with_distributions=with_distributions)
    assert proposal.hints == (-0.5, -2.0)
    assert list(convert.proposal_to_wire(1, 1, proposal).log_survival) == [-0.5, -2.0]


@pytest.mark.parametrize("hints", [[], [-1.0], [-1.0, -1.0, -1.0], [-1.0, float("nan")], [float("-inf"), 0.0]])
def test_wrong_hints_count_as_none(hints: list[float]) -> None:
    message = wire_proposal(log_survival=hints)
    proposal = convert.proposal_from_wire(message, vocab_size=9, max_nodes=2, with_distributions=True)
    assert (len(proposal.tree), proposal.hints) == (2, ())
    assert not convert.proposal_to_wire(1, 1, proposal).log_survival


def wire_proposal(**fields: object) -> draft_pb2.Proposal:
    values: dict[str, object] = {
        "tree": common_pb2.TokenTree(token_ids=[1, 2], parent_indices=[-1, -1]),
        "distributions": [node_distribution(-1, [1, 2], [0.5, 0.5])],
        **fields,
    }
    return draft_pb2.Proposal(**values)  # type: ignore[arg-type]


def node_distribution(node: int, tokens: list[int], probs: list[float]) -> draft_pb2.NodeDistribution:
    distribution = common_pb2.DraftDistribution(token_ids=tokens, probs=probs)
    return draft_pb2.NodeDistribution(node_index=node, distribution=distribution)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tree": common_pb2.TokenTree(token_ids=[1, 2], parent_indices=[-1])}, "2 tokens but 1 parents"),
        ({"tree": common_pb2.TokenTree(token_ids=[1, 2], parent_indices=[1, 0])}, "does not stand before it"),
        ({"tree": common_pb2.TokenTree(token_ids=[1], parent_indices=[-2])}, "does not stand before it"),
        ({"tree": common_pb2.TokenTree(token_ids=[1, 1], parent_indices=[-1, -1])}, "sibling"),
        ({"tree": common_pb2.TokenTree(token_ids=[10], parent_indices=[-1])}, "vocabulary size 10"),
        ({"tree": common_pb2.TokenTree(token_ids=range(4), parent_indices=[-1] * 4)}, "budget is 3"),
        ({"distributions": []}, "the root has children but no draft distribution"),
        ({"distributions": [node_distribution(-1, [1], [1.0])]}, "probability zero"),
        ({"distributions": [node_distribution(-1, [1, 2], [0.5, 0.4])]}, "sum to 1"),
        ({"distributions": [node_distribution(-1, [1, 2], [1.5, -0.5])]}, "in (0, 1]"),
        ({"distributions": [node_distribution(-1, [1, 2], [float("nan"), 1.0])]}, "in (0, 1]"),
        ({"distributions": [node_distribution(-1, [1, 2, 1], [0.5, 0.25, 0.25])]}, "twice"),
        ({"distributions": [node_distribution(-1, [1, 2], [1.0])]}, "one probability for each token"),
        ({"distributions": [node_distribution(-1, [1, 2, 10], [0.5, 0.25, 0.25])]}, "vocabulary size 10"),
        ({"distributions": [node_distribution(5, [1], [1.0])]}, "names node 5 of 2"),
        ({"distributions": [node_distribution(-1, [1, 2], [0.5, 0.5])] * 2}, "two draft distributions"),
    ],
)
def test_broken_proposals_are_named(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ProtocolViolationError) as caught:
        convert.proposal_from_wire(wire_proposal(**fields), vocab_size=10, max_nodes=3, with_distributions=True)
    assert words in str(caught.value)


def test_sessions_survive() -> None:
    opening = SessionOpening(
        3, 2, (5, 6, 7), 2, SAMPLING, 2**64 - 1, VerificationRule.REJECTION, TreeBudget(1, 2, 3), "s"
    )
    assert convert.opening_from_wire(convert.opening_to_wire(opening), vocab_size=8) == opening
    commit = SessionCommit(3, 2, 9, (5, 6), TreeBudget(0, 0, 0), paused=True)
    assert convert.commit_from_wire(convert.commit_to_wire(commit), vocab_size=8) == commit
    assert (
        convert.opening_from_wire(draft_pb2.OpenSession(token_ids=[1]), vocab_size=8).rule is VerificationRule.COUPLED
    )


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (draft_pb2.OpenSession(), "at least one committed token"),
        (draft_pb2.OpenSession(token_ids=[8]), "outside the vocabulary (0 to 7)"),
        (draft_pb2.OpenSession(token_ids=[1], prompt_tokens=2), "only 1 tokens"),
        (draft_pb2.OpenSession(token_ids=[1], rule=9), "VERIFICATION_RULE_COUPLED"),  # type: ignore[arg-type]
    ],
)
def test_bad_openings_are_refused(message: draft_pb2.OpenSession, words: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        convert.opening_from_wire(message, vocab_size=8)
    assert words in str(caught.value)


def test_commits_with_foreign_tokens_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="outside the vocabulary"):
        convert.commit_from_wire(draft_pb2.Commit(token_ids=[1, 9]), vocab_size=8)


def request(**changes: object) -> GenerationRequest:
    values: dict[str, object] = {
        "request_id": "r1",
        "prompt_token_ids": (1, 2, 3),
        "sampling": SAMPLING,
        "seed": 2**63,
        "rule": VerificationRule.REJECTION,
        "mode": SpeculationMode.ON,
        "budget": TreeBudget(3, 2, 8),
        "output_token_ids": (4,),
        "cache_salt": "salt",
        "deadline_ms": 100,
        "drafters": (DrafterEndpoint("d", "host:1", 9), DrafterEndpoint("e", "host:2")),
        **changes,
    }
    return GenerationRequest(**values)  # type: ignore[arg-type]


def test_requests_survive() -> None:
    for original in (
        request(),
        request(deadline_ms=None, output_token_ids=(), drafters=(), cache_salt=""),
        request(priority=-10, tenant=TenantShare("team-a", 0.01)),
        request(priority=10, tenant=TenantShare("t" * 128, 100.0)),
    ):
        assert convert.request_from_wire(convert.request_to_wire(original), limits=LIMITS) == original


def test_a_budget_without_nodes_means_off() -> None:
    back = convert.request_from_wire(convert.request_to_wire(request(budget=TreeBudget(1, 1, 0))), limits=LIMITS)
    assert back.mode is SpeculationMode.OFF


def test_requests_are_lowered_to_the_limits_and_take_the_default_rule() -> None:
    message = verifier_pb2.VerifierGenerateRequest(request_id="r", prompt_token_ids=[1])
    resolved = convert.request_from_wire(message, limits=LIMITS, default_rule=VerificationRule.REJECTION)
    assert (resolved.budget, resolved.rule, resolved.mode) == (LIMITS, VerificationRule.REJECTION, SpeculationMode.AUTO)
    message.speculation.max_depth = 60
    message.speculation.max_width = 1
    assert convert.request_from_wire(message, limits=LIMITS).budget == TreeBudget(5, 1, 16)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"request_id": ""}, "request_id: 1 to 128"),
        ({"request_id": "x" * 129}, "request_id: 1 to 128"),
        ({"prompt_token_ids": []}, "the prompt is empty"),
        ({"cache_salt": "é" * 129}, "at most 256 bytes are allowed (got 258)"),
        ({"drafters": [verifier_pb2.DrafterEndpoint(drafter_id="d")]}, "d has no address"),
        ({"sampling": common_pb2.SamplingParams(top_p=2)}, "top_p"),
        ({"priority": -11}, "priority: -10 (served first) to 10 (served last) are allowed (got -11)"),
        ({"priority": 11}, "priority: -10"),
        ({"tenant": "t" * 129}, "tenant: at most 128 characters are allowed (got 129)"),
        ({"tenant_weight": -1.0}, "tenant_weight: 0.01 to 100 are allowed (got -1)"),
        ({"tenant_weight": 101.0}, "tenant_weight: 0.01 to 100"),
        ({"tenant_weight": float("nan")}, "tenant_weight: 0.01 to 100"),
    ],
)
def test_bad_requests_are_refused(fields: dict[str, object], words: str) -> None:
    values: dict[str, object] = {"request_id": "r", "prompt_token_ids": [1], **fields}
    with pytest.raises(InvalidRequestError) as caught:
        convert.request_from_wire(verifier_pb2.VerifierGenerateRequest(**values), limits=LIMITS)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_step_outputs_survive() -> None:
    stats = GenerationStats(
        prompt_tokens=3, drafted_per_depth=[4, 2], accepted_per_depth=[3, 0], queue_ms=1.5, exact=False, seed=2**64 - 1
    )
    outputs = [
        StepOutput("r", (1, 2), (TokenLogprob(1, -0.5, ((1, -0.5), (7, -1.5))), TokenLogprob(2, -1.0))),
        StepOutput("r", (), (), FinishReason.STOP, "end", stats),
    ]
    for output in outputs:
        assert convert.step_from_wire("r", convert.step_to_wire(output)) == output


def with_unknown(message: bytes, number: int = 77) -> bytes:
    """Append a varint field of that number."""
    key = number << 3
    return message + bytes([key & 0x7F | 0x80, key >> 7]) + b"\x01"


def test_unknown_fields_are_refused_at_any_depth() -> None:
    top = generation_pb2.GenerateRequest.FromString(with_unknown(b""))
    with pytest.raises(
        InvalidRequestError, match=r"outrider.v1.GenerateRequest: unknown field number 77; known fields: req"
    ):
        convert.reject_unknown_fields(top)
    nested = verifier_pb2.VerifierGenerateRequest(request_id="r", prompt_token_ids=[1])
    nested.sampling.CopyFrom(common_pb2.SamplingParams.FromString(with_unknown(b"")))
    with pytest.raises(InvalidRequestError, match=r"outrider.v1.SamplingParams: unknown field number 77"):
        convert.request_from_wire(nested, limits=LIMITS)
    repeated = generation_pb2.GenerateRequest()
    repeated.chat.messages.add().MergeFromString(with_unknown(b"", 99))
    with pytest.raises(InvalidRequestError, match=r"outrider.v1.ChatMessage: unknown field number 99"):
        convert.reject_unknown_fields(repeated)


def test_known_fields_pass() -> None:
    convert.reject_unknown_fields(convert.request_to_wire(request()))
    convert.reject_unknown_fields(generation_pb2.GenerateRequest(text="x"))
