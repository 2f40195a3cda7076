"""Choices of replicas, as clients may read them."""

from outrider.v1 import generation_pb2 as pb

from cluster.router.decision import Candidate, Decision

__all__ = ["decision_to_wire"]


def decision_to_wire(decision: Decision) -> pb.RoutingDecision:
    return pb.RoutingDecision(
        index=decision.index,
        pool=decision.pool,
        policy=decision.policy,
        prompt_tokens=decision.prompt_tokens,
        num_replicas=decision.num_replicas,
        decision_ms=decision.decision_ms,
        candidates=[_candidate_to_wire(one) for one in decision.candidates],
        num_chosen=decision.num_chosen,
    )


def _candidate_to_wire(candidate: Candidate) -> pb.RoutingCandidate:
    return pb.RoutingCandidate(
        replica_id=candidate.replica_id,
        cached_tokens=candidate.cached_tokens,
        cost=candidate.cost,
        terms=[pb.RoutingTerm(name=name, cost=cost) for name, cost in candidate.terms.items()],
    )
