"""Redeploying under a running request."""

import threading
from pathlib import Path

from outrider import Client, Generation, Speculation

from cluster.config.loader import load_config
from cluster.local import LocalCluster
from tests.integration.cluster.long_request import LONG, PROMPT, drafts_again, plain_answer
from tests.integration.cluster.processes import REPLACEMENT_S, replica_processes, wait_until


def test_a_running_request_finishes_while_everything_is_replaced(
    client: Client, cluster: LocalCluster, serve_config: Path
) -> None:
    """Serve restarts all deployments of an application whose args change: each drains."""
    expected = plain_answer(client)
    before = [replica_processes(name)[0] for name in ("Gateway", "TargetVerifier", "DraftProposer")]
    results: list[Generation] = []

    def run() -> None:
        results.append(client.generate(PROMPT, sampling=LONG, speculation=Speculation.on(), cache_salt="redeploy"))

    reader = threading.Thread(target=run)
    reader.start()
    changed = serve_config.with_name("changed.yaml")
    changed.write_text(serve_config.read_text().replace("grow_ahead: 1", "grow_ahead: 2"))
    assert changed.read_text() != serve_config.read_text()
    cluster.deploy(load_config(changed).serve_config)
    reader.join(timeout=REPLACEMENT_S)
    assert results[0].token_ids == expected.token_ids
    wait_until(lambda: not any(process.is_running() for process in before), REPLACEMENT_S)
    cluster.wait_ready(REPLACEMENT_S)
    wait_until(lambda: drafts_again(client, expected), REPLACEMENT_S, period_s=0.5)
