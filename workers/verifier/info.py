"""What a verifier says about itself."""

from dataclasses import dataclass

from outrider.v1 import verifier_pb2

from workers.core.config import VerifierConfig
from workers.models.loaded import LoadedModel
from workers.rpc import convert
from workers.verifier.engine import VerifierEngine

__all__ = ["VerifierInfo"]


@dataclass(frozen=True)
class VerifierInfo:
    """Identity and limits of one verifier process; the load is read from the engine when asked."""

    verifier_id: str
    incarnation: int  # changes at every start of the process
    config: VerifierConfig
    loaded: LoadedModel
    context_length: int  # the smaller of the model's context and the K/V pool

    def load(self, engine: VerifierEngine) -> verifier_pb2.ReplicaLoad:
        return verifier_pb2.ReplicaLoad(
            running_requests=engine.num_running,
            waiting_requests=engine.num_waiting,
            total_kv_blocks=self.config.kv_cache.num_blocks,
            free_kv_blocks=engine.num_free_blocks,
            waiting_tokens=engine.num_waiting_tokens,
            prefill_tokens_per_s=engine.prefill_tokens_per_s,
            max_running_requests=engine.max_running,
        )

    def to_wire(self, engine: VerifierEngine) -> verifier_pb2.VerifierGetInfoResponse:
        load = self.load(engine)
        speculation = self.config.speculation
        return verifier_pb2.VerifierGetInfoResponse(
            verifier_id=self.verifier_id,
            incarnation=self.incarnation,
            model=self.loaded.name,
            model_fingerprint=self.loaded.fingerprint,
            tokenizer_hash=self.loaded.tokenizer_hash,
            vocab_size=self.loaded.vocab_size,
            context_length=self.context_length,
            dtype=self.loaded.dtype,
            kv_block_size=self.config.kv_cache.block_size,
            total_kv_blocks=load.total_kv_blocks,
            free_kv_blocks=load.free_kv_blocks,
            default_rule=convert.rule_to_wire(speculation.default_rule),
            allowed_rules=[convert.rule_to_wire(rule) for rule in speculation.allowed_rules],
            max_depth=speculation.max_depth,
            max_width=speculation.max_width,
            max_nodes=speculation.max_nodes,
            running_requests=load.running_requests,
            waiting_requests=load.waiting_requests,
        )
