"""KV events: net changes, snapshots, slow and vanishing subscribers."""

import asyncio
import random
import threading

import pytest

from workers.kvcache.events import ChangeSet, KvCacheEvents, KvEventBatch, KvEventLog


def apply(blocks: set[int], events: KvCacheEvents) -> set[int]:
    kept = set() if events.cleared else blocks
    assert set(events.removed) <= kept
    assert not kept & set(events.stored)
    return (kept - set(events.removed)) | set(events.stored)


def test_opposite_changes_cancel() -> None:
    changes = ChangeSet()
    changes.store(1)
    changes.remove(2)
    changes.remove(1)
    changes.store(2)
    assert not changes.take()
    changes.store(1)
    changes.clear()
    changes.store(3)
    assert changes.take() == KvCacheEvents(stored=(3,), cleared=True)
    assert not changes.take()


def test_merged_changes_lead_to_the_same_set() -> None:
    generator = random.Random(1)
    truth: set[int] = set()
    seen: set[int] = set()
    merged = ChangeSet()
    for _ in range(500):
        step = ChangeSet()
        if generator.random() < 0.05:
            step.clear()
            truth.clear()
        for block_hash in generator.sample(range(12), 4):
            (step.remove if block_hash in truth else step.store)(block_hash)
            truth ^= {block_hash}
        merged.merge(step.take())
        if generator.random() < 0.3:
            seen = apply(seen, merged.take())
            assert seen == truth


def snapshot(number: int, *stored: int) -> KvEventBatch:
    return KvEventBatch(7, 0, number, KvCacheEvents(stored=stored, cleared=True))


async def test_a_subscriber_gets_a_snapshot_and_then_changes() -> None:
    log = KvEventLog(7)
    log.publish(KvCacheEvents(stored=(1, 2)))
    with log.subscribe() as subscription:
        assert await subscription.receive() == snapshot(1, 1, 2)
        log.publish(KvCacheEvents(stored=(3,), removed=(1,)))
        assert await subscription.receive() == KvEventBatch(7, 1, 2, KvCacheEvents(stored=(3,), removed=(1,)))
        log.publish(KvCacheEvents(stored=(4,)))
        log.publish(KvCacheEvents(stored=(5,), removed=(4,)))
        assert await subscription.receive() == KvEventBatch(7, 2, 4, KvCacheEvents(stored=(5,)))
        log.publish(KvCacheEvents(cleared=True))
        assert await subscription.receive() == KvEventBatch(7, 4, 5, KvCacheEvents(cleared=True))
    assert log.num_subscribers == 0


async def test_the_snapshot_of_an_empty_cache_arrives_at_once() -> None:
    log = KvEventLog(7)
    with log.subscribe() as subscription:
        assert await subscription.receive() == snapshot(0)
        log.publish(KvCacheEvents(stored=(1,)))
        assert await subscription.receive() == KvEventBatch(7, 0, 1, KvCacheEvents(stored=(1,)))


async def test_a_quiet_cache_gives_empty_batches_after_the_timeout() -> None:
    log = KvEventLog(1)
    with log.subscribe() as subscription:
        await subscription.receive()
        assert await subscription.receive(timeout_s=0.01) == KvEventBatch(1, 0, 0, KvCacheEvents())
        log.publish(KvCacheEvents())  # empty: not sent
        log.publish(KvCacheEvents(stored=(1,)))
        assert await subscription.receive(timeout_s=0) == KvEventBatch(1, 0, 1, KvCacheEvents(stored=(1,)))


async def test_who_comes_back_gets_what_it_missed() -> None:
    log = KvEventLog(7)
    for block_hash in range(1, 6):
        log.publish(KvCacheEvents(stored=(block_hash,)))
    with log.subscribe(incarnation=7, after=3) as subscription:
        assert await subscription.receive() == KvEventBatch(7, 3, 5, KvCacheEvents(stored=(4, 5)))
    with log.subscribe(incarnation=7, after=5) as subscription:
        assert await subscription.receive(timeout_s=0.01) == KvEventBatch(7, 5, 5, KvCacheEvents())


@pytest.mark.parametrize(("incarnation", "after"), [(6, 3), (7, 0), (7, 9), (0, 0)])
async def test_who_knows_another_cache_or_nothing_gets_a_snapshot(incarnation: int, after: int) -> None:
    log = KvEventLog(7)
    for block_hash in range(1, 6):
        log.publish(KvCacheEvents(stored=(block_hash,)))
    with log.subscribe(incarnation=incarnation, after=after) as subscription:
        assert await subscription.receive() == snapshot(5, 1, 2, 3, 4, 5)


