"""Loading, hashing, encoding, chat; and what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from workers.core.errors import ConfigurationError, InvalidRequestError, NotFoundError
from workers.models.tiny import build_tiny_draft, build_tiny_model
from workers.text.chat_template import Message
from workers.text.tokenizer import Tokenizer

CHAT = [Message("system", "Be brief."), Message("user", "Hi €")]


def test_agrees_with_transformers(byte_level: Tokenizer, tiny_target: Path) -> None:
    theirs = AutoTokenizer.from_pretrained(tiny_target)
    for text in ("The river rises", " naïve 東京 🛰️", "<|im_start|>user", "\n\n\ttab"):
        assert byte_level.encode(text) == theirs(text).input_ids
    chat = [{"role": one.role, "content": one.content} for one in CHAT]
    assert byte_level.encode_chat(CHAT) == theirs.apply_chat_template(chat, add_generation_prompt=True).input_ids
    tokens = byte_level.encode_chat(CHAT)
    assert byte_level.decode(tokens) == theirs.decode(tokens, skip_special_tokens=True)


def test_properties(byte_level: Tokenizer) -> None:
    assert byte_level.vocab_size == 512
    assert byte_level.eos_token_ids == (2,)
    assert byte_level.special_token_ids == {0, 1, 2}


def test_end_tokens_of_the_generation_config_count(tiny_target: Path, tmp_path: Path) -> None:
    folder = build_tiny_draft(tmp_path / "copy", tiny_target, noise=0.0)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 5]}), encoding="utf-8")
    assert Tokenizer.load(str(folder)).eos_token_ids == (0, 2, 5)


def test_hash_is_of_the_definition(byte_level: Tokenizer, tiny_target: Path, tmp_path: Path) -> None:
    copy = build_tiny_draft(tmp_path / "copy", tiny_target)
    AutoTokenizer.from_pretrained(tiny_target).save_pretrained(tmp_path / "saved")  # another spelling of the same
    assert Tokenizer.load(str(copy)).tokenizer_hash == byte_level.tokenizer_hash
    assert Tokenizer.load(str(tmp_path / "saved")).tokenizer_hash == byte_level.tokenizer_hash
    smaller = build_tiny_model(tmp_path / "smaller", vocab_size=400)
    assert Tokenizer.load(str(smaller)).tokenizer_hash != byte_level.tokenizer_hash


def test_hash_sees_swapped_tokens_and_merges(tiny_target: Path, tmp_path: Path, byte_level: Tokenizer) -> None:
    definition = json.loads((tiny_target / "tokenizer.json").read_text(encoding="utf-8"))
    definition["model"]["merges"].reverse()
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition), encoding="utf-8")
    assert Tokenizer.load(str(tmp_path)).tokenizer_hash != byte_level.tokenizer_hash


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([], "chat: the conversation is empty; at least one message is needed"),
        (
            [Message("user", "a"), Message("tool", "b")],
            r"chat.messages.1.role: 'tool' is not known; allowed are system, user, assistant",
        ),
    ],
)
def test_bad_conversations(byte_level: Tokenizer, messages: list[Message], problem: str) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        byte_level.encode_chat(messages)


def test_empty_prompt(byte_level: Tokenizer) -> None:
    with pytest.raises(InvalidRequestError, match="prompt: the text is empty; at least one character is needed"):
        byte_level.encode("")


def test_model_without_chat_template(sentencepiece: Tokenizer) -> None:
    with pytest.raises(InvalidRequestError, match="no chat template; send plain text or token ids"):
        sentencepiece.encode_chat(CHAT)


def test_a_template_may_refuse_a_conversation(tiny_target: Path, tmp_path: Path) -> None:
    folder = build_tiny_draft(tmp_path / "picky", tiny_target, noise=0.0)
    template = "{{ raise_exception('Conversation roles must alternate') }}"
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    with pytest.raises(
        InvalidRequestError, match="template refuses the conversation: Conversation roles must alternate"
    ):
        Tokenizer.load(str(folder)).encode_chat(CHAT)


def test_template_inside_the_tokenizer_config(tiny_target: Path, tmp_path: Path, byte_level: Tokenizer) -> None:
    folder = build_tiny_draft(tmp_path / "old", tiny_target, noise=0.0)
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    (folder / "chat_template.jinja").unlink()
    settings |= {"chat_template": [{"name": "other", "template": ""}, {"name": "default", "template": template}]}
    settings["eos_token"] = {"content": "<|im_end|>", "special": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    assert Tokenizer.load(str(folder)).encode_chat(CHAT) == byte_level.encode_chat(CHAT)


def test_missing_models(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is no such GGUF file"):
        Tokenizer.load(str(tmp_path / "missing.gguf"))
    with pytest.raises(NotFoundError, match=r"neither a local folder, a \.gguf file nor a hub id"):
        Tokenizer.load(str(tmp_path / "missing"))


def test_broken_files(tmp_path: Path, tiny_target: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((tiny_target / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"tokenizer_config.json is not valid JSON"):
        Tokenizer.load(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"tokenizer.json is not a tokenizer: "):
        Tokenizer.load(str(tmp_path))


def test_a_folder_is_read_without_torch(tiny_target: Path) -> None:
    script = (
        "import sys; from workers.text.tokenizer import Tokenizer; Tokenizer.load(sys.argv[1]).encode('a');"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tiny_target)], check=False).returncode == 0
