"""The heads as they learn: decayed cross-entropy, one term for each head (Cai et al. 2024, section 2.2).

A row is a hidden state and the answer token that was chosen from it; head k (from 1) learns, from row i, what follows
in row i + k: the token there, or the target's distribution, which is its LM head over the state of that row. So the
teacher costs one product.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear

from workers.medusa.heads import MedusaHeads
from workers.training.answers import Answer, Rows
from workers.training.medusa.config import HeadsSettings

__all__ = ["RANKS", "HeadsLoss", "MedusaStudent", "accuracies", "collate_rows"]

UNKNOWN = -100  # label of tokens that heads cannot propose
RANKS = 10  # looked at when accuracies are measured


class HeadsLoss(nn.Module):
    """Compares heads with the target on rows; holds the target's LM head [v, hidden_size]."""

    def __init__(
        self, settings: HeadsSettings, target_rows: torch.Tensor, tokens: torch.Tensor, vocab_size: int
    ) -> None:
        super().__init__()
        self._decay = settings.decay
        self._share = settings.distribution_share
        labels = torch.full((vocab_size,), UNKNOWN)
        labels[tokens] = torch.arange(len(tokens))
        self.labels: torch.Tensor  # [vocab], place in the reduced vocabulary
        self.rows: torch.Tensor
        self.register_buffer("labels", labels, persistent=False)
        self.register_buffer("rows", target_rows, persistent=False)

    def teacher(self, hidden: torch.Tensor) -> torch.Tensor:
        """The target's log probabilities within the vocabulary of the heads, [n, v]."""
        with torch.no_grad():
            return linear(hidden, self.rows).log_softmax(-1)

    def forward(
        self, heads: MedusaHeads, hidden: torch.Tensor, teacher: torch.Tensor, tokens: torch.Tensor, last: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss, and the rank of the right token [heads, n] (RANKS = not among the best, -1 = no token there).

        `hidden` [n, hidden_size]; `teacher` [n, v] log probabilities; `tokens` [n]; `last` [n]: last row of the answer.
        """
        loss = hidden.new_zeros(())
        ranks = torch.full((heads.config.num_heads, len(hidden)), -1, device=hidden.device)
        here = torch.arange(len(hidden), device=hidden.device)
        labels = self.labels[tokens]
        for head in range(heads.config.num_heads):
            rows = here[here + head + 1 <= last]
            if not len(rows):
                continue
            ahead = rows + head + 1
            logits = heads.logits(head, hidden[rows])  # [rows, v]
            loss = loss + self._decay ** (head + 1) * self._compare(logits, teacher[ahead], labels[ahead])
            ranks[head, rows] = _ranks(logits.detach(), labels[ahead])
        return loss, ranks

    def _compare(self, logits: torch.Tensor, teacher: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        known = bool((labels != UNKNOWN).any())
        if self._share == 0.0 and not known:
            return logits.sum() * 0.0  # nothing to learn, and still a gradient
        loss = logits.new_zeros(())
        if self._share > 0.0:
            loss = loss - self._share * (teacher.exp() * logits.log_softmax(-1)).sum(-1).mean()
        if self._share < 1.0 and known:
            loss = loss + (1.0 - self._share) * cross_entropy(logits, labels, ignore_index=UNKNOWN)
        return loss


def _ranks(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    best = logits.topk(min(RANKS, logits.shape[-1])).indices
    hits = best == labels[:, None]
    return torch.where(hits.any(1), hits.int().argmax(1), RANKS)


class MedusaStudent(nn.Module):
    """Heads over stored states; the target itself is not needed."""

    def __init__(self, heads: MedusaHeads, loss: HeadsLoss) -> None:
        super().__init__()
        self.heads = heads
        self.loss = loss
        if heads.config.original_lm_head:
            heads.head(0).requires_grad_(False)

    def forward(self, hidden: torch.Tensor, tokens: torch.Tensor, last: torch.Tensor) -> dict[str, torch.Tensor]:
        """Loss and, for each head, how often the right token is its best, and among its best four."""
        hidden = hidden.to(self.loss.rows.dtype)
        loss, ranks = self.loss(self.heads, hidden, self.loss.teacher(hidden), tokens, last)
        return {"loss": loss, **accuracies(ranks)}

    def ranks(self, batch: dict[str, Any]) -> torch.Tensor:
        """Ranks of the right tokens; [heads, n]."""
        device = self.loss.rows.device
        hidden, tokens, last = (batch[name].to(device) for name in ("hidden", "tokens", "last"))
        hidden = hidden.to(self.loss.rows.dtype)
        ranks: torch.Tensor = self.loss(self.heads, hidden, self.loss.teacher(hidden), tokens, last)[1]
        return ranks


def accuracies(ranks: torch.Tensor) -> dict[str, torch.Tensor]:
    """`head1_top1`, `head1_top4`, … of ranks [heads, n]."""
    found: dict[str, torch.Tensor] = {}
    for head, row in enumerate(ranks, 1):
        known = row[row >= 0]
        for top in (1, 4):
            found[f"head{head}_top{top}"] = (known < top).float().mean() if len(known) else known.new_zeros(()).float()
    return found


def collate_rows(pairs: list[tuple[Answer, Rows]]) -> dict[str, Any]:
    """Batch for `MedusaStudent.forward`: the rows of all answers, one after another."""
    hidden, tokens, last, start = [], [], [], 0
    for answer, rows in pairs:
        hidden.append(torch.from_numpy(rows.copy()))
        tokens.append(torch.tensor(answer.answer_token_ids[: len(rows)]))
        last.append(torch.full((len(rows),), start + len(rows) - 1))
        start += len(rows)
    return {"hidden": torch.cat(hidden), "tokens": torch.cat(tokens), "last": torch.cat(last)}
