"""Runs as data, and what a detector sees of them: one call with its answer after the other.

A detector is anything with `observe(call)`, which answers "stop" where the call is refused, the run
is ended or a person has to answer first, "warn" where the model gets a word, and None otherwise.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

Row = dict[str, Any]
Verdict = Literal["warn", "stop"]


@dataclass(frozen=True)
class Scenario:
    """One run, and what is wanted of it.

    Attributes:
        id: Its name; also that of its session.
        steps: What is done, in order.
        seen_by: Call by which it is to be noticed, `ANY` for any; None where it need not be.
        stopped_by: Call by which it is to be denied or aborted, likewise.
        quiet: True if nothing may be said of it.
        let_through: True if nothing of it may be stopped.
        aborted: True if it is to be ended.
        opening: Tool calls at the beginning that are other work, and not counted.
    """

    id: str
    steps: tuple[Row, ...]
    seen_by: float | None = None
    stopped_by: float | None = None
    quiet: bool = False
    let_through: bool = True
    aborted: bool = False
    opening: int = 0

    @property
    def stuck(self) -> bool:
        """True if it ought to be noticed."""
        return self.seen_by is not None or self.stopped_by is not None

    def faults(self, noticed: int | None, stopped: int | None) -> list[str]:
        """What is not as wanted, of the calls at which it was noticed and stopped first."""
        found: list[str] = []
        if noticed is not None and (self.quiet or noticed < self.opening):
            found.append(f"noticed at {noticed}")
        if self.let_through and stopped is not None:
            found.append(f"stopped at {stopped}")
        for what, at, by in (
            ("noticed", noticed, self.seen_by),
            ("stopped", stopped, self.stopped_by),
        ):
            if by is not None and (at is None or at - self.opening > by):
                late = f"{what} at {at} and not by {by + self.opening}"
                found.append(f"never {what}" if at is None else late)
        return found


ANY = math.inf


@dataclass(frozen=True)
class Call:
    """A tool call with its answer, or what the model said in place of one.

    Attributes:
        tool: Name of the tool; None where the model spoke and called nothing.
        args: Arguments, a JSON value or text; None where they are not captured.
        answer: What came back; None where the call failed, or where that is not captured.
        error: What it failed with; None where it did not fail.
        text: What the model wrote with it.
        run: The run of an agent that it belongs to; a detector is made for each.
        message: Number of the model's message that asked for it.
        last: False if the same message asks for another call after it.
        after_user: True if the user spoke before it.
        answers_user: True if the model's turn ends with it: there is no call in it.
    """

    tool: str | None
    args: Any = None
    answer: Any = None
    error: str | None = None
    text: str = ""
    run: str = ""
    message: int = 0
    last: bool = True
    after_user: bool = False
    answers_user: bool = False


class Detector(Protocol):
    """What is compared."""

    def observe(self, call: Call) -> Verdict | None:
        """Takes one call; answers "warn", "stop" or nothing."""
        ...


Factory = Callable[[], Detector]


@dataclass
class Found:
    """Numbers of the tool calls, from 1, at which a detector spoke first; 0 before any."""

    noticed: int | None = None
    stopped: int | None = None


def judged(calls: Iterable[Call], make: Factory) -> Found:
    """What a detector, made anew for each run of an agent, says of calls until it stops one."""
    detectors: dict[str, Detector] = {}
    found = Found()
    number = 0
    for call in calls:
        number += call.tool is not None
        detector = detectors.get(call.run)
        if detector is None:
            detector = detectors[call.run] = make()
        verdict = detector.observe(call)
        if verdict is not None and found.noticed is None:
            found.noticed = number
        if verdict == "stop":
            found.stopped = number
            break
    return found


def load(path: Path) -> Iterator[Scenario]:
    """The runs of a file with one JSON object a line, packed by gzip or not."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for line in lines:
            row = json.loads(line)
            steps = row["steps"]
            if "begin" not in steps[0]:
                steps = written_out(steps)
            yield Scenario(
                row["id"],
                tuple(steps),
                row.get("seen_by") or row.get("by"),
                row.get("stopped_by"),
                let_through=row["kind"] != "stuck",
            )


