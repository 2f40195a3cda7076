"""A request on its way to replicas, and the choice that was made for it."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import xxhash

from cluster.router.membership import ReplicaRecord
from workers.core.block_hash import BlockHasher

__all__ = ["Candidate", "Choice", "Decision", "PoolName", "RoutedRequest"]

PoolName = Literal["verifier", "drafter"]
KEY_TOKENS = 256  # of a prompt that stand for it where there is no session


@dataclass(frozen=True)
class RoutedRequest:
    """A request on its way to a replica."""

    request_id: str
    token_ids: Sequence[int]  # all that the replica gets: prompt, and output of a resumed answer
    output_tokens: int  # at most
    cache_salt: str = ""
    session_id: str = ""
    index: int = 0  # which answer of the request
    _hashes: dict[tuple[str, int], list[int]] = field(default_factory=dict, repr=False, compare=False)

    def block_hashes(self, fingerprint: str, block_size: int) -> list[int]:
        """Of its full blocks, as a model with this fingerprint names them."""
        group = fingerprint, block_size
        if group not in self._hashes:
            self._hashes[group] = BlockHasher(fingerprint, block_size).hashes(self.token_ids, self.cache_salt)
        return self._hashes[group]

    @property
    def key(self) -> int:
        """64 bits of its session; without one, of the beginning of its prompt."""
        what = self.session_id.encode() or array("q", self.token_ids[:KEY_TOKENS]).tobytes()
        return xxhash.xxh3_64_intdigest(self.cache_salt.encode() + b"\0" + what)


@dataclass(frozen=True)
class Candidate:
    """A replica that was considered."""

    replica_id: str
    cached_tokens: int
    cost: float
    terms: Mapping[str, float]


@dataclass(frozen=True)
class Decision:
    """A choice, as it can be explained later."""

    index: int  # which answer of the request
    pool: PoolName
    policy: str
    prompt_tokens: int
    num_replicas: int
    num_chosen: int
    candidates: tuple[Candidate, ...]  # best first
    decision_ms: float  # what the choice took


@dataclass(frozen=True)
class Choice:
    """Replicas for a request, best first."""

    records: tuple[ReplicaRecord, ...]
    decision: Decision
