"""Everyday runs as data, and what the guard makes of them.

A file holds a run a line (`scenarios/README.md` has the format). Each is played as agents are
guarded: real spans of the GenAI conventions with the run's own times through the processor, with
default settings; `control.refused` before each tool call, whose refusal becomes a failed span, and
`control.check` and `control.hint` after each call of the model.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Span, StatusCode, set_span_in_context

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings, control, semconv
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
        seen_by: Call by which a stuck one is to be noticed; None where that is all the same.
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
        refused: Calls that were refused, and by what.
        calls: Tool calls that were asked for.
    """

    decisions: list[tuple[int, Decision]] = field(default_factory=list[tuple[int, Decision]])
    refused: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    calls: int = 0

    @property
    def noticed(self) -> int | None:
        """The call at which something was said first."""
        said = [at for at, one in self.decisions if one.action is not Action.ALLOW]
        return min(said, default=None)

    @property
    def stopped(self) -> int | None:
        """The call at which it was denied, paused or aborted, or a call was refused first."""
        stops = [at for at, one in self.decisions if one.action.stops]
        return min([*stops, *(at for at, _ in self.refused)], default=None)

    def meets(self, scenario: Scenario) -> bool:
        """Whether this is what is wanted of a run."""
        if not scenario.stuck:
            return self.stopped is None
        late = self.noticed is None or self.noticed > (scenario.seen_by or self.calls)
        never = scenario.stopped_by is not None and (
            self.stopped is None or self.stopped > scenario.stopped_by
        )
        return not late and not never


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
    """Plays a run through the processor of a guard of its own."""
    return _Player(scenario, settings).play()


class _Player:
    """One run on its own clock; a session that the guard ends takes no further step."""

    def __init__(self, scenario: Scenario, settings: Mapping[str, Any]) -> None:
        self.scenario = scenario
        self.played = Played()
        self.now = 0.0
        self.open: dict[str, list[Span]] = {}
        self.over: set[str] = set()
        # Spans that began years ago are no stalls.
        guard = LoopGuard(
            Settings(**{"step_timeout_s": 1e9, **settings}), on_decision=self._decided
        )
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(LoopGuardSpanProcessor(guard))
        self.tracer = self.provider.get_tracer("scenarios")

    def play(self) -> Played:
        try:
            for step in self.scenario.steps:
                session = step.get("session", self.scenario.id)
                if "wait" in step:
                    self.now += step["wait"]
                elif "begin" in step:
                    self._begin(session, step)
                elif "end" in step:
                    spans = self.open[session]
                    spans.pop().end(self._nanoseconds())
                elif session not in self.over:
                    with self._within(session), suppress(LoopGuardStop):
                        self._model(step["model"]) if "model" in step else self._tool(step)
                        continue
                    self.over.add(session)
        finally:
            for spans in self.open.values():
                for span in reversed(spans):
                    span.end(self._nanoseconds())
            self.provider.shutdown()
        return self.played

    def _begin(self, session: str, step: Row) -> None:
        spans = self.open.setdefault(session, [])
        own = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": step["begin"]}
        if not step.get("nested"):
            own["gen_ai.conversation.id"] = session
        if "user" in step:
            own["gen_ai.input.messages"] = _message("user", step["user"])
        above = set_span_in_context(spans[-1]) if spans else None
        name = f"invoke_agent {step['begin']}"
        spans.append(
            self.tracer.start_span(name, above, attributes=own, start_time=self._nanoseconds())
        )

    def _model(self, model: Row) -> None:
        own: dict[str, Any] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        if model.get("tokens_in"):
            own["gen_ai.usage.input_tokens"] = model["tokens_in"]
        parts: list[Row] = []
        if model.get("text"):
            parts.append({"type": "text", "content": model["text"]})
        if model.get("call"):
            parts.append({"type": "tool_call", **model["call"]})
        if parts:
            own["gen_ai.output.messages"] = json.dumps([{"role": "assistant", "parts": parts}])
        began = self._nanoseconds()
        self.now += model["seconds"]
        span = self.tracer.start_span("chat m", attributes=own, start_time=began)
        if model.get("error"):
            span.set_attribute("error.type", "ModelError")
            span.set_status(StatusCode.ERROR, model["error"])
        span.end(self._nanoseconds())
        control.check()
        control.hint()

    def _tool(self, step: Row) -> None:
        self.played.calls += 1
        tool, args = step["tool"], step["args"]
        own = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": step["id"],
        }
        if args is not None:
            own["gen_ai.tool.call.arguments"] = args if isinstance(args, str) else json.dumps(args)
        if step.get("agent"):
            own["gen_ai.agent.name"] = step["agent"]
        began = self._nanoseconds()
        refused = control.refused(tool, args)
        span = self.tracer.start_span(f"execute_tool {tool}", attributes=own, start_time=began)
        if refused is not None:
            self.played.refused.append((self.played.calls, refused.by or "unknown"))
            span.set_attribute("error.type", semconv.ERROR_DENY)
            span.set_status(StatusCode.ERROR, refused.hint or refused.reason)
        else:
            self.now += step["seconds"]
            if "error" in step:
                span.set_attribute("error.type", "ToolError")
                span.set_status(StatusCode.ERROR, step["error"])
            if step.get("result") is not None:
                result = step["result"]
                span.set_attribute(
                    "gen_ai.tool.call.result",
                    result if isinstance(result, str) else json.dumps(result),
                )
        span.end(self._nanoseconds())

    @contextmanager
    def _within(self, session: str) -> Iterator[None]:
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
        self.played.decisions.append((self.played.calls, decision))

    def _nanoseconds(self) -> int:
        return EPOCH + round(self.now * SECOND)


def _message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def main() -> None:
    """Plays the runs of files and says which are not as wanted."""
    import sys  # noqa: PLC0415

    for path in map(Path, sys.argv[1:]):
        good = {True: 0, False: 0}
        hinted = 0
        runs = {True: 0, False: 0}
        for one in load(path):
            played = play(one)
            runs[one.stuck] += 1
            good[one.stuck] += played.meets(one)
            hinted += not one.stuck and played.noticed is not None
            if not played.meets(one):
                said = [
                    f"{at} {found.action} {found.detector}/{found.reason}"
                    for at, found in played.decisions
                ]
                by = played.refused[:1]
                print(f"{'stuck' if one.stuck else 'healthy'} {one.id!r}: {said[:6]} {by}")
        print(
            f"{path.name}: healthy {good[False]}/{runs[False]} ({hinted} noticed), "
            f"stuck {good[True]}/{runs[True]}"
        )


if __name__ == "__main__":
    main()
