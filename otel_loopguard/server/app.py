"""The HTTP application: OTLP, the flag's API, and a page for people."""

from __future__ import annotations

import asyncio
import time
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson
from google.rpc.status_pb2 import Status
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from otel_loopguard import semconv
from otel_loopguard.server.access import is_loopback
from otel_loopguard.server.api import problem
from otel_loopguard.server.forward import SIGNALS, NextHopError, Signal
from otel_loopguard.server.otlp import (
    JSON,
    PROTOBUF,
    BadRequest,
    TooLarge,
    decode,
    decompressed,
    encode,
)
from otel_loopguard.server.readiness import OK
from otel_loopguard.server.receiver import aside
from otel_loopguard.server.tenant_guard import RETRY_S, Busy
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from otel_loopguard.server.access import Tenants
    from otel_loopguard.server.api import ControlApi
    from otel_loopguard.server.metrics import ServerMetrics
    from otel_loopguard.server.readiness import Readiness
    from otel_loopguard.server.receiver import Receiver
    from otel_loopguard.server.telemetry import ServerTelemetry
    from otel_loopguard.server.troubles import Refusals

# 16 MiB come in that time over 5 Mbit/s; exporters give up after ten seconds anyway.
BODY_S: Final = 30.0
_DROPPED: Final = 10
"""Bodies of the largest size that are read of one that is refused."""
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
_METRICS: Final = "/metrics"
_INVALID_ARGUMENT, _DEADLINE_EXCEEDED, _RESOURCE_EXHAUSTED = 3, 4, 8
_UNAVAILABLE, _UNAUTHENTICATED = 14, 16


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
        Route(signal.path, _otlp(signal, receiver, most_bytes), methods=["POST"])
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
    open_paths = {*_ASSETS, *_ALIVE, "/readyz", "/v1/openapi.json"}
    app.add_middleware(_Access, tenants=tenants, open_paths=open_paths, refusals=receiver.refusals)
    paths = {route.endpoint: route.path.replace(":path", "") for route in routes}
    app.add_middleware(_Measured, metrics=metrics, paths=paths)  # around the other one
    return app


class _Measured:
    """Records how long each request takes, by its route and its status."""

    def __init__(self, app: Any, metrics: ServerMetrics, paths: Mapping[Any, str]) -> None:
        self._app = app
        self._metrics = metrics
        self._paths = paths

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        status = 0

        async def sent(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sent)
        finally:
            # Of a request that was refused before: what it asked for, if there is such a place.
            asked = scope["path"] if scope["path"] in self._paths.values() else ""
            route = self._paths.get(scope.get("endpoint"), asked)
            name, took = semconv.METRIC_SERVER_REQUEST_DURATION, time.monotonic() - began
            self._metrics.add(name, took, route, status or "")  # none: the client is gone


class _Access:
    """Lets a request pass with the token of a tenant; without tokens only on loopback.

    A page of another site must not read or steer what a browser can reach on loopback: its name
    for this machine is not the machine's own (DNS rebinding), or its `Origin` is not ours.
    """

    def __init__(
        self, app: Any, tenants: Tenants, open_paths: set[str], refusals: Refusals
    ) -> None:
        self._app = app
        self._tenants = tenants
        self._open = open_paths
        self._refusals = refusals

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith("/v1/sessions/"):
            # The raw path: an id may have slashes, and end like the name of an action.
            scope["path"] = scope["raw_path"].decode("latin-1")
        request = Request(scope)
        refusal = self._refusal(request)
        if refusal is not None:
            refusal.headers["connection"] = "close"  # no stranger keeps one
        await (refusal or self._app)(scope, receive, send)

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
        return None if request.url.path in self._open else self._refusal_of_token(request)

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
        headers = {"www-authenticate": "Bearer"}
        if path in {signal.path for signal in SIGNALS.values()}:
            return _status(request, 401, _UNAUTHENTICATED, why, headers)
        return problem(401, why, headers)


def _host(request: Request) -> str:
    """The name that a client has for this machine; empty for what is no name."""
    given = request.headers.get("host", "")
    try:
        # Not that of the URL, which is the machine's own if the header is no host.
        parts = urlsplit(f"//{given}")
    except ValueError:
        return ""
    return (parts.netloc == given and parts.hostname) or ""


def _otlp(
    signal: Signal, receiver: Receiver, most_bytes: int
) -> Callable[[Request], Awaitable[Response]]:
    async def take(request: Request) -> Response:  # noqa: PLR0911  # one for each outcome
        headers = request.headers
        content_type = headers.get("content-type", "")
        try:
            with receiver.holding() as hold:
                body = await asyncio.wait_for(_body(request, most_bytes, hold), BODY_S)
                encoding = headers.get("content-encoding", "").lower()
                data = await aside(len(body), decompressed, body, encoding, most_bytes)
                hold(len(data) - len(body))
                message = await aside(len(data), decode, signal.request, data, content_type)
                response = await receiver.take(signal, message, request.state.tenant, len(data))
        except ClientDisconnect:
            return Response(status_code=400)
        except asyncio.TimeoutError:
            why = f"the body did not come within {BODY_S:g} seconds"
            receiver.refusals.note("slow", why)
            return _status(request, 408, _DEADLINE_EXCEEDED, why, {"connection": "close"})
        except TooLarge as error:
            return _status(request, 413, _INVALID_ARGUMENT, str(error))
        except BadRequest as error:
            code = 415 if "is not supported" in str(error) else 400
            return _status(request, code, _INVALID_ARGUMENT, str(error))
        except Busy as error:
            after = {"retry-after": str(RETRY_S)}
            return _status(request, 503, _RESOURCE_EXHAUSTED, str(error), after)
        except NextHopError as error:
            if not error.retryable:
                return _status(request, 400, _INVALID_ARGUMENT, str(error))
            after = {"retry-after": error.retry_after or str(RETRY_S)}
            return _status(request, 503, _UNAVAILABLE, str(error), after)
        media = _media(request)
        return Response(encode(response, media), media_type=media)

    return take


async def _body(request: Request, most_bytes: int, hold: Callable[[int], None]) -> bytes:
    """The body of a request.

    What is refused is read on, up to a limit, and dropped: most clients read no answer before they
    have sent everything, and take a closed connection for a reason to send it all again.
    """
    parts: list[bytes] = []
    size = 0
    refusal: TooLarge | Busy | None = None
    async for chunk in request.stream():
        size += len(chunk)
        if refusal is None:
            try:
                if size > most_bytes:
                    msg = f"the body has more than {most_bytes:,} bytes"
                    raise TooLarge(msg)  # noqa: TRY301
                hold(len(chunk))
                parts.append(chunk)
            except (TooLarge, Busy) as error:
                refusal = error
                hold(-sum(map(len, parts)))
                parts.clear()
        elif size > _DROPPED * most_bytes:
            break
    if refusal is not None:
        raise refusal
    return b"".join(parts)


def _media(request: Request) -> str:
    return JSON if request.headers.get("content-type", "").startswith(JSON) else PROTOBUF


def _status(
    request: Request, code: int, grpc_code: int, why: str, headers: dict[str, str] | None = None
) -> Response:
    """An error of OTLP/HTTP, in the encoding of its request."""
    media = _media(request)
    body = encode(Status(code=grpc_code, message=why), media)
    return Response(body, code, headers, media)


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
