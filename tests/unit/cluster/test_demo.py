"""The demonstration's table, configuration and source of the model."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from outrider import FinishReason, Generation, GenerationStats, Output
from rich.console import Console

from cluster.config.loader import load_config
from cluster.demo.compare import PROMPTS, Comparison, comparison_table, show_difference
from cluster.demo.model import NEEDED_FILES, fetch_demo_model, is_complete
from cluster.demo.run import demo, resident_bytes
from cluster.demo.settings import demo_document, write_document


def generation(*token_ids: int, steps: int) -> Generation:
    stats = GenerationStats(
        output_tokens=len(token_ids), verify_steps=steps, time_to_first_token_ms=100.0, total_ms=1100.0
    )
    output = Output(0, "text", token_ids, (), FinishReason.LENGTH, "", stats)
    return Generation("id", "m", 1, (output,), 1)


SAME = Comparison(PROMPTS[0], generation(1, 2, 3, 4, steps=4), generation(1, 2, 3, 4, steps=2))
OTHER = replace(SAME, speculative=generation(1, 2, 9, 4, steps=2))


def rendered(thing: object) -> str:
    console = Console(file=io.StringIO(), width=100)
    console.print(thing)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_slower_means_fewer_tokens_per_second() -> None:
    assert not SAME.slower
    assert replace(SAME, speculative=generation(1, 2, 3, steps=2)).slower
    assert not replace(SAME, speculative=generation(1, 2, 3, 4, 5, steps=2)).slower


def test_equal_means_token_for_token() -> None:
    assert SAME.equal
    assert not OTHER.equal


def test_table_shows_steps_acceptance_and_equality() -> None:
    text = rendered(comparison_table([SAME, OTHER]))
    assert "2.00" in text  # acceptance length of 4 tokens in 2 steps
    assert "3.0" in text  # tokens after the first in one second
    assert "yes" in text
    assert "NO" in text


def test_difference_is_located() -> None:
    console = Console(file=io.StringIO(), width=100)
    show_difference(console, OTHER)
    assert "token 2" in console.file.getvalue()  # type: ignore[attr-defined]


def test_two_greedy_prompts_and_a_sampled_one() -> None:
    assert [one.temperature for one in PROMPTS] == [0.0, 0.0, 0.8]
    assert all(64 <= one.max_tokens <= 96 for one in PROMPTS)


@pytest.mark.parametrize("is_checkpoint", [True, False])
def test_configuration_is_one_that_serve_takes(tmp_path: Path, is_checkpoint: bool) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    if is_checkpoint:
        (draft / "draft.json").touch()
    document = demo_document(tmp_path / "target", draft, grpc_port=9001, http_port=8001)
    args = load_config(write_document(tmp_path / "demo.yaml", document)).args
    assert args.draft is not None
    assert args.draft.config.model.model == str(draft)
    assert args.draft.config.model.base == (str(tmp_path / "target") if is_checkpoint else None)
    assert yaml.safe_load((tmp_path / "demo.yaml").read_text()) == document


def test_a_draft_that_is_not_there_is_named(tmp_path: Path) -> None:
    for name in NEEDED_FILES:
        (tmp_path / name).touch()
    console = Console(file=io.StringIO(), width=200)
    assert demo(console, tmp_path, tmp_path / "none") == 1
    assert "there is no draft in" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_model_that_is_there_is_not_fetched(tmp_path: Path) -> None:
    for name in NEEDED_FILES:
        (tmp_path / name).touch()
    lines: list[str] = []
    assert fetch_demo_model(tmp_path, lines.append) == tmp_path
    assert len(lines) == 1
    assert "already" in lines[0]


@pytest.mark.parametrize("missing", NEEDED_FILES)
def test_a_partial_folder_is_not_a_model(tmp_path: Path, missing: str) -> None:
    for name in NEEDED_FILES:
        if name != missing:
            (tmp_path / name).touch()
    assert not is_complete(tmp_path)


def test_memory_is_measured() -> None:
    assert resident_bytes() > 2**24
