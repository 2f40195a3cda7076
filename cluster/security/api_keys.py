"""API keys and their hashes.

A key is 256 random bits behind a prefix by which scanners find one that was published. It is stored as its SHA-256: a
slow hash protects passwords, which people choose and attackers can guess; nobody guesses 256 random bits, so that
slowness would only cost the gateway time on every call.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import TypeVar

__all__ = ["KEY_PREFIX", "find_key", "hash_of", "looks_like_a_key", "new_key"]

KEY_PREFIX = "outrider_"
_KEY = re.compile(KEY_PREFIX + r"[A-Za-z0-9_-]{43}")

T = TypeVar("T")


def new_key() -> str:
    """A new key from the system's random numbers."""
    return KEY_PREFIX + secrets.token_urlsafe(32)


def looks_like_a_key(text: str) -> bool:
    return _KEY.fullmatch(text) is not None


def hash_of(key: str) -> str:
    """64 hexadecimal digits."""
    return hashlib.sha256(key.encode()).hexdigest()


def find_key(key: str, by_hash: Mapping[str, T]) -> T | None:
    """The entry whose hash is the key's. Every hash is compared, and each in constant time: times tell nothing."""
    wanted, found = hash_of(key), None
    for known, entry in by_hash.items():
        if hmac.compare_digest(wanted, known):
            found = entry
    return found
