"""Two of everything, without Serve: client - proxy - gateways - proxies - verifiers - proxies - drafters.

All processes are real; every connection between them runs through a fault proxy of its own.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import psutil
from outrider import Client, Generation, RetryPolicy, SamplingParams, Speculation
from outrider.v1 import draft_pb2_grpc, verifier_pb2, verifier_pb2_grpc

from benchmarks.faults.threaded import ProxyThread, ThreadedProxy
from tests.integration.forking import Forks
from tests.integration.processes import Server

__all__ = [
    "HANG_S",
    "MAX_GRACE_S",
    "PATIENT",
    "QUESTIONS",
    "TOKENS",
    "Node",
    "Question",
    "Rig",
    "open_rig",
    "wait_until",
]

HANG_S = 90.0  # bounds a hang; nothing is measured with it
MAX_GRACE_S = 1.0
STALL_S = 3.0  # until the gateway leaves a verifier that hangs
PATIENT = RetryPolicy(max_attempts=60, max_suspect_attempts=60, max_backoff_s=1.0)
ENGINE: dict[str, Any] = {"kv_cache": {"num_blocks": 256, "block_size": 16}}
SPECULATION = {
    "max_depth": 4,
    "max_width": 2,
    "max_nodes": 8,
    "max_grace_ms": MAX_GRACE_S * 1e3,
    "profile_ms": 0.0,
}
GATEWAY = {
    "stall_probe_ms": 1000,
    "stall_timeout_ms": 2000,
    "heartbeat_ms": 500,
    "max_attempts": 20,
    "max_concurrent_requests": 6,
}
PROMPTS = ("A storm came up", "The river rises")
TOKENS = 80


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = HANG_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.05)


@dataclass(frozen=True)
class Question:
    """A request whose answer is known, as it depends on these alone."""

    prompt: str
    temperature: float
    seed: int

    def ask(self, client: Client, speculation: Speculation, **options: Any) -> Generation:
        sampling = SamplingParams(max_tokens=TOKENS, temperature=self.temperature, seed=self.seed, ignore_eos=True)
        return client.generate(self.prompt, sampling=sampling, speculation=speculation, **options)


QUESTIONS = tuple(
    Question(prompt, temperature, 7 + i) for i, prompt in enumerate(PROMPTS) for temperature in (0.0, 0.8)
)


@dataclass
class Node:
    """One process and the proxy that all its callers go through."""

    name: str
    start: Callable[[], Server]
    server: Server
    proxy: ThreadedProxy

    @property
    def process(self) -> psutil.Process:
        return self.server.process

    def record(self) -> dict[str, Any]:
        """As the gateway's directory wants it."""
        info: Mapping[str, Any] = self.server.info
        return {
            "role": info["role"],
            "replica_id": self.name,
            "address": self.proxy.address,
            "incarnation": info["incarnation"],
            "model": info["model"],
            "model_fingerprint": info["model_fingerprint"],
            "tokenizer_hash": info["tokenizer_hash"],
            "kv_block_size": info["kv_block_size"],
        }


