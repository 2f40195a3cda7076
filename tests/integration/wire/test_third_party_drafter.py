"""The example drafter, which knows only grpcio and the stubs, attached to a running verifier."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration.processes import VerifierClient
from tests.integration.wire.test_equality_over_the_wire import GREEDY, request
from workers.core.request import DrafterEndpoint

EXAMPLE = Path(__file__).parents[3] / "examples" / "text_file_drafter.py"


@contextmanager
def example_drafter(file: Path) -> Iterator[DrafterEndpoint]:
    command = [sys.executable, str(EXAMPLE), "--token-ids", str(file), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        try:
            yield DrafterEndpoint("text-file", address)
        finally:
            process.kill()


def test_it_speeds_up_what_its_file_knows_and_changes_nothing(client: VerifierClient, tmp_path: Path) -> None:
    prompt = tuple(random.Random(77).randrange(3, 512) for _ in range(12))
    plain = client.generate(request(prompt, GREEDY))
    file = tmp_path / "passages.ids"
    file.write_text(" ".join(str(t) for t in [*prompt, *plain.token_ids]))
    with example_drafter(file) as drafter:
        answers = [client.generate(request(prompt, GREEDY, (drafter,))) for _ in range(2)]
    assert [a.token_ids for a in answers] == [plain.token_ids] * 2
    assert answers[1].stats.acceptance_length > 2.0
    assert answers[1].stats.invalid_proposals == 0
