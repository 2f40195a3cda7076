"""A tiny model pair for tests and demonstrations: built in a moment, from nothing but a seed.

The weights are random, yet scaled so that the model behaves like one: greedy output is varied, next-token
distributions are neither flat nor one-hot, and every token depends on its whole context. The end-of-sequence
token is improbable, so that answers have the length that a test asks for. Equal arguments give equal bytes.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

__all__ = ["BOS_ID", "EOS_ID", "build_tiny_draft", "build_tiny_model", "write_tokenizer"]

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2
BOS_ID, EOS_ID = 1, 2
PRINTABLE_BYTES = 94  # the alphabet is sorted: "!" to "~" come first, then the other bytes
FIRST_MERGE_ID = len(SPECIAL_TOKENS) + 256

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

TRAINING_TEXT = """
An outrider rides ahead of the carriage and looks for the road. Where the road divides, several riders go on, one
along each way, and the carriage follows the rider who found the right one. When all of them were wrong, nothing is
lost but their effort: the driver knows the way and takes the next turn alone. So the carriage never arrives anywhere
else than it would have arrived without them, but it arrives sooner, because looking for the road takes time.

The river rises in the mountains, runs through the forest and the fields, and reaches the sea after nine hundred
kilometres. In spring, when the snow melts, it carries four times as much water as in autumn. The people who live
beside it have built bridges, mills and harbours; they measure the height of the water every morning and write it
into a book that is older than any of their houses. What is the capital of France? The capital of France is Paris.
Please write a short story about a lighthouse keeper. Explain how a bicycle works. Once upon a time there was a
small town with a large clock. def add(a, b): return a + b. for i in range(10): print(i). 1, 2, 3, 5, 8, 13, 21.
Stars are born in clouds of gas and dust. Gravity pulls the cloud together until its centre is hot enough for
hydrogen to become helium. A star like the sun shines for about ten thousand million years; a heavier star shines
more brightly and lives a shorter life. You are a helpful assistant. The user asks a question, and the assistant
answers it. Thank you very much! Where is the station? It is over there, behind the old market hall.
"""


def build_tiny_model(
    folder: Path | str,
    *,
    seed: int = 0,
    vocab_size: int = 512,
    hidden_size: int = 64,
    num_layers: int = 3,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    context_length: int = 512,
    logit_scale: float = 2.5,
) -> Path:
    """Write a random Llama with tokenizer and chat template as a plain transformers folder; returns the folder.

    `logit_scale` is about the standard deviation of the logits: more = sharper distributions. For 2 and for 3 ranks
    of tensor parallelism, heads and K/V heads must be multiples of 6: `hidden_size=96, num_heads=12, num_kv_heads=6`.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        max_position_embeddings=context_length,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        pad_token_id=EOS_ID,
        tie_word_embeddings=False,
    )
    write_tokenizer(folder, vocab_size)
    _write_model(folder, config, _random_weights(config, seed, logit_scale))
    return folder


def build_tiny_draft(
    folder: Path | str, target_folder: Path | str, *, noise: float = 0.05, seed: int = 1, num_layers: int | None = None
) -> Path:
    """Write a draft for a tiny target: its weights with Gaussian noise (`noise` x each tensor's standard deviation).

    `num_layers` keeps only the first layers. More noise, or fewer layers, means lower acceptance; 0 = a perfect draft.
    """
    folder, target_folder = Path(folder), Path(target_folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        (folder / name).write_bytes((target_folder / name).read_bytes())
    config = LlamaConfig.from_pretrained(target_folder)
    if num_layers is not None:
        config.num_hidden_layers = num_layers
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, torch.Tensor] = {}
    for name, weight in sorted(load_file(target_folder / "model.safetensors").items()):
        shake = torch.randn(weight.shape, generator=generator) * weight.std() * noise
        if not name.startswith("model.layers.") or int(name.split(".")[2]) < config.num_hidden_layers:
            weights[name] = weight if "norm" in name else weight + shake
    _write_model(folder, config, weights)
    return folder


def _random_weights(config: LlamaConfig, seed: int, logit_scale: float) -> dict[str, torch.Tensor]:
    """Gaussian weights by name. Keys are made large, so that attention picks out single tokens instead of averaging."""
    with torch.device("meta"):
        shapes = {name: weight.shape for name, weight in LlamaForCausalLM(config).state_dict().items()}
    generator = torch.Generator().manual_seed(seed)
    weights: dict[str, torch.Tensor] = {}
    for name, shape in sorted(shapes.items()):
        if "norm" in name:
            weights[name] = torch.ones(shape)
            continue
        scale = 1.0 if "embed_tokens" in name else shape[-1] ** -0.5
        if "k_proj" in name:
            scale *= 2.0
        elif "o_proj" in name or "down_proj" in name:
            scale *= 3.0  # what the context says outweighs the last token alone
        elif "lm_head" in name:
            scale *= logit_scale
        weights[name] = torch.randn(shape, generator=generator) * scale
    head = weights["lm_head.weight"]
    head[: len(SPECIAL_TOKENS)] = 0.0  # logit 0: improbable beside the best of many
    head[len(SPECIAL_TOKENS) + PRINTABLE_BYTES : FIRST_MERGE_ID] *= 0.5  # some broken characters, mostly text
    return weights


def _write_model(folder: Path, config: LlamaConfig, weights: dict[str, torch.Tensor]) -> None:
    config.architectures = ["LlamaForCausalLM"]
    config.dtype = "float32"
    config.save_pretrained(folder)
    save_file(
        {name: weight.contiguous() for name, weight in weights.items()}, folder / "model.safetensors", {"format": "pt"}
    )


def write_tokenizer(folder: Path, vocab_size: int, text: str = TRAINING_TEXT) -> None:
    """Byte-level BPE: special tokens, all 256 bytes, and the merges that `text` suggests; with a chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        show_progress=False,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator([text], trainer)
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(f"vocab_size must be between 259 and {tokenizer.get_vocab_size()}, got {vocab_size}")
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIAL_TOKENS[BOS_ID],
            "eos_token": SPECIAL_TOKENS[EOS_ID],
            "pad_token": SPECIAL_TOKENS[EOS_ID],
            "clean_up_tokenization_spaces": False,
        },
    )
    _write_json(
        folder / "generation_config.json", {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": EOS_ID}
    )


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
