"""One forward pass over a ragged batch of sequence chunks, whole or in two parts (`workers.runner.layer_split`)."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import torch

from workers.attention.forward_context import ForwardContext, SequenceChunk, Slots
from workers.attention.grouping import build_groups
from workers.core.errors import ConfigurationError
from workers.kvcache.storage import KvStorage
from workers.models.loaded import LoadedModel
from workers.parallel.messages import Forward, Move, Part, Split
from workers.runner.kv_memory import LedKvStorage
from workers.runner.layer_split import LayerSplit, probe_chunk

__all__ = ["ChunkOutput", "EarlyOutput", "EarlyRows", "ModelRunner"]


@dataclass(frozen=True)
class ChunkOutput:
    """What the model says behind each token of a chunk's `logits_for`."""

    logits: torch.Tensor  # fp32 [len(logits_for), vocab or reduced vocab]
    hidden: torch.Tensor  # [len(logits_for), hidden_size]: what the LM head saw


@dataclass(frozen=True)
class EarlyOutput:
    """What layers 1..E say about a chunk."""

    logits: torch.Tensor  # fp32 [len(logits_for), vocab]
    states: torch.Tensor  # [num_tokens, hidden_size]: output of layer E, where the other layers go on


@dataclass(frozen=True)
class EarlyRows:
    """New tokens of a chunk that have been through layers 1..E: K/V of those layers is in their slots."""

    rows: Sequence[int]
    states: torch.Tensor  # [len(rows), hidden_size]: output of layer E


