"""docs/configuration.md has every setting, and says of each what it is."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from cluster.config.arguments import OutriderArgs
from cluster.config.loader import load_config
from cluster.config.reference import PAGE, page

ROOT = Path(__file__).parents[3]


def rows() -> dict[str, list[str]]:
    """By path from `args`: allowed, default and meaning."""
    found: dict[str, list[str]] = {}
    places: list[str] = []
    for line in page().splitlines():
        if line.startswith("## "):
            places = re.findall(r"`([^`]+)`", line)
        elif line.startswith("| `"):
            key, *cells = (cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1])
            for place in places:
                path = key.strip("`") if place == "args" else f"{place}.{key.strip('`')}"
                assert path not in found
                found[path] = cells
    return found


def settings(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel], str]]:
    """Path, class and name of every field of a class and those in it."""
    for name, field in model.model_fields.items():
        place = f"{path}.{name}" if path else name
        if place.endswith("config.rpc"):
            continue  # refused in an application: `internal` takes its place
        yield place, model, name
        for kind in (field.annotation, *getattr(field.annotation, "__args__", ())):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from settings(kind, place)


def test_the_page_is_what_the_settings_say() -> None:
    assert (ROOT / PAGE).read_text() == page(), "run: python -m cluster.config.reference"


def test_the_file_of_the_page_is_one(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page(), re.M | re.S)
    (tmp_path / "serve.yaml").write_text(block)
    assert load_config(tmp_path / "serve.yaml").args.model_name == "tiny"


def test_every_setting_has_a_row_and_nothing_else_has() -> None:
    assert set(rows()) == {path for path, _, _ in settings(OutriderArgs)}


def test_every_row_says_what_it_is() -> None:
    assert [path for path, (allowed, _, meaning) in rows().items() if not allowed or not meaning] == []


def test_what_is_needed_has_no_default() -> None:
    required = {path for path, model, name in settings(OutriderArgs) if model.model_fields[name].is_required()}
    assert {path for path, (_, default, _) in rows().items() if not default} == required


@pytest.mark.parametrize(
    ("path", "allowed", "default"),
    [
        ("model_name", "text", ""),
        ("target.config.speculation.max_depth", "whole number ≥ 1, ≤ 64", "`5`"),
        ("target.config.layerskip.min_survival", "number > 0, < 1", "`0.1`"),
        ("target.config.method", "`draft_model`, `layerskip`, `medusa`, `ngram`, `none`", '`"draft_model"`'),
        ("target.config.speculation.default_rule", "`coupled`, `rejection`, `typical`", '`"coupled"`'),
        ("draft.config.model.layers", "list of: whole number ≥ 0, ≤ 10,000", "*null*"),
        ("draft.ray_actor_options.resources", "mapping to: number > 0, ≤ 9,007,199,254,740,992", "`{}`"),
        ("gateway.autoscaling.target_ongoing_requests", "number > 0, ≤ 1,000,000", "*null*"),
        ("gateway.tenancy", "mapping", "as below"),
        ("internal.tls.mutual", "true or false", "`true`"),
    ],
)
def test_rows(path: str, allowed: str, default: str) -> None:
    assert rows()[path][:2] == [allowed, default]
