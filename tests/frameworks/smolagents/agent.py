"""An agent of smolagents under its adapter; see tests/frameworks/scripted.py."""

from __future__ import annotations

from typing import Any, ClassVar

import smolagents
from smolagents import models

from otel_loopguard import session
from otel_loopguard.integrations.smolagents import guarded
from tests.frameworks.looper import FINAL, QUESTION, SEARCH, Asked, Looper, always
from tests.frameworks.scripted import Run

run = Run(
    "smolagents", "smolagents", "openinference-instrumentation-smolagents",
    instrumentor="openinference.instrumentation.smolagents:SmolagentsInstrumentor",
)  # fmt: skip
SAID = models.MessageRole.ASSISTANT


class Model(smolagents.Model):
    def __init__(self, looper: Looper, code: str) -> None:
        super().__init__(model_id="scripted")
        self.looper, self.code = looper, code

    def generate(self, messages: Any, *_: Any, **__: Any) -> models.ChatMessage:
        asked = self.looper.asked([(one.role.value, str(one.content)) for one in messages])
        if self.code:
            return models.ChatMessage(role=SAID, content=f"<code>\n{self.code}\n</code>")
        if not asked:
            # The answer is a call of a tool of smolagents.
            run.answered_by_call()
            asked = [Asked("final_answer", {"answer": FINAL}, "call_final")]
        calls = [
            models.ChatMessageToolCall(
                id=one.id,
                type="function",
                function=models.ChatMessageToolCallFunction(name=one.tool, arguments=one.args),
            )
            for one in asked
        ]
        return models.ChatMessage(role=SAID, content=None, tool_calls=calls)


class Made(smolagents.Tool):
    description = "Does something."
    inputs: ClassVar = {"query": {"type": "string", "description": "What."}}
    output_type = "string"

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.name, self.function = function.__name__, function

    def forward(self, query: str) -> str:
        return self.function(query)


class Agent(Looper):
    named = ("Made",)

    def build(self, *, code: str = "", **options: Any) -> None:
        make = smolagents.CodeAgent if code else smolagents.ToolCallingAgent
        self.bare = make(
            tools=[Made(self.search), Made(self.fail)], model=Model(self, code), max_steps=70,
            verbosity_level=0, name="looper", description="Looks.",
        )  # fmt: skip
        # Guarded twice it is as if once.
        self.agent: Any = guarded(guarded(self.bare, **options))

    def run(self) -> str:
        return str(self.agent.run(QUESTION))

    def stream(self) -> object:
        return list(self.agent.run(QUESTION, stream=True))


def code() -> object:
    """Calls of a `CodeAgent` are made by its interpreter, in whose thread the session is known."""
    with session("smol-7"):
        looper = Agent(always(), code="print(search('x'))")
        return [looper.count(), looper.stopped().session]


def code_that_catches() -> object:
    """Code that swallows the stop ends all the same."""
    caught = "try:\n    search(query='x')\nexcept Exception as error:\n    print(error)"
    return Agent(always(), code=caught).count()


def code_alone() -> object:
    """Code that asks no tool is seen: a snippet that fails, and one that says the same again."""
    found = {}
    for name, snippet in {"fails": "1 / 0", "says": "print('The sky is blue. ' * 20)"}.items():
        looper = Agent(always(), code=snippet)
        looper.decided.clear()
        looper.stopped()
        hinted = any("Do not repeat" in text for _, text in looper.requests[-1])
        found[name] = {"asked": len(looper.requests), "hinted": hinted, "end": looper.decided[-1]}
    return found


def managed() -> object:
    """An agent that another one manages is guarded with it; its stop ends the agent above."""
    inner, outer = Agent(always(SEARCH)), Agent(always(("looper", {"task": QUESTION})))
    inner.agent.run = type(inner.agent).run.__get__(inner.agent)
    boss = guarded(
        smolagents.ToolCallingAgent(
            tools=[], model=outer.bare.model, managed_agents=[inner.agent], verbosity_level=0
        )
    )
    stop = outer.stopped(lambda: boss.run(QUESTION))
    return {"ran": len(inner.ran), "parts": len(stop.parts)}


run.main(Agent, code, code_that_catches, code_alone, managed)
