"""The HTTP application: OTLP, the flag's API, and a page for people."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from google.rpc.status_pb2 import Status
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from otel_loopguard.server.api import ControlApi, problem
from otel_loopguard.server.engine import Busy
from otel_loopguard.server.forward import SIGNALS, NextHopError, Signal
from otel_loopguard.server.openapi import document
from otel_loopguard.server.otlp import (
    JSON,
    PROTOBUF,
    BadRequest,
    TooLarge,
    decode,
    decompressed,
    encode,
)
from otel_loopguard.server.receiver import aside
from otel_loopguard.server.tenants import is_loopback

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from otel_loopguard.server.engine import Engine
    from otel_loopguard.server.receiver import Receiver
    from otel_loopguard.server.tenants import Tenants

RETRY_S: Final = 1
BODY_S: Final = 30.0
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ASSETS: Final = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
_INVALID_ARGUMENT, _DEADLINE_EXCEEDED, _RESOURCE_EXHAUSTED = 3, 4, 8
_UNAVAILABLE, _UNAUTHENTICATED = 14, 16


def http_app(
    receiver: Receiver, engines: Mapping[str, Engine], tenants: Tenants, *, most_bytes: int
) -> Starlette:
    """The ASGI application.

    Args:
        receiver: Takes requests of OTLP.
        engines: The engine of each tenant.
        tenants: Whose tokens are taken.
        most_bytes: Bytes of the largest request, also when decompressed.
    """
    api = ControlApi(engines, lambda request: request.state.tenant)
    otlp = [
        Route(signal.path, _otlp(signal, receiver, most_bytes), methods=["POST"])
        for signal in SIGNALS.values()
    ]
    pages = [Route(path, _asset(*found)) for path, found in _ASSETS.items()]
    routes = [
        *otlp,
        *api.routes(),
        Route("/v1/openapi.json", _openapi),
        Route("/healthz", _health),
        *pages,
    ]
    app = Starlette(routes=routes)
    open_paths = {*_ASSETS, "/healthz", "/v1/openapi.json"}
    app.add_middleware(_Access, tenants=tenants, open_paths=open_paths)
    return app


class _Access:
    """Lets a request pass with the token of a tenant; without tokens only on loopback.

    A page of another site must not read or steer what a browser can reach on loopback: its name
    for this machine is not the machine's own (DNS rebinding), or its `Origin` is not ours.
    """

    def __init__(self, app: Any, tenants: Tenants, open_paths: set[str]) -> None:
        self._app = app
        self._tenants = tenants
        self._open = open_paths

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"].startswith("/v1/sessions/"):
            # The raw path: an id may have slashes, and end like the name of an action.
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
        request = Request(scope)
        refusal = self._refusal(request)
        if refusal is not None:
            refusal.headers["connection"] = "close"  # no stranger keeps one
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        if self._tenants.is_open and not is_loopback(_host(request)):
            return problem(
                421, "without tokens only requests to this machine's own names are taken"
            )
        origin = request.headers.get("origin")
        if origin is not None and origin != f"{request.url.scheme}://{request.url.netloc}":
            return problem(403, "requests from pages of other sites are not taken")
        if request.url.path in self._open:
            return None
        tenant = self._tenants.tenant(request.headers.get("authorization"))
        if tenant is None:
            headers = {"www-authenticate": "Bearer"}
            if request.url.path in {signal.path for signal in SIGNALS.values()}:
                why = "a bearer token is needed"
                return _status(request, 401, _UNAUTHENTICATED, why, headers)
            return problem(401, "a bearer token is needed", headers)
        request.state.tenant = tenant
        return None


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
    parts: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most_bytes:
            msg = f"the body has more than {most_bytes:,} bytes"
            raise TooLarge(msg)
        hold(len(chunk))
        parts.append(chunk)
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


def _openapi(_: Request) -> Response:
    return JSONResponse(document())


def _health(_: Request) -> Response:
    return PlainTextResponse("ok")


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
