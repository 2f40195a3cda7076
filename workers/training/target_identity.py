"""Which target answers come from: what can be told apart in any arithmetic, since training may load another dtype."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash
from huggingface_hub import snapshot_download
from transformers import PretrainedConfig

from workers.core.errors import ConfigurationError
from workers.text.tokenizer import Tokenizer
from workers.training.answers import Answer, AnswerReader
from workers.training.data_provenance import read_data_provenance

__all__ = ["TargetIdentity", "check_tokens", "identify", "open_answers"]

_PIECES, _PIECE_BYTES = 64, 1 << 16  # of each file of weights; a file is hashed whole when they cover it
_WEIGHTS = ("*.safetensors", "*.gguf", "*.bin")  # the first kind that there is


@dataclass(frozen=True)
class TargetIdentity:
    """What `outrider train data` writes beside its answers, and training compares."""

    hidden_size: int
    vocab_size: int  # of the model, with what pads it
    num_layers: int
    tokenizer_hash: str
    weights_hash: str | None  # of the files; None where they could not be found

    def differences(self, other: dict[str, Any]) -> list[str]:
        """Names of what is known of both and differs."""
        own = asdict(self)
        return [name for name in own if None not in (own[name], other.get(name)) and own[name] != other[name]]


def identify(ref: str, config: PretrainedConfig, tokenizer: Tokenizer | None = None) -> TargetIdentity:
    """Of a model that was loaded by `ref`; `config` is its configuration before any layers are left out."""
    text = config.get_text_config()
    return TargetIdentity(
        hidden_size=text.hidden_size,
        vocab_size=text.vocab_size,
        num_layers=text.num_hidden_layers,
        tokenizer_hash=(tokenizer or Tokenizer.load(ref)).tokenizer_hash,
        weights_hash=_hash_of_weights(ref),
    )


def open_answers(folders: Sequence[Path], target: TargetIdentity) -> AnswerReader:
    """The answers of `target` in `folders`; raises `ConfigurationError` when a folder has those of another one."""
    for folder in folders:
        known = (read_data_provenance(folder) or {}).get("target")
        if known and (different := target.differences(known)):
            raise ConfigurationError(
                f"{str(folder)!r} holds answers of another target: {', '.join(different)} differ. "
                "Train with the target that wrote them, or let this one write its own (`outrider train data`)"
            )
    reader = AnswerReader(folders, target.hidden_size)
    check_tokens(reader.answers, target.vocab_size)
    return reader


def check_tokens(answers: Sequence[Answer], vocab_size: int) -> None:
    """Raises `ConfigurationError` when answers have tokens that the target does not have."""
    highest = max((max((*one.prompt_token_ids, *one.answer_token_ids), default=0) for one in answers), default=0)
    if highest >= vocab_size:
        raise ConfigurationError(
            f"the answers hold token {highest}, and the target has {vocab_size} tokens: they are of another one"
        )


def _hash_of_weights(ref: str) -> str | None:
    """The same wherever the files lie, and whatever dtype they are loaded in."""
    paths = _weight_files(Path(ref))
    if not paths:
        return None
    digest = xxhash.xxh3_128()
    for path in paths:
        size = path.stat().st_size
        digest.update(f"{size}|".encode())
        with path.open("rb") as file:
            for start in _starts(size):
                file.seek(start)
                digest.update(file.read(_PIECE_BYTES))
    return digest.hexdigest()


def _starts(size: int) -> list[int]:
    """Where pieces begin, evenly from the first byte to the last."""
    if size <= _PIECES * _PIECE_BYTES:
        return list(range(0, size, _PIECE_BYTES))
    return [piece * (size - _PIECE_BYTES) // (_PIECES - 1) for piece in range(_PIECES)]


def _weight_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        try:
            path = Path(snapshot_download(str(path), local_files_only=True, allow_patterns=list(_WEIGHTS)))
        except (OSError, ValueError):
            return []
    kinds = (sorted(path.glob(pattern)) for pattern in _WEIGHTS)
    return next((found for found in kinds if found), [])
