"""Who calls, and what that caller may ask of this gateway.

A tenant is the name of an API key. Without a file of keys there is one tenant, everybody, with an empty name.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from cluster.config.gateway import GatewayConfig
from cluster.config.tenancy import KeyLimits
from cluster.gateway.places import Places
from cluster.gateway.token_bucket import TokenBucket
from cluster.security.key_store import KeyStore
from workers.core.errors import AuthenticationError, OverloadedError, RefusedError
from workers.core.request import PRIORITY_RANGE, TenantShare

__all__ = ["Metadata", "Tenant", "Tenants"]

FORGET_ABOVE = 10_000  # tenants; more come only from files that change all the time

Metadata = Sequence[tuple[str, str | bytes]]


class Tenant:
    """One caller at this gateway. `share` says what every gateway divides its limits by."""

    def __init__(self, name: str, limits: KeyLimits, share: int, clock: Callable[[], float]) -> None:
        self.name = name
        self._share = share
        self._clock = clock
        self._places = Places(clock)
        self._bucket: TokenBucket | None = None
        self.limits = limits
        self.apply(limits)

    @property
    def active_requests(self) -> int:
        return self._places.taken

    @property
    def for_verifiers(self) -> TenantShare:
        return TenantShare(self.name, self.limits.weight)

    def apply(self, limits: KeyLimits) -> None:
        """Limits from the file as it is now; what is running and what was spent stays counted."""
        if limits == self.limits and self._bucket is not None:
            return
        self.limits = limits
        if limits.tokens_per_minute is None:
            self._bucket = None
            return
        per_minute = limits.tokens_per_minute / self._share
        rate, burst = per_minute / 60.0, (limits.burst_tokens or limits.tokens_per_minute) / self._share
        if self._bucket is None:
            self._bucket = TokenBucket(rate, burst, self._clock())
        else:
            self._bucket.change(rate, burst, self._clock())

    def occupied(self) -> AbstractContextManager[None]:
        """Count one request while it runs; `OverloadedError` beyond the limit."""
        limit = self.limits.max_concurrent_requests
        allowed = None if limit is None else math.ceil(limit / self._share)
        return self._places.one(allowed, f"{self._whose} has {allowed} requests in progress, its limit here")

    def begin(self, prompt_tokens: int) -> None:
        """Take the prompt's tokens, resumed output included; `OverloadedError` while the rate does not allow them."""
        if self._bucket is None:
            return
        wait_s = self._bucket.wait_s(prompt_tokens, self._clock())
        if wait_s > 0:
            per_minute = self.limits.tokens_per_minute
            raise OverloadedError(f"{self._whose} has used up its {per_minute} tokens per minute", wait_s)
        self._bucket.take(prompt_tokens, self._clock())

    def spend(self, output_tokens: int) -> None:
        """Count output as it comes; it may run into debt, which later requests wait for."""
        if self._bucket is not None and output_tokens:
            self._bucket.take(output_tokens, self._clock())

    def check_priority(self, priority: int) -> None:
        """`RefusedError` when it is more urgent than this caller may be."""
        most_urgent = self.limits.most_urgent_priority
        if priority < most_urgent:
            raise RefusedError(
                f"priority: {most_urgent} to {PRIORITY_RANGE[1]} are allowed for {self._whose} (got {priority}; "
                "smaller is more urgent)"
            )

    def output_ceiling(self, general: int | None) -> int | None:
        """The smaller one of the gateway's and the key's `max_output_tokens`."""
        return min((one for one in (general, self.limits.max_output_tokens) if one is not None), default=None)

    @property
    def _whose(self) -> str:
        return f"the API key {self.name}" if self.name else "this server"


class Tenants:
    """Belongs to one event loop."""

    def __init__(self, config: GatewayConfig, clock: Callable[[], float]) -> None:
        """Reads the file of keys: `ConfigurationError` when that cannot be done."""
        self._tenancy = config.tenancy
        self._share = config.num_replicas if self._tenancy.divide_limits else 1
        self._clock = clock
        self._tenants: dict[str, Tenant] = {}
        path = self._tenancy.keys_file
        self._store = None if path is None else KeyStore(Path(path), self._tenancy.default_limits, clock)

    @property
    def open(self) -> bool:
        """Whether everybody may call."""
        return self._store is None

    def authenticate(self, metadata: Metadata) -> Tenant:
        """The caller by `authorization: Bearer KEY`; `AuthenticationError`, which says the same in every case."""
        if self._store is None:
            return self._tenant("", self._tenancy.default_limits)
        known = self._store.find(_bearer(metadata))
        if known is None:
            raise AuthenticationError("a valid API key is needed: authorization: Bearer KEY")
        return self._tenant(known.name, known.limits)

    def cache_salt(self, tenant: Tenant, salt: str) -> str:
        """Keeps the cached prompts of different keys apart, unless they are meant to be shared."""
        if self._store is None or self._tenancy.share_prefix_cache:
            return salt
        return hashlib.sha256(f"{tenant.name}\0{salt}".encode()).hexdigest()

    def _tenant(self, name: str, limits: KeyLimits) -> Tenant:
        tenant = self._tenants.get(name)
        if tenant is None:
            if len(self._tenants) > FORGET_ABOVE:
                self._tenants = {one: kept for one, kept in self._tenants.items() if kept.active_requests}
            tenant = self._tenants[name] = Tenant(name, limits, self._share, self._clock)
        tenant.apply(limits)
        return tenant


def _bearer(metadata: Metadata) -> str:
    """The key of the one authorization header; "" for anything else."""
    values = [value for key, value in metadata if key.lower() == "authorization"]
    if len(values) != 1:
        return ""
    value = values[0].decode("latin-1") if isinstance(values[0], bytes) else values[0]
    scheme, _, key = value.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
