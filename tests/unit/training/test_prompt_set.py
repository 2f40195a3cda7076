"""The prompt set: distinct, repeatable, mixed as promised, and apart from the prompts that evaluations use."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from workers.training.prompt_forms import KINDS
from workers.training.prompt_passages import THEMES
from workers.training.prompt_set import Prompt, draw_prompts, write_prompts
from workers.training.prompt_words import WORDS

COUNT = 20_000
EVALUATION = Path(__file__).parents[3] / "benchmarks" / "prompts"
RUN_OF_WORDS = 8


@pytest.fixture(scope="module")
def prompts() -> list[Prompt]:
    return draw_prompts(COUNT, seed=7)


def evaluation_prompts(name: str) -> list[str]:
    return [json.loads(line)["prompt"] for line in (EVALUATION / name).read_text(encoding="utf-8").splitlines()]


def runs_of_words(text: str) -> set[tuple[str, ...]]:
    words = text.lower().split()
    return {tuple(words[start : start + RUN_OF_WORDS]) for start in range(len(words) - RUN_OF_WORDS + 1)}


def test_twenty_thousand_are_distinct(prompts: list[Prompt]) -> None:
    assert len({prompt.text for prompt in prompts}) == len(prompts) == COUNT


@pytest.mark.parametrize("count", [0, 1, 500])
def test_any_count_is_kept(count: int) -> None:
    assert len(write_prompts(count, seed=3)) == count


def test_the_seed_decides(prompts: list[Prompt]) -> None:
    texts = [prompt.text for prompt in prompts]
    assert write_prompts(1_000, seed=7) == texts[:1_000]
    assert write_prompts(1_000, seed=8) != texts[:1_000]


def test_each_kind_has_its_share(prompts: list[Prompt]) -> None:
    drawn = Counter(prompt.kind for prompt in prompts)
    assert sum(kind.share for kind in KINDS.values()) == pytest.approx(1)
    assert {name: drawn[name] / COUNT for name in drawn} == pytest.approx(
        {name: kind.share for name, kind in KINDS.items()}, abs=0.01
    )


def test_prompts_are_complete_and_tidy(prompts: list[Prompt]) -> None:
    for _, text in prompts:
        assert text == text.strip()
        assert "{" not in text
        assert "}" not in text
        assert "  " not in text


def test_lengths_vary(prompts: list[Prompt]) -> None:
    lengths = sorted(len(prompt.text.split()) for prompt in prompts)
    assert lengths[len(lengths) // 20] <= 6
    assert lengths[-len(lengths) // 20] >= 25


def test_no_word_or_theme_is_listed_twice() -> None:
    for name in set(WORDS) - {"language"}:  # Python is listed more often on purpose
        assert len(set(WORDS[name])) == len(WORDS[name]), name
    assert len(set(THEMES)) == len(THEMES)


def test_more_prompts_than_the_words_give_are_refused() -> None:
    few = KINDS["explain"]._replace(share=1, forms=("What is {month}?",), wishes=())
    with pytest.raises(ValueError, match="ask for fewer"):
        draw_prompts(10_000, seed=1, kinds={"explain": few})


@pytest.mark.parametrize(("name", "count"), [("chat.jsonl", 48), ("edit.jsonl", 24)])
def test_evaluation_prompts_are_held_out(name: str, count: int, prompts: list[Prompt]) -> None:
    held_out = evaluation_prompts(name)
    assert len(set(held_out)) == len(held_out) == count
    assert not {text.casefold() for text in held_out} & {prompt.text.casefold() for prompt in prompts}
    seen = set().union(*(runs_of_words(prompt.text) for prompt in prompts))
    for text in held_out:
        assert not runs_of_words(text) & seen, text


def test_edit_passages_are_of_the_promised_length() -> None:
    for prompt in evaluation_prompts("edit.jsonl"):
        _, passage = prompt.split("\n\n")
        assert 80 <= len(passage.split()) <= 150


def test_kinds_are_shuffled(prompts: list[Prompt]) -> None:
    changes = sum(one.kind != other.kind for one, other in pairwise(prompts))
    assert changes > COUNT / 2
