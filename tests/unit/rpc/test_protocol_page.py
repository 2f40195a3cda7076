"""What docs/protocol.md shows is what the code does."""

import re
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import json_format
from outrider.v1 import draft_pb2 as pb

from workers.core.token_tree import TokenTree
from workers.proposers.fitting import reroot
from workers.rpc.convert import commit_from_wire, opening_from_wire, proposal_from_wire
from workers.rpc.handshake import check_welcome, hello_from_wire, welcome_from_wire
from workers.sampling.noise import gumbel_noise_of

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
VECTOR = re.compile(r"^\| (\d+) \| (\d+) \| 0x[0-9a-f]+ \| (.*) \|$", re.MULTILINE)
FRAME = re.compile(r"^```json (VerifierFrame|DrafterFrame)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_noise_vectors() -> None:
    vectors = VECTOR.findall(PAGE)
    assert len(vectors) == 3
    for seed, position, values in vectors:
        noise = gumbel_noise_of(int(seed), int(position), np.array([0, 1, 2, 49151]))
        assert noise.tolist() == pytest.approx([float(v) for v in values.split(" | ")], abs=1e-6)


def test_the_formulas_of_the_noise_as_written() -> None:
    """An implementation from the page alone, in plain integers."""
    mask64, mask32, golden = 2**64 - 1, 2**32 - 1, 0x9E3779B97F4A7C15

    def mix(x: int) -> int:
        x &= mask64
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask64
        x = (x ^ x >> 27) * 0x94D049BB133111EB & mask64
        return x ^ x >> 31

    def noise(seed: int, i: int, v: int) -> float:
        key = mix(mix(mix(seed + golden) + i * golden + 1) ^ mix(0))
        h = v ^ key & mask32
        h = (h ^ h >> 16) * 0x21F0AAAD & mask32
        h = ((h ^ h >> 15) ^ key >> 32) * 0x735A2D97 & mask32
        h ^= h >> 15
        return float(np.float32(-np.log(-np.log((h + 0.5) / 2**32))))

    tokens = [0, 1, 2, 99, 49151, 151_000]
    for seed, position in ((0, 0), (42, 7), (2**64 - 1, 1000), (12345, 4095)):
        expected = gumbel_noise_of(seed, position, np.array(tokens)).tolist()
        assert [noise(seed, position, token) for token in tokens] == pytest.approx(expected, rel=1e-6)


def test_the_worked_example() -> None:
    frames = [
        json_format.Parse(text, pb.VerifierFrame() if kind == "VerifierFrame" else pb.DrafterFrame())
        for kind, text in FRAME.findall(PAGE)
    ]
    hello, welcome, opens, first, commit, second, late_commit, with_distributions, closes = frames
    assert isinstance(hello, pb.VerifierFrame)
    assert isinstance(welcome, pb.DrafterFrame)
    check_welcome(hello_from_wire(hello.hello), welcome_from_wire(welcome.welcome))
    assert isinstance(opens, pb.VerifierFrame)
    opening = opening_from_wire(opens.opens[0], vocab_size=100)
    known = list(opening.token_ids)
    for frame, answer in ((commit, first), (late_commit, second)):
        assert isinstance(frame, pb.VerifierFrame)
        assert isinstance(answer, pb.DrafterFrame)
        assert answer.proposals[0].base_len == len(known)
        known += commit_from_wire(frame.commits[0], vocab_size=100).token_ids
    assert isinstance(with_distributions, pb.DrafterFrame)
    proposal = proposal_from_wire(
        with_distributions.proposals[0], vocab_size=100, max_nodes=opening.budget.max_nodes, with_distributions=True
    )
    below = reroot(proposal, known[6:])
    assert below is not None
    assert below.tree == TokenTree((31, 32), (-1, 0))
    assert [below.distributions[node].token_ids for node in (-1, 0)] == [(31,), (32,)]
    assert isinstance(closes, pb.VerifierFrame)
    assert closes.closes[0].epoch == 1
