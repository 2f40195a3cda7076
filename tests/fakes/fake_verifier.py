"""A verifier without a model: tokens come from a function, trouble from a script."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
from outrider.v1 import verifier_pb2, verifier_pb2_grpc

from cluster.router.membership import ReplicaRecord
from workers.core.errors import OutriderError
from workers.core.proposal import TreeBudget
from workers.core.request import FinishReason, GenerationRequest, StepOutput, TokenLogprob
from workers.core.sampling_params import VerificationRule
from workers.core.seeds import mix64
from workers.core.statistics import GenerationStats
from workers.rpc import convert
from workers.rpc.channels import RunningServer, start_server
from workers.text.output_text import OutputText
from workers.text.tokenizer import Tokenizer

__all__ = ["CLEAN_END", "FakeDirectory", "FakeVerifier", "Fault", "TokenFunction", "pseudo_random_tokens"]

TokenFunction = Callable[[GenerationRequest, int], int]  # request, output position -> token id
CLEAN_END = "clean end"
LIMITS = TreeBudget(max_depth=4, max_width=3, max_nodes=12)


def pseudo_random_tokens(first: int, last: int) -> TokenFunction:
    """Tokens in [first, last] that depend on prompt, seed and position, as those of a real target do."""

    def token_at(request: GenerationRequest, position: int) -> int:
        mixed = mix64(request.seed + sum(request.prompt_token_ids) + mix64(position))
        return first + mixed % (last - first + 1)

    return token_at


@dataclass(frozen=True)
class Fault:
    """What goes wrong in one call once `after_tokens` new tokens are out."""

    after_tokens: int = 0
    how: grpc.StatusCode | OutriderError | str = grpc.StatusCode.UNAVAILABLE  # CLEAN_END = OK without a last message
    hang: bool = False  # goes silent instead


@dataclass
class FakeVerifier(verifier_pb2_grpc.VerifierServiceServicer):
    """Use as `async with FakeVerifier(...) as verifier`; one real gRPC server on a free port."""

    tokenizer: Tokenizer
    token_at: TokenFunction
    replica_id: str = "verifier-0"
    tokens_per_step: int = 3
    step_s: float = 0.0
    context_length: int = 512
    allow_typical: bool = False
    faults: list[Fault] = field(default_factory=list)  # one for each call, in order; later calls go well
    calls: list[GenerationRequest] = field(default_factory=list)
    running: int = 0
    cancelled: int = 0
    incarnation: int = 1
    load: verifier_pb2.ReplicaLoad = field(
        default_factory=lambda: verifier_pb2.ReplicaLoad(total_kv_blocks=100, free_kv_blocks=99, max_running_requests=8)
    )
    frozen: bool = False  # GetInfo never answers; with `Fault(hang=True)` nothing else does
    asked: int = 0  # how often GetInfo was called

    async def __aenter__(self) -> Self:
        self._server: RunningServer = await start_server(
            [lambda server: verifier_pb2_grpc.add_VerifierServiceServicer_to_server(self, server)]
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """At once: running streams break."""
        await self._server.stop(None)

    @property
    def record(self) -> ReplicaRecord:
        return ReplicaRecord(
            role="verifier",
            replica_id=self.replica_id,
            address=self._server.address,
            incarnation=self.incarnation,
            model="fake",
            model_fingerprint="fake",
            tokenizer_hash=self.tokenizer.tokenizer_hash,
            kv_block_size=16,
        )

    async def Generate(
        self, request: verifier_pb2.VerifierGenerateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[verifier_pb2.VerifierGenerateResponse]:
        generation = convert.request_from_wire(request, limits=LIMITS)
        fault = self.faults.pop(0) if self.faults else None
        self.calls.append(generation)
        self.running += 1
        try:
            sent = 0
            if fault is not None and fault.after_tokens == 0:
                await _fail(fault, context)
                return
            for step in self._steps(generation):
                await asyncio.sleep(self.step_s)
                yield convert.step_to_wire(step)
                sent += len(step.token_ids)
                if fault is not None and sent >= fault.after_tokens:
                    await _fail(fault, context)
                    return
        except (asyncio.CancelledError, GeneratorExit):  # while it waits / while it sends
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def GetInfo(
        self, request: verifier_pb2.VerifierGetInfoRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> verifier_pb2.VerifierGetInfoResponse:
        self.asked += 1
        if self.frozen:
            await asyncio.Event().wait()
        rules = [rule for rule in VerificationRule if rule.exact or self.allow_typical]
        return verifier_pb2.VerifierGetInfoResponse(
            verifier_id=self.replica_id,
            incarnation=self.incarnation,
            model="fake",
            model_fingerprint="fake",
            tokenizer_hash=self.tokenizer.tokenizer_hash,
            vocab_size=self.tokenizer.vocab_size,
            context_length=self.context_length,
            dtype="float32",
            kv_block_size=16,
            total_kv_blocks=100,
            free_kv_blocks=99,
            default_rule=convert.rule_to_wire(VerificationRule.COUPLED),
            allowed_rules=[convert.rule_to_wire(rule) for rule in rules],
            max_depth=LIMITS.max_depth,
            max_width=LIMITS.max_width,
            max_nodes=LIMITS.max_nodes,
            running_requests=self.running,
        )

    async def KvEvents(
        self, request: verifier_pb2.KvEventsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[verifier_pb2.KvEventsResponse]:
        """An empty cache that never changes."""
        yield verifier_pb2.KvEventsResponse(incarnation=self.incarnation, cleared=True, load=self.load)
        await asyncio.Event().wait()

    def _steps(self, request: GenerationRequest) -> list[StepOutput]:
        """All steps of the answer, from the first token that the request does not bring along."""
        tokens, reason, stop_string = self.answer(request)
        new = tokens[len(request.output_token_ids) :]
        chunks = [new[i : i + self.tokens_per_step] for i in range(0, len(new), self.tokens_per_step)] or [()]
        stats = GenerationStats(
            prompt_tokens=len(request.prompt_token_ids),
            output_tokens=len(new),
            verify_steps=len(chunks),
            accepted_tokens=len(new) - len(chunks),
            seed=request.seed,
        )
        return [
            StepOutput(
                request.request_id,
                tuple(chunk),
                tuple(TokenLogprob(t, -0.5) for t in chunk) if request.sampling.logprobs is not None else (),
                *((reason, stop_string, stats) if last else ()),
            )
            for chunk, last in zip(chunks, [False] * (len(chunks) - 1) + [True], strict=True)
        ]

    def answer(self, request: GenerationRequest) -> tuple[Sequence[int], FinishReason, str]:
        """The whole answer: output tokens, why it ends, the stop string."""
        sampling = request.sampling
        ends = {*sampling.stop_token_ids, *(() if sampling.ignore_eos else self.tokenizer.eos_token_ids)}
        text = OutputText(self.tokenizer, sampling.stop)
        tokens: list[int] = []
        limit = sampling.max_tokens or self.context_length - len(request.prompt_token_ids)
        while len(tokens) < limit:
            tokens.append(self.token_at(request, len(tokens)))
            stopped = text.push(tokens[-1:]).stopped
            if stopped is not None:
                return tokens, FinishReason.STOP, stopped
            if tokens[-1] in ends and len(tokens) >= sampling.min_tokens:
                return tokens, FinishReason.STOP, ""
        return tokens, FinishReason.LENGTH, ""


@dataclass
class FakeDirectory:
    """A `ReplicaDirectory` that a test fills in."""

    verifier_records: list[ReplicaRecord] = field(default_factory=list)
    drafter_records: list[ReplicaRecord] = field(default_factory=list)

    def verifiers(self) -> Sequence[ReplicaRecord]:
        return self.verifier_records

    def drafters(self) -> Sequence[ReplicaRecord]:
        return self.drafter_records


async def _fail(fault: Fault, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    if fault.hang:
        await asyncio.Event().wait()
    if isinstance(fault.how, OutriderError):
        raise fault.how
    if isinstance(fault.how, grpc.StatusCode):
        await context.abort(fault.how, "scripted")
