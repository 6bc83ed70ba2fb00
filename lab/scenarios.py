"""Everyday runs as data, and what the guard makes of them.

    python -m lab.scenarios scenarios/*.jsonl.gz

plays the runs of files (`scenarios/README.md` has the format) and says which are not as wanted.
Each is played as agents are guarded: real spans with the run's own times through the processor, by
the run's own clock, with default settings; `control.refused` before each tool call, whose refusal
becomes a failed span, and `control.check` and `control.hint` after each call of the model.
"""

from __future__ import annotations

import gzip
import json
import logging
import sys
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

SECOND = 1_000_000_000
EPOCH = 1_700_000_000 * SECOND

Row = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """One run, and what is wanted of it.

    Attributes:
        id: Its name; also that of its session.
        stuck: Whether it is one that ought to be noticed.
        seen_by: Call by which a stuck one is to be noticed.
        stopped_by: Call by which it is to be denied or aborted; None where a hint will do.
        steps: What is done, in order.
    """

    id: str
    stuck: bool
    seen_by: int | None
    stopped_by: int | None
    steps: tuple[Row, ...]


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

    def faults(self, scenario: Scenario) -> list[str]:
        """What is not as wanted; empty where all is."""
        if not scenario.stuck:
            return [] if self.stopped is None else [f"stopped at {self.stopped}"]
        wanted = (
            ("noticed", self.noticed, scenario.seen_by),
            ("stopped", self.stopped, scenario.stopped_by),
        )
        return [
            f"{what} at {at} and not by {by}" if at is not None else f"never {what}"
            for what, at, by in wanted
            if by is not None and (at is None or at > by)
        ]


def load(path: Path) -> Iterator[Scenario]:
    """The runs of a file, a JSON object a line, packed by gzip or not."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            row = json.loads(line)
            steps = row["steps"]
            if "begin" not in steps[0]:
                steps = list(_spelled_out(steps))
            yield Scenario(
                row["id"],
                row["kind"] == "stuck",
                row.get("seen_by") or row.get("by"),
                row.get("stopped_by"),
                tuple(steps),
            )


def _spelled_out(steps: Iterable[Row]) -> Iterator[Row]:
    """The short form, in which models and agents are not written down."""
    yield {"begin": "assistant"}
    group = None
    for number, step in enumerate(steps):
        if step.get("wait"):
            yield {"wait": step["wait"]}
        if "user" in step:
            yield {"end": "assistant"}
            yield {"begin": "assistant", "user": step["user"]}
        if "text" in step:
            yield {"model": {"seconds": step.get("seconds", 1.5), "text": step["text"]}}
            continue
        if step.get("agent"):
            yield {"begin": step["agent"], "nested": True}
        if "group" not in step or step["group"] != group:
            yield {"model": {"seconds": 1.5, "tokens_in": step.get("tokens_in")}}
        group = step.get("group")
        yield {
            **{name: step[name] for name in ("tool", "args", "result", "error") if name in step},
            "id": f"c{number}",
            "seconds": step.get("seconds", 0.05),
        }
        if step.get("agent"):
            yield {"end": step["agent"]}
    yield {"end": "assistant"}


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
                        self._model(step) if "model" in step else self._tool(step)
                        continue
                    self.over.add(session)
        finally:
            for spans in self.open.values():
                for span in reversed(spans):
                    span.end(self.nanoseconds())
            self.provider.shutdown()
        return self.played

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

    def _tool(self, step: Row) -> None:
        self.played.calls += 1
        tool, args = step["tool"], step["args"]
        said = {"gen_ai.tool.name": tool, "gen_ai.tool.call.id": step["id"]}
        if args is not None:
            said["gen_ai.tool.call.arguments"] = args
        if step.get("agent"):
            said["gen_ai.agent.name"] = step["agent"]
        refused = control.refused(tool, args)
        span = self._start("execute_tool", tool, said, step)
        if refused is not None:
            by = refused.decision.detector if refused.decision is not None else str(refused.by)
            self.played.refused.append((self.played.calls, by))
            _fail(span, semconv.ERROR_DENY, refused.hint or refused.reason)
        else:
            self.now += step["seconds"]
            if "error" in step:
                _fail(span, "ToolError", step["error"])
            if step.get("result") is not None:
                span.set_attributes(_told({"gen_ai.tool.call.result": step["result"]}, step))
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


def main() -> None:
    """Plays the runs of files and says which are not as wanted."""
    logging.disable(logging.ERROR)
    for path in map(Path, sys.argv[1:]):
        good = {"healthy": 0, "stuck": 0}
        runs = dict(good)
        hinted = 0
        for one in load(path):
            played = play(one)
            kind, faults = "stuck" if one.stuck else "healthy", played.faults(one)
            runs[kind] += 1
            good[kind] += not faults
            hinted += not one.stuck and played.noticed is not None
            if faults:
                said = [
                    f"{at} {found.action} {found.detector}/{found.reason}"
                    for at, found in played.decisions
                ]
                by = played.refused[:1]
                print(f"{kind} {one.id!r}: {' and '.join(faults)}: {said[:6]} {by}")
        print(
            f"{path.name}: healthy {good['healthy']}/{runs['healthy']} ({hinted} noticed), "
            f"stuck {good['stuck']}/{runs['stuck']}"
        )


if __name__ == "__main__":
    main()
