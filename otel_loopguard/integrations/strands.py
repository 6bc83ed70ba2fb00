"""Strands Agents: `Agent(…, hooks=[LoopGuardHooks()])`."""

from __future__ import annotations

import uuid
import weakref
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

from otel_loopguard.integrations._adapter import Adapter, Answer, Options, raising_as, require

if TYPE_CHECKING:
    from typing_extensions import Unpack


_hooks: Any = require("strands.hooks", "strands")
_LoopError: Any = require("strands.types.exceptions", "strands").EventLoopException
_SESSION: Final = ("gen_ai.conversation.id", "session.id")


class LoopGuardHooks(_hooks.HookProvider):
    """Hooks of an agent, in which the guard's decisions are followed.

    ::

        agent = Agent(model=…, tools=[…], hooks=[LoopGuardHooks()])

    One object may serve any number of agents.

    Before a call of the model it waits while the session is paused, and adds the hint to the last
    result of a tool: several of Strands' models put any other text of that message before the
    results, where no API takes it. Before a tool it waits too; a call of a denied loop is cancelled
    with what the model is told. A stop reaches the caller as `LoopGuardAbort`, which is an
    `EventLoopException` as well.

    The session is the one that is named, else `session.id` of the agent's `trace_attributes`, else
    the trace that Strands writes. Where it writes none, every run is a session.

    Args:
        **options: As of `Adapter`.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        self._adapter = Adapter("strands", instrumented=_traced, **options)
        self._runs: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def register_hooks(self, registry: Any, **_: Any) -> None:
        """Registers the hooks."""
        registry.add_callback(_hooks.BeforeInvocationEvent, self._begin_run)
        registry.add_callback(_hooks.AfterInvocationEvent, self._end_run)
        registry.add_callback(_hooks.BeforeModelCallEvent, self._before_model)
        registry.add_callback(_hooks.AfterModelCallEvent, self._after_model)
        registry.add_callback(_hooks.BeforeToolCallEvent, self._before_tool)
        registry.add_callback(_hooks.AfterToolCallEvent, self._after_tool)

    def _begin_run(self, event: Any) -> None:
        self._runs[event.agent] = uuid.uuid4().hex
        self._adapter.begin(self._session(event.agent))

    def _end_run(self, event: Any) -> None:
        """Ends the calls that somebody is asked about: an interrupt has no other hook."""
        for message in event.agent.messages[-1:]:
            for use in (block["toolUse"] for block in message["content"] if "toolUse" in block):
                key = id(event.agent), use["toolUseId"]
                self._adapter.put_off_call(key, "InterruptException")

    async def _before_model(self, event: Any) -> None:
        with raising_as(_LoopError):
            said = await self._adapter.before_model_async(self._session(event.agent))
        if said is not None:
            content = event.agent.messages[-1]["content"]
            results = [block["toolResult"] for block in content if "toolResult" in block]
            (results[-1]["content"] if results else content).append({"text": said})

    def _after_model(self, event: Any) -> None:
        response = event.stop_response
        if response is None:
            return
        texts = [block["text"] for block in response.message["content"] if "text" in block]
        answer = Answer("\n".join(texts), agent=event.agent.name)
        self._adapter.after_model(answer, self._session(event.agent))

    async def _before_tool(self, event: Any) -> None:
        use = event.tool_use
        call = self._adapter.tool_call(
            use["name"],
            use["input"],
            call_id=use["toolUseId"],
            session=self._session(event.agent),
            agent=event.agent.name,
        )
        with raising_as(_LoopError):
            said = await call.refusal_async()
        if said is not None:
            event.cancel_tool = said
        else:
            self._adapter.start_call(_key(event), call)

    def _after_tool(self, event: Any) -> None:
        content = event.result["content"]
        texts = [block.get("text") for block in content]
        result = content if None in texts else "\n".join(texts)
        failed = event.exception or (result if event.result["status"] == "error" else None)
        told = None if failed is None else str(failed)
        self._adapter.finish_call(_key(event), result, told, event.exception)

    def _session(self, agent: Any) -> str | None:
        if not _traced():
            return self._runs.get(agent)
        known: Any = getattr(agent, "trace_attributes", {})
        return next((str(known[name]) for name in _SESSION if known.get(name)), None)


def _key(event: Any) -> tuple[int, str]:
    return id(event.agent), event.tool_use["toolUseId"]


def _traced() -> bool:
    """True if Strands writes spans: hooks run inside of that of the turn."""
    return trace.get_current_span().is_recording()
