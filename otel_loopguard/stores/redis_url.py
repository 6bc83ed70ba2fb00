"""Parses a `store_url`; needs no redis-py."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from otel_loopguard.errors import LoopGuardSettingsError

_URL: Final = re.compile(
    r"(?P<scheme>rediss?|unix|rediss?\+sentinel|rediss?\+cluster)://"
    r"(?:(?P<who>[^@/?#]*)@)?(?P<hosts>[^@/?#]*)(?P<path>/[^@?#]*)?(?:\?(?P<query>[^@#]*))?"
)
"""Matches nothing if a password has a raw `@/?#`: its end is unknown then."""
_SCHEME: Final = re.compile(r"[a-z]{1,6}(?:\+[a-z]{1,8})?(?=://)")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+)(?::(\d{1,5}))?")
EXPECTED: Final = (
    "expected redis://HOST:PORT/DB, rediss://…, unix:///PATH, "
    "redis+sentinel://HOST:PORT,…/SERVICE or redis+cluster://HOST:PORT,…; in a user, a password or "
    "an option @ is written %40, / %2F, ? %3F and # %23"
)
_PORTS: Final = {"single": 6379, "sentinel": 26379, "cluster": 6379}

Mode = Literal["single", "sentinel", "cluster"]


class RedisUrl(NamedTuple):
    """Where a Redis is: one server, one that Sentinels know, or a Cluster."""

    mode: Mode
    url: str  # of one server, as redis-py reads it: with the password, so it is secret
    hosts: tuple[tuple[str, int], ...]
    service: str  # the name that Sentinels know it by
    shown: str  # the address without user, password and options

    def __repr__(self) -> str:
        return f"RedisUrl({self.shown!r})"


def parse_redis_url(url: str) -> RedisUrl:
    """Parses a `store_url`.

    Raises:
        LoopGuardSettingsError: It cannot be read.
    """
    found = _URL.fullmatch(url.strip())
    if found is None or (found["scheme"] == "unix" and found["hosts"]):
        raise _wrong(url, EXPECTED)
    scheme, _, kind = found["scheme"].partition("+")
    mode: Mode = "sentinel" if kind == "sentinel" else "cluster" if kind else "single"
    if scheme == "unix":
        return RedisUrl(mode, url.strip(), (), "", shown(url))
    hosts = [_host(url, part, _PORTS[mode]) for part in found["hosts"].split(",")]
    path, service, database = found["path"] or "", "", "0"
    parts = path.strip("/").split("/") if path.strip("/") else []
    if mode == "sentinel":
        if not parts:
            raise _wrong(url, "the name of the service is missing: …/SERVICE")
        service = parts.pop(0)
    if parts and mode != "cluster":
        database = parts.pop(0)
    if parts or not database.isdecimal():
        raise _wrong(url, f"{path!r} is no number of a database")
    who = "" if found["who"] is None else f"{found['who']}@"
    query = "" if found["query"] is None else f"?{found['query']}"
    host, port = hosts[0]
    host = f"[{host}]" if ":" in host else host
    one = f"{scheme}://{who}{host}:{port}/{database}{query}"
    return RedisUrl(mode, one, tuple(hosts), service, shown(url))


def shown(url: str) -> str:
    """An address without its secrets; only the scheme if it cannot be parsed."""
    found = _URL.fullmatch(url.strip())
    if found is None or found["hosts"].startswith(":"):
        scheme = _SCHEME.match(url.strip())
        return f"{scheme[0]}://***" if scheme else "***"
    who = "" if found["who"] is None else "***@"
    return f"{found['scheme']}://{who}{found['hosts']}{found['path'] or ''}"


def _host(url: str, text: str, port: int) -> tuple[str, int]:
    if text.startswith(":"):
        # A password in front of which, or behind which, something is missing.
        raise _wrong(url, EXPECTED)
    found = _HOST.fullmatch(text)
    if found is None or int(found[2] or port) > 65535:
        raise _wrong(url, f"{text!r} is no HOST:PORT")
    return found[1].strip("[]"), int(found[2] or port)


def _wrong(url: str, why: str) -> LoopGuardSettingsError:
    msg = f"store_url (LOOPGUARD_STORE_URL) = {shown(url)!r}: {why}"
    return LoopGuardSettingsError(msg)
