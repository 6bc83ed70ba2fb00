"""Google ADK: `Runner(…, plugins=[LoopGuardPlugin()])`, or of an `App`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

from opentelemetry import trace

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.fields import mapping
from otel_loopguard.errors import LoopGuardStop
from otel_loopguard.integrations._adapter import Adapter, Answer, Options, require

if TYPE_CHECKING:
    from typing_extensions import Unpack


_plugins: Any = require("google.adk.plugins.base_plugin", "google-adk")
_models: Any = require("google.adk.models", "google-adk")
_types: Any = require("google.genai.types", "google-adk")
_ERROR: Final = "LOOPGUARD_STOP"
_STOPS: Final = 1000
"""Sessions whose newest stop is kept for `stopped`: a caller asks right after the run."""


class LoopGuardPlugin(_plugins.BasePlugin):
    """A plugin of a runner or an app, in which the guard's decisions are followed.

    ::

        plugin = LoopGuardPlugin()
        runner = Runner(app_name="app", agent=agent, plugins=[plugin], session_service=…)
        async for event in runner.run_async(…):
            ...
        if stop := plugin.stopped(session_id):
            print(stop, stop.parts)

    Before a call of the model it waits while the session is paused, and puts the hint at the end of
    the request, as a content of the user; the hint is in this one request. Before a tool it waits
    too; a call of a denied loop is answered with what the model is told. ADK wraps what a plugin
    raises, so a stop ends the run as ADK's own abort does: the last answer of the model is the
    reason, its `error_code` is `LOOPGUARD_STOP`, and `stopped` has the exception.

    The session is the one that is named, else ADK's session.

    Args:
        name: Name of the plugin, once per runner.
        **options: As of `Adapter`.
    """

    def __init__(self, name: str = "loopguard", **options: Unpack[Options]) -> None:
        _plugins.BasePlugin.__init__(self, name)
        self._adapter = Adapter("google_adk", instrumented=_traced, **options)
        self._runs: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._stops: BoundedDict[str, LoopGuardStop] = BoundedDict(_STOPS)

    def stopped(self, session_id: str) -> LoopGuardStop | None:
        """The exception that ended the newest run of a session; None if it was not stopped.

        Args:
            session_id: Id of ADK's session; the newest 1000 stops are kept.
        """
        return self._stops.get(session_id)

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        """A run begins."""
        self._runs[invocation_context.invocation_id] = invocation_context
        self._stops.pop(invocation_context.session.id, None)
        self._adapter.begin(invocation_context.session.id)

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> Any:
        """Waits while the session is paused, and puts the hint into the request."""
        try:
            said = await self._adapter.before_model_async(callback_context.session.id)
        except LoopGuardStop as stop:
            return self._end(callback_context, stop)
        if said is not None:
            llm_request.contents.append(_content("user", said))
        return None

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Reports the answer to the guard, if no span does."""
        if llm_response.partial:
            return
        parts = () if llm_response.content is None else llm_response.content.parts or ()
        text = "\n".join(part.text for part in parts if part.text and not part.thought)
        answer = Answer(text, agent=callback_context.agent_name).with_usage(
            llm_response.usage_metadata, ("prompt_token_count", "candidates_token_count")
        )
        self._adapter.after_model(answer, callback_context.session.id)

    async def before_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any
    ) -> dict[str, Any] | None:
        """Waits while the session is paused, and answers a call that is not to be made."""
        call = self._adapter.tool_call(
            tool.name,
            dict(tool_args),
            call_id=tool_context.function_call_id,
            session=tool_context.session.id,
            agent=tool_context.agent_name,
        )
        try:
            said = await call.refusal_async()
        except LoopGuardStop as stop:
            self._end(tool_context, stop)
            return {"refused": str(stop)}
        if said is not None:
            # An "error" would be one of the tool on ADK's span, in place of the refusal.
            return {"refused": said}
        self._adapter.start_call(_key(tool_context), call)
        return None

    async def after_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, result: object
    ) -> None:
        """Takes the result of a call, and ends its span."""
        del tool, tool_args
        # What went wrong, as ADK's tools say it.
        error = mapping(result).get("error")
        failed = None if error is None else str(error)
        self._adapter.finish_call(_key(tool_context), result, failed)

    async def on_tool_error_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, error: BaseException
    ) -> None:
        """Ends the span of a call that failed or was cancelled."""
        del tool, tool_args
        self._adapter.end_call(_key(tool_context), error)

    def _end(self, context: Any, stop: LoopGuardStop) -> Any:
        """Ends a run as ADK does, and the runs that it is a tool of; returns the answer."""
        caller = context
        while caller is not None:
            self._stops[caller.session.id] = stop
            running = self._runs.get(caller.invocation_id)
            if running is not None:
                running.abort()
            # An agent that is a tool has the artifacts of the call that runs it.
            caller = getattr(getattr(running, "artifact_service", None), "tool_context", None)
        said = str(stop)
        return _models.LlmResponse(
            content=_content("model", said), error_code=_ERROR, error_message=said
        )


def _content(role: str, text: str) -> Any:
    return _types.Content(role=role, parts=[_types.Part(text=text)])


def _key(context: Any) -> tuple[str, str | None]:
    return context.invocation_id, context.function_call_id


def _traced() -> bool:
    """True if ADK writes spans: callbacks run inside of that of the agent or of the call."""
    return trace.get_current_span().is_recording()
