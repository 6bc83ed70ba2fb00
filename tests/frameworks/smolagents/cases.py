"""What a guarded agent does besides the scenarios: one JSON object, a case by name.

python cases.py [--instrumented | --unguarded]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from smolagents import CodeAgent, Model, Tool, ToolCallingAgent
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
)

import otel_loopguard
from otel_loopguard import LoopGuardAbort, LoopGuardPaused, control
from otel_loopguard.integrations.smolagents import guarded
from tests.frameworks.cases import GUARDED, SEARCH, Call, Script, always, exporter, provider, turns

if "--instrumented" in sys.argv:
    from openinference.instrumentation.smolagents import SmolagentsInstrumentor

    SmolagentsInstrumentor().instrument(tracer_provider=provider)


class Scripted(Model):
    """Asks for what a script says, as calls or as code, and keeps what it was given."""

    def __init__(self, script: Any) -> None:
        super().__init__(model_id="scripted")
        self.script = script
        self.requests: list[Any] = []

    def generate(self, messages: Any, *_: Any, **__: Any) -> ChatMessage:
        self.requests.append([(one.role.value, str(one.content)) for one in messages])
        turn = len(self.requests)
        asked = self.script(turn)
        if isinstance(asked, str):
            return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{asked}\n</code>")
        calls = [
            ChatMessageToolCall(
                id=f"call_{turn}_{place}",
                type="function",
                function=ChatMessageToolCallFunction(name=name, arguments=args),
            )
            for place, (name, args) in enumerate(asked or [("final_answer", {"answer": "Done."})])
        ]
        return ChatMessage(role=MessageRole.ASSISTANT, content=None, tool_calls=calls)


class Counted(Tool):
    """A tool that counts its calls."""

    description = "Does something."
    inputs: ClassVar = {"query": {"type": "string", "description": "What."}}
    output_type = "string"

    def __init__(self, name: str, ran: list[str]) -> None:
        super().__init__()
        self.name, self.ran = name, ran

    def forward(self, query: str) -> str:
        self.ran.append(query)
        if self.name == "fail":
            raise ValueError(query)
        return "No results."


class Case:
    """An agent whose model follows a script, and what its tools ran."""

    def __init__(self, script: Script, *, code: bool = False, **options: Any) -> None:
        self.ran: list[str] = []
        self.model = Scripted(script)
        self.make = CodeAgent if code else ToolCallingAgent
        tools = [Counted("search", self.ran), Counted("fail", self.ran)]
        self.agent = guarded(
            self.make(
                tools=tools, model=self.model, max_steps=35, verbosity_level=0, name="looper",
                description="Looks.",
            ),
            **options,
        )  # fmt: skip

    def stopped(self, run: Callable[[], object] | None = None) -> LoopGuardAbort:
        try:
            (run or (lambda: self.agent.run("Find it.")))()
        except LoopGuardAbort as stop:
            return stop
        sys.exit("it was not stopped")


def count(case: Case) -> object:
    stop = case.stopped()
    return {"ran": len(case.ran), "parts": list(stop.parts)}


def code() -> object:
    """Calls of a `CodeAgent` are made by its interpreter."""
    return count(Case(lambda _: "print(search('x'))", code=True))


def code_that_catches() -> object:
    """Code that swallows the stop ends all the same."""
    caught = "try:\n    search(query='x')\nexcept Exception as error:\n    print(error)"
    return count(Case(lambda _: caught, code=True))


def streamed() -> object:
    """`run(stream=True)` ends in the same stop."""
    case = Case(always(SEARCH))
    stop = case.stopped(lambda: list(case.agent.run("Find it.", stream=True)))
    return {"ran": len(case.ran), "parts": list(stop.parts)}


def managed() -> object:
    """An agent that another one manages is guarded with it, in the same session."""
    inner = Case(always(SEARCH))
    inner.agent.run = type(inner.agent).run.__get__(inner.agent)
    outer = Case(lambda _: [("looper", {"task": "Find it."})])
    boss = guarded(
        ToolCallingAgent(
            tools=[], model=outer.model, managed_agents=[inner.agent], verbosity_level=0
        )
    )
    stop = outer.stopped(lambda: boss.run("Find it."))
    return {"ran": len(inner.ran), "parts": len(stop.parts)}


def two_runs() -> object:
    """One agent, twice, the first run of which is aborted."""
    case = Case(always(SEARCH))
    first = case.stopped()
    ran = len(case.ran)
    case.model.requests.clear()
    second = case.stopped()
    return {"ran": [ran, len(case.ran) - ran], "same": first.session == second.session}


def named() -> object:
    """The session that the context names, in the interpreter's thread too."""
    case = Case(lambda _: "print(search('x'))", code=True)
    with otel_loopguard.session("smol-7"):
        return case.stopped().session


def contract() -> object:
    """Where the hint stands in the request, and that the context is as before."""
    case = Case(turns(*[[SEARCH]] * 3))
    done = case.agent.run("Find it.")
    (told,) = [one for one in case.model.requests if "Do not repeat" in str(one)]
    return {
        "last": told[-1][0],
        "with the result": "No results." in told[-1][1],
        "answer": done,
        "session": otel_loopguard._control.context.named_session(),
    }


def after_a_deny() -> object:
    """Other calls than those of the denied loop are made, two at once too."""
    other = [("search", {"query": "y"}), ("search", {"query": "z"})]
    case = Case(turns(*[[SEARCH]] * 4, other))
    done = case.agent.run("Find it.")
    return {"ran": sorted(case.ran), "answer": done}


def refused() -> object:
    """A refused call has a span of its own, which failed."""
    exporter.clear()
    case = Case(always(SEARCH))
    case.stopped()
    spans = exporter.get_finished_spans()
    ours = [one for one in spans if one.name in {"execute_tool search", "Counted"}]
    return {
        "ran": len(case.ran),
        "failed": [one.status.status_code.name == "ERROR" for one in ours],
    }


def a_tool_that_fails() -> object:
    """smolagents tells the model, as without the guard."""
    case = Case(turns([("fail", {"query": "broken"})]))
    done = case.agent.run("Find it.")
    return {
        "ran": case.ran,
        "told": "ValueError: broken" in case.model.requests[-1][-1][1],
        "answer": done,
    }


def limit() -> object:
    """A gate has the limit that it was given."""

    def script(turn: int) -> Sequence[Call]:
        if turn == 2:
            control.pause("smol-limit", "a person looks at it")
        return [("search", {"query": str(turn)})]

    case = Case(script, limit_s=0.05)
    try:
        with otel_loopguard.session("smol-limit"):
            case.agent.run("Find it.")
    except LoopGuardPaused as stop:
        return {"ran": len(case.ran), "parts": list(stop.parts)}
    return None


CASES = (
    code, code_that_catches, streamed, managed, two_runs, named, contract, after_a_deny, refused,
    a_tool_that_fails, limit,
)  # fmt: skip


def unguarded() -> object:
    """Without a guard the agent runs as it would, guarded twice too."""
    case = Case(always(SEARCH))
    answer = guarded(case.agent).run("Find it.")
    return {"ran": len(case.ran), "answer": answer}


print(json.dumps({case.__name__: case() for case in (CASES if GUARDED else (unguarded,))}))
