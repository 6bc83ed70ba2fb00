"""The Model Context Protocol: a client that asks before it calls, and a server that may refuse.

::

    async with LoopGuardClient(Client(url)) as client:
        ...

    server = MCPServer("search", middleware=[LoopGuardServerMiddleware()])
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from otel_loopguard._control import signing as keyring
from otel_loopguard._control.context import named_session
from otel_loopguard._util.errors import warn_blind
from otel_loopguard._util.fields import is_map
from otel_loopguard.errors import LoopGuardStop
from otel_loopguard.integrations._adapter import Adapter, Options, require, tell_content
from otel_loopguard.sdk.propagator import LoopGuardPropagator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Mapping

    from typing_extensions import Self, Unpack


_types: Any = require("mcp_types", "mcp")
_CALL: Final = "tools/call"
_MARK: Final = "otel-loopguard/call"
_local_calls: set[str] = set()


class LoopGuardClient:
    """A client, or a `ClientSession`, whose calls of tools do what the guard decided.

    * Before a call: waits while the session is paused; a refused call is not sent, and its result
      is an error which says why.
    * The hint is one more text behind the content of a result, once per decision.
    * An abort raises `LoopGuardAbort`, with the results so far.
    * Trace and session travel in `_meta` (SEP-414), the session signed by `propagation_key`.

    The session is the one that `otel_loopguard.session` names, else that of the current span, else
    one for each client. A stop leaves the block of the client as it is, not in a group.

    Args:
        client: What calls the server, open or not; all that is asked for besides is its own.
        **options: As of `Adapter`.
    """

    def __init__(self, client: Any, **options: Unpack[Options]) -> None:
        self._client = client
        self._adapter = Adapter("mcp", **options)
        self._propagator = LoopGuardPropagator()
        self._key = f"run-{uuid.uuid4().hex}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> Any:
        if isinstance(error, LoopGuardStop):
            # Nothing is wrong with the connection, which is closed; then the stop goes on.
            kind, error, traceback = None, None, None
        return await self._client.__aexit__(kind, error, traceback)

    async def call_tool(
        self, name: str, arguments: dict[str, Any] | None = None, *rest: Any, **known: Any
    ) -> Any:
        """Calls a tool, as of the client.

        Raises:
            LoopGuardAbort: The session is aborted.
            LoopGuardPaused: It was not let go on within the limit.
        """
        key = None if trace.get_current_span().get_span_context().is_valid else self._key
        call = self._adapter.tool_call(name, dict(arguments or {}), session=key)
        said = await call.refusal_async()
        if said is not None:
            return _refused(said)
        with call, _marked_call() as mark:
            meta = self._meta(mark, known.pop("meta", None))
            result = await self._client.call_tool(name, arguments, *rest, meta=meta, **known)
            outcome, failed = _outcome(result)
            call.set_result(outcome, failed=failed)
        return _with_hint(result, await self._adapter.before_model_async(key))

    def _meta(self, mark: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
        """Content of `_meta`; what the caller gives takes precedence."""
        carrier: dict[str, Any] = {_MARK: mark}
        TraceContextTextMapPropagator().inject(carrier)
        if keyring.keys():  # without one the trace alone tells the session
            self._propagator.inject(carrier)
        return {**carrier, **(given or {})}


class LoopGuardServerMiddleware:
    """Middleware of a server, which refuses calls of tools that the guard denied.

    * Before a call: waits while the session is paused; a refused call, or one of an aborted
      session, is answered by an error which says why. The connection stays.
    * The hint is one more text behind the content of a result, once per decision.

    The session is the one that came along in `_meta` signed by the same `propagation_key`, else the
    one that `otel_loopguard.session` names, else that of the server's span if it is in the trace of
    the client, else the connection, if it lasts longer than a request. The guard of this process
    knows what another one decided if both share a store, or by what came along.

    Args:
        **options: As of `Adapter`.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        # The server's own span of the call is the current one where there is one.
        self._adapter = Adapter("mcp", **options)
        self._propagator = LoopGuardPropagator()

    async def __call__(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Handles a message of a client."""
        if ctx.method != _CALL or ctx.request_id is None:
            return await call_next(ctx)
        meta = dict(ctx.meta or {})
        mark = meta.get(_MARK)  # whatever a client put there
        if isinstance(mark, str) and mark in _local_calls:
            return await _observed(ctx, call_next)
        given = {name: value for name, value in meta.items() if isinstance(value, str)}
        # The session that came along is that of the call.
        token = otel_context.attach(self._propagator.extract(given))
        try:
            return await self._guarded(ctx, call_next)
        finally:
            otel_context.detach(token)

    async def _guarded(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        key = None if named_session() else self._of_connection(ctx.session)
        params = cast("dict[str, Any]", ctx.params or {})
        call = self._adapter.tool_call(
            str(params.get("name")), params.get("arguments"), session=key
        )
        try:
            said = await call.refusal_async()
        except LoopGuardStop as stop:
            said = str(stop)
        if said is not None:
            return _refused(said)
        with call:
            result = await call_next(ctx)
            outcome, failed = _outcome(result)
            call.set_result(outcome, failed=failed)
        found = self._adapter.find(key)
        return _with_hint(result, None if found is None else found.flag.take_hint())

    def _of_connection(self, session: Any) -> str | None:
        """The session of a connection, where no trace of the client joins its calls."""
        span = trace.get_current_span()
        # A trace that begins with the server's own span is that of one call.
        alone = isinstance(span, ReadableSpan) and span.parent is None
        traced = span.get_span_context().is_valid
        if traced and not alone:
            return None
        connection = _connection(session)
        if connection is None:
            warn_blind("requests_alone")
            return None if traced else self._adapter.run_key(session)
        return self._adapter.run_key(connection)


def _connection(session: Any) -> object:
    """What lasts as long as the connection of a session, which is that of one request.

    None where each request stands alone, as over HTTP since the protocol of 2026.
    """
    connection = getattr(session, "_connection", None)
    lasts = getattr(connection, "has_standalone_channel", False)
    return connection.outbound if connection is not None and lasts else None


def _refused(said: str) -> Any:
    return _types.CallToolResult(content=[_text(said)], is_error=True)


def _text(text: str) -> Any:
    return _types.TextContent(type="text", text=text)


def _with_hint(result: Any, hint: str | None) -> Any:
    said = _result(result)
    if hint is None or said is None:
        return result
    return said.model_copy(update={"content": [*said.content, _text(hint)]})


def _outcome(result: Any) -> tuple[object, str | None]:
    """The texts of a result, where it is all text, and what went wrong."""
    said = _result(result)
    if said is None:
        return None, None
    texts = [getattr(block, "text", None) for block in said.content]
    plain = [block.model_dump(mode="json") for block in said.content]
    outcome = plain if None in texts else "\n".join(cast("list[str]", texts))
    return outcome, str(outcome) if said.is_error else None


def _result(result: Any) -> Any:
    """The result of a call; None where it asks for something before, or is an extension's."""
    if is_map(result):
        # A server has it as it goes over the wire.
        with suppress(ValueError):  # an extension may have content of another form
            return _types.CallToolResult.model_validate(result) if "content" in result else None
        return None
    return result if isinstance(result, _types.CallToolResult) else None


@contextmanager
def _marked_call() -> Generator[str, None, None]:
    """The block of a call by a client of this process; a server in it has nothing to ask."""
    mark = uuid.uuid4().hex
    _local_calls.add(mark)
    try:
        yield mark
    finally:
        _local_calls.discard(mark)


async def _observed(ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    """Makes a call that its client asked about; passes the guard what the server's span lacks."""
    span = trace.get_current_span()
    params = cast("dict[str, Any]", ctx.params or {})
    result = await call_next(ctx)
    tell_content(span, params.get("arguments"), _outcome(result)[0])
    return result
