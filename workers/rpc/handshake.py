"""Hello and Welcome: who the two ends of a draft stream are, and whether they fit together."""

from dataclasses import dataclass

from outrider.v1 import draft_pb2 as pb

from workers.core.errors import IncompatibleError
from workers.core.shown import shown

__all__ = [
    "PROTOCOL_VERSION",
    "DrafterIdentity",
    "VerifierIdentity",
    "check_hello",
    "check_welcome",
    "hello_from_wire",
    "hello_to_wire",
    "welcome_from_wire",
    "welcome_to_wire",
]

PROTOCOL_VERSION = 1


@dataclass(frozen=True)
class VerifierIdentity:
    """What a verifier says about itself in `Hello`."""

    verifier_id: str
    incarnation: int  # another number at every start of the process
    model: str
    model_fingerprint: str
    tokenizer_hash: str
    vocab_size: int  # committed tokens are below it


@dataclass(frozen=True)
class DrafterIdentity:
    """What a drafter says about itself and its limits in `Welcome`."""

    drafter_id: str
    incarnation: int
    model: str
    model_fingerprint: str
    tokenizer_hash: str
    vocab_size: int
    max_sessions: int
    context_length: int  # 0 = no limit


def hello_to_wire(verifier: VerifierIdentity) -> pb.Hello:
    return pb.Hello(
        protocol_version=PROTOCOL_VERSION,
        verifier_id=verifier.verifier_id,
        incarnation=verifier.incarnation,
        model=verifier.model,
        model_fingerprint=verifier.model_fingerprint,
        tokenizer_hash=verifier.tokenizer_hash,
        vocab_size=verifier.vocab_size,
    )


def hello_from_wire(message: pb.Hello) -> VerifierIdentity:
    """`IncompatibleError` when the verifier speaks another version of the protocol."""
    _check_version("verifier", message.verifier_id, message.protocol_version)
    return VerifierIdentity(
        message.verifier_id,
        message.incarnation,
        message.model,
        message.model_fingerprint,
        message.tokenizer_hash,
        message.vocab_size,
    )


def welcome_to_wire(drafter: DrafterIdentity) -> pb.Welcome:
    return pb.Welcome(
        protocol_version=PROTOCOL_VERSION,
        drafter_id=drafter.drafter_id,
        incarnation=drafter.incarnation,
        model=drafter.model,
        model_fingerprint=drafter.model_fingerprint,
        tokenizer_hash=drafter.tokenizer_hash,
        vocab_size=drafter.vocab_size,
        max_sessions=drafter.max_sessions,
        context_length=drafter.context_length,
    )


def welcome_from_wire(message: pb.Welcome) -> DrafterIdentity:
    """`IncompatibleError` when the drafter speaks another version of the protocol."""
    _check_version("drafter", message.drafter_id, message.protocol_version)
    return DrafterIdentity(
        message.drafter_id,
        message.incarnation,
        message.model,
        message.model_fingerprint,
        message.tokenizer_hash,
        message.vocab_size,
        message.max_sessions,
        message.context_length,
    )


def check_hello(drafter: DrafterIdentity, verifier: VerifierIdentity) -> None:
    """Raise `IncompatibleError` unless this drafter can draft for `verifier`."""
    _check_tokenizers(drafter, verifier)


def check_welcome(verifier: VerifierIdentity, drafter: DrafterIdentity) -> None:
    """Raise `IncompatibleError` unless `drafter` can draft for this verifier."""
    _check_tokenizers(drafter, verifier)
    if drafter.max_sessions < 1:
        raise IncompatibleError(f"drafter {shown(drafter.drafter_id)} offers no sessions (max_sessions is 0)")


def _check_version(role: str, name: str, version: int) -> None:
    if version != PROTOCOL_VERSION:
        raise IncompatibleError(
            f"{role} {shown(name)} speaks protocol version {version}, this side speaks {PROTOCOL_VERSION}"
        )


def _check_tokenizers(drafter: DrafterIdentity, verifier: VerifierIdentity) -> None:
    """Vocabulary sizes may differ: models pad their embeddings; every token is checked on its own."""
    if drafter.tokenizer_hash != verifier.tokenizer_hash:
        raise IncompatibleError(
            f"the tokenizers differ: target {shown(verifier.model)} has {shown(verifier.tokenizer_hash)}, "
            f"draft {shown(drafter.model)} has {shown(drafter.tokenizer_hash)}; a draft model needs the target's "
            "tokenizer"
        )
    if not drafter.vocab_size or not verifier.vocab_size:
        raise IncompatibleError(
            f"a vocabulary size is 0 (target {verifier.vocab_size}, draft {drafter.vocab_size}); it must be positive"
        )
