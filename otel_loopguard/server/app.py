"""The HTTP application: OTLP, a page for people, whether it is ready, and the flag's API.

The API is for runtimes in any language and for people.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit
from weakref import WeakValueDictionary

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from otel_loopguard import semconv
from otel_loopguard._util.fields import is_map
from otel_loopguard._util.text import parsed_json
from otel_loopguard.engine import (
    LONGEST_ID,
    MOST_REQUEST,
    OBSERVERS,
    UNREACHED,
    Action,
    decision_row,
)
from otel_loopguard.server.access import Tenants, is_loopback
from otel_loopguard.server.forward import SIGNALS, NextHop, NextHopError
from otel_loopguard.server.metrics import ServerMetrics, ServerTelemetry, TroubleLog
from otel_loopguard.server.otlp import JSON, Refused, media_of
from otel_loopguard.server.receiver import Receiver, Unauthorized, body_of, endpoint, refusal
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from otel_loopguard.engine import Control, Flag
    from otel_loopguard.server.tenant_guard import TenantGuard

    Endpoint = Callable[[Request], Awaitable[Response]]

LONGEST_WAIT_S: Final = 60.0
"""Longest wait of a request for a flag, in seconds."""
# Proxies shut a stream that is silent for long: nginx after a minute, others after half of one.
_ALIVE_S: Final = 15.0
# Nothing wakes a request if a session gets its final key, or a pause ends by itself.
_LOOK_AGAIN_S: Final = 5.0
_STATUS: Final = {
    "unknown_session": 404, "unknown_escalation": 404, "unknown_request": 404, "refused": 422,
    "too_long": 413, "too_large": 500, "failed": 500, UNREACHED: 503,
}  # fmt: skip
_DECISION: Final = (
    "id", "detector", "rule", "message", "tool", "step", "count", "confidence", "shadow",
)  # fmt: skip
# Arguments are compared up to a million characters; JSON has up to six bytes for one.
_MOST_CALL: Final = 8_000_000
_ACTIONS: Final = ("pause", "resume", "abort", "answer", "allow")


def control_row(session: str, control: Control, warning: str | None) -> dict[str, Any]:
    """A control as JSON; `version` differs after every change, and is equal in all workers.

    Args:
        session: The key that was asked for.
        control: Its control.
        warning: What its runtime should know besides; no part of the version.
    """
    decision = control.decision
    row: dict[str, Any] = {
        "session": control.session or session,
        "action": control.action.value,
        "stops": control.action.stops,
        "reason": control.reason,
        "hint": control.hint,
        "by": control.by,
        "until": control.until,
        "decision": None if decision is None else decision_row(decision, *_DECISION),
    }
    known: object = row
    if control.decision_id is not None:
        # Workers that did not take the decision have no more of it than its id.
        known = (row["session"], row["action"], row["by"], row["until"], control.decision_id)
    digest = hashlib.blake2b(orjson.dumps(known, default=str), digest_size=8)
    return {**row, "warning": warning, "version": digest.hexdigest()}


class Changes:
    """Wakes those who wait for a change of a session's flag, whichever thread makes it.

    Sessions of two tenants may have one name: who is woken would know what the other one does.

    Args:
        engines: The engine of each tenant.
    """

    def __init__(self, engines: Mapping[str, TenantGuard]) -> None:
        self._loop = asyncio.get_running_loop()
        self._engines = engines
        # Of a session that nobody waits for there is none.
        self._events: WeakValueDictionary[tuple[str, str], asyncio.Event] = WeakValueDictionary()
        OBSERVERS.add(self.changed)

    def changed(self, flag: Flag) -> None:
        """Called after a change of a flag, on the thread that made it."""
        # Also if nobody waits: a request that has just looked may be about to.
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._wake, flag)

    async def wait(self, tenant: str, session: str, limit_s: float) -> None:
        """Waits for the next change of the flag of a session, or for the limit."""
        event = self._events.setdefault((tenant, session), asyncio.Event())
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(event.wait(), max(limit_s, 0))

    def wake_all(self) -> None:
        """Wakes everybody."""
        for event in tuple(self._events.values()):
            event.set()

    def _wake(self, flag: Flag) -> None:
        session = flag.control.session or ""
        for tenant, engine in self._engines.items():
            event = self._events.get((tenant, session))
            if event is not None and engine.guard.flag_of(session) is flag:
                del self._events[tenant, session]
                event.set()


class ControlApi:
    """Answers requests about the sessions of the tenant that asks; of the loop that makes it.

    Args:
        engines: The engine of each tenant.
    """

    def __init__(self, engines: Mapping[str, TenantGuard]) -> None:
        self._engines = engines
        self._changes = Changes(engines)
        self._closed = False

    def close(self) -> None:
        """Answers all waiting requests; no further one waits."""
        self._closed = True
        self._changes.wake_all()

    def routes(self) -> list[Route]:
        """The routes of the API."""
        gets = {"/control": self.control, "/events": self.events, "": self.session}
        acts = {f"/{action}": self.act for action in _ACTIONS} | {"/control": self.control_of_call}
        return [
            Route("/v1/sessions", self.sessions),
            *(
                Route(f"{one}{path}", _named(endpoint), methods=[method])
                for one in ("/v1/session", "/v1/sessions/{session:path}")
                for method, endpoints in (("POST", acts), ("GET", gets))
                for path, endpoint in endpoints.items()
            ),
        ]

    async def sessions(self, request: Request) -> Response:
        """The sessions in use, and those that are stopped."""
        return await self._reply(request, {"op": "sessions"})

    async def session(self, request: Request) -> Response:
        """Everything known about a session."""
        return await self._reply(request, {"op": "show", "session": request.state.session})

    async def control(self, request: Request) -> Response:
        """The control of a session; waits for a change for up to `wait` seconds."""
        try:
            wait_s = min(float(request.query_params.get("wait", "0")), LONGEST_WAIT_S)
        except ValueError:
            return problem(422, "wait must be a number of seconds")
        since = request.query_params.get("since")
        until = time.monotonic() + wait_s
        if not wait_s:
            self._count(request)
        while True:
            row = await self._row(request)
            changed = row["version"] != since if since else row["action"] != Action.ALLOW.value
            left = until - time.monotonic()
            if changed or self._closed or not left > 0:
                return _unstored(row)
            await self._wait(request, min(left, _LOOK_AGAIN_S))

    async def events(self, request: Request) -> Response:
        """The control of a session as server-sent events: as it is, and after each change."""
        return StreamingResponse(
            self._events(request),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    async def control_of_call(self, request: Request) -> Response:
        """The control that refuses a call of a tool, or one that allows it."""
        body = await _json(request, _MOST_CALL)
        if isinstance(body, Response):
            return body
        if other := body.keys() - {"tool", "arguments"}:
            return problem(422, f"there is no {min(other)!r:.100}: expected 'tool', 'arguments'")
        if not isinstance(tool := body.get("tool"), str):
            return problem(422, "tool must be the name of one")
        self._count(request)
        return _unstored(await self._row(request, tool, body.get("arguments")))

    async def act(self, request: Request) -> Response:
        """Pauses, resumes or aborts a session, answers its escalation, or allows its calls."""
        body = await _json(request)
        if isinstance(body, Response):
            return body
        action = request.scope["path"].rpartition("/")[2]
        if named := body.keys() & {"op", "session", "via", "stored"}:
            return problem(422, f"the path says what is asked, and not {min(named)!r} of the body")
        # Workers of an older version refuse fields they do not know: only an answer has `via`.
        way = {"via": "http"} if action == "answer" else {}
        message = {**body, **way, "op": action, "session": request.state.session}
        return await self._reply(request, message)

    async def _wait(self, request: Request, limit_s: float) -> None:
        """Waits for a change of the session that is asked about."""
        await self._changes.wait(request.state.tenant, request.state.session, limit_s)

    def _engine(self, request: Request) -> TenantGuard:
        return self._engines[request.state.tenant]

    async def _reply(self, request: Request, message: dict[str, Any]) -> Response:
        reply = await self._engine(request).ask(message)
        if reply.pop("ok"):
            return _unstored(reply)
        return problem(_STATUS[reply["error"]], reply["message"])

    def _count(self, request: Request) -> None:
        """Counts a question of a step, unless another worker may know the session."""
        engine = self._engine(request)
        if not engine.admin.others_judge:
            engine.lateness.asked(request.state.session)

    async def _row(self, request: Request, *call: Any) -> dict[str, Any]:
        session = request.state.session
        engine = self._engine(request)
        control = await (engine.refusal(session, *call) if call else engine.read(session))
        return control_row(session, control, engine.lateness.warning(control.session or session))

    async def _events(self, request: Request) -> AsyncIterator[bytes]:
        version = ""
        # Its token may be withdrawn meanwhile, and a stream has no end of its own.
        while request.state.admitted() and not (self._closed or await request.is_disconnected()):
            row = await self._row(request)
            if row["version"] != version:
                version = row["version"]
                data = orjson.dumps(row).decode()
                yield f"event: control\nid: {version}\ndata: {data}\n\n".encode()
            else:
                yield b": still here\n\n"
            await self._wait(request, _ALIVE_S)


def _named(endpoint: Endpoint) -> Endpoint:
    """An endpoint that knows the session of a request, which stands in its path or its query.

    Clients and proxies change paths: `..` is taken out of them, and `%2F` becomes a slash.
    """

    async def answer(request: Request) -> Response:
        written = request.path_params.get("session")
        session = request.query_params.get("id") if written is None else unquote(written)
        if not session:
            return problem(422, "the key of the session is missing, expected it as `id`")
        if len(session) > LONGEST_ID:
            # No session has it, and what is asked for is remembered until it begins.
            return problem(422, f"the key of the session has more than {LONGEST_ID:,} characters")
        request.state.session = session
        return await endpoint(request)

    return answer


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error, as RFC 9457 has them."""
    body = {"type": "about:blank", "status": status, "detail": detail}
    return JSONResponse(body, status, headers, media_type="application/problem+json")