class ModelRunner:
    """Runs a loaded model on chunks whose K/V lives in `storage`. Not thread-safe.

    `reduced` leaves the logits of a reduced vocabulary as they are; else tokens without any have -inf.
    """

    def __init__(self, loaded: LoadedModel, storage: KvStorage, *, reduced: bool = False) -> None:
        self.loaded = loaded
        self.storage = storage
        self._token_map = None if reduced else loaded.token_map
        self._hidden = torch.empty(0)
        self._split: LayerSplit | None = None

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Keeps what the LM head sees. The hook does not outlive the pass: models outlive runners."""
        handle = self.loaded.lm_head.register_forward_pre_hook(self._keep_hidden)
        try:
            yield
        finally:
            handle.remove()

    def _keep_hidden(self, _: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self._hidden = inputs[0][0]  # [rows, hidden_size]

    @torch.inference_mode()
    def forward(
        self, chunks: Sequence[SequenceChunk], early: Sequence[EarlyRows | None] | None = None
    ) -> list[ChunkOutput]:
        """Store K/V of all new tokens; return what the model says behind the tokens that each chunk asks for.

        Tokens in `early` (one entry for each chunk) are not run through layers 1..E again.
        """
        if early is None or all(rows is None for rows in early):
            return self._pass(Part.WHOLE, chunks)
        return self._pass(Part.LATE, chunks, self._complete(chunks, early))

    @torch.inference_mode()
    def exit_early(self, chunks: Sequence[SequenceChunk]) -> list[EarlyOutput]:
        """Run layers 1..E and the head: K/V of those layers is stored, and their last output returned."""
        outputs = self._pass(Part.EARLY, chunks)
        states = torch.split(self._parts.take_states(), [chunk.num_tokens for chunk in chunks])
        return [EarlyOutput(output.logits, rows) for output, rows in zip(outputs, states, strict=True)]

    @torch.inference_mode()
    def follow(self, forward: Forward) -> None:
        """Another rank's part of a pass of rank 0: the same layers over this shard. Nobody needs its output.

        The K/V moves before it may belong to other pools, and are the caller's (`move`).
        """
        with self._layers(forward.part):
            self.loaded.model.base_model(**self._arguments(forward.chunks, forward.embeds))

    def move(self, move: Move) -> None:
        """Another rank's part of what was moved in rank 0's pool."""
        self.storage.move(self._slots(move.sources), self._slots(move.targets))

    def prepare_split(self, exit_layer: int) -> None:
        """What `split_at` does before it compares."""
        self._split = LayerSplit(self.loaded, exit_layer)

    def split_at(self, exit_layer: int) -> None:
        """Make early exits behind `exit_layer` possible; `ConfigurationError` when the model cannot do it.

        To be called before any request has K/V: a few tokens are run in one and in two parts and compared.
        """
        self.prepare_split(exit_layer)
        if isinstance(self.storage, LedKvStorage) and self.loaded.leader is not None:
            self.loaded.leader.tell(Split(self.storage.number, exit_layer))
        chunk = probe_chunk(self.loaded.vocab_size, self.storage.num_slots)
        [whole] = self.forward([chunk])
        [exited] = self.exit_early([chunk])
        [parts] = self.forward([chunk], [EarlyRows(range(chunk.num_tokens), exited.states)])
        if not torch.allclose(whole.logits, parts.logits, rtol=1e-2, atol=1e-2):
            raise ConfigurationError(
                f"{self.loaded.name!r} cannot exit early: its layers from {exit_layer + 1} on, started from the output "
                f"of layer {exit_layer}, do not give what the whole model gives (does it scale its embeddings?)"
            )

    @property
    def _parts(self) -> LayerSplit:
        if self._split is None:
            raise RuntimeError("early exits need split_at first")
        return self._split

    def _complete(self, chunks: Sequence[SequenceChunk], early: Sequence[EarlyRows | None]) -> torch.Tensor:
        """Layer E's output of all new tokens, [total, hidden_size]; those that have none yet are run."""
        missing = [
            sorted(set(range(chunk.num_tokens)).difference(known.rows if known else ()))
            for chunk, known in zip(chunks, early, strict=True)
        ]
        todo = [chunk.select(rows) for chunk, rows in zip(chunks, missing, strict=True) if rows]
        fresh = [output.states for output in self.exit_early(todo)] if todo else []
        states = torch.cat([*fresh, *(known.states for known in early if known)])
        starts = [0, *accumulate(chunk.num_tokens for chunk in chunks)][:-1]
        order = [start + row for start, rows in zip(starts, missing, strict=True) for row in rows]
        order += [start + row for start, known in zip(starts, early, strict=True) if known for row in known.rows]
        gathered = torch.empty_like(states)
        gathered[order] = states
        return gathered

    def _pass(
        self, part: Part, chunks: Sequence[SequenceChunk], embeds: torch.Tensor | None = None
    ) -> list[ChunkOutput]:
        """Once through the layers of `part`, on all ranks; from `embeds` [total, hidden_size] where they are given."""
        with self._together(part, chunks, embeds), self._layers(part):
            return self._compute(chunks, self._arguments(chunks, embeds))

    def _together(
        self, part: Part, chunks: Sequence[SequenceChunk], embeds: torch.Tensor | None
    ) -> AbstractContextManager[None]:
        """Around this process's part of a pass: the other ranks of its group, if there are any, do theirs."""
        if isinstance(self.storage, LedKvStorage) and self.loaded.leader is not None:
            return self.loaded.leader.together(Forward(self.storage.number, part, chunks, embeds))
        return nullcontext()

    def _layers(self, part: Part) -> AbstractContextManager[None]:
        if part is Part.WHOLE:
            return nullcontext()
        return self._parts.early() if part is Part.EARLY else self._parts.late()

    def _arguments(self, chunks: Sequence[SequenceChunk], embeds: torch.Tensor | None) -> dict[str, Any]:
        """Of the decoder."""
        device = self.loaded.device
        positions = torch.tensor([[p for c in chunks for p in c.positions]], device=device)  # [1, total]
        inputs = {"input_ids": self._tokens(chunks)} if embeds is None else {"inputs_embeds": embeds.to(device)[None]}
        return {**inputs, "position_ids": positions, "use_cache": False, "forward_context": self._context(chunks)}

    def _compute(self, chunks: Sequence[SequenceChunk], arguments: dict[str, Any]) -> list[ChunkOutput]:
        rows = self._logit_rows(chunks)
        if not rows:
            self.loaded.model.base_model(**arguments)
            nothing = ChunkOutput(torch.empty(0, self.loaded.vocab_size), torch.empty(0, self.loaded.hidden_size))
            return [nothing] * len(chunks)
        keep = torch.tensor(rows, device=self.loaded.device)
        with self._listening():
            logits = self.loaded.model(**arguments, logits_to_keep=keep).logits[0]  # [len(rows), vocab or padded vocab]
        logits = self._over_vocabulary(logits.float())
        sizes = [len(c.logits_for) for c in chunks]
        hidden = self._hidden
        return [ChunkOutput(*both) for both in zip(torch.split(logits, sizes), torch.split(hidden, sizes), strict=True)]

    def _over_vocabulary(self, logits: torch.Tensor) -> torch.Tensor:
        if self._token_map is None:
            return logits[:, : self.loaded.vocab_size]
        whole = logits.new_full((len(logits), self.loaded.vocab_size), -torch.inf)
        return whole.index_copy_(1, self._token_map, logits)

    def _tokens(self, chunks: Sequence[SequenceChunk]) -> torch.Tensor:
        return torch.tensor([[t for c in chunks for t in c.token_ids]], device=self.loaded.device)  # [1, total]

    def _context(self, chunks: Sequence[SequenceChunk]) -> ForwardContext:
        loaded = self.loaded
        return ForwardContext(
            storage=self.storage,
            slots=self._slots(np.concatenate([c.slots for c in chunks])),
            groups=build_groups(
                chunks, loaded.num_heads // loaded.num_kv_heads, self.storage.data.dtype, loaded.device
            ),
        )

    def _slots(self, slots: Slots) -> torch.Tensor:
        return torch.from_numpy(slots).to(self.loaded.device)

    @staticmethod
    def _logit_rows(chunks: Sequence[SequenceChunk]) -> list[int]:
        rows: list[int] = []
        start = 0
        for chunk in chunks:
            rows.extend(start + row for row in chunk.logits_for)
            start += chunk.num_tokens
        return rows
