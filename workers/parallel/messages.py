"""What rank 0 tells the other ranks, and how it is packed into one buffer.

A `Forward` is all that a rank needs to run the same layers over its own shard: it carries the K/V moves (compaction
after acceptance, copies) made since the message before it, the chunks of the batch, and hidden states where the pass
starts from some. Logits stay on rank 0, so that `SequenceChunk.logits_for` does not travel.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from workers.attention.forward_context import SequenceChunk, Slots
from workers.core.errors import ProtocolViolationError
from workers.parallel.buffer import Bytes, Reader, Writer

__all__ = ["Allocate", "Forward", "Message", "Move", "Part", "Ping", "Split", "Stop", "pack", "unpack"]

DTYPES = (torch.float32, torch.bfloat16, torch.float16)

Numbers = npt.NDArray[np.int64]
Number = TypeVar("Number", bound=np.generic)


class Part(IntEnum):
    """Which layers a pass runs (`workers.runner.layer_split`)."""

    WHOLE = 0
    EARLY = 1
    LATE = 2


@dataclass(frozen=True)
class Move:
    """K/V of `sources` is copied to `targets` in all layers; both int64 [n]."""

    storage: int
    sources: Slots
    targets: Slots


@dataclass(frozen=True)
class Allocate:
    """A K/V pool of `num_slots` slots, which later messages call `storage`; the pools of `released` are given back."""

    storage: int
    num_slots: int
    released: tuple[int, ...] = ()


@dataclass(frozen=True)
class Split:
    """Passes over the pool `storage` may end, or begin, behind layer `exit_layer`."""

    storage: int
    exit_layer: int


@dataclass(frozen=True)
class Forward:
    """One pass over layers. `embeds` [tokens, hidden_size] stand for the token ids of a pass that begins late."""

    storage: int
    part: Part
    chunks: Sequence[SequenceChunk]
    embeds: torch.Tensor | None = None
    moves: tuple[Move, ...] = ()


@dataclass(frozen=True)
class Ping:
    """Nothing to do but to answer: sent while there is no work."""


@dataclass(frozen=True)
class Stop:
    """The end."""


Message = Allocate | Forward | Ping | Split | Stop
KINDS: tuple[type, ...] = (Allocate, Split, Forward, Ping, Stop)
NONE, SAME, OTHER = 0, 1, 2  # what a chunk has of something: nothing, that of its slots, its own


def pack(message: Message) -> Bytes:
    """uint8 [n]."""
    writer = Writer()
    kind = KINDS.index(type(message))
    if isinstance(message, Allocate):
        writer.ints([kind, message.storage, message.num_slots, *message.released])
    elif isinstance(message, Split):
        writer.ints([kind, message.storage, message.exit_layer])
    elif isinstance(message, Forward):
        writer.ints([kind, message.storage, message.part, len(message.moves), len(message.chunks)])
        _pack_moves(writer, message.moves)
        _pack_chunks(writer, message.chunks)
        _pack_states(writer, message.embeds)
    else:
        writer.ints([kind])
    return writer.finish()


def unpack(buffer: Bytes) -> Message:
    """The message in `buffer`; `ProtocolViolationError` when there is none."""
    reader = Reader(buffer)
    try:
        kind, *rest = (int(value) for value in reader.ints())
        message = _unpack(reader, dict(enumerate(KINDS))[kind], rest)
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ProtocolViolationError(f"a step's buffer cannot be read: {error}") from error
    reader.end()
    return message


def _unpack(reader: Reader, kind: type, head: list[int]) -> Message:
    if kind is Allocate:
        storage, num_slots, *released = head
        return Allocate(storage, num_slots, tuple(released))
    if kind is Split:
        return Split(*head)
    if kind is Forward:
        storage, part, num_moves, num_chunks = head
        moves = _unpack_moves(reader, num_moves)
        chunks = _unpack_chunks(reader, num_chunks)
        return Forward(storage, Part(part), chunks, _unpack_states(reader), moves)
    return Ping() if kind is Ping else Stop()


def _pack_moves(writer: Writer, moves: Sequence[Move]) -> None:
    writer.ints([value for move in moves for value in (move.storage, len(move.sources))])
    writer.ints(_joined([move.sources for move in moves]))
    writer.ints(_joined([move.targets for move in moves]))


def _unpack_moves(reader: Reader, count: int) -> tuple[Move, ...]:
    storages, sizes = reader.ints().reshape(count, 2).T
    sources, targets = _cut(reader.ints(), sizes), _cut(reader.ints(), sizes)
    return tuple(Move(int(one), *both) for one, *both in zip(storages, sources, targets, strict=True))


def _pack_chunks(writer: Writer, chunks: Sequence[SequenceChunk]) -> None:
    """Numbers of all chunks side by side; the new tokens' window is nearly always their own slots, and sent once."""
    windows = [SAME if np.array_equal(chunk.window_slots, chunk.slots) else OTHER for chunk in chunks]
    masks = [chunk.mask for chunk in chunks if chunk.mask is not None]
    writer.ints(
        [
            value
            for chunk, window in zip(chunks, windows, strict=True)
            for value in (
                chunk.num_tokens,
                len(chunk.context_slots),
                len(chunk.window_slots),
                window,
                NONE if chunk.mask is None else OTHER,
            )
        ]
    )
    writer.ints([token for chunk in chunks for token in chunk.token_ids])
    writer.ints([position for chunk in chunks for position in chunk.positions])
    writer.ints(_joined([chunk.slots for chunk in chunks]))
    writer.ints(_joined([chunk.context_slots for chunk in chunks]))
    writer.ints(_joined([c.window_slots for c, window in zip(chunks, windows, strict=True) if window == OTHER]))
    bits = [mask.cpu().numpy().reshape(-1) for mask in masks]
    writer.blob(np.packbits(np.concatenate(bits)) if bits else np.empty(0, dtype=np.uint8))


