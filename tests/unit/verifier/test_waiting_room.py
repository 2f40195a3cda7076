"""Who is next, who has to go, and that the room's books balance."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.engines import Collector, make_request
from workers.sampling.request_sampler import RequestSampler
from workers.verifier.request_state import RequestState
from workers.verifier.waiting_room import WaitingRoom


def waiting(key: int, **request: Any) -> RequestState:
    """A request that waits; `key` is its order of arrival."""
    made = make_request([1, 2, 3], **request)
    return RequestState(
        key=key,
        request=made,
        sink=Collector(),
        sampler=RequestSampler(made, 512, ()),
        max_output_tokens=24,
        arrived_at=0.0,
        stop_text=None,
        tokens=[*made.prompt_token_ids, *made.output_token_ids],
    )


def filled(*states: RequestState) -> WaitingRoom:
    room = WaitingRoom()
    for state in states:
        assert room.offer(state, 100) == (True, None)
    return room


def emptied(room: WaitingRoom, tokens: int = 10) -> list[int]:
    """The order in which requests are taken when each is served `tokens`."""
    order = []
    while (state := room.head()) is not None:
        assert room.take(state, tokens)
        order.append(state.key)
    return order


def test_one_tenant_is_served_in_order_of_arrival() -> None:
    assert emptied(filled(*(waiting(key) for key in (1, 2, 3, 4)))) == [1, 2, 3, 4]


def test_smaller_priorities_go_first() -> None:
    states = [waiting(1, priority=5), waiting(2), waiting(3, priority=-5), waiting(4)]
    assert emptied(filled(*states)) == [3, 2, 4, 1]


def test_tenants_take_turns_however_many_requests_each_has() -> None:
    heavy, light = [waiting(key, tenant="heavy") for key in range(1, 7)], [waiting(9, tenant="light")]
    assert emptied(filled(*heavy, *light)) == [1, 9, 2, 3, 4, 5, 6]


def test_a_weight_of_two_gets_twice_the_turns() -> None:
    states = [waiting(key, tenant="a", weight=2.0) for key in range(6)]
    states += [waiting(key, tenant="b") for key in range(10, 13)]
    assert Counter("a" if key < 10 else "b" for key in emptied(filled(*states))[:6]) == {"a": 4, "b": 2}


def test_a_preempted_request_is_put_back_at_its_old_place() -> None:
    first, second = waiting(1), waiting(2)
    room = filled(first, second)
    assert room.take(first, 10)
    room.put_back(first)
    assert emptied(room) == [1, 2]


def test_a_full_room_refuses_who_has_no_better_claim() -> None:
    room = filled(waiting(1), waiting(2))
    assert room.offer(waiting(3), 2) == (False, None)
    assert room.offer(waiting(4, priority=1), 2) == (False, None)
    assert len(room) == 2


def test_an_urgent_request_displaces_the_youngest_of_the_last_priority() -> None:
    late = [waiting(2, priority=3), waiting(3, priority=3)]
    room = filled(waiting(1), *late)
    assert room.offer(waiting(4), 3) == (True, late[1])
    assert emptied(room) == [1, 4, 2]


def test_a_tenant_that_fills_the_room_gives_way() -> None:
    heavy = [waiting(key, tenant="heavy") for key in range(1, 5)]
    room = filled(*heavy)
    assert room.offer(waiting(5, tenant="light"), 4) == (True, heavy[3])
    assert room.offer(waiting(6, tenant="light"), 4) == (True, heavy[2])
    assert room.offer(waiting(7, tenant="light"), 4) == (False, None), "two of each: that is fair"
    assert room.offer(waiting(8, tenant="heavy"), 4) == (False, None)


@pytest.mark.parametrize("how", ["output of another verifier", "preempted"])
def test_a_request_with_output_is_never_displaced(how: str) -> None:
    state = waiting(1, priority=9, output_token_ids=[7] if how.startswith("output") else ())
    if how == "preempted":
        state.admitted_at = 1.0
    room = filled(state)
    assert room.offer(waiting(2, priority=-9), 1) == (False, None)


def test_who_was_displaced_cannot_be_taken() -> None:
    late = waiting(1, priority=3)
    room = filled(late)
    assert room.offer(waiting(2), 1) == (True, late)
    assert not room.take(late, 10)
    assert late not in room


actions = st.tuples(
    st.sampled_from(["offer", "offer", "take", "back", "remove", "end"]),
    st.integers(-1, 1),
    st.sampled_from("abc"),
    st.integers(0, 99),
)


@given(st.lists(actions, max_size=80))
def test_the_books_balance(events: list[tuple[str, int, str, int]]) -> None:
    """Against a plain list: nothing is lost or doubled, the head has the smallest rank, and the bound holds."""
    room, model, running = WaitingRoom(), list[RequestState](), list[RequestState]()
    for key, (action, priority, tenant, number) in enumerate(events):
        if action == "offer":
            state = waiting(key, priority=priority, tenant=tenant)
            full = len(model) >= 6
            taken, displaced = room.offer(state, 6)
            assert taken or full
            assert (displaced is not None) == (taken and full)
            if displaced is not None:
                assert displaced.request.priority >= priority
                model.remove(displaced)
            model += [state] if taken else []
        elif action == "take" and model:
            head = room.head()
            assert head is not None
            assert room.rank(head) == min(room.rank(state) for state in model)
            assert room.take(head, number)
            model.remove(head)
            running.append(head)
        elif action == "back" and running:
            state = running.pop(number % len(running))
            state.admitted_at = 0.0
            room.put_back(state)
            model.append(state)
        elif action == "remove" and model:
            state = model.pop(number % len(model))
            room.remove(state)
        elif action == "end" and running:
            state = running.pop(number % len(running))
            room.served(state, number)
            room.ran(state)
        assert len(room) == len(model)
        assert {state.key for state in room} == {state.key for state in model}
    assert sum(room._shares._waiting.values()) == len(model)
    assert sum(room._shares._present.values()) == len(model) + len(running)


def test_a_room_for_nobody_refuses() -> None:
    assert WaitingRoom().offer(waiting(1), 0) == (False, None)
