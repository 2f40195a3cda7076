"""Who may call, and how much: the gateway with keys, over the service's own methods."""

import asyncio
from collections.abc import AsyncIterator, Container
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from outrider.failure import Failure
from outrider.testing import FakeClock
from outrider.v1 import generation_pb2 as pb

from cluster.config.gateway import GatewayConfig
from cluster.config.tenancy import KeyLimits, TenancyConfig
from cluster.gateway.tenants import Metadata, Tenant, Tenants
from cluster.security.api_keys import hash_of, new_key
from tests.fakes.fake_verifier import Fault
from tests.unit.gateway.conftest import PROMPT, Harness, StartHarness, ask, finished_of, tokens_of
from workers.core.errors import AuthenticationError, InternalError, InvalidRequestError, OverloadedError, RefusedError
from workers.rpc.errors import to_status

KEYS = {name: new_key() for name in ("alice", "bob")}


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    path = tmp_path / "keys.yaml"
    limits = {"alice": {"max_concurrent_requests": 1, "max_output_tokens": 12, "most_urgent_priority": -3}, "bob": {}}
    entries = {name: {"sha256": hash_of(key), "limits": limits[name]} for name, key in KEYS.items()}
    path.write_text(yaml.safe_dump({"keys": entries}))
    return path


@pytest.fixture
async def harness(gateway: StartHarness, keys_file: Path) -> AsyncIterator[Harness]:
    async with gateway({"step_s": 0.01}, tenancy=TenancyConfig(keys_file=str(keys_file))) as started:
        yield started


def bearer(name: str) -> Metadata:
    return (("authorization", f"Bearer {KEYS[name]}"),)


async def run(harness: Harness, name: str, message: pb.GenerateRequest | None = None) -> list[pb.GenerateResponse]:
    return [one async for one in harness.service.generate(message or ask(max_tokens=9), bearer(name))]


async def test_a_key_opens_the_door_and_its_name_goes_along(harness: Harness) -> None:
    assert len(tokens_of(await run(harness, "alice"))) == 9
    call = harness.verifiers[0].calls[0]
    assert call.tenant.name == "alice"
    assert KEYS["alice"] not in repr(call)


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", ""),),
        (("authorization", "Bearer "),),
        (("authorization", KEYS["alice"]),),
        (("authorization", f"Basic {KEYS['alice']}"),),
        (("authorization", f"Bearer {KEYS['alice'][:-1]}"),),
        (("authorization", f"Bearer {hash_of(KEYS['alice'])}"),),
        (("authorization", b"Bearer \xff\xfe"),),
        (("authorization", f"Bearer {KEYS['alice']}"), ("authorization", "Bearer x")),
        (("x-api-key", KEYS["alice"]),),
    ],
)
async def test_without_a_valid_key_nothing_is_answered(harness: Harness, metadata: Metadata) -> None:
    service = harness.service
    texts = set()
    for call in (
        anext(service.generate(ask(), metadata)),
        service.count_tokens(pb.CountTokensRequest(text="x"), metadata),
        service.get_model_info(pb.GetModelInfoRequest(), metadata),
        service.get_server_info(pb.GetServerInfoRequest(), metadata),
    ):
        with pytest.raises(AuthenticationError) as caught:
            await call
        assert to_status(caught.value)[0] is grpc.StatusCode.UNAUTHENTICATED
        texts.add(str(caught.value))
    assert texts == {"a valid API key is needed: authorization: Bearer KEY"}, "the same words in every case"
    assert not harness.verifiers[0].calls


async def test_the_other_calls_take_the_key_too(harness: Harness) -> None:
    service = harness.service
    assert (await service.count_tokens(pb.CountTokensRequest(text=PROMPT), bearer("bob"))).prompt_tokens
    assert (await service.get_model_info(pb.GetModelInfoRequest(), bearer("bob"))).model == "tiny"
    assert (await service.get_server_info(pb.GetServerInfoRequest(), bearer("bob"))).replicas


async def test_requests_at_a_time(harness: Harness) -> None:
    first = harness.service.generate(ask(max_tokens=9), bearer("alice"))
    assert (await anext(first)).HasField("started")
    with pytest.raises(
        OverloadedError, match=r"the API key alice has 1 requests in progress.*; retry after \d+ ms"
    ) as e:
        await run(harness, "alice")
    assert e.value.retry_after_s is not None
    assert len(tokens_of(await run(harness, "bob"))) == 9, "another key has room"
    await first.aclose()
    assert len(tokens_of(await run(harness, "alice"))) == 9