def _unstored(row: dict[str, Any]) -> JSONResponse:
    """An answer that must not be cached."""
    return JSONResponse(row, headers={"cache-control": "no-store"})


async def _unrouted(request: Request, error: Any) -> Response:
    """An error of the router: no such path, or not with this method."""
    place = f"{request.method} {request.url.path:.200}"
    return problem(error.status_code, f"{error.detail.lower()}: {place}", error.headers)


async def _json(request: Request, most: int = MOST_REQUEST) -> dict[str, Any] | Response:
    """The body of a request; an empty one is an empty object."""
    if media_of(request.headers.get("content-type", "")) != JSON:
        # A page of another site may send a form without permission, but no JSON.
        return problem(415, "the content type must be application/json")
    try:
        body = await body_of(request, most)
    except Refused as error:
        return problem(error.status, str(error), dict(error.headers))
    except ClientDisconnect:
        return Response(status_code=400)
    try:
        found = parsed_json(body or b"{}")
    except (ValueError, RecursionError):
        return problem(400, "the body is not valid JSON")
    return found if is_map(found) else problem(422, "the body must be a JSON object")


OK: Final = "ok"
_SILENT_S: Final = 15.0
"""Without a sign of the judging thread, which gives one each second: past any pause for garbage."""
_HOP_S: Final = 2.0
"""Seconds that the next hop may take: orchestrators give up after a few seconds themselves."""
_KNOWN_S: Final = 1.0
"""Seconds between checks of the next hop, however many clients ask."""
_IDLE_S: Final = 15.0
"""Seconds after which a next hop that failed is checked without traffic."""
_RECENT_S: Final = 5.0
"""Seconds after a refusal for which too much waits: senders come again after one."""
_SERVED: Final = files("otel_loopguard.server")
_PAGE_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
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
    pages = [
        Route(path, _fixed(_SERVED.joinpath(name).read_bytes(), media, _PAGE_HEADERS))
        for path, (name, media) in _ASSETS.items()
    ]
    routes = [
        *otlp,
        *api.routes(),
        Route("/v1/openapi.json", _fixed(orjson.dumps(document()), "application/json")),
        *(Route(path, _fixed(b"ok", "text/plain")) for path in _ALIVE),
        Route("/readyz", readiness.answer),
        *pages,
    ]
    if telemetry is not None:
        routes.append(Route(_METRICS, _metrics(telemetry)))
    app = Starlette(routes=routes, exception_handlers={HTTPException: _unrouted})
    paths = {route.endpoint: route.path.replace(":path", "") for route in routes}
    app.add_middleware(
        _Access, tenants=tenants, refusals=receiver.refusals, metrics=metrics, paths=paths
    )
    return app


