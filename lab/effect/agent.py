"""An agent as people write them: a loop around a model with tools, with OpenTelemetry's spans.

With and without the guard it is the same code. What differs is the one line that adds the processor
to the tracer provider; without it, `control` answers that nothing was decided.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Status, StatusCode, Tracer

from lab.effect.model import Model, ModelError
from lab.effect.tools import SCHEMAS, Desk, ToolError
from otel_loopguard import LoopGuardAbort, LoopGuardSpanProcessor, control

if TYPE_CHECKING:
    from lab.effect.tasks import Task

SYSTEM = (
    "You are a helpful assistant. Use the tools to find the answer to the question. "
    "When you know it, say it in one short sentence."
)
STEPS = 12
"""Requests to the model in a run: LangGraph's 25 steps are as many; OpenAI's SDK has 10."""


@dataclass
class Run:
    """How one run went.

    Attributes:
        task: Id of the task.
        seed: The seed of the run.
        guarded: True if the guard watched.
        ended: `answered`, `step limit`, `rejected` (the model's server did not accept the
            conversation, as one that is too long), `error` (it failed), or, stopped by the guard,
            the outcome that it names, such as `loop`.
        solved: True if it gave the right answer.
        model_calls: Requests to the model.
        tool_calls: Calls that it asked for, refused ones too.
        hints: Hints that went to the model.
        refused: Calls that the guard refused.
        tokens_in: Tokens of all requests.
        tokens_out: Tokens of all answers.
        seconds: Wall time.
        steps: What happened, a line each; not kept with the results.
    """

    task: str
    seed: int
    guarded: bool
    ended: str = "step limit"
    solved: bool = False
    model_calls: int = 0
    tool_calls: int = 0
    hints: int = 0
    refused: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    steps: list[str] = field(default_factory=list[str])


def run(task: Task, seed: int, model: Model, *, guarded: bool, limit: int = STEPS) -> Run:
    """Runs the agent on a task once."""
    provider = TracerProvider(resource=Resource.create({"service.name": "effect"}))
    if guarded:
        provider.add_span_processor(LoopGuardSpanProcessor())
    begun, found = time.monotonic(), Run(task.id, seed, guarded)
    agent = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "assistant",
        "gen_ai.conversation.id": f"{task.id} {seed}",
    }
    tracer = provider.get_tracer("lab.effect")
    try:
        with tracer.start_as_current_span("invoke_agent assistant", attributes=agent):
            _Agent(tracer, task, model, found).work(limit)
    except LoopGuardAbort as stop:
        found.ended = stop.outcome
        found.steps.append(f"abort {stop}")
    except ModelError as error:
        found.ended = error.ends
        found.steps.append(f"error {error}")
    finally:
        provider.shutdown()
    found.seconds = round(time.monotonic() - begun, 2)
    return found


class _Agent:
    """One conversation."""

    def __init__(self, tracer: Tracer, task: Task, model: Model, run: Run) -> None:
        self._tracer, self._task, self._model, self._run = tracer, task, model, run
        self._desk = Desk(task)
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": task.question},
        ]

    def work(self, limit: int) -> None:
        """Goes on until the model calls no tool, or the limit."""
        for _ in range(limit):
            control.check()
            if hint := control.hint():
                self._run.hints += 1
                self._run.steps.append(f"hint {hint}")
                self._add("user", hint)
            message = self._ask()
            self._messages.append(message)
            calls: list[dict[str, Any]] = message.get("tool_calls") or []
            if not calls:
                text = message.get("content") or ""
                self._run.ended, self._run.solved = "answered", self._task.solved(text)
                self._run.steps.append(f"answer {text}")
                return
            for call in calls:
                self._call(call)

    def _ask(self) -> dict[str, Any]:
        """The model's next message."""
        with self._tracer.start_as_current_span(
            f"chat {self._model.name}",
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.request.model": self._model.name,
                "gen_ai.input.messages": json.dumps(self._messages),
            },
        ) as span:
            # Another seed for each request, the same in both arms.
            answer = self._model.complete(
                self._messages, SCHEMAS, self._run.seed * 1000 + self._run.model_calls
            )
            span.set_attribute("gen_ai.usage.input_tokens", answer.tokens_in)
            span.set_attribute("gen_ai.usage.output_tokens", answer.tokens_out)
            span.set_attribute("gen_ai.output.messages", json.dumps([answer.message]))
        self._run.model_calls += 1
        self._run.tokens_in += answer.tokens_in
        self._run.tokens_out += answer.tokens_out
        return answer.message

    def _call(self, call: dict[str, Any]) -> None:
        """Executes a call, or gives the model the refusal."""
        name, arguments = call["function"]["name"], call["function"].get("arguments") or "{}"
        self._run.tool_calls += 1
        with self._tracer.start_as_current_span(
            f"execute_tool {name}",
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": call["id"],
                "gen_ai.tool.call.arguments": arguments,
            },
        ) as span:
            if refusal := control.refused(name, arguments):
                self._run.refused += 1
                failed, result = "loopguard_deny", refusal.hint or refusal.reason or "refused"
            else:
                failed, result = self._result(name, arguments)
            if failed:
                span.set_attribute("error.type", failed)
                span.set_status(Status(StatusCode.ERROR, result))
            else:
                span.set_attribute("gen_ai.tool.call.result", result)
        self._add("tool", result, tool_call_id=call["id"])
        self._run.steps.append(f"{name} {arguments} -> {result}")

    def _result(self, name: str, arguments: str) -> tuple[str | None, str]:
        """What a tool answers, with the type of its error, if it failed."""
        try:
            return None, self._desk.call(name, _object(arguments))
        except ToolError as error:
            return "ToolError", f"Error: {error}"

    def _add(self, role: str, text: str, **more: str) -> None:
        self._messages.append({"role": role, "content": text, **more})


def _object(arguments: str) -> dict[str, Any]:
    """The arguments that a model wrote."""
    try:
        given = json.loads(arguments)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ToolError(f"The arguments are no JSON object: {arguments}")
    return cast("dict[str, Any]", given)
