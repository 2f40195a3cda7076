"""Sizes of tensor parallelism that a model allows, as far as its config.json tells."""

import json
from pathlib import Path

import pytest

from workers.core.errors import ConfigurationError
from workers.core.shards import allowed_sizes, check_size, model_sizes, sizes_in_folder


@pytest.mark.parametrize(
    ("sizes", "allowed"),
    [
        ((64, 8, 28672), [1, 2, 4, 8]),
        ((9, 3, 1536), [1, 3]),
        ((12, 6, 192), [1, 2, 3, 6]),
        ((12, None, 50), [1, 2]),
        ((12, 12, None), [1, 2, 3, 4, 6, 12]),
    ],
)
def test_allowed_sizes_divide_everything(sizes: tuple[int, int | None, int | None], allowed: list[int]) -> None:
    assert allowed_sizes(model_sizes(*sizes)) == allowed


def test_what_does_not_divide_is_named_with_what_is_allowed() -> None:
    with pytest.raises(
        ConfigurationError, match=r"tensor_parallel_size 4 .* the 6 KV heads of 'm'; allowed: \[1, 2, 3"
    ):
        check_size(4, model_sizes(12, 6, 192), "m")
    check_size(3, model_sizes(12, 6, 192), "m")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"num_attention_heads": "x"}', '{"num_attention_heads": null}'])
def test_a_file_that_does_not_tell(tmp_path: Path, text: str) -> None:
    assert sizes_in_folder(tmp_path) is None
    (tmp_path / "config.json").write_text(text)
    assert sizes_in_folder(tmp_path) is None


def test_a_file_that_does(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"num_attention_heads": 12, "intermediate_size": 192}))
    assert sizes_in_folder(tmp_path) == {"attention heads": 12, "KV heads": 12, "intermediate size": 192}
