"""One line for each request, as JSON where Serve writes JSON, with nothing of what was asked in it."""

import json
import logging
from collections.abc import Iterator

import pytest
from ray._common.formatters import JSONFormatter

from cluster.observability.logs import OURS, SERVE, log_through_serve
from tests.unit.gateway.conftest import StartHarness, ask, gateway, tokenizer
from workers.core.errors import InvalidRequestError

__all__ = ["gateway", "tokenizer"]

MARKER = "xylophonequokka"


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JSONFormatter())
        self.lines: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@pytest.fixture
def serve_lines() -> Iterator[Lines]:
    """Serve's logger with a JSON handler, ours behind it; all as it was afterwards."""
    serve, ours = logging.getLogger(SERVE), [logging.getLogger(name) for name in OURS]
    before = serve.level, serve.propagate, [(one, one.parent, one.level) for one in ours]
    lines = Lines()
    serve.addHandler(lines)
    serve.setLevel(logging.INFO)
    serve.propagate = False
    log_through_serve()
    yield lines
    serve.removeHandler(lines)
    serve.propagate = before[1]
    serve.setLevel(before[0])
    for logger, parent, level in before[2]:
        logger.parent = parent
        logger.setLevel(level)


async def test_a_request_leaves_one_line(gateway: StartHarness, serve_lines: Lines) -> None:
    async with gateway({}) as harness:
        await harness.run(ask(f"{MARKER} {MARKER}"))
        with pytest.raises(InvalidRequestError):
            await harness.run(ask(f"{MARKER} {MARKER}", temperature=-1.0))
    good, refused = [line for line in serve_lines.lines if "outcome" in line]
    assert (good["outrider_request_id"], good["outcome"], good["output_tokens"]) == ("request", "ok", 20)
    assert good["levelname"] == "INFO"
    assert good["prompt_tokens"] > 0  # type: ignore[operator]
    assert good["total_ms"] >= good["time_to_first_token_ms"] > 0  # type: ignore[operator]
    assert good["trace_id"] == ""
    assert (refused["outcome"], refused["time_to_first_token_ms"]) == ("invalid_argument", -1.0)
    assert MARKER not in json.dumps(serve_lines.lines)


def test_levels_are_serves(serve_lines: Lines) -> None:
    """Also of loggers that were there, and asked for their level, before."""
    early = logging.getLogger("workers.of_the_logs_test")
    early.info("not below Serve's level")
    early.debug("below it")
    logging.getLogger(SERVE).setLevel(logging.DEBUG)
    early.debug("no longer")
    assert [line["message"] for line in serve_lines.lines] == ["not below Serve's level", "no longer"]
