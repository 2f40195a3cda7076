"""The served model, as a verifier describes it."""

from dataclasses import dataclass

from outrider.v1 import generation_pb2, verifier_pb2

from workers.core.sampling_params import VerificationRule
from workers.rpc import convert

__all__ = ["ModelInfo"]


@dataclass(frozen=True)
class ModelInfo:
    """What requests are checked against. All verifiers of a pool run the same model."""

    name: str  # as clients call it
    model_fingerprint: str
    tokenizer_hash: str
    vocab_size: int
    context_length: int  # tokens, prompt and output together
    dtype: str
    default_rule: VerificationRule
    allowed_rules: tuple[VerificationRule, ...]
    max_depth: int
    max_width: int
    max_nodes: int

    @staticmethod
    def from_wire(name: str, info: verifier_pb2.VerifierGetInfoResponse) -> "ModelInfo":
        allowed = tuple(rule for value in info.allowed_rules if (rule := convert.rule_from_wire(value)))
        return ModelInfo(
            name=name,
            model_fingerprint=info.model_fingerprint,
            tokenizer_hash=info.tokenizer_hash,
            vocab_size=info.vocab_size,
            context_length=info.context_length,
            dtype=info.dtype,
            default_rule=convert.rule_from_wire(info.default_rule) or VerificationRule.COUPLED,
            allowed_rules=allowed,
            max_depth=info.max_depth,
            max_width=info.max_width,
            max_nodes=info.max_nodes,
        )

    def to_wire(self) -> generation_pb2.GetModelInfoResponse:
        return generation_pb2.GetModelInfoResponse(
            model=self.name,
            model_fingerprint=self.model_fingerprint,
            tokenizer_hash=self.tokenizer_hash,
            vocab_size=self.vocab_size,
            context_length=self.context_length,
            dtype=self.dtype,
            default_rule=convert.rule_to_wire(self.default_rule),
            allowed_rules=[convert.rule_to_wire(rule) for rule in self.allowed_rules],
            max_depth=self.max_depth,
            max_width=self.max_width,
            max_nodes=self.max_nodes,
        )
