"""What goes into the next forward: one level of many trees, and pieces of prompts, under one token budget."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from workers.draft.chunks import Expand, Feed, Work
from workers.draft.memory import TreeMemory
from workers.draft.session import Session, SessionLimits
from workers.drafting.tree import Node

__all__ = ["Plan", "plan_step"]


Wanted = tuple[Session, list[Node]]


@dataclass
class Plan:
    """Work of one forward, and the sessions that found no memory even for their committed tokens."""

    works: list[Work] = field(default_factory=list)
    over_capacity: list[Session] = field(default_factory=list)
    sessions: set[Session] = field(default_factory=set)  # that have work in it
    num_tokens: int = 0

    def add(self, work: Work) -> None:
        self.works.append(work)
        self.sessions.add(work.session)
        self.num_tokens += work.num_tokens


def plan_step(sessions: Iterable[Session], limits: SessionLimits, memory: TreeMemory, max_tokens: int) -> Plan:
    """Trees that a verifier waits for come first, then roots and prompts, then growth ahead of the verifier.

    Feeding is sure of half the budget, so that waiting trees cannot starve it; the shortest piece goes first.
    """
    plan = Plan()
    waiting: list[Wanted] = []
    ahead: list[Wanted] = []
    feeds: list[Session] = []
    for session in sessions:
        if session.needs_feed(limits):
            feeds.append(session)
        elif nodes := session.wants(limits):
            (ahead if session.sent else waiting).append((session, nodes))
    pending = sum(_pending(s) for s in feeds)
    _add_levels(plan, waiting, limits, memory, max_tokens - min(pending, max_tokens // 2))
    for session in sorted(feeds, key=_pending):
        _add_feed(plan, session, memory, max_tokens - plan.num_tokens)
    _add_levels(plan, ahead, limits, memory, max_tokens - plan.num_tokens)
    return plan


def _pending(session: Session) -> int:
    return session.base_len - session.table.num_computed


def _add_feed(plan: Plan, session: Session, memory: TreeMemory, room: int) -> None:
    if room <= 0:
        return
    if not memory.reserve_context(session, session.base_len, plan.sessions):
        plan.over_capacity.append(session)
        return
    plan.add(Feed(session, min(room, _pending(session))))


def _add_levels(plan: Plan, wanted: Sequence[Wanted], limits: SessionLimits, memory: TreeMemory, room: int) -> None:
    """The `room` most probable nodes over all sessions."""
    survivals = (
        (node.log_survival - session.tree.root.log_survival, i)
        for i, (session, nodes) in enumerate(wanted)
        for node in nodes
    )
    ranked = sorted(survivals, reverse=True)
    counts = Counter(i for _, i in ranked[: max(room, 0)])
    for i, (session, _) in enumerate(wanted):
        nodes = session.wants(limits)[: counts[i]]  # asked again: making room may have pruned this very tree
        if not nodes:
            continue
        slots = memory.take_scratch(session, len(nodes), plan.sessions)
        if slots is None:
            session.starved = True
        else:
            plan.add(Expand(session, nodes, slots))
