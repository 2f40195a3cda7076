"""The project's own prompt set: many different chat prompts, made from a seed by filling forms with words.

Self-distillation needs prompts, not answers; the model that is served writes the answers itself. Two calls with the
same seed give the same list, and a longer list begins with the shorter one.
"""

import random
import re
from collections.abc import Mapping
from typing import NamedTuple

from workers.training.prompt_forms import KINDS, OPENERS, Kind
from workers.training.prompt_passages import compose_passage, compose_records, spoil
from workers.training.prompt_words import WORDS

__all__ = ["Prompt", "draw_prompts", "write_prompts"]

_SLOT = re.compile(r"\{(?:(\d+)-(\d+)|([a-z_]+))\}")
_WISH_SHARE = 0.4
_OPENER_SHARE = 0.1
_CASUAL_SHARE = 0.12
_MAX_REPEATS_IN_A_ROW = 10_000


class Prompt(NamedTuple):
    """One user message and the kind of request it makes."""

    kind: str
    text: str


def write_prompts(count: int, seed: int) -> list[str]:
    """`count` distinct user prompts, the same for the same seed."""
    return [prompt.text for prompt in draw_prompts(count, seed)]


def draw_prompts(count: int, seed: int, kinds: Mapping[str, Kind] = KINDS) -> list[Prompt]:
    """`count` distinct prompts with their kinds, mixed by the kinds' shares; `ValueError` when the words run out."""
    rng = random.Random(seed)
    names, shares = list(kinds), [kind.share for kind in kinds.values()]
    drawn: dict[str, Prompt] = {}
    for _ in range(count):
        name = rng.choices(names, shares)[0]
        text = _new_text(kinds[name], drawn, rng)
        drawn[text] = Prompt(name, text)
    return list(drawn.values())


def _new_text(kind: Kind, drawn: dict[str, Prompt], rng: random.Random) -> str:
    for _ in range(_MAX_REPEATS_IN_A_ROW):
        text = _dress(_fill(rng.choice(kind.forms), rng), kind, rng)
        if text not in drawn:
            return text
    raise ValueError(f"the forms and words give no more than about {len(drawn)} distinct prompts; ask for fewer")


def _fill(form: str, rng: random.Random) -> str:
    """`form` with its slots filled; one word list gives each of its words at most once per prompt."""
    used: dict[str, str] = {}  # word -> the list it came from, in order

    def word(slot: re.Match[str]) -> str:
        low, high, name = slot.groups()
        if name is None:
            return str(rng.randint(int(low), int(high)))
        if name == "passage":
            return _fill(compose_passage(rng), rng)
        if name == "flawed":
            return spoil(_fill(compose_passage(rng), rng), rng)
        if name == "records":
            return _fill(compose_records(rng), rng)
        if name.startswith("same_"):
            return [earlier for earlier, origin in used.items() if origin == name.removeprefix("same_")][-1]
        chosen = rng.choice([candidate for candidate in WORDS[name] if candidate not in used])
        used[chosen] = name
        return chosen

    return _SLOT.sub(word, form)


def _dress(text: str, kind: Kind, rng: random.Random) -> str:
    """`text` as one person would type it: perhaps with a greeting, a wish on top, or in a hurry."""
    text = text[0].upper() + text[1:]
    if kind.wishes and rng.random() < _WISH_SHARE:
        text = f"{text} {_fill(rng.choice(kind.wishes), rng)}"
    if rng.random() < _OPENER_SHARE:
        return f"{rng.choice(OPENERS)} {text}"
    if "\n" not in text and rng.random() < _CASUAL_SHARE:
        return text[0].lower() + text[1:].rstrip(".?")
    return text
