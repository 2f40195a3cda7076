"""From a conversation to the text that the model was trained to continue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jinja2 import TemplateError
from transformers.utils.chat_template_utils import render_jinja_template

from workers.core.errors import InvalidRequestError
from workers.core.shown import shown

__all__ = ["ROLES", "ChatTemplate", "Message"]

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True)
class ChatTemplate:
    """A model's Jinja template; `special_tokens` are the names it may use (bos_token, eos_token, ...)."""

    source: str
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt text, ending where the assistant's answer begins.

        Raises `InvalidRequestError` for an empty conversation, an unknown role, or one that the template refuses.
        """
        check_roles(messages)
        conversation = [{"role": one.role, "content": one.content} for one in messages]
        try:
            rendered, _ = render_jinja_template(
                [conversation], chat_template=self.source, add_generation_prompt=True, **self.special_tokens
            )
        except TemplateError as error:
            raise InvalidRequestError(f"chat: the model's template refuses the conversation: {error}") from error
        return str(rendered[0])


def check_roles(messages: Sequence[Message]) -> None:
    if not messages:
        raise InvalidRequestError("chat: the conversation is empty; at least one message is needed")
    for index, message in enumerate(messages):
        if message.role not in ROLES:
            raise InvalidRequestError(
                f"chat.messages.{index}.role: {shown(message.role)} is not known; allowed are {', '.join(ROLES)}"
            )
