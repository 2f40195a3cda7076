"""Which nodes are verified: properties of the pure function."""

from dataclasses import replace
from itertools import accumulate

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from workers.core.proposal import Proposal
from workers.core.token_tree import ROOT, TokenTree
from workers.scheduling.allocation import MIN_SURVIVAL, Offer, StepSnapshot, decide
from workers.scheduling.step_cost import ASSUMED_COST, StepCost, StepLoad
from workers.scheduling.survival import RequestFactor, SurvivalModel, conditionals_of, survivals_of

NUM = len(ASSUMED_COST.coefficients)
costs = st.tuples(st.floats(0.5, 100.0), *(st.floats(0.0, 3.0) for _ in range(NUM - 1))).map(StepCost)
descending = st.lists(st.floats(0.0, 1.0), max_size=12).map(lambda s: tuple(sorted(s, reverse=True)))
offers = st.lists(st.builds(Offer, descending, st.sampled_from([False, False, False, True])), min_size=1, max_size=5)


@st.composite
def snapshots(draw: st.DrawFn) -> StepSnapshot:
    given_offers = tuple(draw(offers))
    n = len(given_offers)
    load = StepLoad(draw(st.integers(n, 3 * n)), n, draw(st.integers(0, 5000)), drafting=True)
    return StepSnapshot(load, float(n), draw(costs), draw(st.integers(0, 40)), given_offers)


def goodput(snapshot: StepSnapshot, nodes: tuple[tuple[int, ...], ...]) -> float:
    tokens = snapshot.tokens + sum(o.survivals[n] for o, ns in zip(snapshot.offers, nodes, strict=True) for n in ns)
    return tokens / snapshot.cost.ms(snapshot.load.with_rows(sum(map(len, nodes))))


@given(snapshots())
def test_never_exceeds_the_room_and_forced_comes_first(snapshot: StepSnapshot) -> None:
    decision = decide(snapshot)
    assert decision.num_nodes <= snapshot.max_nodes
    room = snapshot.max_nodes
    for offer, nodes in zip(snapshot.offers, decision.nodes, strict=True):
        assert list(nodes) == sorted(set(nodes))
        assert all(0 <= n < len(offer.survivals) for n in nodes)
        if offer.forced:
            assert nodes == tuple(range(min(len(offer.survivals), room)))
            room -= len(nodes)


@settings(max_examples=100)
@given(snapshots())
def test_no_other_number_of_best_nodes_would_be_better(snapshot: StepSnapshot) -> None:
    assume(not any(o.forced for o in snapshot.offers))
    decision = decide(snapshot)
    likely = (s for o in snapshot.offers for s in o.survivals if s > MIN_SURVIVAL)
    ranked = sorted(likely, reverse=True)[: snapshot.max_nodes]
    for count, gain in enumerate([0.0, *accumulate(ranked)]):
        other = (snapshot.tokens + gain) / snapshot.cost.ms(snapshot.load.with_rows(count))
        assert other <= goodput(snapshot, decision.nodes) * (1 + 1e-9)


@given(snapshots(), st.floats(1.0, 10.0))
def test_dearer_rows_never_give_more_nodes(snapshot: StepSnapshot, factor: float) -> None:
    """What the step costs without trees stays; every row above it costs `factor` times as much."""
    assume(not any(o.forced for o in snapshot.offers))
    coefficients = [*snapshot.cost.coefficients]
    before = snapshot.cost.ms(snapshot.load)
    coefficients[1:6] = [c * factor for c in coefficients[1:6]]
    coefficients[0] += before - StepCost(tuple(coefficients)).ms(snapshot.load)
    dearer = replace(snapshot, cost=StepCost(tuple(coefficients)))
    assert decide(dearer).num_nodes <= decide(snapshot).num_nodes


@given(snapshots(), st.floats(1.0, 5.0))
def test_better_survival_never_gives_fewer_nodes(snapshot: StepSnapshot, factor: float) -> None:
    worse = replace(
        snapshot, offers=tuple(Offer(tuple(s / factor for s in o.survivals), o.forced) for o in snapshot.offers)
    )
    assert decide(worse).num_nodes <= decide(snapshot).num_nodes


@given(snapshots(), st.data())
def test_a_node_that_is_taken_stays_when_its_survival_rises(snapshot: StepSnapshot, data: st.DataObject) -> None:
    decision = decide(snapshot)
    taken = [(i, n) for i, nodes in enumerate(decision.nodes) for n in nodes]
    assume(taken)
    i, node = data.draw(st.sampled_from(taken))
    survivals = [*snapshot.offers[i].survivals]
    survivals[node] = data.draw(st.floats(survivals[node], 1.0))
    changed = [*snapshot.offers]
    changed[i] = replace(changed[i], survivals=tuple(survivals))
    assert node in decide(replace(snapshot, offers=tuple(changed))).nodes[i]


@given(snapshots())
def test_zero_acceptance_gives_zero_nodes(snapshot: StepSnapshot) -> None:
    hopeless = tuple(Offer((0.0,) * len(o.survivals)) for o in snapshot.offers)
    assert decide(replace(snapshot, offers=hopeless)).num_nodes == 0


trees = st.integers(0, 14).flatmap(
    lambda n: st.tuples(*(st.integers(-1, node - 1) for node in range(n))).map(
        lambda parents: TokenTree(tuple(range(len(parents))), parents)
    )
)


@given(st.lists(trees, min_size=1, max_size=4), costs, st.data())
def test_choices_are_closed_under_parents_and_elder_siblings(
    forest: list[TokenTree], cost: StepCost, data: st.DataObject
) -> None:
    """Whatever the hints say, and they may say anything."""
    model, made = SurvivalModel(), []
    for tree in forest:
        hints = tuple(data.draw(st.floats(-9.0, 3.0)) for _ in range(len(tree)))
        shape = conditionals_of(Proposal(5, tree, log_survival=hints))
        made.append(Offer(survivals_of(model, "coupled", shape, data.draw(st.floats(0.1, 2.0)))))
    load = StepLoad(len(forest), len(forest), 0)
    decision = decide(StepSnapshot(load, float(len(forest)), cost, 30, tuple(made)))
    for tree, nodes in zip(forest, decision.nodes, strict=True):
        for node in nodes:
            parent = tree.parent_indices[node]
            assert parent == ROOT or parent in nodes
            assert all(sibling in nodes for sibling in tree.children[parent] if sibling < node)


@given(snapshots())
def test_a_node_never_depends_on_those_that_rank_behind_it(snapshot: StepSnapshot) -> None:
    """What the rule `rejection` needs: descendants and younger siblings must not decide about a node."""
    decision = decide(snapshot)
    for i, offer in enumerate(snapshot.offers):
        for cut in range(len(offer.survivals)):
            shorter = [*snapshot.offers]
            shorter[i] = Offer(offer.survivals[:cut], offer.forced)
            kept = decide(replace(snapshot, offers=tuple(shorter))).nodes[i]
            assert kept == tuple(n for n in decision.nodes[i] if n < cut) or snapshot.max_nodes <= sum(
                len(o.survivals) for o in snapshot.offers
            )


def test_factor_shrinks_towards_one() -> None:
    factor = RequestFactor()
    assert factor.value == 1.0
    for _ in range(100):
        factor.record(0.5, accepted=False)
    assert factor.value < 0.15
