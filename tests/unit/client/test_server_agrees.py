"""SDK and server set the same bounds and speak of the same names."""

from random import Random
from typing import Any

import outrider
import pytest
from outrider import Speculation, wire
from outrider.failure import Failure
from outrider.testing import FakeClock, FakeServer, Fault

from tests.unit.client.callers import Caller
from workers.core.errors import InvalidRequestError
from workers.rpc.errors import to_status
from workers.rpc.params import sampling_from_wire, speculation_from_wire


@pytest.mark.parametrize("field", ["top_k", "max_tokens", "min_tokens"])
def test_the_largest_value_is_the_same(field: str) -> None:
    arguments: dict[str, Any] = {field: 2**31 - 1}
    if field == "min_tokens":
        arguments["max_tokens"] = 2**31 - 1
    request = wire.generate_request("x", arguments, Random(0))  # type: ignore[arg-type]
    assert getattr(sampling_from_wire(request.sampling), field) == 2**31 - 1
    setattr(request.sampling, field, 2**31)
    with pytest.raises(InvalidRequestError, match=field):
        sampling_from_wire(request.sampling)
    arguments[field] = 2**31
    with pytest.raises(outrider.InvalidRequestError, match=f"{field}: expected an integer from 0 to 2147483647"):
        wire.generate_request("x", arguments, Random(0))  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["depth", "width", "nodes"])
def test_a_tree_that_is_refused_is_described_as_the_caller_wrote_it(field: str) -> None:
    arguments: dict[str, Any] = {field: 0}
    request = wire.generate_request("x", {"speculation": Speculation.on(**arguments)}, Random(0))
    with pytest.raises(InvalidRequestError) as caught:
        speculation_from_wire(request.speculation)
    error = Failure(*to_status(caught.value)).to_error()
    assert isinstance(error, outrider.InvalidRequestError)
    assert error.message.startswith(f"{field}: ")
    assert "(got 0)" in error.message


def test_both_clients_name_the_field_of_the_caller(caller: Caller, server: FakeServer, clock: FakeClock) -> None:
    code, details = to_status(InvalidRequestError("max_depth: at least 1 (got 0)"))
    server.fail_next(Fault(code, details))
    with pytest.raises(outrider.InvalidRequestError) as caught:
        caller.generate(server.target, clock, {}, prompt="x", speculation=Speculation.on(depth=0))
    assert caught.value.message == "depth: at least 1 (got 0)"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"prompt": "\ud800"}, "prompt"),
        ({"prompt": "x", "stop": ["\ud800"]}, "stop[0]"),
        ({"prompt": "x", "cache_salt": "\ud800"}, "cache_salt"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0]: content"),
    ],
)
def test_both_clients_refuse_text_that_is_not_unicode(
    caller: Caller, server: FakeServer, clock: FakeClock, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(outrider.InvalidRequestError) as caught:
        caller.generate(server.target, clock, {}, **options)
    assert caught.value.message.startswith(f"{field}: not valid Unicode: the lone surrogate '\\ud800' at character 0")
    assert not server.requests


@pytest.mark.parametrize("options", [{"prompt": "\ud800"}, {"messages": [{"role": "user", "content": "\ud800"}]}])
def test_counting_refuses_it_too(caller: Caller, server: FakeServer, clock: FakeClock, options: dict[str, Any]) -> None:
    with pytest.raises(outrider.InvalidRequestError, match="not valid Unicode"):
        caller.unary("count_tokens", server.target, clock, {}, **options)
