"""Whom a server serves: bearer tokens of tenants, its TLS certificate, and how many connections.

A tenant sees only its own sessions. Tokens and certificate may be renewed while it runs.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import hmac
import ipaddress
import logging
import math
import socket
import ssl
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast
from weakref import WeakSet

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from otel_loopguard._util.fields import is_list, is_map
from otel_loopguard.engine import read_table
from otel_loopguard.errors import LoopGuardSettingsError

if TYPE_CHECKING:
    import grpc

DEFAULT: Final = "default"
"""The tenant of everyone if no tokens are set."""
# 128 bits in Base64 have 22 characters; shorter than this is a password that somebody made up.
_SHORTEST: Final = 16
# The name of a tenant is a resource attribute of its decisions, and part of log lines.
_LONGEST_NAME: Final = 100
_BEARER: Final = "bearer "
_Pair = tuple[bytes, bytes]
"""A key and its certificate, PEM."""


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
            if not 0 < len(tenant) <= _LONGEST_NAME or not tenant.isprintable():
                what = f"1 to {_LONGEST_NAME} characters"
                raise LoopGuardSettingsError(f"tokens: {tenant!r:.200} is no name, expected {what}")
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
            read = read_table(path)
        except ValueError as error:
            raise LoopGuardSettingsError(f"tokens: {path}: {error}") from None
        found, metrics = read.get("tokens"), read.get("metrics", "")
        if not isinstance(metrics, str):
            raise LoopGuardSettingsError(f"tokens: {path}: expected one token as `metrics`")
        if not is_map(found) or not found:
            msg = f"tokens: {path}: expected a table [tokens] with a token for each tenant"
            raise LoopGuardSettingsError(msg)
        tokens: dict[str, str] = {}
        for tenant, given in found.items():
            for token in given if is_list(given) else [given]:
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
        """Takes over another instance's tokens; returns the changes in words, without a token."""
        changed: list[str] = []
        for name in dict.fromkeys((*self.names, *other.names)):
            before, now = self._tokens_of(name), other._tokens_of(name)
            if before != now:
                what = "has other tokens" if before else "is new"
                changed.append(f"tenant {name!r} {what if now else 'has no token any more'}")
        if self._metrics != other._metrics:
            changed.append(f"there is {'another' if other._metrics else 'no'} token for metrics")
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
        """True if requests need no token, because none are set."""
        return not self._tenants

    def tenant(self, authorization: str | None) -> str | None:
        """The tenant of an `Authorization` header; None if the token is of no tenant."""
        if self.is_open:
            return DEFAULT
        given = _given(authorization)
        found = None
        for known, tenant in self._tenants.items():
            if hmac.compare_digest(known, given):
                found = tenant
        return found

    def may_scrape(self, authorization: str | None) -> bool:
        """True if an `Authorization` header is one for the metrics of all tenants."""
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
        msg = f"{have}, expected {_SHORTEST} or more, of printable ASCII only"
        raise LoopGuardSettingsError(msg)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def is_loopback(host: str) -> bool:
    """True for a name or an address of this machine itself."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Certificate:
    """A certificate and its key, in files of PEM.

    Args:
        certificate: Path of the certificate.
        key: Path of its key; empty: it is in the same file.

    Raises:
        LoopGuardSettingsError: TLS cannot use them.
    """

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = certificate
        self._key = key or certificate
        self._context: ssl.SSLContext | None = None
        self._pair = self.read()

    def read(self) -> _Pair:
        """Returns what is in the files now.

        Raises:
            LoopGuardSettingsError: TLS cannot use it.
        """
        try:
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            return Path(self._key).read_bytes(), Path(self._certificate).read_bytes()
        except OSError as error:
            what = f"certificate = {self._certificate!r:.100}, key = {self._key!r:.100}"
            msg = f"{what}: TLS cannot use them: {error.strerror or error}"
            raise LoopGuardSettingsError(msg) from error

    def use(self, pair: _Pair) -> bool:
        """Uses what was read for connections from now on; returns False if it is the same."""
        if pair == self._pair:
            return False
        self._pair = pair
        if self._context is not None:
            self._load(self._context)
        return True

    def follow(self, context: ssl.SSLContext) -> None:
        """Sets where a new certificate is loaded."""
        self._context = context

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials for gRPC, which asks for each connection what to use."""
        import grpc  # noqa: PLC0415

        given = self._pair

        def newest() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            if given is self._pair:
                return None
            given = self._pair
            return grpc.ssl_server_certificate_configuration([given])

        first = grpc.ssl_server_certificate_configuration([given])
        # Its stubs leave out that None is no change.
        return grpc.dynamic_ssl_server_credentials(first, cast("Any", newest))

    def _load(self, context: ssl.SSLContext) -> None:
        # OpenSSL would ask for the password of an encrypted key on the terminal.
        context.load_cert_chain(self._certificate, self._key, password=lambda: b"")


try:
    import resource
except ImportError:  # Windows
    resource = None

