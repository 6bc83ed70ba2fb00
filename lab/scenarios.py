"""Runs as data, and what the guard or another detector makes of them.

    python -m lab.scenarios scenarios/*.gz scenarios/*.txt [--detector lab.peers:OpenHands]

plays the runs of files (`scenarios/README.md` has the formats) and says which are not as wanted.
The guard is played as agents are guarded: real spans with the run's own times through the
processor, by the run's own clock, with default settings; `control.refused` before each tool call,
whose refusal becomes a failed span, and `control.check` and `control.hint` after each call of the
model. Another detector (`lab.runs.Detector`) is given the calls with their answers.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, StatusCode, set_span_in_context

from lab import tables
from lab.runs import Factory, Row, Scenario, calls, judged
from lab.runs import load as load_lines
from otel_loopguard import (
    LoopGuard,
    LoopGuardSpanProcessor,
    Settings,
    control,
    semconv,
    set_testing,
)
from otel_loopguard._util import clock
from otel_loopguard.core import Action, Decision
from otel_loopguard.errors import LoopGuardStop

SECOND = 1_000_000_000  # nanoseconds
EPOCH = 1_700_000_000 * SECOND


@dataclass
class Played:
    """What became of a run: numbers of tool calls, from 1.

    Attributes:
        decisions: Every decision that says something, with the call that it came at.
        refused: Calls that were refused, and by what: of the policy, the detector.
        calls: Tool calls that were asked for.
    """

    decisions: list[tuple[int, Decision]] = field(default_factory=list[tuple[int, Decision]])
    refused: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    calls: int = 0

    @property
    def noticed(self) -> int | None:
        """The call at which something was said first."""
        return min((at for at, _ in self.decisions), default=None)

    @property
    def stopped(self) -> int | None:
        """The call at which it was denied, paused or aborted, or a call was refused first."""
        stops = [at for at, one in self.decisions if one.action.stops]
        return min([*stops, *(at for at, _ in self.refused)], default=None)

    @property
    def aborted(self) -> bool:
        """True if it was ended."""
        return any(one.action is Action.ABORT for _, one in self.decisions)

    def faults(self, scenario: Scenario) -> list[str]:
        """What is not as wanted; empty where all is."""
        found = scenario.faults(self.noticed, self.stopped)
        return [*found, "never aborted"] if scenario.aborted and not self.aborted else found


def load(path: Path) -> Iterator[Scenario]:
    """The runs of a file of any format."""
    if path.suffix == ".txt":
        return (table.draw() for table in tables.load(path))
    return load_lines(path)


def play(scenario: Scenario, **settings: Any) -> Played:
    """Plays a run through the processor of a guard of its own, until the guard ends it."""
    player = _Player(scenario, settings)
    # Not `advance`: the machine's own time would come on top of the run's.
    with set_testing(), patch.object(clock, "time", SimpleNamespace(time_ns=player.nanoseconds)):
        return player.play()


class _Player:
    """One run on its own clock; a session that the guard ends takes no further step."""

    def __init__(self, scenario: Scenario, settings: Mapping[str, Any]) -> None:
        self.scenario = scenario
        self.played = Played()
        self.now = 0.0
        self.open: dict[str, list[Span]] = {}
        self.over: set[str] = set()
        guard = LoopGuard(Settings(**settings), on_decision=self._decided)
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(LoopGuardSpanProcessor(guard))
        self.tracer = self.provider.get_tracer("scenarios")

    def nanoseconds(self) -> int:
        return EPOCH + round(self.now * SECOND)

    def play(self) -> Played:
        try:
            for step in self.scenario.steps:
                session = step.get("session", self.scenario.id)
                if "wait" in step:
                    self.now += step["wait"]
                elif "begin" in step:
                    self._begin(session, step)
                elif "end" in step:
                    self.open[session].pop().end(self.nanoseconds())
                elif session not in self.over:
                    with self._within(session), suppress(LoopGuardStop):
                        self._act(step)
                        continue
                    self.over.add(session)
        finally:
            for spans in self.open.values():
                for span in reversed(spans):
                    span.end(self.nanoseconds())
            self.provider.shutdown()
        return self.played

    def _act(self, step: Row) -> None:
        if "model" in step:
            self._model(step)
        elif "node" in step:
            self._node(step)
        elif "handoff" in step:
            self._handoff(step)
        elif "together" in step:
            self._together(step["together"])
        else:
            self._end(*self._call(step), self.now)

    def _begin(self, session: str, step: Row) -> None:
        spans = self.open.setdefault(session, [])
        said: Row = {"gen_ai.agent.name": step["begin"]}
        if not step.get("nested"):
            said["gen_ai.conversation.id"] = session
        if "user" in step:
            parts = [{"type": "text", "content": step["user"]}]
            said["gen_ai.input.messages"] = [{"role": "user", "parts": parts}]
        with self._within(session):
            spans.append(self._start("invoke_agent", step["begin"], said, step))

    def _model(self, step: Row) -> None:
        model = step["model"]
        said: Row = {"gen_ai.request.model": "m"}
        if model.get("tokens_in"):
            said["gen_ai.usage.input_tokens"] = model["tokens_in"]
        parts: list[Row] = []
        if model.get("text"):
            parts.append({"type": "text", "content": model["text"]})
        if model.get("call"):
            parts.append({"type": "tool_call", **model["call"]})
        if parts:
            said["gen_ai.output.messages"] = [{"role": "assistant", "parts": parts}]
        span = self._start("chat", "m", said, step)
        self.now += model["seconds"]
        if model.get("error"):
            _fail(span, "ModelError", model["error"])
        span.end(self.nanoseconds())
        control.check()
        control.hint()

    def _call(self, step: Row) -> tuple[Span, Row | None]:
        """Begins a call; gives its span, and the step unless it is refused."""
        self.played.calls += 1
        tool, args = step["tool"], step["args"]
        said = {"gen_ai.tool.name": tool, "gen_ai.tool.call.id": step["id"]}
        if args is not None:
            said["gen_ai.tool.call.arguments"] = args
        if step.get("agent"):
            said["gen_ai.agent.name"] = step["agent"]
        refused = control.refused(tool, args)
        span = self._start("execute_tool", tool, said, step)
        return span, None if self._refused(span, refused) else step

    def _refused(self, span: Span, refused: control.Control | None) -> bool:
        """Whether a call was refused, which its span then says."""
        if refused is None:
            return False
        by = refused.decision.detector if refused.decision is not None else str(refused.by)
        self.played.refused.append((self.played.calls, by))
        _fail(span, semconv.ERROR_DENY, refused.hint or refused.reason)
        return True

    def _end(self, span: Span, step: Row | None, began: float) -> None:
        """Ends a call that began at a time; one that was refused took none."""
        if step is not None:
            self.now = max(self.now, began + step["seconds"])
            if step.get("error") is not None:
                _fail(span, "ToolError", step["error"])
            if step.get("result") is not None:
                span.set_attributes(_told({"gen_ai.tool.call.result": step["result"]}, step))
        span.end(self.nanoseconds())

    def _together(self, steps: list[Row]) -> None:
        """Calls of one message that run side by side."""
        began = self.now
        begun = [self._call(step) for step in steps]
        for span, step in sorted(begun, key=lambda one: (one[1] or {"seconds": 0})["seconds"]):
            self._end(span, step, began)

    def _handoff(self, step: Row) -> None:
        self.played.calls += 1
        tool = f"transfer_to_{step['handoff']}"
        said = {
            "gen_ai.tool.name": tool,
            "gen_ai.agent.handoff.source.name": step["agent"],
            "gen_ai.agent.handoff.target.name": step["handoff"],
        }
        if step["args"] is not None:
            said["gen_ai.tool.call.arguments"] = step["args"]
        # A hand-off is a call as well, and asked for where no model is seen.
        refused = control.refused(tool, step["args"])
        span = self._start("execute_tool", step["handoff"], said, step)
        if not self._refused(span, refused):
            self.now += step["seconds"]
        span.end(self.nanoseconds())

    def _node(self, step: Row) -> None:
        """A node of a graph, as the convention says it that has nodes."""
        self.played.calls += 1
        said: Row = {
            "openinference.span.kind": "CHAIN",
            "metadata": json.dumps({"langgraph_node": step["node"]}),
        }
        if step.get("result") is not None:
            said["output.value"] = step["result"]
        tracer = self.provider.get_tracer("openinference.instrumentation.langchain")
        span = tracer.start_span(step["node"], attributes=said, start_time=self.nanoseconds())
        self.now += step["seconds"]
        span.end(self.nanoseconds())

    def _start(self, operation: str, name: str, said: Row, step: Row) -> Span:
        """A span of the conventions that the step is told by."""
        own = _told({"gen_ai.operation.name": operation, **said}, step)
        return self.tracer.start_span(
            f"{operation} {name}", attributes=own, start_time=self.nanoseconds()
        )

    @contextmanager
    def _within(self, session: str) -> Generator[None, None, None]:
        spans = self.open.get(session)
        if not spans:
            yield
            return
        token = otel_context.attach(set_span_in_context(spans[-1]))
        try:
            yield
        finally:
            otel_context.detach(token)

    def _decided(self, session: object, decision: Decision) -> None:
        del session
        if decision.action is not Action.ALLOW:
            self.played.decisions.append((self.played.calls, decision))


def _fail(span: Span, kind: str, said: str | None) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR, said)


_OPENINFERENCE = {
    "gen_ai.agent.name": "agent.name",
    "gen_ai.conversation.id": "session.id",
    "gen_ai.input.messages": "input.value",
    "gen_ai.operation.name": "openinference.span.kind",
    "gen_ai.request.model": "llm.model_name",
    "gen_ai.tool.call.arguments": "input.value",
    "gen_ai.tool.call.id": "tool_call.id",
    "gen_ai.tool.call.result": "output.value",
    "gen_ai.tool.name": "tool.name",
    "gen_ai.usage.input_tokens": "llm.token_count.prompt",
}
_KINDS = {"invoke_agent": "AGENT", "chat": "LLM", "execute_tool": "TOOL"}


def _told(said: Row, step: Row) -> Row:
    """Attributes of a span: of the GenAI conventions, or what says the same in OpenInference."""
    if step.get("dialect") == "openinference":
        said = dict(said)
        messages = said.pop("gen_ai.output.messages", [])
        operation = said.get("gen_ai.operation.name")
        if operation is not None:
            said["gen_ai.operation.name"] = _KINDS[operation]
        said = {_OPENINFERENCE[name]: value for name, value in said.items()}
        if operation == "chat":
            # A model call is known by its answer, though nothing of what it says is captured.
            said |= _flat(messages or [{"role": "assistant", "parts": []}])
    return {
        name: value if isinstance(value, (str, int)) else json.dumps(value)
        for name, value in said.items()
    }


def _flat(messages: Iterable[Row]) -> Row:
    """Messages that a model wrote, as OpenInference spreads them over attributes."""
    said: Row = {}
    for number, message in enumerate(messages):
        place = f"llm.output_messages.{number}.message"
        said[f"{place}.role"] = message["role"]
        for part in message["parts"]:
            if part["type"] == "text":
                said[f"{place}.content"] = part["content"]
            else:
                call = f"{place}.tool_calls.0.tool_call"
                said[f"{call}.id"] = part["id"]
                said[f"{call}.function.name"] = part["name"]
                said[f"{call}.function.arguments"] = part["arguments"]
    return said


def factory(name: str) -> Factory:
    """The detector that `module:name` makes."""
    module, _, made = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), made)
    except (ImportError, AttributeError) as why:
        msg = f"--detector {name}: expected module:factory, as lab.peers:OpenHands ({why})"
        raise SystemExit(msg) from None
    return found


def main() -> None:
    """Plays the runs of files and says which are not as wanted."""
    asked = argparse.ArgumentParser(prog="python -m lab.scenarios", description=main.__doc__)
    asked.add_argument("files", nargs="+", type=Path)
    asked.add_argument("--detector", type=factory, help="module:factory; default is the guard")
    given = asked.parse_args()
    logging.disable(logging.ERROR)
    for path in given.files:
        tell(path, given.detector)


def tell(path: Path, make: Factory | None = None) -> None:
    """Prints the runs of one file that are not as wanted, and how many are."""
    good = {"healthy": 0, "stuck": 0}
    runs = dict(good)
    hinted = 0
    for one in load(path):
        if make is None:
            found = play(one)
            faults = found.faults(one)
            why = f": {_decisions(found)} {found.refused[:1]}"
        else:
            found = judged(calls(one), make)
            faults = one.faults(found.noticed, found.stopped)
            why = ""
        kind = "stuck" if one.stuck else "healthy"
        runs[kind] += 1
        good[kind] += not faults
        hinted += not one.stuck and found.noticed is not None
        if faults:
            print(f"{kind} {one.id!r}: {' and '.join(faults)}{why}")
    print(
        f"{path.name}: healthy {good['healthy']}/{runs['healthy']} ({hinted} noticed), "
        f"stuck {good['stuck']}/{runs['stuck']}"
    )


def _decisions(played: Played) -> list[str]:
    return [f"{at} {one.action} {one.detector}/{one.reason}" for at, one in played.decisions[:6]]


if __name__ == "__main__":
    main()
