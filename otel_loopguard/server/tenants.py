"""Authentication by bearer tokens, each of one tenant, which sees only its own sessions."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard.errors import LoopGuardSettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
from otel_loopguard.settings._file import read_file

DEFAULT: Final = "default"
"""The tenant of everyone if no tokens are set."""
_SHORTEST: Final = 16
_MOST: Final = 100
_BEARER: Final = "bearer "


class Tenants:
    """The tokens that a server takes. Of tokens only digests are kept.

    Args:
        tokens: Tenant by token; none at all: everybody is the tenant `default`.
        metrics: The token for `/metrics`; empty: that of the only tenant.

    Raises:
        LoopGuardSettingsError: A token is shorter than 16 characters, or a tenant has no name.
    """

    def __init__(self, tokens: Mapping[str, str] | None = None, metrics: str = "") -> None:
        if metrics:
            _check(metrics, "metrics")
        for token, tenant in (tokens or {}).items():
            _check(token, tenant)
            if not 0 < len(tenant) <= _MOST or not tenant.isprintable():
                msg = f"tokens: {tenant!r:.200} is no tenant's name, expected 1 to {_MOST} signs"
                raise LoopGuardSettingsError(msg)
        self._tenants = {_digest(token): tenant for token, tenant in (tokens or {}).items()}
        self._metrics = _digest(metrics) if metrics else b""
        self._path: Path | None = None

    @classmethod
    def from_file(cls, path: Path) -> Tenants:
        """Reads a TOML file with a table `[tokens]` of tenants and their tokens.

        ::

            metrics = "…"  # for Prometheus
            [tokens]
            billing = "…"
            research = ["…", "…"]

        Raises:
            LoopGuardSettingsError: It cannot be read, or is not of this form.
        """
        try:
            read = read_file(path)
        except ValueError as error:
            msg = f"tokens: {path}: {error}"
            raise LoopGuardSettingsError(msg) from None
        found, metrics = read.get("tokens"), read.get("metrics", "")
        if not isinstance(metrics, str):
            msg = f"tokens: {path}: expected one token as `metrics`"
            raise LoopGuardSettingsError(msg)
        if not isinstance(found, dict) or not found:
            msg = f"tokens: {path}: expected a table [tokens] with a token for each tenant"
            raise LoopGuardSettingsError(msg)
        tokens: dict[str, str] = {}
        for tenant, given in cast("dict[str, object]", found).items():
            for token in cast("list[object]", given) if isinstance(given, list) else [given]:
                if not isinstance(token, str) or token in tokens:
                    msg = f"tokens: {path}: {tenant!r:.100} has what is no token, or is another's"
                    raise LoopGuardSettingsError(msg)
                tokens[token] = tenant
        made = cls(tokens, metrics)
        made._path = path
        return made

    def read_again(self) -> Tenants | None:
        """Returns what is in its file now; None without one.

        Raises:
            LoopGuardSettingsError: It cannot be used.
        """
        return None if self._path is None else Tenants.from_file(self._path)

    def use(self, other: Tenants) -> list[str]:
        """Takes the tokens of another one; returns what changed, in words and without a token."""
        changed: list[str] = []
        for name in dict.fromkeys((*self.names, *other.names)):
            before, now = self._tokens_of(name), other._tokens_of(name)
            if before != now:
                what = "has other tokens" if before else "is new"
                changed.append(f"tenant {name!r} {what if now else 'has no token any more'}")
        if self._metrics != other._metrics:
            changed.append("there is another token for metrics")
        self._tenants, self._metrics = other._tenants, other._metrics
        return changed

    def _tokens_of(self, name: str) -> set[bytes]:
        return {token for token, tenant in self._tenants.items() if tenant == name}

    @property
    def names(self) -> tuple[str, ...]:
        """All tenants, each once."""
        return tuple(dict.fromkeys(self._tenants.values())) or (DEFAULT,)

    @property
    def is_open(self) -> bool:
        """Whether requests need no token, because none are set."""
        return not self._tenants

    def tenant(self, authorization: str | None) -> str | None:
        """The tenant of an `Authorization` header; None where it is not of any."""
        if self.is_open:
            return DEFAULT
        given = _given(authorization)
        found = None
        for known, tenant in self._tenants.items():
            if hmac.compare_digest(known, given):
                found = tenant
        return found

    def may_scrape(self, authorization: str | None) -> bool:
        """Whether an `Authorization` header is one for the metrics of all tenants."""
        if self._metrics:
            return hmac.compare_digest(self._metrics, _given(authorization))
        return len(self.names) == 1 and self.tenant(authorization) is not None


def _given(authorization: str | None) -> bytes:
    """The digest of the token of an `Authorization` header; of nothing without one."""
    if authorization is None or not authorization.lower().startswith(_BEARER):
        return b""
    return _digest(authorization[len(_BEARER) :].strip())


def _check(token: str, of: str) -> None:
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable():
        have = f"a token of {of!r:.100} has {len(token)} characters"
        msg = f"tokens: {have}, expected {_SHORTEST} or more, of printable ASCII only"
        raise LoopGuardSettingsError(msg)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def is_loopback(host: str) -> bool:
    """Whether a host is this machine's own."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