def written_out(steps: Iterable[Row]) -> Iterator[Row]:
    """The short form, in which models and agents are not written down, with both."""
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


def calls(scenario: Scenario) -> Iterator[Call]:
    """The calls of a run, as the agents that made them know them."""
    return _with_ends(_Hearing(scenario).calls())


class _Hearing:
    """Calls out of steps: which agent, which message, what was said with them.

    An agent that another one started with a task is a call of that one, answered by what it said
    last: so are sub-agents started in the systems that are compared.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.begun: dict[str, list[str]] = {}
        self.tasks: dict[str, tuple[str, Any]] = {}
        self.said: dict[str, str] = {}  # by run: what the model wrote and no call followed yet
        self.last_words: dict[str, str] = {}
        self.spoken_to: set[str] = set()
        self.message = 0
        self.runs = 0

    def calls(self) -> Iterator[Call]:
        for step in self.scenario.steps:
            session = step.get("session", self.scenario.id)
            if "begin" in step:
                self._begin(session, step)
            elif "end" in step:
                yield from self._end(session)
            elif "model" in step:
                run = self._run(session, step)
                yield from self._message(run, ends=False)
                self.message += 1
                self.said[run] = step["model"].get("text") or ""
            else:
                for one in step.get("together", [step]):
                    if "tool" in one or "handoff" in one:
                        yield self._call(self._run(session, one), one)
        for run in list(self.said):
            yield from self._message(run, ends=True)

    def _begin(self, session: str, step: Row) -> None:
        above = self.begun.setdefault(session, [])
        if step.get("nested"):
            self.runs += 1
            run = f"{session}/{step['begin']}/{self.runs}"
            if "user" in step:
                self.tasks[run] = (step["begin"], step["user"])
        else:
            run = f"{session}/{step['begin']}"
            if "user" in step:
                self.spoken_to.add(run)
        above.append(run)

    def _end(self, session: str) -> Iterator[Call]:
        run = self.begun[session].pop()
        yield from self._message(run, ends=True)
        if run in self.tasks and self.begun[session]:
            name, task = self.tasks[run]
            above = self.begun[session][-1]
            self.message += 1
            said = {"tool": name, "args": {"task": task}, "result": self.last_words.get(run)}
            yield self._call(above, said)

    def _run(self, session: str, step: Row) -> str:
        above = self.begun.get(session)
        agent = step.get("agent")
        if agent is not None:
            return f"{session}/{agent}"
        return above[-1] if above else session

    def _call(self, run: str, step: Row) -> Call:
        failed = step.get("error")
        return Call(
            step.get("tool") or f"transfer_to_{step['handoff']}",
            step.get("args"),
            None if failed is not None else step.get("result"),
            failed,
            self.said.pop(run, ""),
            run,
            self.message,
            after_user=self._spoken_to(run),
        )

    def _message(self, run: str, *, ends: bool) -> Iterator[Call]:
        text = self.said.pop(run, "")
        if text:
            self.last_words[run] = text
            yield Call(
                None,
                text=text,
                run=run,
                message=self.message,
                after_user=self._spoken_to(run),
                answers_user=ends,
            )

    def _spoken_to(self, run: str) -> bool:
        found = run in self.spoken_to
        self.spoken_to.discard(run)
        return found


def _with_ends(found: Iterable[Call]) -> Iterator[Call]:
    """Marks each call that is followed by another one of its message."""
    before: Call | None = None
    for call in found:
        if before is not None:
            same = call.tool is not None and (call.run, call.message) == (
                before.run,
                before.message,
            )
            yield replace(before, last=not same)
        before = call
    if before is not None:
        yield before
