"""Choosing the most probable tokens, with one rule for ties: the lower token id wins."""

import math

import torch

__all__ = ["best_token", "keep_most_probable", "top_tokens"]

_FIRST_LOOK = 1024  # tokens that are sorted before the whole vocabulary is


def best_token(values: torch.Tensor) -> int:
    """The token with the highest value of [vocab]."""
    if values.device.type == "cpu":
        return int(values.numpy().argmax())  # vectorised; torch's own takes five times as long
    return int(values.argmax())


def top_tokens(values: torch.Tensor, count: int) -> torch.Tensor:
    """The `count` tokens with the highest values of [vocab], best first; fewer when the rest is -inf. int64 [n]."""
    return _resolve_ties(values, values.topk(min(count + 1, values.shape[0])), count)


def keep_most_probable(log_probs: torch.Tensor, *, top_k: int, top_p: float, min_p: float) -> torch.Tensor:
    """Drop (-inf) all but the most probable tokens of a normalised distribution [vocab], and normalise again.

    In this order, each seeing what the one before it left: `min_p` keeps tokens at least that many times as probable
    as the best one (Nguyen et al., "Min-p sampling"); `top_k` (0 = off) keeps exactly k; `top_p` keeps the fewest that
    hold at least that mass, and one at least (Holtzman et al., "The curious case of neural text degeneration", 3.1).
    Each keeps a beginning of the tokens in order of probability, so that only its length is to be found.
    """
    vocab_size = log_probs.shape[0]
    for look in (min(top_k + 1 if top_k else _FIRST_LOOK, vocab_size), vocab_size):
        best = log_probs.topk(look)
        count = _kept(best.values, top_k=top_k, top_p=top_p, min_p=min_p)
        if count < look:
            break
    kept = _resolve_ties(log_probs, best, count)
    filtered = torch.full_like(log_probs, -math.inf)
    filtered[kept] = log_probs[kept].log_softmax(0)
    return filtered


def _kept(best: torch.Tensor, *, top_k: int, top_p: float, min_p: float) -> int:
    """How many of `best` (log probabilities, descending) the filters keep; all of them when they look too short."""
    count = best.shape[0]
    if min_p > 0.0:
        count = int((best >= best[0] + math.log(min_p)).sum())
    if top_k:
        count = min(count, top_k)
    if top_p < 1.0:
        mass = best[:count].double().exp().cumsum(0)
        whole = float(mass[-1]) if top_k or min_p > 0.0 else 1.0
        count = min(int((mass < top_p * whole).sum()) + 1, count)
    return count


def _resolve_ties(values: torch.Tensor, best: torch.return_types.topk, count: int) -> torch.Tensor:
    """The first `count` tokens of `best` = values.topk(...), in order of value and then of token id, without -inf."""
    head = best.values[: count + 1]  # one more shows a tie across the border
    if bool((head[1:] < head[:-1]).all() & (head[min(count, len(head)) - 1] > -math.inf)):
        return best.indices[:count]
    lowest = head[min(count, len(head)) - 1].clamp(min=torch.finfo(values.dtype).min)
    tokens = (values >= lowest).nonzero().squeeze(1)
    return tokens[values[tokens].sort(descending=True, stable=True).indices[:count]]
