"""The keys as a gateway knows them: read again when the file changes."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cluster.config.tenancy import KeyLimits
from cluster.security.api_keys import find_key
from cluster.security.key_file import read_keys
from workers.core.errors import ConfigurationError

__all__ = ["KeyStore", "KnownKey"]

LOOK_EVERY_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KnownKey:
    name: str
    limits: KeyLimits


class KeyStore:
    """Belongs to one thread. The file is looked at before a key is, but not more often than every second."""

    def __init__(self, path: Path, defaults: KeyLimits, clock: Callable[[], float]) -> None:
        """`ConfigurationError` when the file cannot be read; later its last good content stays."""
        self._path = path
        self._defaults = defaults
        self._clock = clock
        self._by_hash: dict[str, KnownKey] = {}
        self._looked_at = clock()
        self._version = self._stat()
        self._load()

    @property
    def keys(self) -> tuple[KnownKey, ...]:
        return tuple(self._by_hash.values())

    def find(self, key: str) -> KnownKey | None:
        """Whose key this is, by the file as it is now."""
        self._look()
        return find_key(key, self._by_hash)

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        version = self._stat()
        if version == self._version:
            return
        self._version = version
        try:
            self._load()
        except ConfigurationError as error:
            _log.error("the API keys stay as they were: %s", error)
        else:
            _log.info("%d API keys from %s", len(self._by_hash), self._path)

    def _stat(self) -> tuple[int, int, int] | None:
        """Changes with the content, also where Kubernetes swaps the link that the path goes through."""
        try:
            stat = self._path.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _load(self) -> None:
        content = read_keys(self._path)
        self._by_hash = {
            entry.sha256: KnownKey(name, entry.limits_over(self._defaults)) for name, entry in content.keys.items()
        }
