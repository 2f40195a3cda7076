"""The guide's code runs as it is printed, against a fake server; so do the examples."""

import io
import re
import runpy
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from outrider.testing import FakeServer

ROOT = Path(__file__).parents[3]
PAGES = ["README.md", "docs/sdk.md", "client/README.md"]


def code_blocks() -> Iterator[Any]:
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for match in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
            line = text[: match.start()].count("\n") + 2
            yield pytest.param(page, line, match[1], id=f"{page}:{line}")


def test_the_guide_has_code() -> None:
    assert len(list(code_blocks())) >= 10


@pytest.mark.parametrize(("page", "line", "code"), list(code_blocks()))
def test_code_of_the_guide_runs(page: str, line: int, code: str, server: FakeServer) -> None:
    source = "\n" * (line - 1) + code.replace("localhost:9000", server.target)
    with redirect_stdout(io.StringIO()):
        exec(compile(source, str(ROOT / page), "exec"), {"__name__": "__main__"})  # noqa: S102  # our own pages


@pytest.mark.parametrize(
    ("example", "arguments", "printed"),
    [
        ("quickstart.py", ["Once"], "Hello, world\n12 tokens, 1.00 per verify step\n"),
        ("async_stream.py", ["A: ", "B: "], "A: Hello, world\nB: Hello, world\n"),
    ],
)
def test_examples_run(example: str, arguments: list[str], printed: str, server: FakeServer) -> None:
    output = run_example(example, [*arguments, "--target", server.target])
    assert output.endswith(printed)
    assert server.requests


def test_the_chat_example_keeps_the_conversation(server: FakeServer) -> None:
    typed = iter(["Hi", "And then?", ""])
    output = run_example("chat.py", ["--target", server.target], read=lambda _: next(typed))
    assert output.count("Hello, world\n") == 2
    roles = [message.role for message in server.requests[1].chat.messages]
    assert roles == ["system", "user", "assistant", "user"]


def run_example(name: str, arguments: list[str], **options: Any) -> str:
    namespace = runpy.run_path(str(ROOT / "examples" / name))
    with redirect_stdout(io.StringIO()) as output:
        namespace["main"](arguments, **options)
    return output.getvalue()
