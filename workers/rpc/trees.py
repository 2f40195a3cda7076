"""Token trees, proposals and budgets: wire <-> core."""

from outrider.v1 import common_pb2, draft_pb2

from workers.core.errors import ProtocolViolationError
from workers.core.proposal import DraftDistribution, Proposal, TreeBudget
from workers.core.token_tree import ROOT, TokenTree

__all__ = [
    "budget_from_wire",
    "budget_to_wire",
    "proposal_from_wire",
    "proposal_to_wire",
    "tree_from_wire",
    "tree_to_wire",
]


def budget_to_wire(budget: TreeBudget) -> draft_pb2.Budget:
    return draft_pb2.Budget(max_depth=budget.max_depth, max_width=budget.max_width, max_nodes=budget.max_nodes)


def budget_from_wire(message: draft_pb2.Budget) -> TreeBudget:
    return TreeBudget(message.max_depth, message.max_width, message.max_nodes)


def tree_to_wire(tree: TokenTree) -> common_pb2.TokenTree:
    return common_pb2.TokenTree(token_ids=tree.token_ids, parent_indices=tree.parent_indices)


def tree_from_wire(message: common_pb2.TokenTree, *, vocab_size: int, max_nodes: int) -> TokenTree:
    """Check the tree rules; `ProtocolViolationError` names the first one that is broken."""
    return TokenTree.checked(
        tuple(message.token_ids), tuple(message.parent_indices), vocab_size=vocab_size, max_nodes=max_nodes
    )


def proposal_to_wire(session_id: int, epoch: int, proposal: Proposal) -> draft_pb2.Proposal:
    return draft_pb2.Proposal(
        session_id=session_id,
        epoch=epoch,
        base_len=proposal.base_len,
        tree=tree_to_wire(proposal.tree),
        distributions=[
            draft_pb2.NodeDistribution(
                node_index=node,
                distribution=common_pb2.DraftDistribution(token_ids=d.token_ids, probs=d.probs),
            )
            for node, d in sorted(proposal.distributions.items())
        ],
        log_survival=proposal.hints,
    )


def proposal_from_wire(
    message: draft_pb2.Proposal, *, vocab_size: int, max_nodes: int, with_distributions: bool
) -> Proposal:
    """Check everything that docs/protocol.md asks of a proposal; `ProtocolViolationError` if it is broken.

    `with_distributions` is for the rule `rejection`: every node with children
    needs one. Under the other rules distributions are ignored.
    """
    tree = tree_from_wire(message.tree, vocab_size=vocab_size, max_nodes=max_nodes)
    if not with_distributions:
        return Proposal(message.base_len, tree, log_survival=tuple(message.log_survival))
    distributions: dict[int, DraftDistribution] = {}
    for entry in message.distributions:
        if not ROOT <= entry.node_index < len(tree):
            raise ProtocolViolationError(f"a draft distribution names node {entry.node_index} of {len(tree)}")
        if entry.node_index in distributions:
            raise ProtocolViolationError(f"node {entry.node_index} has two draft distributions")
        distributions[entry.node_index] = DraftDistribution(
            tuple(entry.distribution.token_ids), tuple(entry.distribution.probs)
        )
    proposal = Proposal(message.base_len, tree, distributions, tuple(message.log_survival))
    proposal.check_distributions(vocab_size)
    return proposal