@dataclass
class _Access:
    """Lets a request pass with the token of a tenant; without tokens only on loopback.

    A page of another site must not read or steer what a browser can reach on loopback: its name
    for this machine is not the machine's own (DNS rebinding), or its `Origin` is not ours.

    It records how long each request takes, by its route and its status.
    """

    app: Any
    tenants: Tenants
    refusals: TroubleLog
    metrics: ServerMetrics
    paths: Mapping[Any, str]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
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
            await (refusal or self.app)(scope, receive, sent)
        finally:
            # A refused request counts for the route it asked for, if there is one.
            known = asked if asked in self.paths.values() else ""
            route = self.paths.get(scope.get("endpoint"), known)
            name, took = semconv.METRIC_SERVER_REQUEST_DURATION, time.monotonic() - began
            self.metrics.add(name, took, route, status or "")  # none: the client is gone

    def _refusal(self, request: Request) -> Response | None:
        if request.scope["http_version"] not in {"1.0", "1.1"}:  # `localhost:4318` for gRPC
            why = "this port takes HTTP/1.1, and gRPC has a port of its own"
            self.refusals.note("bad_request", why)
            return problem(505, why)
        if self.tenants.is_open and not is_loopback(_host(request)):
            why = "without tokens only requests to this machine's own names are taken"
            self.refusals.note("host", why)
            return problem(421, why)
        # Not that of its URL, which has the host as the client named it.
        scheme, path = request.scope["scheme"], request.scope["path"]
        origin = request.headers.get("origin")
        if origin is not None and origin != f"{scheme}://{request.headers.get('host', '')}":
            why = "requests from pages of other sites are not taken"
            self.refusals.note("origin", why)
            return problem(403, why)
        return None if path in _OPEN else self._refusal_of_token(request, path)

    def _refusal_of_token(self, request: Request, path: str) -> Response | None:
        given = request.headers.get("authorization")
        why = "a bearer token is needed"
        if path == _METRICS:
            # Of all tenants together, so that of one of them is no token for it.
            why = f"{why}: that of the only tenant, or `metrics` in the file of tokens"
            if self.tenants.may_scrape(given):
                return None
        elif (tenant := self.tenants.tenant(given)) is not None:
            request.state.tenant = tenant
            request.state.admitted = lambda: self.tenants.tenant(given) == tenant
            return None
        peer = "" if request.client is None else f" of {request.client.host}"
        self.refusals.note("token", f"no valid token came with a request{peer}")
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
    found = orjson.loads(_SERVED.joinpath("openapi.json").read_bytes())
    found["info"]["version"] = __version__
    return found


