"""Runs written down as data, played as agents are guarded.

    python -m tests.scenarios.shared_runs ../shared/scenarios/*.jsonl.gz

plays every run of some files and says which are not as their file wants them; the format is in the
`README.md` beside the files. Spans of the GenAI conventions go through the real processor at the
run's own times; `control.refused` is asked before each tool call, whose refusal becomes a failed
span as an adapter writes it, and `control.check` and `control.hint` after each model call.
"""

from __future__ import annotations

import gzip
import json
import logging
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode

from otel_loopguard import (
    LoopGuard,
    LoopGuardAbort,
    LoopGuardSpanProcessor,
    Settings,
    control,
    semconv,
    set_testing,
)
from otel_loopguard._util import clock
from otel_loopguard.core import Action, Decision
from tests.agents import provider_with

Row = dict[str, Any]


class Run(NamedTuple):
    """One run, and what is wanted of it.

    Attributes:
        id: Its name, and the key of its session.
        stuck: Whether it is to be noticed; a healthy one is not to be stopped.
        seen_by: Tool call, counted from 1, by which a stuck one is to be noticed.
        stopped_by: Tool call by which it is to be stopped; None where a hint will do.
        steps: What is done, in order.
    """

    id: str
    stuck: bool
    seen_by: int | None
    stopped_by: int | None
    steps: tuple[Row, ...]


class Refusal(NamedTuple):
    """A tool call that was refused.

    Attributes:
        call: Its number, from 1.
        tool: Its tool.
        part: What refused it: `breaker`, `check`, or the detector behind the session's flag.
    """

    call: int
    tool: str
    part: str


class Played(NamedTuple):
    """What became of a run.

    Attributes:
        decisions: Decisions that say something, each with the number of tool calls asked for.
        refusals: The calls that were refused.
        ended: Whether `control.check` ended a session.
    """

    decisions: list[tuple[int, Decision]]
    refusals: list[Refusal]
    ended: bool

    @property
    def noticed(self) -> int | None:
        """The call at which anything was said first."""
        return min((call for call, _ in self.decisions), default=None)

    @property
    def stopped(self) -> int | None:
        """The call that was first denied, paused, aborted or refused."""
        stops = [call for call, decision in self.decisions if decision.action.stops]
        return min([*stops, *(one.call for one in self.refusals)], default=None)

    def faults(self, run: Run) -> list[str]:
        """What is not as wanted; empty where all is."""
        if not run.stuck:
            return [] if self.stopped is None else [f"stopped at {self.stopped}"]
        wanted = (("noticed", self.noticed, run.seen_by), ("stopped", self.stopped, run.stopped_by))
        return [
            f"{what} at {call} and not by {by}" if call else f"never {what}"
            for what, call, by in wanted
            if by is not None and (call is None or call > by)
        ]


