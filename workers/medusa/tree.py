"""Which nodes a tree of Medusa guesses has.

A node is the path of ranks that leads to it: (0,) is the best token of the first head, (0, 1) the second best token of
the second head below it. Heads guess independently, so a node survives with the product of the accuracies along its
path; adding the best node again and again gives the tree with the highest expected acceptance for every number of
nodes (Cai et al. 2024, section 2.3.3). So a smaller tree is always the beginning of a larger one.
"""

import heapq
from collections.abc import Sequence
from functools import lru_cache

from workers.core.proposal import TreeBudget

__all__ = ["Choice", "check_tree", "choose_tree", "tree_within", "usual_accuracies"]

Choice = tuple[int, ...]


def choose_tree(accuracies: Sequence[Sequence[float]], max_nodes: int) -> tuple[Choice, ...]:
    """The best `max_nodes` nodes, best first; `accuracies[head][rank]`: how often that token is the right one."""
    falling = [_falling(ranks) for ranks in accuracies]
    heap: list[tuple[float, int, Choice]] = []

    def offer(parent: Choice, survival: float, rank: int) -> None:
        depth = len(parent)
        if depth < len(falling) and rank < len(falling[depth]) and falling[depth][rank] > 0.0:
            heapq.heappush(heap, (-survival * falling[depth][rank], depth, (*parent, rank)))

    offer((), 1.0, 0)
    chosen: list[Choice] = []
    survivals: dict[Choice, float] = {(): 1.0}
    while heap and len(chosen) < max_nodes:
        survival, _, choice = heapq.heappop(heap)
        chosen.append(choice)
        survivals[choice] = -survival
        offer(choice, -survival, 0)
        offer(choice[:-1], survivals[choice[:-1]], choice[-1] + 1)
    return tuple(chosen)


def _falling(ranks: Sequence[float]) -> list[float]:
    """A later rank is never better than an earlier one, or a node could come before its elder sibling."""
    falling: list[float] = []
    for accuracy in ranks:
        falling.append(min(accuracy, falling[-1]) if falling else accuracy)
    return falling


def usual_accuracies(num_heads: int, ranks: int = 8) -> list[list[float]]:
    """For heads that do not say how good they are: typical ones, halving from rank to rank and falling with depth."""
    return [[0.5 * 0.75**head * 0.4**rank for rank in range(ranks)] for head in range(num_heads)]


def check_tree(choices: Sequence[Choice]) -> None:
    """Raise `ValueError` unless parents and elder siblings stand before every node."""
    seen: set[Choice] = {()}
    for choice in choices:
        if not choice or choice in seen or choice[-1] < 0:
            raise ValueError(f"{list(choice)} is no node, or stands there twice")
        if choice[:-1] not in seen or (choice[-1] > 0 and (*choice[:-1], choice[-1] - 1) not in seen):
            raise ValueError(f"{list(choice)} stands before its parent or an elder sibling")
        seen.add(choice)


@lru_cache(maxsize=256)
def tree_within(choices: tuple[Choice, ...], budget: TreeBudget) -> tuple[Choice, ...]:
    """The part of a tree that fits into a budget."""
    fitting = (c for c in choices if len(c) <= budget.max_depth and max(c) < budget.max_width)
    return tuple(c for c, _ in zip(fitting, range(budget.max_nodes), strict=False))
