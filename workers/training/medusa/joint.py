"""Heads and target as they learn together: Medusa-2 (Cai et al. 2024, sections 2.2 and 2.3.2).

    loss = L_target + heads_weight * sum of decay^k L_k

L_target keeps the target what it was: the divergence of its present distribution from the one that it had (its old LM
head over the stored states), the self-distillation term; or cross-entropy on its own answers; or a mixture. For the
first steps the target is frozen and only the heads learn, so that their first errors do not reach it.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear
from transformers import PreTrainedModel

from workers.medusa.heads import MedusaHeads
from workers.training.answers import Answer, Rows
from workers.training.draft.student import collate_answers
from workers.training.medusa.config import Medusa2TrainingConfig
from workers.training.medusa.student import HeadsLoss, accuracies

__all__ = ["JointStudent", "collate_joint"]


class JointStudent(nn.Module):
    """`backbone`: a causal LM, or peft's wrapper of one. Its embeddings and LM head stay: the heads share them."""

    def __init__(
        self, backbone: PreTrainedModel, heads: MedusaHeads, loss: HeadsLoss, config: Medusa2TrainingConfig
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.heads = heads
        self.loss = loss
        self.step, self.num_steps = 0, 1  # set from outside
        self._heads_first_steps = config.heads_first_steps
        self._heads_weight = config.heads_weight
        self._distillation = config.self_distillation
        self.lm_rows: torch.Tensor  # [vocab, hidden_size], the target's LM head
        self.register_buffer("lm_rows", backbone.get_output_embeddings().weight.detach(), persistent=False)
        if heads.config.original_lm_head:
            heads.head(0).requires_grad_(False)

    def parameter_groups(self, learning_rate: float, backbone_learning_rate: float) -> list[dict[str, Any]]:
        """Two learning rates."""
        both = ((self.heads, learning_rate), (self.backbone, backbone_learning_rate))
        return [{"params": [p for p in part.parameters() if p.requires_grad], "lr": rate} for part, rate in both]

    def forward(
        self,
        input_ids: torch.Tensor,
        rows: torch.Tensor,
        teacher: torch.Tensor,
        tokens: torch.Tensor,
        last: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        """`input_ids` [b, length] padded right; `rows` [n] into b * length; `teacher` [n, hidden_size]: the states that
        the target had there before; `tokens` [n] chosen from them; `last` [n]: last row of the answer.
        """
        teacher = teacher.to(self.lm_rows.dtype)
        frozen = self.training and self.step < self._heads_first_steps
        with torch.set_grad_enabled(torch.is_grad_enabled() and not frozen):
            states = self._states(input_ids, rows)
        heads_loss, ranks = self.loss(self.heads, states, self.loss.teacher(teacher), tokens, last)
        if frozen:
            return {"loss": self._heads_weight * heads_loss}
        log_probs = linear(states, self.lm_rows).log_softmax(-1)  # [n, vocab]
        entropy = cross_entropy(log_probs, tokens)
        divergence = self._divergence(log_probs, teacher)
        target_loss = self._distillation * divergence + (1.0 - self._distillation) * entropy
        return {
            "loss": target_loss + self._heads_weight * heads_loss,
            "divergence": divergence.detach(),
            "cross_entropy": entropy.detach(),
            **accuracies(ranks),
        }

    def ranks(self, batch: dict[str, Any]) -> torch.Tensor:
        """Ranks of the right tokens, as the heads see them; [heads, n]."""
        batch = {name: values.to(self.lm_rows.device) for name, values in batch.items()}
        states = self._states(batch["input_ids"], batch["rows"])
        teacher = self.loss.teacher(batch["teacher"].to(self.lm_rows.dtype))
        ranks: torch.Tensor = self.loss(self.heads, states, teacher, batch["tokens"], batch["last"])[1]
        return ranks

    def token_losses(self, batch: dict[str, Any]) -> torch.Tensor:
        """The target's cross-entropy on each answer token, [n]."""
        batch = {name: values.to(self.lm_rows.device) for name, values in batch.items()}
        states = self._states(batch["input_ids"], batch["rows"])
        return cross_entropy(linear(states, self.lm_rows), batch["tokens"], reduction="none")

    def _states(self, input_ids: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        decoder = self.backbone.get_decoder()
        states: torch.Tensor = decoder(input_ids=input_ids, use_cache=False).last_hidden_state
        return states.flatten(0, 1)[rows]

    def _divergence(self, log_probs: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            before = linear(teacher, self.lm_rows).log_softmax(-1)
        return (before.exp() * (before - log_probs)).sum(-1).mean()


def collate_joint(pairs: list[tuple[Answer, Rows]], max_length: int) -> dict[str, Any]:
    """Batch for `JointStudent.forward`."""
    tokens: list[int] = []
    last: list[int] = []
    for answer, _ in pairs:
        kept = answer.answer_token_ids[: answer.rows_within(max_length)]
        tokens += kept
        last += [len(last) + len(kept) - 1] * len(kept)
    return {**collate_answers(pairs, max_length), "tokens": torch.tensor(tokens), "last": torch.tensor(last)}
