"""The token tree: draft tokens below the last committed token.

    root ─┬─ the ─┬─ cat ── sat          token_ids      = (the, a, cat, dog, sat)
          │       └─ dog                 parent_indices = ( -1, -1,  0,   0,   2)
          └─ a

The root itself (the last committed token) is not in the tree; index -1 stands
for it. Parents stand before their children, siblings differ in their token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from workers.core.errors import ProtocolViolationError

__all__ = ["ROOT", "TokenTree"]

ROOT = -1


@dataclass(frozen=True)
class TokenTree:
    """Draft tokens in topological order. Use `checked` for anything from outside."""

    token_ids: tuple[int, ...]
    parent_indices: tuple[int, ...]

    @staticmethod
    def empty() -> "TokenTree":
        return TokenTree((), ())

    @staticmethod
    def chain(token_ids: Sequence[int]) -> "TokenTree":
        """A tree without branches."""
        return TokenTree(tuple(token_ids), tuple(range(-1, len(token_ids) - 1)))

    @staticmethod
    def checked(
        token_ids: Sequence[int], parent_indices: Sequence[int], *, vocab_size: int, max_nodes: int
    ) -> "TokenTree":
        """Build a tree from untrusted input; raises `ProtocolViolationError` naming the first broken rule."""
        if len(token_ids) != len(parent_indices):
            raise ProtocolViolationError(f"{len(token_ids)} tokens but {len(parent_indices)} parents")
        if len(token_ids) > max_nodes:
            raise ProtocolViolationError(f"{len(token_ids)} nodes, the budget is {max_nodes}")
        seen: set[tuple[int, int]] = set()
        for node, (token, parent) in enumerate(zip(token_ids, parent_indices, strict=True)):
            if not 0 <= token < vocab_size:
                raise ProtocolViolationError(
                    f"node {node}: token {token} is not below the vocabulary size {vocab_size}"
                )
            if not ROOT <= parent < node:
                raise ProtocolViolationError(f"node {node}: parent {parent} does not stand before it")
            if (parent, token) in seen:
                raise ProtocolViolationError(f"node {node}: a sibling already has token {token}")
            seen.add((parent, token))
        return TokenTree(tuple(token_ids), tuple(parent_indices))

    def __len__(self) -> int:
        return len(self.token_ids)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Depth of every node; children of the root have depth 1."""
        depths: list[int] = []
        for parent in self.parent_indices:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return tuple(depths)

    @property
    def max_depth(self) -> int:
        return max(self.depths, default=0)

    @cached_property
    def children(self) -> dict[int, tuple[int, ...]]:
        """Node (or ROOT) to its children, in sibling order; leaves are absent."""
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parent_indices):
            children.setdefault(parent, []).append(node)
        return {parent: tuple(nodes) for parent, nodes in children.items()}

    def child_with_token(self, node: int, token: int) -> int | None:
        """The child of `node` (or ROOT) that carries `token`."""
        return next((c for c in self.children.get(node, ()) if self.token_ids[c] == token), None)

    def path(self, node: int) -> tuple[int, ...]:
        """Nodes from a child of the root down to `node`, inclusive; () for ROOT."""
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self.parent_indices[node]
        return tuple(reversed(path))

    def prefix(self, max_nodes: int, max_depth: int) -> "TokenTree":
        """The first `max_nodes` nodes that are no deeper than `max_depth` (always a tree again)."""
        keep = [n for n, depth in enumerate(self.depths) if depth <= max_depth][:max_nodes]
        return self.select(keep)

    def select(self, nodes: Sequence[int]) -> "TokenTree":
        """The tree of `nodes` (ascending, closed under parents) with renumbered parents."""
        if len(nodes) == len(self):
            return self
        index = {ROOT: ROOT} | {old: new for new, old in enumerate(nodes)}
        return TokenTree(tuple(self.token_ids[n] for n in nodes), tuple(index[self.parent_indices[n]] for n in nodes))

    def below(self, node: int) -> tuple["TokenTree", tuple[int, ...]]:
        """Re-root at `node`: the subtree below it, and the old index of each of its nodes."""
        inside = {node}
        kept: list[int] = []
        for n, parent in enumerate(self.parent_indices):
            if parent in inside:
                inside.add(n)
                kept.append(n)
        index = {node: ROOT} | {old: new for new, old in enumerate(kept)}
        tree = TokenTree(tuple(self.token_ids[n] for n in kept), tuple(index[self.parent_indices[n]] for n in kept))
        return tree, tuple(kept)
