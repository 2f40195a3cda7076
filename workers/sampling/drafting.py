"""How a drafter draws the children of a node under `rejection`, and how likely it thinks each of them survives.

Under `coupled` they are simply the best noisy tokens: `workers.drafting.expansion`.

Log probabilities come from `LogitsProcessor`, so that the draft follows the same temperature, filters and penalties as
the target. Survival estimates are conditional on the parent being accepted; the verifier calibrates them online.
"""

from bisect import bisect_right
from itertools import accumulate

import torch

from workers.core.proposal import DraftDistribution
from workers.core.seeds import derive_seed
from workers.sampling.filters import top_tokens
from workers.sampling.noise import uniform

__all__ = ["sample_children"]

# Drafters draw under a seed of their own: never the verifier's numbers.
_DRAFTER = 0xD1B54A32D192ED03
# Estimated probability of acceptance: 1 - weight * (1 - collision probability of the draft), for the first child and
# for later ones. Least squares over 3,000 simulated nodes (2,000 tokens, normal logits of scale 1.5 to 5; the draft's
# differ from the target's by unit normal noise). Mean true acceptance of children 1 to 4, given that they are tried:
# 0.57, 0.19, 0.11, 0.07; estimate against truth by quartile of the first: 0.49/0.42, 0.52/0.55, 0.56/0.61, 0.72/0.71.
_FIRST_WEIGHT = 0.53
_LATER_WEIGHT = 0.95


def sample_children(
    draft_log_probs: torch.Tensor, width: int, seed: int, position: int, node_salt: int, truncate_to: int = 64
) -> tuple[list[int], DraftDistribution, list[float]]:
    """Children under rule `rejection`: `width` draws without replacement, in the order drawn.

    They are drawn from the returned distribution: the `truncate_to` best tokens, renormalised and rounded to float32,
    which is exactly what goes over the wire. `node_salt` (any integer) tells the nodes of one depth apart.

    The survival estimate of a child looks at the distribution and at its elder siblings, never at the drawn token
    itself, so that a tree may be cut by it without losing exactness (see `rejection.py`).
    """
    _check_width(width)
    best = top_tokens(draft_log_probs, truncate_to)
    probs = draft_log_probs[best].softmax(0)
    listed = {t: p for t, p in zip(best.tolist(), probs.tolist(), strict=True) if p > 0.0}
    draft_seed = derive_seed(seed ^ _DRAFTER, node_salt)
    drawn: list[int] = []
    survival: list[float] = []
    left, unclaimed = dict(listed), 1.0
    while left and len(drawn) < width:
        acceptance = _acceptance(left, _LATER_WEIGHT if drawn else _FIRST_WEIGHT)
        survival.append(unclaimed * acceptance)
        unclaimed *= 1.0 - acceptance
        drawn.append(_draw(left, uniform(draft_seed, position, 1 + len(drawn))))
        del left[drawn[-1]]
    return drawn, DraftDistribution(tuple(listed), tuple(listed.values())), survival


def _draw(probs: dict[int, float], uniform_number: float) -> int:
    """A token of an unnormalised distribution, by inversion."""
    tokens = list(probs)
    cumulative = list(accumulate(probs.values()))
    return tokens[min(bisect_right(cumulative, uniform_number * cumulative[-1]), len(tokens) - 1)]


def _acceptance(probs: dict[int, float], weight: float) -> float:
    """Estimated probability that a draw from an unnormalised draft is accepted: 1 when it is certain."""
    collision = sum(p * p for p in probs.values()) / sum(probs.values()) ** 2
    return 1.0 - weight * (1.0 - collision)


def _check_width(width: int) -> None:
    if width < 1:
        raise ValueError(f"width must be at least 1, not {width}")