def _fixed(content: bytes, media: str, headers: Mapping[str, str] | None = None) -> Endpoint:
    """An answer read in advance: it can be served without a free descriptor."""

    async def answer(_: Request) -> Response:
        return Response(content, headers=headers, media_type=media)

    return answer


def _metrics(telemetry: ServerTelemetry) -> Endpoint:
    async def metrics(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        text, media = await asyncio.to_thread(telemetry.exposition, accept)
        return Response(text, headers={"content-type": media})

    return metrics


class Readiness:
    """Checks what a request needs: the judging threads, room, the store and the next hop.

    Whoever can connect may ask, so a check costs next to nothing: the threads look at the store
    every second anyway, and the next hop gets an empty request once per second at most.

    Attributes:
        stopping: True once the server is being shut down.
    """

    def __init__(
        self, engines: Mapping[str, TenantGuard], hop: NextHop | None, refusals: TroubleLog
    ) -> None:
        self._engines = engines
        self._hop = hop
        self._refusals = refusals
        self._log = TroubleLog("not ready")
        self._asking: asyncio.Task[None] | None = None
        self._asked_at = 0.0
        self.stopping = False

    async def answer(self, _: Request) -> Response:
        """Asks the next hop, and answers with `ok` or a reason for each check.

        What is not configured is left out.
        """
        if self._hop is not None:
            await asyncio.shield(self._ask(self._hop))
        found = self.known()
        if found.get("store", OK) != OK:
            # Anyone who can connect may ask, and errors of the store contain its address.
            found["store"] = "the store does not answer; the log says why"
        return JSONResponse(found, 200 if {*found.values()} == {OK} else 503)

    def known(self) -> dict[str, str]:
        """The same from memory; callable from any thread."""
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
        """Logs troubles that began or ended; checks an idle next hop."""
        hop = self._hop
        if hop is not None and hop.trouble != "" and time.monotonic() - hop.asked_at > _IDLE_S:
            self._ask(hop)
        for check, said in self.known().items():
            if said != OK:
                more = "" if hop is None or said != hop.trouble else hop.detail
                self._log.note(check, more or said)
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
            hop.trouble = hop.detail = f"the next hop did not answer within {_HOP_S:g} s"
