"""smolagents: `agent = guarded(CodeAgent(…))`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from otel_loopguard._util.fields import is_map
from otel_loopguard.integrations._adapter import Adapter, Answer, Options, require
from otel_loopguard.integrations._runs import AgentRun, GuardedAgent, keeping_stop, raise_stop

if TYPE_CHECKING:
    from typing_extensions import Unpack


_agents: Any = require("smolagents", "smolagents")
_Agent = TypeVar("_Agent")
_ANSWER: Final = "final_answer"
_INTERPRETER: Final = "python_interpreter"
"""Name that smolagents itself has for running code."""


def guarded(agent: _Agent, **options: Unpack[Options]) -> _Agent:
    """Makes an agent, and the agents that it manages, do what the guard decided.

    ::

        agent = guarded(CodeAgent(tools=[…], model=…))
        agent.run("…")

    After each step, and so before the next call of the model, it waits while the session is paused,
    and adds the hint to what the model is told of the step. Before a tool it waits too; a call of a
    denied loop is not made, and its result is what the model is told. A stop comes out of `run` as
    `LoopGuardAbort`. Code that asks no tool is a call of `python_interpreter`, told after it ran.

    The session is the one that is named, else the trace where OpenInference writes one, else one
    for each run.

    Args:
        agent: A `ToolCallingAgent` or a `CodeAgent` that runs its code in this process. It is
            changed; its tools are not.
        **options: As of `Adapter`.

    Returns:
        The same agent.
    """
    known: Any = agent
    for managed in known.managed_agents.values():
        guarded(managed, **options)
    if not _Guarded.guards(agent):
        _Guarded(agent, options)
    return agent


class _Guarded(GuardedAgent):
    def __init__(self, agent: Any, options: Options) -> None:
        super().__init__(agent, Adapter("smolagents", **options))
        self._asked = False
        agent.run = self.run
        agent.step_callbacks.register(_agents.ActionStep, self.step_ended)
        if isinstance(agent, _agents.CodeAgent):
            agent.python_executor.send_tools = self.send_tools
        else:
            agent.execute_tool_call = self.execute_tool_call

    def step_ended(self, step: Any, agent: Any) -> None:
        """After a step: the only hook of smolagents between two calls of the model."""
        del agent
        raise_stop()
        text = step.model_output if isinstance(step.model_output, str) else None
        name = getattr(self._agent, "name", None)
        answer = Answer(text, agent=name).with_usage(step.token_usage)
        # Its tools ran in between: the time of the answer is not known.
        self._adapter.after_model(answer, timed=False)
        asked, self._asked = self._asked, False
        if step.is_final_answer:
            return
        if step.code_action is not None and not asked:
            # Code that asks no tool is a call itself, and nothing else has a span of it.
            error, code = step.error, {"code": step.code_action}
            told = step.observations if error is None else str(error)
            call = self._adapter.tool_call(_INTERPRETER, code, agent=name)
            call.report(told or "", failed=error is not None)
        said = self._adapter.before_model()
        if said is not None:
            step.observations = f"{step.observations}\n{said}" if step.observations else said

    def execute_tool_call(self, tool_name: str, arguments: Any) -> Any:
        """In place of that of a `ToolCallingAgent`."""
        own: Any = self._kind.execute_tool_call
        # What the tool gets: an argument may be the name of a variable.
        state, args = self._agent.state, arguments
        if is_map(arguments):
            args = {k: state.get(v, v) if isinstance(v, str) else v for k, v in arguments.items()}
        return self._called(tool_name, args, lambda: own(self._agent, tool_name, arguments))

    def send_tools(self, tools: Mapping[str, Any]) -> None:
        """In place of that of the executor of a `CodeAgent`: it gets functions that ask first."""
        executor: Any = self._agent.python_executor
        kind = cast("Any", type(executor))
        found = {name: self._asking(name, tool) for name, tool in tools.items()}
        kind.send_tools(executor, found)

    def _asking(self, name: str, tool: Any) -> Callable[..., Any]:
        def ask(*args: Any, **kwargs: Any) -> Any:
            def make() -> Any:
                return tool(*args, **kwargs)

            given = kwargs
            if args:
                named = dict(zip(getattr(tool, "inputs", ()), args, strict=False)) | kwargs
                # As the span of OpenInference has them.
                given = list(args) if self._adapter.is_instrumented() and not kwargs else named
            # The interpreter runs the code in a thread without the context.
            running = AgentRun.current() or self._running
            if running is None:
                return self._called(name, given, make)
            return running.join(self._called, name, given, make)

        return tool if name == _ANSWER else ask

    def _called(self, name: str, args: object, make: Callable[[], Any]) -> Any:
        if name == _ANSWER:
            return make()
        self._asked = True
        with keeping_stop():
            call = self._adapter.tool_call(name, args, agent=self._agent.name)
            said = call.refusal()
            if said is not None:
                return said
            with call:
                try:
                    result = make()
                except (_agents.AgentToolCallError, _agents.AgentToolExecutionError) as error:
                    # No instrumentation writes a span for wrong arguments or an unknown tool.
                    known = name in self._agent.tools or name in self._agent.managed_agents
                    if isinstance(error, _agents.AgentToolCallError) or not known:
                        call.unmade()
                    raise
                call.set_result(result)
                return result
