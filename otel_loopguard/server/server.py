"""The server: engines, receivers and the flag's API, on their ports."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import signal
import socket
import sys
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import uvicorn

from otel_loopguard import semconv
from otel_loopguard._util.errors import logger, swallow
from otel_loopguard.engine import Engine, Settings, shared_store
from otel_loopguard.errors import LoopGuardError, LoopGuardSettingsError
from otel_loopguard.server import access, forward
from otel_loopguard.server.app import OK, ControlApi, Readiness, http_app
from otel_loopguard.server.metrics import ServerMetrics, ServerTelemetry, TroubleLog
from otel_loopguard.server.receiver import Mode, Receiver, grpc_server
from otel_loopguard.server.tenant_guard import MOST_WAITING, Busy, TenantGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    import grpc.aio
    from starlette.applications import Starlette
    from typing_extensions import Self


# Limits of calls are whole seconds, and stalls are told no later than one after theirs.
_TICK_S: Final = 1.0
# For requests that have begun, which take a fraction of it; a whole number for uvicorn.
_GRACE_S: Final = 5


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The addresses and options of a server.

    Attributes:
        http: Host and port of OTLP over HTTP and of the flag's API; port 0: a free one.
        grpc: Host and port of OTLP over gRPC; empty: not at all.
        forward: URL of the next hop; empty: nowhere.
        headers: Headers for the next hop.
        mode: Whether spans go on `annotated` with decisions or `untouched`; log events of
            decisions go on in both.
        lateness_s: Seconds for which spans are put in order before they are judged; None: 0.2, and
            none for a request that comes alone.
        most_bytes: Bytes of the largest request.
        most_held_bytes: Bytes of all requests that are held at once.
        certificate: Path of a TLS certificate, PEM; empty: no TLS.
        key: Path of its key.
        drain_s: Seconds for which it still takes requests once it is told to end, and `/readyz`
            says so, for load balancers to look elsewhere.
    """

    http: str = "127.0.0.1:4318"
    grpc: str = "127.0.0.1:4317"
    forward: str = field(default="", repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    mode: Mode = "annotated"
    lateness_s: float | None = None
    most_bytes: int = 16 * 1024 * 1024
    most_held_bytes: int = 128 * 1024 * 1024
    certificate: str = ""
    key: str = ""
    drain_s: float = 0


class Server:
    """Judges what is sent to it, sends it on, and serves the flags of its sessions.

    ::

        async with Server(ServerSettings(http="127.0.0.1:0", grpc="")) as server:
            print(server.url)
            await server.wait()

    Args:
        settings: How it listens and sends on.
        guard: Settings of the guards, one for each tenant; from the environment by default.
        tenants: Whose tokens are taken; by default everybody's, on loopback.
        telemetry: Where its metrics go, with a path `/metrics`; by default they and those of the
            guards go to the global meter provider.
        reread: Reads the settings of the guards again, for `reload`; by default they stay.

    Raises:
        LoopGuardSettingsError: An address or URL cannot be used, or it would listen beyond loopback
            without tokens.
        LoopGuardError: An address is in use.

    Attributes:
        url: Where it listens for HTTP, once it runs.
        grpc_port: Its port for gRPC, once it runs; 0: none.
    """

    def __init__(
        self, settings: ServerSettings, guard: Settings | None = None,
        tenants: access.Tenants | None = None, telemetry: ServerTelemetry | None = None,
        reread: Callable[[], Settings] | None = None,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._telemetry = telemetry
        self._tenants = tenants = tenants or access.Tenants()
        self._address = _address("http", settings.http)
        self._grpc_address = _address("grpc", settings.grpc) if settings.grpc else None
        for host, _ in filter(None, (self._address, self._grpc_address)):
            if tenants.is_open and not access.is_loopback(host):
                msg = f"{host!r} is reached from elsewhere: without tokens only loopback is served"
                msg += " (LOOPGUARD_SERVE_TOKEN or --tokens sets some)"
                raise LoopGuardSettingsError(msg)
        for name in ("lateness_s", "drain_s"):
            seconds: float | None = getattr(settings, name)
            if seconds is not None and not 0 <= seconds < math.inf:
                msg = f"{name} = {seconds!r:.100}: expected a finite number from 0"
                raise LoopGuardSettingsError(msg)
        self._certificate = None
        if settings.certificate:
            self._certificate = access.Certificate(settings.certificate, settings.key)
        elif settings.key:
            msg = f"key = {settings.key!r:.100}: expected a certificate with it"
            raise LoopGuardSettingsError(msg)
        self._hop_to = forward.hop_to(settings.forward) if settings.forward else None
        forward.check_headers(settings.headers or {})
        self._guard = guard = guard or Settings()
        self._reread = reread
        self._meters = None if telemetry is None else telemetry.provider
        self._metrics = metrics = ServerMetrics(self._meters)
        refused = semconv.METRIC_SERVER_REFUSALS
        self._refusals = TroubleLog(
            "requests are refused", lambda cause: metrics.add(refused, 1, cause)
        )
        self.engines = {name: self._engine(_of_tenant(guard, name), name) for name in tenants.names}
        self.url = ""
        self.grpc_port = 0
        self._stop_requested = asyncio.Event()
        self._on_terminal = _on_terminal()
        self._hop: forward.NextHop | None = None

    async def __aenter__(self) -> Self:
        settings = self._settings
        stop = self._stop_requested.set
        async with contextlib.AsyncExitStack() as ends:
            # Before it answers anybody, who may signal at once.
            if sys.platform != "win32":
                ends.enter_context(_signals({signal.SIGHUP: self._on_hangup}))
            # No longer than it drains: who asks once more does not wait for what has begun.
            signals = ends.enter_context(contextlib.ExitStack())
            signals.enter_context(_signals({signal.SIGINT: stop, signal.SIGTERM: stop}))
            if self._telemetry is not None:
                ends.push_async_callback(asyncio.to_thread, self._telemetry.close)
            ends.callback(self._refusals.close)
            if self._hop_to is not None:
                self._hop = self._hop_to(settings.forward, settings.headers or {}, self._metrics)
                ends.push_async_callback(self._hop.close)
            receiver = Receiver(
                self.engines, self._refusals, self._hop, mode=settings.mode,
                most_bytes=settings.most_held_bytes,
            )  # fmt: skip
            ends.push_async_callback(self._close_engines, receiver)
            self._readiness = readiness = Readiness(self.engines, self._hop, self._refusals)
            self._watch(receiver, readiness)
            self._api = ControlApi(self.engines)
            app = http_app(
                receiver, self._api, self._tenants, readiness, metrics=self._metrics,
                telemetry=self._telemetry, most_bytes=settings.most_bytes,
            )  # fmt: skip
            await self._serve_http(app)
            ends.push_async_callback(self._end_http)
            if self._grpc_address is not None:
                server = grpc_server(receiver, self._tenants, self._metrics, settings.most_bytes)
                self.grpc_port = self._bind(server, *self._grpc_address)
                await server.start()
                ends.push_async_callback(server.stop, _GRACE_S)
            ends.callback(self._stop_accepting)
            ends.callback(asyncio.create_task(self._tick(receiver, readiness)).cancel)
            ends.callback(signals.close)
            ends.enter_context(access.strangers_told_once_a_minute())
            ends.push_async_callback(self._drain, readiness)
            self._ends = ends.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ends.aclose()

    async def _drain(self, readiness: Readiness) -> None:
        """Waits until load balancers have moved on, or a second signal to end comes."""
        readiness.stopping = True
        if self._settings.drain_s and self._stop_requested.is_set():
            self._stop_requested.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stop_requested.wait(), self._settings.drain_s)
        readiness.close()

    def _stop_accepting(self) -> None:
        """Takes no requests any more; those that have begun are answered.

        Before what they need is closed: senders take an unknown error for final, and drop their
        spans.
        """
        self._api.close()
        self._http.should_exit = True

    async def _end_http(self) -> None:
        self._http.should_exit = True
        await self._serving

    async def _close_engines(self, receiver: Receiver) -> None:
        # At once: a next hop that is gone costs the time of one tenant.
        ends = (
            engine.close(partial(receiver.send_rest, tenant, _GRACE_S))
            for tenant, engine in self.engines.items()
        )
        await asyncio.gather(*ends)

    @property
    def is_open(self) -> bool:
        """True if requests of this machine need no token, because none are set."""
        return self._tenants.is_open

    def reload(self) -> None:
        """Reads tokens, certificate and settings again, and logs what changed.

        Tokens, tenants and the certificate apply at once; settings of the guards need a restart. If
        anything cannot be used, all stays as it was, and the log says why. SIGHUP does this too.
        """
        try:
            tenants = self._tenants.read_again() or self._tenants
            pair = None if self._certificate is None else self._certificate.read()
            guard = None if self._reread is None else self._reread()
            for name in tenants.names:
                if name not in self.engines:
                    self.engines[name] = self._engine(_of_tenant(self._guard, name), name)
            changed = self._tenants.use(tenants)
        except LoopGuardError as error:
            logger.error("not reloaded: %s", error)
            return
        if self._certificate is not None and pair is not None and self._certificate.use(pair):
            changed.append("another certificate is used")
        if guard is not None:
            before, now = self._guard.values(), guard.values()
            names = sorted(name for name in now if now[name] != before[name])
            # Names only: a value may be a password.
            changed += [f"{name} applies after a restart" for name in names]
        logger.warning("reloaded: %s", "; ".join(changed) or "nothing changed")

    def _on_hangup(self) -> None:
        if self._http.should_exit:
            return  # it ends, and has begun to close what it would read again for
        if self._on_terminal and not _on_terminal():
            self._stop_requested.set()  # the terminal is gone, and nobody asked for more
        else:
            self.reload()

    async def wait(self) -> None:
        """Waits for SIGINT or SIGTERM."""
        stopping = asyncio.create_task(self._stop_requested.wait())
        running = [stopping, self._serving]
        ended, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        for task in ended:
            task.result()

    def _watch(self, receiver: Receiver, readiness: Readiness) -> None:
        """Sets what is read when metrics are collected."""
        watch, engines = self._metrics.watch, self.engines
        limit = self._settings.most_held_bytes
        watch(semconv.METRIC_SERVER_HELD_USAGE, lambda: receiver.held)
        watch(semconv.METRIC_SERVER_HELD_LIMIT, lambda: limit)
        watch(
            semconv.METRIC_SERVER_JUDGING_QUEUE_SIZE,
            lambda: sum(one.waiting for one in tuple(engines.values())),
        )
        watch(semconv.METRIC_SERVER_JUDGING_QUEUE_CAPACITY, lambda: MOST_WAITING * len(engines))
        if self._hop is not None:
            watch(
                semconv.METRIC_SERVER_FORWARD_QUEUE_SIZE,
                lambda: sum(len(one.log) for one in tuple(engines.values())),
            )
            most = semconv.METRIC_SERVER_FORWARD_QUEUE_CAPACITY
            watch(most, lambda: forward.MOST_EVENTS * len(engines))
        watch(
            semconv.METRIC_SERVER_READY,
            lambda: {check: said == OK for check, said in readiness.known().items()},
        )

    def _engine(self, settings: Settings, tenant: str) -> TenantGuard:
        """The guard of one tenant; those of all workers on a store share its sessions."""
        leases = None
        if settings.store_url:
            if not settings.digest_key:
                msg = "store_url needs digest_key, the same at all workers: it reads their journals"
                raise LoopGuardSettingsError(msg)
            store = shared_store(settings)
            from otel_loopguard.server.leases import SessionLeases  # noqa: PLC0415  # an extra

            ttl_s = settings.tuning.journal.days * 86_400
            leases = SessionLeases(store, 2 * settings.max_sessions, ttl_s)
        guard = Engine(
            settings, local=False, journal_store=leases, manual_journals=leases is not None,
            meter_provider=self._meters, name="" if tenant == access.DEFAULT else tenant,
        )  # fmt: skip
        if leases is not None:
            leases.answered = guard.count_store_call
        return TenantGuard(guard, self._settings.lateness_s, tenant, leases, self._metrics)

    async def _serve_http(self, app: Starlette) -> None:
        settings = self._settings
        host, port = self._address
        listening = _listening("http", settings.http, host, port)
        # Its connections inherit it; asyncio sets it for sockets that it makes itself. Without it
        # the body of an answer waits for the client to confirm its head, 40 ms.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, lifespan="off", ws="none",
            ssl_certfile=settings.certificate or None, ssl_keyfile=settings.key or None,
            timeout_graceful_shutdown=_GRACE_S, timeout_keep_alive=access.KEEP_ALIVE_S,
            http=access.HttpProtocol, backlog=access.BACKLOG,
        )  # fmt: skip
        config.load()
        if self._certificate is not None and config.ssl is not None:
            self._certificate.follow(config.ssl)
        self._http = _Http(config)
        if settings.certificate:
            listening = access.TlsSocket(listening)
        running = self._serving = asyncio.create_task(self._http.serve([listening]))
        while not self._http.started:  # it has no event for it
            await asyncio.sleep(0.01)
            if running.done():
                running.result()
        scheme = "https" if settings.certificate else "http"
        self.url = f"{scheme}://{forward.authority(host, listening.getsockname()[1])}"

    def _bind(self, server: grpc.aio.Server, host: str, port: int) -> int:
        place, certificate = forward.authority(host, port), self._certificate
        # gRPC does not say what is wrong.
        _listening("grpc", self._settings.grpc, host, port).close()
        try:
            if certificate is None:
                return server.add_insecure_port(place)
            return server.add_secure_port(place, certificate.credentials())
        except RuntimeError as error:
            msg = f"grpc = {self._settings.grpc!r}: cannot listen there"
            raise LoopGuardSettingsError(msg) from error

    async def _tick(self, receiver: Receiver, readiness: Readiness) -> None:
        while True:
            for tenant, engine in tuple(self.engines.items()):
                with swallow(engine.guard.faults, "server"):
                    with contextlib.suppress(Busy):  # `/readyz` says so, and the log
                        await engine.tick()
                    with contextlib.suppress(forward.NextHopError):  # they wait for the next time
                        await receiver.send_decisions(tenant)
            self._refusals.tick()
            readiness.tick()
            await asyncio.sleep(_TICK_S)


