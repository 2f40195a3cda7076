"""What a rank unpacks is what rank 0 packed; what nobody packed is refused."""

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given

from workers.attention.forward_context import SequenceChunk, Slots
from workers.core.errors import ProtocolViolationError
from workers.parallel.messages import Allocate, Forward, Message, Move, Part, Ping, Split, Stop, pack, unpack

LARGEST = 2**31 - 1
NUMBERS = st.integers(0, LARGEST)


def slots(size: int) -> st.SearchStrategy[Slots]:
    return st.lists(NUMBERS, min_size=size, max_size=size).map(lambda values: np.array(values, dtype=np.int64))


@st.composite
def chunks(draw: st.DrawFn) -> SequenceChunk:
    n, c = draw(st.integers(1, 9)), draw(st.integers(0, 20))
    own = draw(slots(n))
    window = own if draw(st.booleans()) else draw(slots(draw(st.integers(0, 12))))
    bits = draw(st.none() | st.lists(st.booleans(), min_size=n * len(window), max_size=n * len(window)))
    return SequenceChunk(
        token_ids=draw(st.lists(NUMBERS, min_size=n, max_size=n)),
        positions=draw(st.lists(NUMBERS, min_size=n, max_size=n)),
        slots=own,
        context_slots=draw(slots(c)),
        window_slots=window,
        mask=None if bits is None else torch.tensor(bits, dtype=torch.bool).view(n, len(window)),
        logits_for=draw(st.lists(st.integers(0, n - 1), max_size=n)),
    )


@st.composite
def moves(draw: st.DrawFn) -> Move:
    count = draw(st.integers(0, 5))
    return Move(draw(st.integers(0, 9)), draw(slots(count)), draw(slots(count)))


@st.composite
def states(draw: st.DrawFn) -> torch.Tensor:
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    return torch.randn(draw(st.integers(0, 7)), draw(st.integers(1, 9)), generator=generator).to(dtype)


@st.composite
def forwards(draw: st.DrawFn) -> Forward:
    return Forward(
        draw(st.integers(0, 9)),
        draw(st.sampled_from(Part)),
        draw(st.lists(chunks(), max_size=5)),
        draw(st.none() | states()),
        tuple(draw(st.lists(moves(), max_size=4))),
    )


def equal_chunks(one: SequenceChunk, other: SequenceChunk) -> bool:
    masks = (one.mask is None) == (other.mask is None) and (one.mask is None or torch.equal(one.mask, other.mask))
    return masks and all(
        list(getattr(one, name)) == list(getattr(other, name))
        for name in ("token_ids", "positions", "slots", "context_slots", "window_slots")
    )


@given(forwards())
def test_a_forward_arrives_as_it_was_sent_but_for_the_logits_that_are_wanted(sent: Forward) -> None:
    got = unpack(pack(sent))
    assert isinstance(got, Forward)
    assert (got.storage, got.part) == (sent.storage, sent.part)
    assert len(got.chunks) == len(sent.chunks)
    assert all(map(equal_chunks, got.chunks, sent.chunks))
    assert all(chunk.logits_for == () for chunk in got.chunks)
    assert [(m.storage, *map(list, (m.sources, m.targets))) for m in got.moves] == [
        (m.storage, *map(list, (m.sources, m.targets))) for m in sent.moves
    ]
    assert (got.embeds is None) == (sent.embeds is None)
    if got.embeds is not None and sent.embeds is not None:
        assert got.embeds.dtype == sent.embeds.dtype
        assert torch.equal(got.embeds, sent.embeds)


@pytest.mark.parametrize("message", [Allocate(3, 2**30, (1, 2)), Allocate(0, 16), Split(1, 7), Ping(), Stop()], ids=str)
def test_other_messages(message: Message) -> None:
    assert unpack(pack(message)) == message


@given(forwards(), st.data())
def test_a_cut_or_longer_message_is_refused(sent: Forward, data: st.DataObject) -> None:
    whole = pack(sent)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(ProtocolViolationError):
        unpack(whole[:cut])
    with pytest.raises(ProtocolViolationError):
        unpack(np.concatenate((whole, np.zeros(8, dtype=np.uint8))))


@given(st.binary(max_size=200))
def test_noise_is_refused_or_a_message_and_nothing_else(noise: bytes) -> None:
    try:
        unpack(np.frombuffer(noise, dtype=np.uint8))
    except ProtocolViolationError:
        return


def test_numbers_that_do_not_fit_are_not_sent() -> None:
    with pytest.raises(OverflowError, match="too large"):
        pack(Allocate(0, LARGEST + 1))


def test_the_window_is_sent_once_where_it_is_the_new_tokens_own() -> None:
    own = np.arange(100, dtype=np.int64)
    common = SequenceChunk([1] * 100, range(100), own, own[:0], own, None, ())
    other = SequenceChunk([1] * 100, range(100), own, own[:0], own + 1, None, ())
    sizes = [len(pack(Forward(0, Part.WHOLE, [chunk]))) for chunk in (common, other)]
    assert sizes[1] - sizes[0] == 400
