"""The tiny model pair: equal bytes for equal arguments, varied output, tunable acceptance."""

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM

from workers.models.tiny import EOS_ID, build_tiny_draft, build_tiny_model

NEW_TOKENS = 64


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("tiny") / "target")


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _logits(folder: Path, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return LlamaForCausalLM.from_pretrained(folder)(ids).logits[0]


def _greedy(folder: Path, prompt: str) -> tuple[torch.Tensor, int]:
    ids = AutoTokenizer.from_pretrained(folder)(prompt, return_tensors="pt").input_ids
    model = LlamaForCausalLM.from_pretrained(folder)
    output = model.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None)
    return output, ids.shape[1]


def test_equal_arguments_give_equal_bytes(target: Path, tmp_path: Path) -> None:
    assert _contents(build_tiny_model(tmp_path / "again")) == _contents(target)
    other = _contents(build_tiny_model(tmp_path / "other", seed=1))
    assert other["model.safetensors"] != (target / "model.safetensors").read_bytes()
    assert other["tokenizer.json"] == (target / "tokenizer.json").read_bytes()


def test_output_is_varied_and_depends_on_the_prompt(target: Path) -> None:
    outputs = []
    for prompt in ("The river rises", "What is the capital of France?", "def add"):
        tokens, start = _greedy(target, prompt)
        probs = _logits(target, tokens)[start - 1 : -1].softmax(-1)
        output = tokens[0, start:]
        assert output.unique().numel() > NEW_TOKENS // 3
        assert EOS_ID not in output.tolist()
        assert 0.1 < probs.max(-1).values.mean() < 0.7
        outputs.append(tuple(output.tolist()))
    assert len(set(outputs)) == 3


def test_noise_sets_the_acceptance(target: Path, tmp_path: Path) -> None:
    tokens, start = _greedy(target, "The river rises")
    wanted = tokens[0, start:]

    def acceptance(noise: float, num_layers: int | None = None) -> float:
        folder = build_tiny_draft(tmp_path / f"{noise}-{num_layers}", target, noise=noise, num_layers=num_layers)
        guesses = _logits(folder, tokens)[start - 1 : -1].argmax(-1)
        return float((guesses == wanted).float().mean())

    assert acceptance(0.0) == 1.0
    assert 0.4 < acceptance(0.05) < 0.9
    assert acceptance(0.5) < 0.3
    assert acceptance(0.0, num_layers=2) < 1.0


def test_every_byte_can_be_encoded_and_the_chat_template_applies(target: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(target)
    text = "naïve 東京 🛰️ \x00\x7f tab\t"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tokenize=False, add_generation_prompt=True
    )
    assert chat == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_impossible_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="vocab_size must be between 259 and"):
        build_tiny_model(tmp_path, vocab_size=100_000)