@dataclass
class Rig:
    verifiers: list[Node]
    drafters: list[Node]
    gateways: list[Node]
    front: ThreadedProxy
    replicas: Path
    folder: Path
    expected: dict[Question, Generation]

    @contextmanager
    def client(self, **settings: Any) -> Iterator[Client]:
        with Client(self.front.address, **({"retry": PATIENT, "silence_timeout": 3.0} | settings)) as client:
            yield client

    def announce(self) -> None:
        """Tell the gateways who lives, as Serve does."""
        path = self.replicas.with_suffix(".new")
        path.write_text(json.dumps([node.record() for node in (*self.verifiers, *self.drafters)]))
        path.replace(self.replicas)

    def mend(self) -> None:
        """Heal all proxies, thaw what is frozen, start again what is dead."""
        self.front.heal()
        for node in (*self.verifiers, *self.drafters, *self.gateways):
            node.proxy.heal()
            if node.process.is_running() and node.process.status() != psutil.STATUS_ZOMBIE:
                node.server.thaw()
            else:
                node.server = node.start()
                node.proxy.upstreams[:] = [node.server.address]
        self.announce()

    def ask_all(
        self,
        client: Client,
        meanwhile: Callable[[], object] | None = None,
        *,
        rounds: int = 1,
        speculation: Speculation = Speculation.on(),  # noqa: B008  # frozen
    ) -> list[Generation]:
        """Ask all questions at once, `rounds` times each; every answer must be the known one.

        `meanwhile` runs while they are being answered, when some have begun.
        """
        with ThreadPoolExecutor(len(QUESTIONS) * rounds) as pool:
            running = [(q, pool.submit(q.ask, client, speculation)) for q in QUESTIONS * rounds]
            if meanwhile is not None:
                wait_until(lambda: sum(map(self.running_requests, self.verifiers)) > 1, "requests that run")
                meanwhile()
            answers = [(question, future.result(HANG_S)) for question, future in running]
        for question, answer in answers:
            known = self.expected[question]
            assert answer.token_ids == known.token_ids
            assert answer.text == known.text
            assert answer.finish_reason == known.finish_reason
        return [answer for _, answer in answers]

    # Levels

    def running_requests(self, verifier: Node) -> int:
        """0 for one that does not answer."""
        try:
            return self.verifier_load(verifier, timeout_s=1.0).running_requests
        except grpc.RpcError:
            return 0

    def busy_gateway(self) -> Node:
        """The one that has the connection of a single client."""
        (busy,) = [one for one in self.gateways if one.proxy.open_connections]
        return busy

    def verifier_load(self, node: Node, timeout_s: float = 10.0) -> verifier_pb2.VerifierGetInfoResponse:
        with grpc.insecure_channel(node.server.address) as channel:
            stub = verifier_pb2_grpc.VerifierServiceStub(channel)
            return stub.GetInfo(verifier_pb2.VerifierGetInfoRequest(), timeout=timeout_s)

    def drafter_load(self, node: Node) -> verifier_pb2.ReplicaLoad:
        with grpc.insecure_channel(node.server.address) as channel:
            events = draft_pb2_grpc.DraftServiceStub(channel).KvEvents(verifier_pb2.KvEventsRequest(), timeout=10)
            load = next(iter(events)).load
            events.cancel()
            return load

    def waits_ms(self) -> list[float]:
        """How long each step so far has waited for drafters, over all verifiers."""
        lines = [line for path in self.folder.glob("trace-*.jsonl") for line in path.read_text().splitlines()]
        return [json.loads(line)["wait_ms"] for line in lines]

    def at_rest(self) -> bool:
        """Whether no request, session or block is in use anywhere."""
        verifiers = [self.verifier_load(one) for one in self.verifiers]
        drafters = [self.drafter_load(one) for one in self.drafters]
        return all(
            one.running_requests == one.waiting_requests == 0 and one.free_kv_blocks == one.total_kv_blocks
            for one in (*verifiers, *drafters)
        )


@contextmanager
def open_rig(target: Path, draft: Path, folder: Path) -> Iterator[Rig]:
    modules = {
        "verifier": "workers.verifier.server",
        "drafter": "workers.draft.server",
        "gateway": "tests.integration.faults.gateway_server",
    }
    with Forks(folder, *modules.values()) as forks, ProxyThread() as proxies:
        replicas = folder / "replicas.json"
        replicas.write_text("[]")
        model = {"dtype": "float32", "num_threads": 1}
        configs: dict[str, dict[str, Any]] = {
            "verifier": {
                **ENGINE,
                "speculation": SPECULATION | {"trace_path": str(folder / "trace-{pid}.jsonl")},
                "model": {"model": str(target), **model},
            },
            "drafter": {**ENGINE, "model": {"model": str(draft), **model}},
            "gateway": {"gateway": GATEWAY, "tokenizer": str(target), "replicas": str(replicas)},
        }
        kinds = [kind for kind in modules for _ in range(2)]
        servers = forks.start_all([(modules[kind], configs[kind]) for kind in kinds])
        nodes = [
            Node(
                f"{kind}-{number % 2}",
                partial(forks.start, modules[kind], configs[kind]),
                server,
                proxies.open(server.address),
            )
            for number, (kind, server) in enumerate(zip(kinds, servers, strict=True))
        ]
        front = proxies.open(*(node.proxy.address for node in nodes[4:]))
        rig = Rig(nodes[:2], nodes[2:4], nodes[4:], front, replicas, folder, {})
        rig.announce()
        with rig.client() as client:
            rig.expected.update({q: q.ask(client, Speculation.off()) for q in QUESTIONS})
        yield rig
