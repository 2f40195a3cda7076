"""A small language model that the project trains from nothing: its text, its tokenizer, its first weights.

The text is the project's own prompt set (`workers.training.prompt_set`): English of many forms, with much to learn and
little to memorise. `outrider train layerskip` then trains the model in minutes, with or without early exits; see
`examples/train/layerskip.yaml`. Tests of methods that need a real, if small, model use it.
"""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from workers.models.tiny import BOS_ID, EOS_ID, write_tokenizer
from workers.training.layerskip.config import LayerSkipTrainingConfig, Recipe
from workers.training.layerskip.train import train_layerskip
from workers.training.optimizer_config import OptimizerConfig
from workers.training.prompt_set import write_prompts

__all__ = ["EARLY_EXITS", "PLAIN", "train_small_model", "write_small_model"]

PLAIN = Recipe(layer_dropout=0.0, early_exit_scale=0.0)
"""An ordinary language model: a loss behind the last layer only."""

EARLY_EXITS = Recipe(dropout_grows=True, early_exit_scale=1.0, rotation=2)
"""The recipe for training from scratch."""


def write_small_model(
    folder: Path,
    *,
    num_texts: int = 10_000,
    vocab_size: int = 512,
    hidden_size: int = 96,
    num_layers: int = 6,
    context_length: int = 512,
    seed: int = 0,
) -> Path:
    """Write untrained weights with a tokenizer, and `corpus.txt` beside them; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [text.replace("\n\n", "\n") for text in write_prompts(num_texts, seed)]
    corpus = "\n\n".join(texts) + "\n"
    (folder / "corpus.txt").write_text(corpus, encoding="utf-8")
    write_tokenizer(folder, vocab_size, corpus)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 32,
        num_key_value_heads=hidden_size // 32,
        max_position_embeddings=context_length,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=EOS_ID,
        tie_word_embeddings=False,
        initializer_range=hidden_size**-0.5,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def train_small_model(
    output: Path, recipe: Recipe, *, untrained: Path | None = None, num_steps: int = 400, seed: int = 0
) -> Path:
    """Train the small model; `untrained` (from `write_small_model`) is made beside `output` if it is not given."""
    start = untrained or write_small_model(output.with_name(output.name + ".untrained"), seed=seed)
    train_layerskip(
        LayerSkipTrainingConfig(
            model=str(start),
            data=start / "corpus.txt",
            output=output,
            sequence_length=96,
            recipe=recipe,
            optimizer=OptimizerConfig(
                max_steps=num_steps,
                batch_size=8,
                learning_rate=3e-3,
                warmup_steps=num_steps // 10,
                evaluate_every=100,
                save_every=num_steps,
                validation_answers=200,
                seed=seed,
            ),
        )
    )
    return output
