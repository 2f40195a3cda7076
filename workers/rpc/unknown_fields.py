"""Refusal of fields that the contract does not know.

protobuf keeps unknown fields silently. A client that sends one expects
something of it, so requests with one are refused instead of half understood.
"""

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from workers.core.errors import InvalidRequestError
from workers.core.shown import printable

__all__ = ["reject_unknown_fields"]


def reject_unknown_fields(message: Message) -> None:
    """Raise `InvalidRequestError` when `message` or a message inside it carries an unknown field."""
    unknown = UnknownFieldSet(message)
    if len(unknown):  # it has a length and items, but is not iterable for the type checker
        numbers = printable(", ".join(str(n) for n in sorted({unknown[i].field_number for i in range(len(unknown))})))
        known = ", ".join(field.name for field in message.DESCRIPTOR.fields) or "none"
        raise InvalidRequestError(
            f"{message.DESCRIPTOR.full_name}: unknown field number {numbers}; known fields: {known}"
        )
    for field, value in message.ListFields():
        nested = field.message_type
        if nested is None or nested.GetOptions().map_entry:  # the contract's maps hold scalars only
            continue
        for entry in (value,) if isinstance(value, Message) else value:
            reject_unknown_fields(entry)
