"""CrewAI: `LoopGuardHooks().register()`, before crews, flows and agents run."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context as otel_context
from opentelemetry import trace

from otel_loopguard._control.context import named_session, naming
from otel_loopguard.errors import LoopGuardStop
from otel_loopguard.integrations._adapter import (
    Adapter,
    Answer,
    is_instrumented,
    raising_as,
    require,
)

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from otel_loopguard.integrations._adapter import Options

_hooks: Any = require("crewai.hooks.dispatch", "crewai")
_execution: Any = require("crewai.execution", "crewai")
_Point: Any = _hooks.InterceptionPoint
_Aborted: Any = _hooks.HookAborted
_BLOCKED: Final = "Tool execution blocked by hook."
_FAILED: Final = (_BLOCKED, "Error executing tool:", "I encountered an error while trying to use")


class LoopGuardHooks:
    """Hooks of all crews, flows and agents of this process, that do what the guard decided.

    ::

        LoopGuardHooks().register()
        crew.kickoff()

    Agents that began to run before that do not have the hook before the model.

    Before a call of the model it waits while the session is paused, and adds the hint as a user
    message at the end, which stays in the history. Before a tool it waits too; a call of a denied
    loop is blocked, and its result is what the model is told. A stop reaches the caller as
    `LoopGuardAbort`, which is a `HookAborted` as well.

    The session is the one that is named, else the trace where OpenInference or OpenLLMetry writes
    one, else CrewAI's id of the outermost run.

    Args:
        **options: As of `Adapter`.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        self._adapter = Adapter("crewai", **options)
        # OpenInference has no span of calls that are read out of a text, or of unknown tools.
        self._unspanned = Adapter("crewai", instrumented=lambda: False, **options)
        self._told: dict[tuple[int, int], str | LoopGuardStop] = {}
        self._named: dict[tuple[int, int], Any] = {}

    def register(self) -> Self:
        """Registers the hooks, once."""
        for point, hook in self._places():
            if hook not in _hooks.get_hooks(point):
                _hooks.register(point, hook)
        return self

    def unregister(self) -> None:
        """Takes the hooks away, for agents that begin to run after that."""
        for point, hook in self._places():
            _hooks.unregister(point, hook)

    def _places(self) -> tuple[tuple[Any, Any], ...]:
        return (
            (_Point.PRE_MODEL_CALL, self._before_model),
            (_Point.POST_MODEL_CALL, self._after_model),
            (_Point.PRE_TOOL_CALL, self._before_tool),
            (_Point.POST_TOOL_CALL, self._after_tool),
        )

    def _before_model(self, context: Any) -> None:
        if not _of_agent(context):
            return
        with raising_as(_Aborted):
            said = self._adapter.before_model(self._session())
        if said is not None:
            context.messages.append({"role": "user", "content": said})

    def _after_model(self, context: Any) -> None:
        if not _of_agent(context):
            return
        said = context.response if isinstance(context.response, str) else None
        answer = Answer(said, agent=getattr(context.agent, "role", None))
        self._adapter.after_model(answer, self._session())

    def _before_tool(self, context: Any) -> bool | None:
        traced = context.tool is not None and _native(context.agent)
        adapter = self._adapter if traced else self._unspanned
        call = adapter.tool_call(
            context.tool_name,
            dict(context.tool_input or {}),
            session=self._session(),
            agent=getattr(context.agent, "role", None),
        )
        try:
            said: str | LoopGuardStop | None = call.refusal()
        except LoopGuardStop as stop:
            said = stop
        if said is None:
            self._adapter.start_call(_key(context), call)
            session = self._session()
            if session is not None and _traced() and named_session() is None:
                # A span that has none above it: in `akickoff` there is no other.
                self._named[_key(context)] = otel_context.attach(naming(session))
            return None
        self._told[_key(context)] = said
        return False

    def _after_tool(self, context: Any) -> str | None:
        key = _key(context)
        if key in self._named:
            otel_context.detach(self._named.pop(key))
        said = self._told.pop(key, None)
        if isinstance(said, LoopGuardStop):
            # This is the only hook around a tool that may end the run.
            with raising_as(_Aborted):
                raise said
        told, raw = str(context.tool_result), context.raw_tool_result
        failed = told if told.startswith(_FAILED) else None
        # At every third call in a text CrewAI repeats the format of calls.
        self._adapter.finish_call(key, raw if isinstance(raw, str) else told, failed)
        return said

    def _session(self) -> str | None:
        if _traced() and trace.get_current_span().is_recording():
            return None
        return _execution.get_execution_uuid()


def _of_agent(context: Any) -> bool:
    """True if a call of the model is an agent's turn, and none for a memory or a guardrail."""
    if context.executor is not None:
        return True
    # Steps of a plan have no executor.
    roles = {"assistant", "tool"}
    return context.agent is not None and any(one.get("role") in roles for one in context.messages)


def _native(agent: Any) -> bool:
    """True if the model returns calls as such, and not as text."""
    asked = getattr(getattr(agent, "llm", None), "supports_function_calling", None)
    return asked is None or bool(asked())


def _key(context: Any) -> tuple[int, int]:
    """CrewAI has no id of a call here, but passes both hooks the same arguments."""
    return threading.get_ident(), id(context.tool_input)


def _traced() -> bool:
    return is_instrumented("crewai traces")