def _unpack_chunks(reader: Reader, count: int) -> list[SequenceChunk]:
    sizes = reader.ints().reshape(count, 5)
    tokens, contexts, windows, kinds, masked = sizes.T
    token_ids, positions = _cut(reader.ints(), tokens), _cut(reader.ints(), tokens)
    slots, context_slots = _cut(reader.ints(), tokens), _cut(reader.ints(), contexts)
    own = iter(_cut(reader.ints(), windows[kinds == OTHER]))
    lengths = (tokens * windows)[masked != NONE]
    bits = iter(_cut(_bits(reader.blob(), int(lengths.sum())), lengths))
    return [
        SequenceChunk(
            token_ids=token_ids[i].tolist(),
            positions=positions[i].tolist(),
            slots=slots[i],
            context_slots=context_slots[i],
            window_slots=next(own) if kinds[i] == OTHER else slots[i],
            mask=None if masked[i] == NONE else _mask(next(bits), int(tokens[i]), int(windows[i])),
            logits_for=(),
        )
        for i in range(count)
    ]


def _bits(packed: Bytes, count: int) -> Bytes:
    if packed.size != -(-count // 8):
        raise ValueError("its masks and their sizes do not agree")
    return np.unpackbits(packed, count=count)


def _mask(bits: Bytes, rows: int, columns: int) -> torch.Tensor:
    return torch.from_numpy(bits.astype(np.bool_).reshape(rows, columns))


def _pack_states(writer: Writer, states: torch.Tensor | None) -> None:
    if states is None:
        writer.ints([])
        return
    writer.ints([DTYPES.index(states.dtype), *states.shape])
    payload = states.detach().cpu().contiguous().view(-1)
    writer.blob(payload.view(torch.uint8).numpy() if payload.numel() else np.empty(0, dtype=np.uint8))


def _unpack_states(reader: Reader) -> torch.Tensor | None:
    head = reader.ints()
    if not head.size:
        return None
    dtype, rows, columns = (int(value) for value in head)
    payload = reader.blob()
    if min(rows, columns) < 0 or payload.size != rows * columns * DTYPES[dtype].itemsize:
        raise ValueError("its states and their shape do not agree")
    if not payload.size:
        return torch.empty(rows, columns, dtype=DTYPES[dtype])
    return torch.from_numpy(payload.copy()).view(DTYPES[dtype]).view(rows, columns)


def _joined(arrays: Sequence[Numbers]) -> Numbers:
    return np.concatenate(arrays) if arrays else np.empty(0, dtype=np.int64)


def _cut(values: npt.NDArray[Number], sizes: Numbers) -> list[npt.NDArray[Number]]:
    """`values` in pieces of `sizes`, which must add up."""
    if int(sizes.sum()) != values.size or (sizes < 0).any():
        raise ValueError("its numbers and its lengths do not agree")
    ends = list(accumulate(int(size) for size in sizes))
    return [values[end - int(size) : end] for end, size in zip(ends, sizes, strict=True)]
