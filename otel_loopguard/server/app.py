"""The HTTP application: OTLP, the flag's API, a page for people, and whether it is ready."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from otel_loopguard import semconv
from otel_loopguard.server.access import is_loopback
from otel_loopguard.server.api import problem
from otel_loopguard.server.forward import SIGNALS, NextHopError
from otel_loopguard.server.metrics import TroubleLog
from otel_loopguard.server.receiver import Unauthorized, endpoint, refusal
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from otel_loopguard.server.access import Tenants
    from otel_loopguard.server.api import ControlApi
    from otel_loopguard.server.forward import NextHop
    from otel_loopguard.server.metrics import Refusals, ServerMetrics, ServerTelemetry
    from otel_loopguard.server.receiver import Receiver
    from otel_loopguard.server.tenant_guard import TenantGuard

OK: Final = "ok"
_SILENT_S: Final = 15.0
"""Without a sign of the judging thread, which gives one each second: past any pause for garbage."""
_HOP_S: Final = 2.0
"""For the next hop: orchestrators give up after a few seconds themselves."""
_KNOWN_S: Final = 1.0
"""Seconds for which the next hop is not asked again, whoever asks here."""
_IDLE_S: Final = 15.0
"""Seconds after which a next hop that took nothing is asked though nobody sends."""
_RECENT_S: Final = 5.0
"""Seconds after a refusal for which too much waits: senders come again after one."""
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ASSETS: Final = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_ALIVE: Final = ("/livez", "/healthz")
_OPEN: Final = frozenset((*_ASSETS, *_ALIVE, "/readyz", "/v1/openapi.json"))
"""Paths that need no token: orchestrators ask them, and nothing of a session is there."""
_METRICS: Final = "/metrics"


def http_app(  # noqa: PLR0913
    receiver: Receiver, api: ControlApi, tenants: Tenants, readiness: Readiness, *,
    metrics: ServerMetrics, telemetry: ServerTelemetry | None, most_bytes: int,
) -> Starlette:  # fmt: skip
    """The ASGI application.

    Args:
        receiver: Takes requests of OTLP.
        api: Answers requests about sessions.
        tenants: Whose tokens are taken.
        readiness: What `/readyz` asks.
        metrics: What counts requests.
        telemetry: What `/metrics` shows; None: there is no such path.
        most_bytes: Bytes of the largest request, also when decompressed.
    """
    otlp = [
        Route(signal.path, endpoint(signal, receiver, most_bytes), methods=["POST"])
        for signal in SIGNALS.values()
    ]
    pages = [Route(path, _asset(*found)) for path, found in _ASSETS.items()]
    routes = [
        *otlp,
        *api.routes(),
        Route("/v1/openapi.json", _openapi),
        *(Route(path, _alive) for path in _ALIVE),
        Route("/readyz", _ready(readiness)),
        *pages,
    ]
    if telemetry is not None:
        routes.append(Route(_METRICS, _metrics(telemetry)))
    app = Starlette(routes=routes)
    paths = {route.endpoint: route.path.replace(":path", "") for route in routes}
    app.add_middleware(
        _Access, tenants=tenants, refusals=receiver.refusals, metrics=metrics, paths=paths
    )
    return app


class _Access:
    """Lets a request pass with the token of a tenant; without tokens only on loopback.

    A page of another site must not read or steer what a browser can reach on loopback: its name
    for this machine is not the machine's own (DNS rebinding), or its `Origin` is not ours.

    It records how long each request takes, by its route and its status.
    """

    def __init__(
        self, app: Any, tenants: Tenants, refusals: Refusals, metrics: ServerMetrics,
        paths: Mapping[Any, str],
    ) -> None:  # fmt: skip
        self._app = app
        self._tenants = tenants
        self._refusals = refusals
        self._metrics = metrics
        self._paths = paths

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, asked, status = time.monotonic(), scope["path"], 0

        async def sent(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        if asked.startswith("/v1/sessions/"):
            # The raw path: an id may have slashes, and end like the name of an action.
            scope["path"] = scope["raw_path"].decode("latin-1")
        request = Request(scope)
        refusal = self._refusal(request)
        if refusal is not None:
            refusal.headers["connection"] = "close"  # no stranger keeps one
        try:
            await (refusal or self._app)(scope, receive, sent)
        finally:
            # Of a request that was refused: what it asked for, if there is such a place.
            known = asked if asked in self._paths.values() else ""
            route = self._paths.get(scope.get("endpoint"), known)
            name, took = semconv.METRIC_SERVER_REQUEST_DURATION, time.monotonic() - began
            self._metrics.add(name, took, route, status or "")  # none: the client is gone

    def _refusal(self, request: Request) -> Response | None:
        if self._tenants.is_open and not is_loopback(_host(request)):
            why = "without tokens only requests to this machine's own names are taken"
            self._refusals.note("host", why)
            return problem(421, why)
        origin = request.headers.get("origin")
        if origin is not None and origin != f"{request.url.scheme}://{request.url.netloc}":
            why = "requests from pages of other sites are not taken"
            self._refusals.note("origin", why)
            return problem(403, why)
        return None if request.url.path in _OPEN else self._refusal_of_token(request)

    def _refusal_of_token(self, request: Request) -> Response | None:
        given, path = request.headers.get("authorization"), request.url.path
        why = "a bearer token is needed"
        if path == _METRICS:
            # Of all tenants together, so that of one of them is no token for it.
            why = f"{why}: that of the only tenant, or `metrics` in the file of tokens"
            if self._tenants.may_scrape(given):
                return None
        elif (tenant := self._tenants.tenant(given)) is not None:
            request.state.tenant = tenant
            return None
        peer = "" if request.client is None else f" of {request.client.host}"
        self._refusals.note("token", f"no valid token came with a request{peer}")
        if path in {signal.path for signal in SIGNALS.values()}:
            return refusal(request, Unauthorized(why))
        return problem(401, why, dict(Unauthorized.headers))


def _host(request: Request) -> str:
    """The name that a client has for this machine; empty for what is no name."""
    given = request.headers.get("host", "")
    try:
        # Not that of the URL, which is the machine's own if the header is no host.
        parts = urlsplit(f"//{given}")
    except ValueError:
        return ""
    return (parts.netloc == given and parts.hostname) or ""


def document() -> dict[str, Any]:
    """Returns the OpenAPI document of the flag's API."""
    found = orjson.loads(files("otel_loopguard.server").joinpath("openapi.json").read_bytes())
    found["info"]["version"] = __version__
    return found


