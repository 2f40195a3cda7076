"""The example drafter, as a process of its own, serves the remote proposer."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.proposers.driver import answer, generation_request, remote_proposer, run_request
from workers.core.request import DrafterEndpoint
from workers.core.sampling_params import VerificationRule

EXAMPLE = Path(__file__).parents[3] / "examples" / "text_file_drafter.py"
SEQUENCE = answer()


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrafterEndpoint]:
    file = tmp_path_factory.mktemp("drafter") / "passages.ids"
    other_end = [*SEQUENCE[2:20], *answer(salt=3)[:5]]
    file.write_text(f"{SEQUENCE[3:]}\n" + " ".join(map(str, other_end)) + "\n\n[]\n")
    command = [sys.executable, str(EXAMPLE), "--token-ids", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield DrafterEndpoint("example", process.stdout.readline().split()[-1])
        process.terminate()


@pytest.mark.parametrize("rule", [VerificationRule.COUPLED, VerificationRule.REJECTION])
def test_it_drafts_from_its_file(drafter: DrafterEndpoint, rule: VerificationRule) -> None:
    proposer = remote_proposer()
    try:
        assert proposer.connect([drafter.address], 10.0)
        run = run_request(proposer, generation_request(SEQUENCE, (drafter,), rule=rule), SEQUENCE)
    finally:
        proposer.shutdown()
    assert run.committed == SEQUENCE
    assert proposer.counters.invalid == proposer.counters.stale == 0
    assert len(run.waits) <= 14  # 55 tokens, up to 5 a step


def test_it_imports_nothing_of_the_server() -> None:
    tree = ast.parse(EXAMPLE.read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - set(sys.stdlib_module_names) == {"grpc", "outrider"}


def test_text_needs_a_tokenizer() -> None:
    result = subprocess.run([sys.executable, str(EXAMPLE), "--text", "x"], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert "--text needs --gateway" in result.stderr