async def test_the_output_ceiling_is_the_smaller_one(harness: Harness) -> None:
    with pytest.raises(InvalidRequestError, match=r"max_tokens: at most 12 are allowed here \(got 13\)"):
        await run(harness, "alice", ask(max_tokens=13))
    message = ask()
    message.sampling.ClearField("max_tokens")
    assert finished_of(await run(harness, "alice", message)).stats.output_tokens == 12
    assert len(tokens_of(await run(harness, "bob", ask(max_tokens=13)))) == 13


@pytest.mark.parametrize(("name", "priority"), [("alice", -3), ("alice", 10), ("bob", 0), ("bob", 10)])
async def test_priorities_within_the_limit_reach_the_verifier(harness: Harness, name: str, priority: int) -> None:
    message = ask(max_tokens=3)
    message.priority = priority
    await run(harness, name, message)
    assert harness.verifiers[0].calls[0].priority == priority


@pytest.mark.parametrize(
    ("name", "priority", "error", "text"),
    [
        ("alice", -4, RefusedError, "priority: -3 to 10 are allowed for the API key alice .got -4; smaller is more"),
        ("bob", -1, RefusedError, "priority: 0 to 10 are allowed"),
        ("bob", 11, InvalidRequestError, "priority: -10 .served first. to 10 .served last. are allowed .got 11."),
        ("bob", -11, InvalidRequestError, "priority"),
    ],
)
async def test_priorities_beyond_it(
    harness: Harness, name: str, priority: int, error: type[Exception], text: str
) -> None:
    message = ask(max_tokens=3)
    message.priority = priority
    with pytest.raises(error, match=text):
        await run(harness, name, message)


async def test_keys_do_not_share_cached_prompts(harness: Harness) -> None:
    message = ask(max_tokens=3)
    message.cache_salt = "s" * 256
    for name in ("alice", "bob", "alice"):
        await run(harness, name, message)
    first, second, third = [call.cache_salt for call in harness.verifiers[0].calls]
    assert first == third != second
    assert "alice" not in first


async def test_unless_they_are_meant_to(gateway: StartHarness, keys_file: Path) -> None:
    tenancy = TenancyConfig(keys_file=str(keys_file), share_prefix_cache=True)
    async with gateway(tenancy=tenancy) as harness:
        for name in ("alice", "bob"):
            await run(harness, name)
        assert [call.cache_salt for call in harness.verifiers[0].calls] == ["", ""]


async def test_without_a_file_everybody_may_call_within_the_default_limits(gateway: StartHarness) -> None:
    tenancy = TenancyConfig(default_limits=KeyLimits(max_concurrent_requests=1))
    async with gateway({"step_s": 0.01}, tenancy=tenancy) as harness:
        assert harness.service.tenants.open
        first = harness.service.generate(ask(max_tokens=9))
        await anext(first)
        with pytest.raises(OverloadedError, match="this server has 1 requests in progress"):
            await harness.run(ask())
        await first.aclose()
        await harness.run(ask(max_tokens=3))
        assert harness.verifiers[0].calls[-1].cache_salt == ""


def tenant(clock: FakeClock, share: int = 1, **limits: Any) -> Tenant:
    return Tenant("t", KeyLimits(**limits), share, clock)


def test_the_token_rate_counts_prompt_and_output() -> None:
    clock = FakeClock()
    one = tenant(clock, tokens_per_minute=600, burst_tokens=100)
    one.begin(40)
    one.spend(60)
    with pytest.raises(OverloadedError, match="the API key t has used up its 600 tokens per minute") as caught:
        one.begin(20)
    assert caught.value.retry_after_s == pytest.approx(2.0)
    clock.sleep(2.0)
    one.begin(20)
    one.spend(1000)  # an answer that was let in is not cut off
    with pytest.raises(OverloadedError) as caught:
        one.begin(1)
    assert caught.value.retry_after_s == pytest.approx(100.1)


def test_a_debt_of_weeks_has_a_hint_that_the_sdk_reads() -> None:
    one = tenant(FakeClock(), tokens_per_minute=1)
    one.begin(1)
    one.spend(20_000)
    with pytest.raises(OverloadedError) as caught:
        one.begin(1)
    assert Failure(*to_status(caught.value)).retry_after_s == 86_400.0