class _Http(uvicorn.Server):
    """Leaves signals alone: uvicorn re-raises them, which ends the process too early.

    And ends a TLS handshake as soon as a head that does not come; by itself asyncio takes a minute.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens on the sockets that it is given."""
        await super().startup(sockets=[])
        loop, config = asyncio.get_running_loop(), self.config

        def protocol() -> asyncio.Protocol:
            state = self.lifespan.state
            return access.HttpProtocol(config, self.server_state, app_state=state, _loop=loop)

        limit_s = None if config.ssl is None else access.HEAD_S
        for sock in sockets or ():
            server = await loop.create_server(
                protocol, sock=sock, ssl=config.ssl, backlog=config.backlog,
                ssl_handshake_timeout=limit_s,
            )  # fmt: skip
            self.servers.append(server)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


@contextlib.contextmanager
def _signals(calls: Mapping[signal.Signals, Callable[[], None]]) -> Generator[None]:
    """Has signals call something in the loop, on the main thread only."""
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def tell(number: int, _: object) -> None:
        loop.call_soon_threadsafe(calls[signal.Signals(number)])

    before = {one: signal.signal(one, tell) for one in calls}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _on_terminal() -> bool:
    try:
        return os.isatty(0)
    except OSError:
        return False


def _address(name: str, given: str) -> tuple[str, int]:
    host, _, port = given.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 0xFFFF:
        msg = f"{name} = {given!r:.100}: expected host:port, as 127.0.0.1:4318"
        raise LoopGuardSettingsError(msg)
    return host.strip("[]"), int(port)


def _listening(name: str, given: str, host: str, port: int) -> socket.socket:
    """A socket that listens."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        # An address in use may be free soon.
        wrong = LoopGuardError if error.errno == errno.EADDRINUSE else LoopGuardSettingsError
        raise wrong(f"{name} = {given!r}: cannot listen there: {error.strerror}") from error


def _of_tenant(settings: Settings, tenant: str) -> Settings:
    """The settings of a tenant's guard, with a store prefix of its own.

    Its decisions go on with the spans, and not by the telemetry of this process.
    """
    changes: dict[str, object] = {"decision_spans": False, "telemetry_events": False}
    if tenant != access.DEFAULT:
        changes["store_prefix"] = f"{settings.store_prefix}:{tenant}"
    return settings.model_copy(update=changes)
