"""The control flag over HTTP, for runtimes in any language and for people."""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

import orjson
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from otel_loopguard.engine import MOST_REQUEST, OBSERVERS, Action, decision_row, encoded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from starlette.requests import Request

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
    "too_long": 413, "too_large": 500, "failed": 500,
}  # fmt: skip
_DECISION: Final = (
    "id", "detector", "rule", "message", "tool", "step", "count", "confidence", "shadow",
)  # fmt: skip
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
    """Wakes those who wait for a change of a session's flag, whichever thread makes it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        OBSERVERS.add(self.changed)

    def changed(self, flag: Flag) -> None:
        """Called after a change of a flag, on the thread that made it."""
        # Also if nobody waits: a request that just looked may wait when this is called.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, flag.control.session or "")

    async def wait(self, session: str, limit_s: float) -> None:
        """Waits for the next change of the flag of a session, or for the limit."""
        future = self._loop.create_future()
        self._waiters.setdefault(session, set()).add(future)
        try:
            await asyncio.wait_for(future, max(limit_s, 0))
        except (TimeoutError, asyncio.TimeoutError):  # two classes on Python 3.10
            pass
        finally:
            waiters = self._waiters.get(session, set())
            waiters.discard(future)
            if not waiters:
                self._waiters.pop(session, None)

    def wake_all(self) -> None:
        """Wakes everybody."""
        for session in tuple(self._waiters):
            self._wake(session)

    def _wake(self, session: str) -> None:
        for future in self._waiters.pop(session, ()):
            if not future.done():
                future.set_result(None)


class ControlApi:
    """Answers requests about the sessions of the tenant that asks.

    Args:
        engines: The engine of each tenant.
    """

    def __init__(self, engines: Mapping[str, TenantGuard]) -> None:
        self._engines = engines
        self._made: Changes | None = None
        self._closed = False

    def close(self) -> None:
        """Answers those who wait; from now on nobody does."""
        self._closed = True
        if self._made is not None:
            self._made.wake_all()

    def routes(self) -> list[Route]:
        """The routes of the API."""
        gets = {"/control": self.control, "/events": self.events, "": self.session}
        acts = {f"/{action}": self.act for action in _ACTIONS}
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
        return self._reply(request, {"op": "sessions"})

    async def session(self, request: Request) -> Response:
        """Everything known about a session."""
        return self._reply(request, {"op": "show", "session": request.state.session})

    async def control(self, request: Request) -> Response:
        """The control of a session; waits for a change for up to `wait` seconds."""
        try:
            wait_s = min(float(request.query_params.get("wait", "0")), LONGEST_WAIT_S)
        except ValueError:
            return problem(422, "wait must be a number of seconds")
        since = request.query_params.get("since")
        until = time.monotonic() + wait_s
        while True:
            row = await self._row(request)
            changed = row["version"] != since if since else row["action"] != Action.ALLOW.value
            left = until - time.monotonic()
            if changed or self._closed or not left > 0:
                return JSONResponse(row, headers={"cache-control": "no-store"})
            await self._changes.wait(request.state.session, min(left, _LOOK_AGAIN_S))

    async def events(self, request: Request) -> Response:
        """The control of a session as server-sent events: as it is, and after each change."""
        return StreamingResponse(
            self._events(request),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    async def act(self, request: Request) -> Response:
        """Pauses, resumes or aborts a session, answers its escalation, or allows its calls."""
        body = await _json(request)
        if isinstance(body, Response):
            return body
        action = request.url.path.rpartition("/")[2]
        return self._reply(request, {**body, "op": action, "session": request.state.session})

    @property
    def _changes(self) -> Changes:
        # Made on first use: it belongs to the loop that runs.
        if self._made is None:
            self._made = Changes()
        return self._made

    def _engine(self, request: Request) -> TenantGuard:
        return self._engines[request.state.tenant]

    def _reply(self, request: Request, message: dict[str, Any]) -> Response:
        engine = self._engine(request)
        reply = orjson.loads(engine.admin.answer(encoded(message), engine.guard.faults))
        if reply.pop("ok"):
            return JSONResponse(reply, headers={"cache-control": "no-store"})
        return problem(_STATUS[reply["error"]], reply["message"])

    async def _row(self, request: Request) -> dict[str, Any]:
        session = request.state.session
        engine = self._engine(request)
        control = await engine.read(session)
        return control_row(session, control, engine.lateness.warning(control.session or session))

    async def _events(self, request: Request) -> AsyncIterator[bytes]:
        version = ""
        while not (self._closed or await request.is_disconnected()):
            row = await self._row(request)
            if row["version"] != version:
                version = row["version"]
                data = orjson.dumps(row).decode()
                yield f"event: control\nid: {version}\ndata: {data}\n\n".encode()
            else:
                yield b": still here\n\n"
            await self._changes.wait(request.state.session, _ALIVE_S)


def _named(endpoint: Endpoint) -> Endpoint:
    """An endpoint that knows the session of a request, which stands in its path or its query.

    Clients and proxies change paths: `..` is taken out of them, and `%2F` becomes a slash.
    """

    async def answer(request: Request) -> Response:
        written = request.path_params.get("session")
        session = request.query_params.get("id") if written is None else unquote(written)
        if not session:
            return problem(422, "the key of the session is missing, expected it as `id`")
        request.state.session = session
        return await endpoint(request)

    return answer


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error, as RFC 9457 has them."""
    body = {"type": "about:blank", "status": status, "detail": detail}
    return JSONResponse(body, status, headers, media_type="application/problem+json")


async def _json(request: Request) -> dict[str, Any] | Response:
    """The body of a request; an empty one is an empty object."""
    if not request.headers.get("content-type", "").startswith("application/json"):
        # A page of another site may send a form without permission, but no JSON.
        return problem(415, "the content type must be application/json")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_REQUEST:
            return problem(413, f"the body has more than {MOST_REQUEST:,} bytes")
    try:
        found: Any = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError:
        return problem(400, "the body is not valid JSON")
    if not isinstance(found, dict):
        return problem(422, "the body must be a JSON object")
    return cast("dict[str, Any]", found)
