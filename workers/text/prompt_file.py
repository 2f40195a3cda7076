"""Reads prompt files: JSON lines, each `{"prompt": "…"}` or `{"messages": [{"role": "user", "content": "…"}, …]}`."""

import json
from pathlib import Path
from typing import Any

from workers.core.errors import ConfigurationError, InvalidRequestError
from workers.text.chat_template import Message
from workers.text.tokenizer import Tokenizer

__all__ = ["read_prompts", "tokenize_prompts"]

FORM = 'each line must be {"prompt": "text"} or {"messages": [{"role": "user", "content": "text"}]}'


def read_prompts(path: Path) -> list[list[Message]]:
    """Conversations, one for each line; raises `ConfigurationError` that names the line."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # JSON may hold other line breaks
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"prompt file {str(path)!r} cannot be read: {error}") from None
    prompts = [_conversation(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise ConfigurationError(f"prompt file {str(path)!r} has no prompts; {FORM}")
    return prompts


def tokenize_prompts(path: Path, tokenizer: Tokenizer) -> list[list[int]]:
    """Token ids under the model's chat template."""
    prompts: list[list[int]] = []
    for number, messages in enumerate(read_prompts(path), 1):
        try:
            prompts.append(tokenizer.encode_chat(messages))
        except InvalidRequestError as error:
            raise ConfigurationError(f"{path}, prompt {number}: {error}") from None
    return prompts


def _conversation(line: str, where: str) -> list[Message]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{where}: not JSON ({error}); {FORM}") from None
    messages = _messages(entry)
    if not messages or not all(message.content.strip() for message in messages):
        raise ConfigurationError(f"{where}: {FORM}, and no text may be empty")
    return messages


def _messages(entry: Any) -> list[Message]:
    match entry:
        case {"prompt": str(text)} if len(entry) == 1:
            return [Message("user", text)]
        case {"messages": [*parts]} if len(entry) == 1:
            messages = [_message(part) for part in parts]
            return [message for message in messages if message] if all(messages) else []
    return []


def _message(part: Any) -> Message | None:
    match part:
        case {"role": str(role), "content": str(content)} if len(part) == 2:
            return Message(role, content)
    return None