async def test_a_subscriber_too_far_back_gets_a_new_snapshot() -> None:
    log = KvEventLog(7, max_history=10)
    with log.subscribe() as subscription:
        await subscription.receive()
        for block_hash in range(11):
            log.publish(KvCacheEvents(stored=(block_hash,)))
        assert await subscription.receive() == snapshot(11, *range(11))
        log.publish(KvCacheEvents(removed=(5,)))
        assert await subscription.receive() == KvEventBatch(7, 11, 12, KvCacheEvents(removed=(5,)))
        log.publish(KvCacheEvents(stored=tuple(range(100, 120))))  # more than the history holds
        assert await subscription.receive() == snapshot(13, 0, 1, 2, 3, 4, *range(6, 11), *range(100, 120))


async def test_a_cancelled_wait_loses_nothing() -> None:
    log = KvEventLog(1)
    with log.subscribe() as subscription:
        await subscription.receive()
        for number in range(1, 4):
            waiting = asyncio.create_task(subscription.receive())
            await asyncio.sleep(0)
            waiting.cancel()
            log.publish(KvCacheEvents(stored=(number,)))
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await subscription.receive() == KvEventBatch(1, number - 1, number, KvCacheEvents(stored=(number,)))


async def test_closing_the_log_ends_subscriptions_after_what_is_left() -> None:
    log = KvEventLog(1)
    subscription, idle = log.subscribe(), log.subscribe()
    await idle.receive()
    waiting = asyncio.create_task(idle.receive())
    await asyncio.sleep(0)
    log.publish(KvCacheEvents(stored=(1,)))
    log.close()
    assert [batch.events.stored async for batch in subscription] == [(1,)]
    assert await waiting == KvEventBatch(1, 0, 1, KvCacheEvents(stored=(1,)))
    assert await idle.receive() is None
    assert log.num_subscribers == 0
    late = log.subscribe()
    assert [batch.events.stored async for batch in late] == [(1,)]


async def test_closing_a_subscription_ends_its_wait() -> None:
    log = KvEventLog(1)
    subscription = log.subscribe()
    await subscription.receive()
    waiting = asyncio.create_task(subscription.receive())
    await asyncio.sleep(0)
    subscription.close()
    assert await waiting is None
    log.publish(KvCacheEvents(stored=(1,)))
    assert await subscription.receive() is None


def test_a_subscriber_whose_loop_is_gone_is_dropped() -> None:
    log = KvEventLog(1)

    async def subscribe_and_leave() -> None:
        log.subscribe()

    asyncio.run(subscribe_and_leave())
    assert log.num_subscribers == 1
    log.publish(KvCacheEvents(stored=(1,)))
    assert log.num_subscribers == 0


def test_the_history_needs_a_positive_limit() -> None:
    with pytest.raises(ValueError, match="max_history must be at least 1, not 0"):
        KvEventLog(1, max_history=0)


async def test_publishing_from_another_thread_reaches_every_subscriber_completely() -> None:
    log = KvEventLog(1, max_history=40)
    final: set[int] = set()

    def engine() -> None:
        generator = random.Random(2)
        for step in range(3000):
            removed = tuple(generator.sample(sorted(final), min(len(final), 2)))
            stored = (step * 2, step * 2 + 1) if len(final) < 60 else ()
            if cleared := step % 700 == 699:
                final.clear()
                removed = ()
            final.difference_update(removed)
            final.update(stored)
            log.publish(KvCacheEvents(stored, removed, cleared))
        log.close()

    async def follow(pause_s: float) -> set[int]:
        blocks: set[int] = set()
        with log.subscribe() as subscription:
            number = 0
            async for batch in subscription:
                assert batch.events.cleared or batch.previous == number
                number = batch.sequence_number
                blocks = apply(blocks, batch.events)
                await asyncio.sleep(pause_s)
        return blocks

    followers = [asyncio.create_task(follow(pause_s)) for pause_s in (0, 0, 0.02)]
    await asyncio.sleep(0)
    thread = threading.Thread(target=engine)
    thread.start()
    results = await asyncio.wait_for(asyncio.gather(*followers), 20)
    thread.join()
    assert results == [final] * 3