def load(path: Path) -> Iterator[Run]:
    """The runs of a file, a JSON object in each line."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for row in map(json.loads, lines):
            steps = row["steps"]
            complete = any("begin" in step for step in steps)
            yield Run(
                row["id"],
                row["kind"] == "stuck",
                row.get("seen_by", row.get("by")),
                row.get("stopped_by"),
                tuple(steps if complete else written_out(steps)),
            )


def written_out(steps: Iterable[Row]) -> Iterator[Row]:
    """Steps of the short form, which names neither models nor the agent."""
    group: object = None
    yield {"begin": "assistant"}
    for number, step in enumerate(steps):
        yield {"wait": step.get("wait", 0)}
        if "user" in step:
            yield {"end": "assistant"}
            yield {"begin": "assistant"}
        if "text" in step:
            yield {"model": {"seconds": step.get("seconds", 1.5), "text": step["text"]}}
        if "tool" not in step:
            continue
        if step.get("agent"):
            yield {"begin": step["agent"], "nested": True}
        if group is None or step.get("group") != group:
            yield {"model": {"seconds": 1.5, "tokens_in": step.get("tokens_in")}}
        group = step.get("group")
        yield {"id": f"call-{number}", "seconds": 0.05, **step, "agent": None}
        if step.get("agent"):
            yield {"end": step["agent"]}
    yield {"end": "assistant"}


def play(run: Run, **settings: Any) -> Played:
    """Plays a run with a guard of its own, until the guard ends it."""
    with set_testing(True):
        player = _Player(run, settings)
        # Not `advance`: the machine's own time would come on top of the run's.
        with patch.object(clock, "time", SimpleNamespace(time_ns=lambda: player.now)):
            try:
                return player.play()
            finally:
                player.close()


class _Player:
    def __init__(self, run: Run, settings: Row) -> None:
        self.now = time.time_ns()
        self._run = run
        self._played = Played([], [], ended=False)
        self._calls = 0
        self._open: dict[str, list[Span]] = {}
        self._over: set[str] = set()
        guard = LoopGuard(Settings(**settings), on_decision=self._decided)
        self._provider = provider_with(LoopGuardSpanProcessor(guard))
        self._tracer = self._provider.get_tracer("agent")

    def play(self) -> Played:
        for step in self._run.steps:
            session = step.get("session") or self._run.id
            if "begin" in step:
                self._begin(session, step)
            elif "end" in step:
                self._open[session].pop().end(self.now)
            elif not {"model", "tool"} & step.keys():
                self._pass(step["wait"])
            elif session not in self._over:
                with self._inside(session):
                    self._model(step["model"]) if "model" in step else self._tool(step)
        return self._played._replace(ended=bool(self._over))

    def close(self) -> None:
        for spans in self._open.values():
            for span in reversed(spans):
                span.end(self.now)
        self._provider.shutdown()

    def _begin(self, session: str, step: Row) -> None:
        spans = self._open.setdefault(session, [])
        said = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": step["begin"]}
        if not step.get("nested"):
            said["gen_ai.conversation.id"] = session
        above = trace.set_span_in_context(spans[-1]) if spans else None
        spans.append(self._start(f"invoke_agent {step['begin']}", said, above))

    def _model(self, step: Row) -> None:
        said: Row = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "model"}
        if step.get("tokens_in") is not None:
            said["gen_ai.usage.input_tokens"] = step["tokens_in"]
        text, call = step.get("text"), step.get("call")
        parts = [{"type": "text", "content": text}] if text else []
        parts += [{"type": "tool_call", **call}] if call else []
        if parts:
            message = {"role": "assistant", "parts": parts}
            said["gen_ai.output.messages"] = json.dumps([message])
        span = self._start("chat model", said)
        self._pass(step["seconds"])
        span.end(self.now)
        control.check()
        control.hint()

    def _tool(self, step: Row) -> None:
        self._calls += 1
        tool, args = step["tool"], step["args"]
        refused = control.refused(tool, args)
        said = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "gen_ai.tool.call.id": step["id"],
            "gen_ai.tool.call.arguments": _text(args),
        }
        if step.get("agent"):
            said["gen_ai.agent.name"] = step["agent"]
        span = self._start(f"execute_tool {tool}", said)
        if refused is not None:
            self._played.refusals.append(Refusal(self._calls, tool, _part(refused)))
            _fail(span, semconv.ERROR_DENY, "refused by the guard")
        else:
            self._pass(step["seconds"])
            if "result" in step:
                span.set_attribute("gen_ai.tool.call.result", _text(step["result"]))
            if "error" in step:
                _fail(span, "tool_error", step["error"])
        span.end(self.now)

    @contextmanager
    def _inside(self, session: str) -> Generator[None, None, None]:
        span = self._open[session][-1] if self._open.get(session) else trace.INVALID_SPAN
        with trace.use_span(span, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except LoopGuardAbort:
                self._over.add(session)

    def _start(self, name: str, said: Row, context: Any = None) -> Span:
        return self._tracer.start_span(name, context, attributes=said, start_time=self.now)

    def _pass(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)

    def _decided(self, session: object, decision: Decision) -> None:
        del session
        if decision.action is not Action.ALLOW:
            self._played.decisions.append((self._calls, decision))


def _fail(span: Span, error_type: str, said: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(Status(StatusCode.ERROR, said))


def _part(refused: control.Control) -> str:
    """What refused a call: of the policy, the detector."""
    return refused.decision.detector if refused.decision is not None else str(refused.by)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def main() -> None:
    """Plays the files that are named, and says which runs are not as wanted."""
    logging.disable(logging.ERROR)
    for path in map(Path, sys.argv[1:]):
        good = {"healthy": [0, 0], "stuck": [0, 0]}
        for run in load(path):
            played = play(run)
            kind, faults = "stuck" if run.stuck else "healthy", played.faults(run)
            good[kind][0] += not faults
            good[kind][1] += 1
            if faults:
                said = [
                    f"{call} {one.action} {one.detector}/{one.reason}"
                    for call, one in played.decisions[-3:]
                ]
                parts = sorted({one.part for one in played.refusals})
                told = f"{'; '.join(said) or 'nothing'}; refused by {', '.join(parts) or 'nobody'}"
                print(f"{kind} {run.id!r}: {' and '.join(faults)} ({told})")
        told = ", ".join(f"{kind} {right} of {runs}" for kind, (right, runs) in good.items())
        print(f"{path.name}: {told} as wanted")


if __name__ == "__main__":
    main()
