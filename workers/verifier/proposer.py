"""Which proposer serves a verifier's requests."""

from workers.core.config import VerifierConfig
from workers.models.loaded import LoadedModel
from workers.proposers.base import Proposer
from workers.proposers.draft_link import LinkOptions
from workers.proposers.layerskip.proposer import LayerSkipProposer
from workers.proposers.medusa import MedusaProposer
from workers.proposers.ngram import NgramProposer
from workers.proposers.none import NullProposer
from workers.proposers.remote import RemoteOptions, RemoteProposer
from workers.proposers.union import UnionProposer
from workers.rpc.channels import RpcOptions
from workers.rpc.handshake import VerifierIdentity

__all__ = ["build_proposer", "remote_of"]


def build_proposer(config: VerifierConfig, loaded: LoadedModel, verifier_id: str, incarnation: int) -> Proposer:
    """The proposer of `config.method`, united with prompt lookup if the settings say so.

    Id and incarnation are how drafters know this verifier.
    """
    proposer = _proposer(config, loaded, verifier_id, incarnation)
    return UnionProposer(proposer, NgramProposer(config.ngram)) if config.ngram.combine else proposer


def remote_of(proposer: Proposer) -> RemoteProposer | None:
    """The part that works with drafters; None where none does."""
    first = proposer.first if isinstance(proposer, UnionProposer) else proposer
    return first if isinstance(first, RemoteProposer) else None


def _proposer(config: VerifierConfig, loaded: LoadedModel, verifier_id: str, incarnation: int) -> Proposer:
    if config.method == "none":
        return NullProposer()
    if config.method == "ngram":
        return NgramProposer(config.ngram)
    if config.layerskip is not None and config.method == "layerskip":
        return LayerSkipProposer(config.layerskip)
    if config.medusa is not None and config.method == "medusa":
        return MedusaProposer.load(config.medusa.model, loaded)
    return RemoteProposer(
        VerifierIdentity(
            verifier_id=verifier_id,
            incarnation=incarnation,
            model=loaded.name,
            model_fingerprint=loaded.fingerprint,
            tokenizer_hash=loaded.tokenizer_hash,
            vocab_size=loaded.vocab_size,
        ),
        options=RemoteOptions(link=LinkOptions(rpc=RpcOptions.of(config.rpc, own_connection=True))),
    )
