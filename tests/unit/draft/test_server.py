"""The whole drafter over a real tiny model: right tokens through real K/V, moved slots included."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch
from outrider.v1 import draft_pb2 as pb
from outrider.v1 import draft_pb2_grpc

from tests.unit.draft.rig import GREEDY, opening
from workers.core.config import DrafterConfig, KvCacheConfig, ModelConfig
from workers.core.draft_session import SessionCommit
from workers.core.errors import UnavailableError
from workers.core.proposal import Proposal, TreeBudget
from workers.core.token_tree import ROOT
from workers.draft.server import DraftServer
from workers.models.tiny import build_tiny_model
from workers.rpc.channels import open_channel
from workers.rpc.convert import commit_to_wire, opening_to_wire, proposal_from_wire
from workers.rpc.handshake import VerifierIdentity, hello_to_wire

CHAIN, TREE = TreeBudget(4, 1, 4), TreeBudget(4, 2, 8)
PROMPT = tuple(range(20, 45))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
async def server(folder: Path) -> AsyncIterator[DraftServer]:
    torch.set_num_threads(1)
    config = DrafterConfig(
        model=ModelConfig(model=str(folder), dtype="float32"),
        kv_cache=KvCacheConfig(block_size=8, num_blocks=40),
        max_sessions=4,
        grow_ahead=5,
    )
    server = DraftServer(config, drafter_id="drafter-1", incarnation=77)
    yield server
    await server.stop()


def greedy(folder: Path, tokens: list[int], count: int) -> list[int]:
    """Plain decoding by transformers alone."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    out = list(tokens)
    with torch.inference_mode():
        for _ in range(count):
            out.append(int(model(torch.tensor([out])).logits[0, -1].argmax()))
    return out[len(tokens) :]


@pytest.mark.parametrize("budget", [CHAIN, TREE], ids=["chain", "tree"])
async def test_proposals_of_the_target_itself_are_accepted(
    server: DraftServer, folder: Path, budget: TreeBudget
) -> None:
    address = await server.start()
    server.check_health()
    info = server.info()
    assert (info["role"], info["id"], info["incarnation"]) == ("drafter", "drafter-1", 77)
    answer = greedy(folder, list(PROMPT), 60)
    hello = VerifierIdentity("v", 1, "m", "f", str(info["tokenizer_hash"]), int(str(info["vocab_size"])))
    async with open_channel(address) as channel:
        call: Any = draft_pb2_grpc.DraftServiceStub(channel).Speculate()  # type: ignore[call-arg]
        message = opening_to_wire(opening(1, PROMPT, sampling=GREEDY, budget=budget))
        await call.write(pb.VerifierFrame(hello=hello_to_wire(hello), opens=[message]))
        assert (await call.read()).welcome.context_length == 40 * 8  # less than the model's own
        done = 0
        while done < 40:
            frame = await call.read()
            assert not frame.errors
            [message] = frame.proposals
            proposal = proposal_from_wire(message, vocab_size=512, max_nodes=8, with_distributions=False)
            accepted = follow(proposal, answer[done:])
            if budget is CHAIN:
                assert accepted == proposal.tree.max_depth >= 2, "a greedy draft of the same model must be right"
            assert accepted >= 1  # a tree may prefer two likely beginnings to one long path
            new = tuple(answer[done : done + accepted + 1])
            commit = SessionCommit(1, 1, len(PROMPT) + done, new, budget)
            await call.write(pb.VerifierFrame(commits=[commit_to_wire(commit)]))
            done += len(new)
        call.cancel()
    assert await server.drain(timeout_s=2.0)
    assert server.engine.counters.fed_tokens < len(PROMPT) + done  # K/V of accepted nodes was moved, not computed
    server.engine.check_invariants()
    assert server.engine.manager.num_free_blocks == 40


def follow(proposal: Proposal, answer: list[int]) -> int:
    node, depth = ROOT, 0
    while (child := proposal.tree.child_with_token(node, answer[depth])) is not None:
        node, depth = child, depth + 1
    return depth


async def test_a_stopped_server_is_not_healthy(server: DraftServer) -> None:
    with pytest.raises(UnavailableError, match="not running"):
        server.check_health()
    await server.start()
    server.check_health()
    await server.stop()
    with pytest.raises(UnavailableError, match="not running"):
        server.check_health()
