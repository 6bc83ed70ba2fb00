"""LlamaIndex: `agent = guarded(FunctionAgent(…))`, or an `AgentWorkflow`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

from otel_loopguard.integrations._adapter import Adapter, Answer, Options, require
from otel_loopguard.integrations._runs import GuardedAgent, keeping_stop, raise_stop

if TYPE_CHECKING:
    from typing_extensions import Unpack


_llms: Any = require("llama_index.core.llms", "llama-index")
# The call waits for somebody's answer, and is made again with it.
_PASSING: Final = (require("workflows.runtime.types.results", "llama-index").WaitingForEvent,)
_Agent = TypeVar("_Agent")


def guarded(agent: _Agent, **options: Unpack[Options]) -> _Agent:
    """Makes an agent, or all agents of a workflow, do what the guard decided.

    ::

        agent = guarded(FunctionAgent(tools=[…], llm=…))
        await agent.run("…")

    Before a step of an agent, which is a call of the model, it waits while the session is paused,
    and adds the hint as a message of the user at the end. Before a tool it waits too; a call of a
    denied loop is not made, and its result is what the model is told. A stop comes out of the
    handler of the run as `LoopGuardAbort`. Nothing blocks the event loop.

    The session is the one that is named, else the trace where OpenInference writes one, else one
    for each run.

    Args:
        agent: A `FunctionAgent`, `ReActAgent`, `CodeActAgent` or `AgentWorkflow`. It is changed;
            its tools are not.
        **options: As of `Adapter`.

    Returns:
        The same agent.
    """
    if not _Guarded.guards(agent):
        _Guarded(agent, options)
    return agent


class _Guarded(GuardedAgent):
    def __init__(self, agent: Any, options: Options) -> None:
        super().__init__(agent, Adapter("llama_index", passing=_PASSING, **options))
        # An agent is a pydantic model, which takes no attributes but its fields.
        object.__setattr__(agent, "run", self.run)
        object.__setattr__(agent, "get_tools", self.get_tools)
        for one in getattr(agent, "agents", {"": agent}).values():
            object.__setattr__(one, "take_step", _Step(one, self._adapter).take)

    async def get_tools(self, *args: Any, **kwargs: Any) -> Sequence[Any]:
        """In place of the agent's: its tools, which ask before they are called."""
        found = await self._kind.get_tools(self._agent, *args, **kwargs)
        return [self._asking(tool) for tool in found]

    def _asking(self, tool: Any) -> Any:
        async def acall(*args: Any, **kwargs: Any) -> Any:
            with keeping_stop():
                return await self._called(tool, args, kwargs)

        asking = copy.copy(tool)
        object.__setattr__(asking, "acall", acall)
        return asking

    async def _called(self, tool: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        context = getattr(tool, "ctx_param_name", None)
        given = {name: value for name, value in kwargs.items() if name != context}
        name = tool.metadata.get_name()
        call = self._adapter.tool_call(name, given or list(args))
        said = await call.refusal_async()
        if said is not None:
            return _output(name, given, said)
        with call:
            result = await _holding(tool, context, kwargs).acall(*args, **given)
            call.set_result(result.content, failed=result.content if result.is_error else None)
            return result


def _holding(tool: Any, name: str | None, kwargs: dict[str, Any]) -> Any:
    """The tool with the workflow's context in it, which is no argument of the call on its span."""
    if name not in kwargs:
        return tool
    holding = copy.copy(tool)
    holding.partial_params = {**tool.partial_params, name: kwargs[name]}
    return holding


class _Step:
    """The step of one agent."""

    def __init__(self, agent: Any, adapter: Adapter) -> None:
        self._agent = agent
        self._kind: Any = type(agent)
        self._adapter = adapter

    async def take(self, ctx: Any, llm_input: list[Any], tools: Any, memory: Any) -> Any:
        """In place of the agent's `take_step`."""
        raise_stop()
        said = await self._adapter.before_model_async()
        if said is not None:
            llm_input = await self._told(ctx, llm_input, said)
        answer = await self._kind.take_step(self._agent, ctx, llm_input, tools, memory)
        said = getattr(getattr(answer, "response", None), "content", None)
        agent = getattr(self._agent, "name", None)
        self._adapter.after_model(Answer(said or "", agent=agent))
        # A retriever may find by its name what was not offered now.
        known = {tool.metadata.name for tool in tools}
        for one in () if getattr(self._agent, "tool_retriever", None) else answer.tool_calls:
            if one.tool_name not in known:
                self._adapter.tool_call(
                    one.tool_name, one.tool_kwargs, call_id=one.tool_id, agent=agent
                ).report()
        return answer

    async def _told(self, ctx: Any, llm_input: list[Any], said: str) -> list[Any]:
        told = _llms.ChatMessage(role="user", content=said)
        key = getattr(self._agent, "scratchpad_key", None)
        if key is None:
            return [*llm_input, told]
        # Behind calls and results, which are sent behind the input.
        await ctx.store.set(key, [*await ctx.store.get(key, default=[]), told])
        return llm_input


def _output(name: str, given: dict[str, Any], said: str) -> Any:
    made: Any = import_module("llama_index.core.tools").ToolOutput
    return made(content=said, tool_name=name, raw_input=given, raw_output=said, is_error=True)