# A head is one or two packets, also over slow lines; a client that sends none holds a descriptor.
HEAD_S: Final = 10.0
# Clients export every few seconds. Those that keep a connection for longer than its server send on
# one that is being shut, and lose what they sent; Go's HTTP client, the Collector's, keeps it 90 s.
KEEP_ALIVE_S: Final = 120
# Enough for a page or a list over a slow line; a client that does not read holds a descriptor.
READ_S: Final = 30.0
BACKLOG: Final = 128
"""Connections that asyncio takes at once, before anything looks at them."""
# Of those over HTTP, and of those over gRPC; the rest is for the store, the next hop and files.
_SHARE: Final = 0.4
_SHORTAGE: Final = "out of system resource"
"""Message of asyncio if it has no descriptor for a connection."""
_AGAIN_S: Final = 60.0
"""Seconds after which the same is logged again: a line a minute is seen, and fills no disk."""


def most_connections() -> float:
    """Number of connections to keep: two fifths of the descriptors of this process."""
    if resource is None:
        return math.inf
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return math.inf if most == resource.RLIM_INFINITY else most * _SHARE


@contextmanager
def strangers_told_once_a_minute() -> Generator[None]:
    """Lets each message that strangers can cause, by connecting, through once a minute.

    asyncio logs a traceback for each connection that it has no descriptor for, uvicorn a warning
    for each request that is none, and a traceback for each that breaks off in a wrong way.
    """
    last: dict[str, float] = {}

    def passes(record: logging.LogRecord) -> bool:
        said = str(record.msg)
        if record.name == "asyncio":
            if _SHORTAGE not in said:
                return True
            said = _SHORTAGE
        elif record.levelno < logging.WARNING:
            return True
        elif record.exc_info:
            said += str(record.exc_info[0])
        now = time.monotonic()
        if now - last.get(said, -math.inf) < _AGAIN_S:
            return False
        last[said] = now  # of few: uvicorn's are fixed
        return True

    loggers = [logging.getLogger(name) for name in ("asyncio", "uvicorn.error")]
    for one in loggers:
        one.addFilter(passes)
    try:
        yield
    finally:
        for one in loggers:
            one.removeFilter(passes)


class TlsSocket(socket.socket):
    """A listening socket for TLS, which counts handshakes as connections.

    asyncio tells nobody of a connection before its handshake. Where descriptors grow short, the
    connection that has been idle for longest goes; where none is idle, those who connect wait.
    """

    def __init__(self, plain: socket.socket) -> None:
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self._taken: WeakSet[socket.socket] = WeakSet()

    def accept(self) -> tuple[socket.socket, Any]:
        """Takes a connection; raises what asyncio takes for a shortage, and tries again after."""
        most = most_connections()
        if len(self._taken) >= most:
            self._taken = WeakSet(one for one in self._taken if one.fileno() >= 0)
            if len(self._taken) >= most and not HttpProtocol.shut_oldest():
                raise OSError(errno.EMFILE, "connections and TLS handshakes take their share")
        taken, address = super().accept()
        self._taken.add(taken)
        return taken, address


class HttpProtocol(H11Protocol):
    """Closes a connection if no request begins, a head never ends, or the client reads nothing.

    uvicorn has a limit for what comes after an answer only: whoever can connect, without a token
    too, could keep all descriptors of the process. Where they grow short, the connection that has
    been idle for longest goes, or the new one where none is idle.
    """

    # Of all servers of the process, for its descriptors are counted; the oldest first.
    _idle: ClassVar[dict[HttpProtocol, None]] = {}
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of the base
        """A client has connected."""
        super().connection_made(transport)
        if len(self.connections) > most_connections() and not self.shut_oldest():
            self.transport.abort()
        self._look()

    @classmethod
    def shut_oldest(cls) -> bool:
        """Closes the connection that has been idle for longest; returns False if none is idle."""
        oldest = next(iter(cls._idle), None)
        if oldest is not None:
            del cls._idle[oldest]
            oldest.transport.abort()
        return oldest is not None

    def data_received(self, data: bytes) -> None:
        """A part of a request, or more than one request."""
        super().data_received(data)
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        super().connection_lost(exc)
        self._idle.pop(self, None)
        for timer in filter(None, (self._late, self._unread)):
            timer.cancel()

    def pause_writing(self) -> None:
        """The client reads too slowly, or not at all."""
        super().pause_writing()
        self._idle[self] = None
        self._unread = self.loop.call_later(READ_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
        if self._late is None:
            self._idle.pop(self, None)

    def _should_upgrade(self) -> bool:
        # Java offers HTTP/2 with its first request; uvicorn would log how to get web sockets.
        return False

    def _look(self) -> None:
        """Starts the timer for the head of a request; stops it once the head is complete."""
        # Its base has no cycle before the first request, whatever its type says.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        answered = cycle is None or cycle.response_complete
        if not answered and self._late is not None:
            self._late.cancel()
            self._late = None
            self._idle.pop(self, None)
        elif answered and self._late is None and not self.transport.is_closing():
            self._idle[self] = None
            self._late = self.loop.call_later(HEAD_S, self.transport.close)