def test_limits_change_while_it_runs_and_what_was_spent_stays() -> None:
    clock = FakeClock()
    one = tenant(clock, tokens_per_minute=60)
    one.spend(70)
    one.apply(KeyLimits(tokens_per_minute=6000))
    with pytest.raises(OverloadedError):
        one.begin(10)
    clock.sleep(1.0)
    one.begin(10)
    one.apply(KeyLimits())
    one.begin(10**9)


def test_limits_of_all_gateways_together() -> None:
    clock = FakeClock()
    one = tenant(clock, 4, tokens_per_minute=240, max_concurrent_requests=6)
    one.begin(60)
    with pytest.raises(OverloadedError):
        one.begin(1)
    with one.occupied(), one.occupied(), pytest.raises(OverloadedError), one.occupied():
        pass
    config = GatewayConfig(num_replicas=4, tenancy=TenancyConfig(divide_limits=True))
    assert Tenants(config, clock)._share == 4
    assert Tenants(GatewayConfig(num_replicas=4), clock)._share == 1


def resuming(tokens: int, *, n: int = 1, finished: Container[int] = ()) -> pb.GenerateRequest:
    """A prompt of one token; each of `n` answers lacks one token and brings the others along."""
    message = ask(max_tokens=tokens + 1, n=n)
    message.tokens.token_ids.append(5)
    for index in range(n):
        message.resume.add(index=index, token_ids=[7 + index] * tokens, finished=index in finished)
    return message


async def test_resumed_tokens_are_paid_for_like_a_prompt(gateway: StartHarness) -> None:
    """Each answer's own: they are computed for each. Those of a complete answer are not computed at all."""
    tenancy = TenancyConfig(default_limits=KeyLimits(tokens_per_minute=1, burst_tokens=1000))
    async with gateway(tenancy=tenancy) as harness:
        tenant = harness.service.tenants.authenticate(())
        for message, price in (
            (resuming(100), 1 + 100 + 1),
            (resuming(100, n=4), 1 + 400 + 4),
            (resuming(100, n=4, finished={0, 2, 3}), 1 + 100 + 1),
        ):
            before = level_of(tenant)
            await harness.run(message)
            assert before - level_of(tenant) == pytest.approx(price, abs=3.0)  # one comes back in a minute


async def test_a_resume_point_does_not_get_around_the_token_rate(gateway: StartHarness) -> None:
    tenancy = TenancyConfig(default_limits=KeyLimits(tokens_per_minute=10))
    async with gateway(tenancy=tenancy) as harness:
        await harness.run(resuming(300, n=4))  # the whole burst is there
        for _ in range(3):
            with pytest.raises(OverloadedError, match="has used up its 10 tokens per minute"):
                await harness.run(resuming(300))
        assert len(harness.verifiers[0].calls) == 4


def level_of(one: Tenant) -> float:
    assert one._bucket is not None
    return one._bucket._level


async def test_a_full_gateway_says_when_to_come_back(gateway: StartHarness) -> None:
    async with gateway({"step_s": 0.01}, max_concurrent_requests=1) as harness:
        for _ in range(3):
            await harness.run(ask(max_tokens=3))
        first = harness.service.generate(ask(max_tokens=9))
        await anext(first)
        hints = []
        for _ in range(3):
            with pytest.raises(OverloadedError, match="its limit; try again later; retry after") as caught:
                await harness.run(ask())
            hints.append(caught.value.retry_after_s or 0.0)
        assert hints == sorted(hints)
        await first.aclose()


async def test_the_verifiers_hint_reaches_the_client(gateway: StartHarness) -> None:
    async with gateway({"faults": [Fault(how=OverloadedError("the queue is full", 0.7))] * 4}) as harness:
        with pytest.raises(OverloadedError) as caught:
            await asyncio.wait_for(harness.run(ask()), 60)
        assert caught.value.retry_after_s == 0.7


async def test_a_verifier_that_does_not_know_the_gateway_is_no_fault_of_the_client(gateway: StartHarness) -> None:
    async with gateway({"faults": [Fault(how=AuthenticationError("no token"))]}) as harness:
        with pytest.raises(InternalError, match="the server's own parts do not trust each other"):
            await harness.run(ask())
