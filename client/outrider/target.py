"""Addresses of servers: refused here when no connection could ever come of them."""

import re
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import unquote

from outrider.checks import shown
from outrider.errors import ConfigurationError

__all__ = ["checked_target"]

ALLOWED = (
    "host:port with a port from 1 to 65535, [ipv6]:port, or an address with one of gRPC's schemes "
    "(such as dns:///host:port, ipv4:address:port or unix:/path)"
)
# https://github.com/grpc/grpc/blob/master/doc/naming.md; gRPC takes any other scheme for the name of a host.
_SCHEMES = re.compile(r"(dns|unix|unix-abstract|ipv4|ipv6|vsock|xds|google-c2p):(.*)", re.IGNORECASE | re.DOTALL)
_AUTHORITY = re.compile(r"//[^/]*/")
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^\[\]:]*)(?::([0-9]{1,5}))?")
_NOT_IN_A_HOST = re.compile(r"[\s/@?#\\]")
MAX_PORT = 65535


def checked_target(target: str) -> str:
    """Return `target` as it is; raises `ConfigurationError` when gRPC cannot make sense of it.

    gRPC itself would take a port modulo 65536 and look for a host of any name, over and over.
    """
    if not isinstance(target, str) or not _encodable(target) or not _possible(target):
        raise ConfigurationError(f"target: expected {ALLOWED}, got {shown(target)}")
    return target


def _encodable(target: str) -> bool:
    try:
        return b"\0" not in target.encode()
    except UnicodeEncodeError:
        return False


def _possible(target: str) -> bool:
    match = _SCHEMES.fullmatch(target)
    if match is None:
        return _is_host(target, port_needed=True)
    scheme, rest = match[1].lower(), match[2]
    if scheme == "dns":
        return _is_host(unquote(_AUTHORITY.sub("", rest, count=1)), port_needed=False)  # without: 443
    if scheme in ("ipv4", "ipv6"):
        kind = IPv4Address if scheme == "ipv4" else IPv6Address
        addresses = unquote(_AUTHORITY.sub("", rest, count=1)).split(",")
        return all(_is_host(address, port_needed=True, kind=kind) for address in addresses)
    return bool(rest.strip("/"))


def _is_host(text: str, *, port_needed: bool, kind: type[IPv4Address] | type[IPv6Address] | None = None) -> bool:
    """Whether this is host:port, [ipv6]:port or, with `kind`, an address of that kind with its port."""
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None:
        return False
    host, port = match.groups()
    if port is None and port_needed:
        return False
    if port is not None and not 1 <= int(port) <= MAX_PORT:
        return False
    if host.startswith("["):
        return kind is not IPv4Address and _is_address(host[1:-1], IPv6Address)
    if kind is not None:
        return _is_address(host, kind)
    return bool(host) and host.isprintable() and not _NOT_IN_A_HOST.search(host)


def _is_address(text: str, kind: type[IPv4Address] | type[IPv6Address]) -> bool:
    try:
        kind(text)
    except AddressValueError:
        return False
    return True
