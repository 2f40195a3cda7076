"""A verifier in numbers only: drives the budget controller against a machine and a drafter that are known exactly."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from workers.core.proposal import Proposal, TreeBudget
from workers.core.token_tree import ROOT, TokenTree
from workers.scheduling.controller import BudgetController
from workers.scheduling.step_cost import CostSample, StepLoad

__all__ = ["LIMITS", "Machine", "Simulation", "Totals", "chain_of", "profile_of"]

LIMITS = TreeBudget(max_depth=5, max_width=4, max_nodes=16)
ROOM = 512


@dataclass
class Machine:
    """True cost of a step, without and with drafters at work; `noise(rng)` is a factor."""

    fixed_ms: float = 20.0
    row_ms: float = 1.0
    free_rows: int = 0  # rows that cost nothing, as on a GPU that waits for its memory
    drafting_ms: float = 0.0
    noise: Callable[[random.Random], float] = lambda rng: 1.0

    def ms(self, load: StepLoad, rng: random.Random) -> float:
        busy = max(0, load.rows - self.free_rows)
        return (self.fixed_ms + self.row_ms * busy + self.drafting_ms * load.drafting) * self.noise(rng)


def chain_of(budget: TreeBudget) -> TokenTree:
    return TokenTree.chain(range(min(budget.max_depth, budget.max_nodes)))


@dataclass
class Totals:
    tokens: float = 0.0  # expected: what was sampled only teaches the controller
    ms: float = 0.0
    drafted: int = 0
    asked: int = 0  # proposals asked for

    @property
    def rate(self) -> float:
        return self.tokens / self.ms


@dataclass
class Simulation:
    """`acceptance`: true probability that a first child is accepted if its parent is; later siblings share the rest."""

    machine: Machine
    acceptance: float
    mode: str = "auto"  # off, on, auto
    tree: Callable[[TreeBudget], TokenTree] = chain_of
    controller: BudgetController = field(default_factory=BudgetController)
    seed: int = 0
    rng: random.Random = field(init=False)
    keys: list[int] = field(default_factory=list)
    opened: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def run(self, steps: int, requests: int) -> Totals:
        """So many steps with so many requests (added or ended as needed)."""
        while len(self.keys) > requests:
            self.controller.close(self.keys.pop(0))
        while len(self.keys) < requests:
            self.opened += 1
            self.keys.append(self.opened)
            if self.mode != "off":
                self.controller.open(self.opened, forced=self.mode == "on", kind="coupled")
        totals = Totals()
        for _ in range(steps):
            self._step(totals)
        return totals

    def _step(self, totals: Totals) -> None:
        controller = self.controller
        plain = StepLoad(len(self.keys), len(self.keys), 0)
        wanted = {key: controller.hint(key, LIMITS) for key in self.keys if controller.active(key)}
        verified: dict[int, Proposal] = {}
        if wanted:
            proposals = {key: Proposal(10, self.tree(budget)) for key, budget in wanted.items()}
            choice = controller.choose(proposals, wanted, plain, ROOM)
            nodes = zip(choice.keys, choice.decision.nodes, strict=True)
            verified = {key: proposals[key].select(chosen) for key, chosen in nodes if chosen}
        drafted = sum(len(p.tree) for p in verified.values())
        load = StepLoad(len(self.keys) + drafted, len(self.keys), 0, drafting=bool(wanted))
        ms = self.machine.ms(load, self.rng)
        for key in self.keys:
            accepted = self._accepted(verified[key].tree) if key in verified else []
            totals.tokens += 1.0 + (self._expected(verified[key].tree) if key in verified else 0.0)
            if key in verified:
                controller.learn(key, verified[key], accepted, len(accepted) + 1)
        controller.record_step(load, ms)
        controller.end_step(self.keys, plain)
        totals.ms += ms
        totals.drafted += drafted
        totals.asked += len(wanted)

    def _expected(self, tree: TokenTree) -> float:
        """Tokens that a tree adds on average."""
        survivals: list[float] = []
        for node, parent in enumerate(tree.parent_indices):
            rank = tree.children[parent].index(node)
            above = 1.0 if parent == ROOT else survivals[parent]
            survivals.append(above * self.acceptance * (1.0 - self.acceptance) ** rank)
        return sum(survivals)

    def _accepted(self, tree: TokenTree) -> list[int]:
        path: list[int] = []
        node = ROOT
        while children := tree.children.get(node, ()):
            weights = [self.acceptance * (1.0 - self.acceptance) ** rank for rank in range(len(children))]
            node = self.rng.choices([*children, ROOT], [*weights, 1.0 - sum(weights)])[0]
            if node == ROOT:
                break
            path.append(node)
        return path


def profile_of(machine: Machine) -> list[CostSample]:
    """What a start-up profile of that machine would have measured."""
    sizes = ((1, 0), (1, 4), (1, 16), (8, 0), (4, 8), (16, 8), (32, 0))
    loads = [StepLoad(requests * (1 + nodes), requests, 0) for requests, nodes in sizes]
    return [CostSample(load, machine.ms(load, random.Random(0))) for load in loads]
