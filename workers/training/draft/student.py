"""The draft model as it learns: full-distribution cross-entropy against the target, over the draft's vocabulary.

Forward KL of DistillSpec (Zhou et al. 2024, section 3; on the target's own samples) up to a constant. The target's
distributions need no target: its LM head over the stored hidden states gives them. The states themselves can be learnt
beside them (feature regression of EAGLE, Li et al. 2024, section 3.2): as many numbers for each token as a state has.
"""

from typing import Any

import torch
from torch import nn
from torch.nn.functional import linear
from transformers import PreTrainedModel

from workers.training.answers import Answer, Rows

__all__ = ["DraftStudent", "collate_answers"]


class DraftStudent(nn.Module):
    """Embeddings and LM head are the target's own and stay; decoder layers and the final norm are trained.

    `vocabulary` int64 [v]: the tokens that both distributions are compared on.
    """

    def __init__(self, draft: PreTrainedModel, vocabulary: torch.Tensor, state_weight: float = 0.0) -> None:
        super().__init__()
        self._state_weight = state_weight
        self.draft = draft
        draft.requires_grad_(False)
        draft.base_model.layers.requires_grad_(True)
        draft.base_model.norm.requires_grad_(True)
        head = draft.get_output_embeddings().weight[vocabulary].detach().clone()
        self.head: torch.Tensor  # [v, hidden_size]
        self.register_buffer("head", head, persistent=False)

    def forward(self, input_ids: torch.Tensor, rows: torch.Tensor, teacher: torch.Tensor) -> dict[str, torch.Tensor]:
        """`input_ids` [b, length] padded right; `rows` [n] into b * length; `teacher` [n, hidden_size] behind them.

        Besides the loss: how often the draft's best token is the target's (`top1`), and the target's best is among the
        draft's best four (`top4`).
        """
        states = self.draft.base_model(input_ids=input_ids, use_cache=False).last_hidden_state.flatten(0, 1)[rows]
        student = linear(states, self.head)  # [n, v]
        target = linear(teacher.to(self.head.dtype), self.head)
        loss = -(target.softmax(-1) * student.log_softmax(-1)).sum(-1).mean()
        if self._state_weight:
            loss = loss + self._state_weight * _distance(states, teacher)
        best = target.argmax(-1)
        hits = student.topk(4).indices == best[:, None]
        return {"loss": loss, "top1": hits[:, 0].float().mean(), "top4": hits.any(1).float().mean()}


def _distance(states: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Squared distance [n, hidden_size] relative to the teacher's own length, as a mean over the rows."""
    teacher = teacher.to(states.dtype)
    return ((states - teacher).square().sum(-1) / teacher.square().sum(-1).clamp_min(1e-6)).mean()


def collate_answers(pairs: list[tuple[Answer, Rows]], max_length: int) -> dict[str, Any]:
    """Batch for `DraftStudent.forward`: an answer's state i stands at the token before answer token i.

    Of each answer at least one row has to lie within `max_length`.
    """
    sequences, rows, teachers = [], [], []
    for answer, hidden in pairs:
        kept = answer.rows_within(max_length)
        sequences.append([*answer.prompt_token_ids, *answer.answer_token_ids[: kept - 1]])
        teachers.append(torch.tensor(hidden[:kept]))
    length = max(map(len, sequences))
    input_ids = torch.zeros(len(pairs), length, dtype=torch.int64)
    for index, ((answer, _), tokens, teacher) in enumerate(zip(pairs, sequences, teachers, strict=True)):
        input_ids[index, : len(tokens)] = torch.tensor(tokens)
        start = index * length + len(answer.prompt_token_ids) - 1
        rows.append(torch.arange(start, start + len(teacher)))
    return {"input_ids": input_ids, "rows": torch.cat(rows), "teacher": torch.cat(teachers)}
