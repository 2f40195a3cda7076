"""How many drafters are asked for, and whether drafting pays.

Sessions are the load. How many of them a drafter carries is not known beforehand: it computes for all sessions that ask
at the same time together, so it is busy all the time long before it is full. What shows is that drafts come late. The
number of sessions per drafter at which they did is kept (`Carried`): it measures the load from then on, and the pool
does not shrink back to where it was too small.
"""

from collections.abc import Iterator, Sequence

from cluster.autoscaling.snapshot import Carried, DrafterSignals, VerifierSignals
from cluster.autoscaling.wishes import MAX_RATIO, MIN_SAMPLES, Ground, Wish
from cluster.config.autoscaling import DrafterScaling

__all__ = ["drafter_wishes", "drafting_pays"]

PAYS_AGAIN = 1.25  # times min_accepted_per_tree, until a pool that does not pay is believed to pay again
RELAXED = 1.25  # times as many sessions are tried when what is known has become old


def drafter_wishes(
    signals: Sequence[DrafterSignals],
    verifiers: Sequence[VerifierSignals],
    scaling: DrafterScaling,
    ground: Ground,
    known: Carried | None,
    now_s: float,
    ease: float = 1.0,
) -> tuple[dict[str, Wish], Carried | None]:
    """By signal, and what is known from now on.

    `signals` are fresh and not empty; `verifiers`: fresh signals of theirs, may be empty; `ease`: `Load.ease` of them.
    """
    count = len(signals)
    sessions = sum(one.sessions for one in signals)
    ratio, why = max(_too_slow(verifiers, scaling), default=(0.0, ""))
    # Idle ones cannot be the reason.
    ratio = min(ratio, MAX_RATIO, sum(one.busy for one in signals) / count / scaling.min_busy)
    late = ratio > 1.0 and sessions > 0.0
    if late and ground.steady:
        known = Carried(sessions / count / ratio, now_s, f"{why} with {sessions / count:.1f} sessions on each")
    elif known is not None and now_s - known.at_s > scaling.relearn_s:
        known = Carried(known.sessions * RELAXED, now_s, known.why)

    sessions *= ease
    room = max(1.0, sum(one.max_sessions for one in signals) / count)
    wishes = {"sessions": Wish(sessions / (room * scaling.target_session_usage), f"{sessions:.0f} sessions")}
    if known is not None:
        wish = min(sessions / known.sessions, MAX_RATIO * count)
        wishes["lateness"] = Wish(wish, f"{sessions:.0f} sessions; {known.why}")
    if late and not ground.steady:  # reports still speak of other replicas: it is only known that fewer are too few
        wishes["late"] = Wish(ground.relative(count * ratio, latency=True), why)
    return wishes, known


def drafting_pays(verifiers: Sequence[VerifierSignals], scaling: DrafterScaling, before: bool) -> tuple[bool, str]:
    """Whether drafted tokens are accepted often enough; as `before` when too few trees were verified to say."""
    trees = sum(one.trees for one in verifiers)
    if trees < MIN_SAMPLES * max(1, len(verifiers)):
        return before, "too few trees were verified to say whether drafting pays"
    accepted = sum(one.accepted for one in verifiers) / trees
    needed = scaling.min_accepted_per_tree * (1.0 if before else PAYS_AGAIN)
    return accepted >= needed, f"{accepted:.2f} draft tokens accepted per tree, {needed:.2f} needed"


def _too_slow(verifiers: Sequence[VerifierSignals], scaling: DrafterScaling) -> Iterator[tuple[float, str]]:
    """Signals that verifiers have of their drafters: how many times the drafters each of them asks for."""
    demanded = sum(one.demanded_nodes for one in verifiers)
    proposals = sum(one.proposals for one in verifiers)
    if demanded >= MIN_SAMPLES:
        share = min(1.0, sum(one.delivered_nodes for one in verifiers) / demanded)
        yield scaling.min_delivery / max(share, 1e-9), f"{share:.0%} of the demanded nodes were delivered"
    if proposals >= MIN_SAMPLES:
        late = min(1.0, sum(one.late for one in verifiers) / proposals)
        yield late / scaling.max_late, f"{late:.0%} of the proposals were late"