def _openapi(_: Request) -> Response:
    return JSONResponse(document())


def _alive(_: Request) -> Response:
    return PlainTextResponse("ok")


def _ready(readiness: Readiness) -> Callable[[Request], Awaitable[Response]]:
    async def ready(_: Request) -> Response:
        checks = await readiness.checks()
        return JSONResponse(checks, 200 if {*checks.values()} == {OK} else 503)

    return ready


def _metrics(telemetry: ServerTelemetry) -> Callable[[Request], Awaitable[Response]]:
    async def metrics(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        text, media = await asyncio.to_thread(telemetry.exposition, accept)
        return Response(text, headers={"content-type": media})

    return metrics


def _asset(name: str, media: str) -> Callable[[Request], Response]:
    content = files("otel_loopguard.server").joinpath(name).read_text("utf-8")

    def asset(request: Request) -> Response:
        del request
        headers = {
            "content-security-policy": _POLICY,
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
        }
        return HTMLResponse(content, headers=headers, media_type=media)

    return asset


class Readiness:
    """Checks what a request needs: the judging threads, room, the store and the next hop.

    Whoever can connect may ask, so a check costs next to nothing: the threads look at the store
    every second anyway, and the next hop gets an empty request once per second at most.

    Attributes:
        stopping: True once the server is being shut down.
    """

    def __init__(
        self, engines: Mapping[str, TenantGuard], hop: NextHop | None, refusals: Refusals
    ) -> None:
        self._engines = engines
        self._hop = hop
        self._refusals = refusals.log
        self._log = TroubleLog("not ready")
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = 0.0
        self.stopping = False

    async def checks(self) -> dict[str, str]:
        """Asks the next hop, and returns `ok` or a reason for each check.

        What is not configured is left out.
        """
        if self._hop is not None:
            await asyncio.shield(self._ask(self._hop))
        found = self.known()
        if found.get("store", OK) != OK:
            # Whoever can connect may ask, and what the store says has its address.
            found["store"] = "the store does not answer; the log says why"
        return found

    def known(self) -> dict[str, str]:
        """The same without asking anybody; from any thread."""
        engines, now = tuple(self._engines.values()), time.monotonic()
        works = all(now - engine.ticked < _SILENT_S for engine in engines)
        troubles = [engine.store_trouble for engine in engines]
        found = {
            "running": OK if not self.stopping else "the server is shutting down",
            "judging": OK if works else f"nothing was judged for {_SILENT_S:g} s",
            "queue": self._refusals.newest("busy", _RECENT_S) or OK,
        }
        if troubles and None not in troubles:
            found["store"] = next(filter(None, troubles), OK)
        if self._hop is not None and self._hop.trouble is not None:
            found["next_hop"] = self._hop.trouble or OK
        return found

    def tick(self) -> None:
        """Logs what began, or is over; asks a next hop that nobody asks."""
        hop = self._hop
        if hop is not None and hop.trouble != "" and time.monotonic() - hop.asked_at > _IDLE_S:
            self._ask(hop)
        for check, said in self.known().items():
            if said != OK:
                self._log.note(check, said)
        self._log.tick()

    def close(self) -> None:
        """Logs what is not over."""
        self._log.close()

    def _ask(self, hop: NextHop) -> asyncio.Task[None]:
        asking, now = self._asking, time.monotonic()
        if asking is None or (asking.done() and now - self._asked_at > _KNOWN_S):
            self._asked_at = now
            asking = self._asking = asyncio.create_task(_ask(hop))
        return asking


async def _ask(hop: NextHop) -> None:
    """Sends a next hop an empty request; many refuse one, which is an answer, too."""
    traces = SIGNALS["traces"]
    with suppress(NextHopError):
        try:
            await asyncio.wait_for(hop.send(traces, traces.request()), _HOP_S)
        except asyncio.TimeoutError:
            hop.trouble = f"the next hop did not answer within {_HOP_S:g} s"
