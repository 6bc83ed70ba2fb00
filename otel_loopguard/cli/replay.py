"""`replay`: what the guard would have decided about recorded runs; and `demo`."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import as_file, files
from shlex import quote
from typing import TYPE_CHECKING, Final, NamedTuple

from opentelemetry.sdk.trace import TracerProvider
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from otel_loopguard.cli.output import (
    Format,
    Inputs,
    cell,
    console,
    counted,
    give,
    line,
    table,
    word,
)
from otel_loopguard.core import Action, Decision, Kind, Step
from otel_loopguard.core.decision import outcome_of
from otel_loopguard.core.report import decision_row
from otel_loopguard.errors import LoopGuardAbort
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.integrations.own_loop import Refusal, turn
from otel_loopguard.replay import Run, SessionResult, SpanReplay, Transcript, replay_run
from otel_loopguard.sdk.provider import setup
from otel_loopguard.settings import Settings
from otel_loopguard.spans.reader import Reader

if TYPE_CHECKING:
    from otel_loopguard.core.report import Report
    from otel_loopguard.policy.explain import Explanation
    from otel_loopguard.sessions import Session
    from otel_loopguard.spans.views import RecordedSpan

# Sessions whose results are collected at once: about 30 MB of results and reports. The one whose
# last step is oldest is given first; if it goes on, it is told of twice.
_OPEN_SESSIONS: Final = 10_000
FOREVER_S: Final = 1e9
"""30 years: a person may come back next day, and a session forgotten meanwhile counts from 0."""


@dataclass(slots=True)
class ReplayResult(SessionResult):
    """The result of a session, with its number of steps and its report."""

    steps: int = 0
    report: Report | None = None  # None until the session is closed
    explanation: Explanation | None = None  # the same

    @property
    def outcome(self) -> str | None:
        """Its ending at its first abort; None without one."""
        ends = (one for one in self.decisions if one.action is Action.ABORT)
        return next((outcome_of(one, None).value for one in ends), None)

    def row(self) -> dict[str, object]:
        """The result as one JSON object."""
        return {
            "source": self.source,
            "session": self.session,
            "steps": self.steps,
            "decisions": [decision_row(decision, *DECISION) for decision in self.decisions],
            "strongest": self.strongest.value,
            "outcome": self.outcome,
        }


DECISION: Final = (
    "step", "action", "detector", "severity", "confidence", "loop", "count", "reason", "message",
    "id", "period",
)  # fmt: skip
"""What a row says of a decision; `step` is the index of the canonical step."""
_STYLES: Final = {"allow": "dim", "hint": "yellow", "steer": "yellow", "ask": "yellow"}
_STOP: Final = "bold red"
# Levels that are drawn one below the other: each takes four columns, and a trace may be hostile.
_TREE_DEPTH: Final = 40
# Spans whose names and beginnings of arguments are kept for the trees: about 60 MB.
_TREE_SPANS: Final = 100_000


class _Node(NamedTuple):
    """Label of a span."""

    span_id: int
    parent_id: int | None
    name: str
    start: int
    args: str
    error: str


class Forest:
    """The trees of many traces.

    Keeps names, parents and the beginnings of arguments and errors of the latest 100,000 spans, by
    whole traces.
    """

    def __init__(self) -> None:
        self._read = Reader().read
        self._traces: OrderedDict[int, dict[int, _Node]] = OrderedDict()
        self._count = 0

    def add(self, span: RecordedSpan) -> None:
        """Takes a span in."""
        trace = self._traces.setdefault(span.trace_id, {})
        self._count += span.span_id not in trace
        step = self._read(span)
        trace[span.span_id] = _Node(
            span.span_id,
            span.parent_id,
            line(span.name, 60),
            span.start,
            args=line(step.args, 90) if step else "",
            error=line(span.description or "error", 90) if span.status == "error" else "",
        )
        while self._count > _TREE_SPANS and len(self._traces) > 1:
            _, gone = self._traces.popitem(last=False)
            self._count -= len(gone)

    def tree(self, result: ReplayResult) -> Tree | None:
        """The trees of the traces that a result's decisions are about; None if none is known."""
        marks: defaultdict[int, defaultdict[int, list[Decision]]]
        marks = defaultdict(lambda: defaultdict(list))
        for decision in result.decisions:
            marks[decision.trace_id][decision.span_id].append(decision)
        top = Tree(Text.assemble("session ", cell(result.session)), guide_style="dim")
        for trace_id, decisions in marks.items():
            nodes = self._traces.get(trace_id)
            if nodes:
                _add_spans(top, nodes, decisions)
        return top if top.children else None


def _add_spans(top: Tree, nodes: dict[int, _Node], marks: dict[int, list[Decision]]) -> None:
    """Adds spans below their parents in order of start; orphans at the top."""
    seen: set[int] = set()
    children: defaultdict[int | None, list[_Node]] = defaultdict(list)
    for node in sorted(nodes.values(), key=lambda node: node.start):
        children[node.parent_id if node.parent_id in nodes else None].append(node)
    # Spans below no root (a circle of parents) come after the rest.
    waiting = [(node, top, 0) for node in reversed([*children[None], *nodes.values()])]
    while waiting:
        node, parent, depth = waiting.pop()
        if node.span_id in seen:
            continue
        branch = parent.add(_label(node, marks.get(node.span_id, [])))
        seen.add(node.span_id)
        under, deeper = (branch, depth + 1) if depth < _TREE_DEPTH else (parent, depth)
        waiting.extend((child, under, deeper) for child in reversed(children[node.span_id]))


def _label(node: _Node, decisions: list[Decision]) -> Text:
    label = Text(node.name)
    if node.args:
        label.append(f"  {node.args}", style="dim")
    if node.error:
        label.append(f"\n✗ {node.error}", style="red")
    for decision in decisions:
        style = _STYLES.get(decision.action.value, _STOP)
        label.append(f"\n◆ {word(decision.action)}", style=style)
        label.append(f"  {line(decision.message, 160)}")
    return label


def print_replay(files: Sequence[str], form: Format, settings: Settings, *, tree: bool) -> int:
    """Replays files and prints one object or row per session; returns the exit code.

    Sessions do not reach over files: each file has a guard of its own, and so has each labelled
    run, whose session is its id.
    """
    forest = Forest() if tree else None
    with Inputs(files) as inputs:
        found = replay_all(inputs, settings, forest)
        give(found, form, ReplayResult.row, partial(show, forest=forest))
    return inputs.code


def show(found: Sequence[ReplayResult], forest: Forest | None) -> None:
    """Prints results as a table, or as trees where the spans are known; steps count from 1."""
    out = console()
    rows: list[tuple[object, ...]] = []
    for result in found:
        branch = forest.tree(result) if forest and result.decisions else None
        if branch is not None:
            out.print(branch)
        told = "; ".join(
            f"{word(one.action)} at step {one.step + 1} ({one.reason}, count {_count(one)})"
            for one in result.decisions
        )
        strongest = word(result.strongest) if result.decisions else ""
        rows.append((result.session, result.source, result.steps, strongest, cell(told, 10_000)))
    out.print(table(("session", "source", "steps#", "strongest", "decisions~"), rows))


def _count(decision: Decision) -> str:
    small = decision.about_limit and decision.count < 100  # dollars, seconds
    return f"{decision.count:.3g}" if small else f"{decision.count:.0f}"


def replay_all(
    inputs: Inputs, settings: Settings, forest: Forest | None = None
) -> Iterator[ReplayResult]:
    """Replays everything; yields a result per session, about in the order of their ends."""
    for recording in inputs:
        results = Results(recording.name, settings, forest)
        for _, result in results.replay(inputs.entries(recording)):
            yield result
        if lacking := results.lacking():
            place = quote(recording.name)
            inputs.note(f"{recording.name}: {lacking}: see `otel-loopguard doctor {place}`")


class RecordedStep(NamedTuple):
    """A canonical step of a recording: each call once, whoever reported it."""

    source: str
    session: str
    number: int  # its index among the steps of its session
    step: Step


def recorded_steps(
    name: str, entries: Iterable[RecordedSpan | Run], settings: Settings | None = None
) -> Iterator[RecordedStep]:
    """The steps of a recording: those of runs as they stand, those of spans by way of a guard."""
    found: list[RecordedStep] = []
    # Given once the guard has returned: it swallows what fails in a callback.
    guard = LoopGuard(
        settings,
        clock="replay",
        on_step=lambda session, index, step: found.append(
            RecordedStep(name, session.key, index, step)
        ),
    )
    spans = SpanReplay(guard, guard.reader.read)
    for entry in entries:
        if isinstance(entry, Run):
            for index, step in enumerate(entry.steps):
                yield RecordedStep(entry.source, entry.id, index, step)
        else:
            spans.add(entry)
            yield from found
            found.clear()
    spans.finish()
    guard.shutdown()
    yield from found


def result_of(run: Run, settings: Settings) -> ReplayResult:
    """Replays one labelled run with a guard of its own."""
    result = ReplayResult(run.source, run.id, steps=len(run.steps))
    if isinstance(run, Transcript):
        settings = settings.model_copy(update={"session_ttl_s": FOREVER_S})
    guard = LoopGuard(
        settings,
        clock="replay",
        on_decision=lambda _session, decision: result.decisions.append(decision),
    )
    replay_run(guard, run)
    guard.shutdown()
    result.report, result.explanation = guard.report(run.id), guard.explain(run.id)
    return result


class Results:
    """Replays one file and keeps the results of the sessions of its spans."""

    def __init__(self, name: str, settings: Settings, forest: Forest | None = None) -> None:
        self._source = name
        self._settings = settings
        self._forest = forest
        self._open: OrderedDict[int, tuple[Session, ReplayResult]] = OrderedDict()
        self._closed: list[ReplayResult] = []
        self._spans = self._steps = self._calls = self._bare = 0
        guard = LoopGuard(
            settings, clock="replay", on_step=self._on_step, on_decision=self._on_decision
        )
        self._guard, self._replay = guard, SpanReplay(guard, guard.reader.read)

    def replay(
        self, entries: Iterable[RecordedSpan | Run]
    ) -> Iterator[tuple[Run | None, ReplayResult]]:
        """Yields results about in the order of their ends, that of a labelled run with the run."""
        for entry in entries:
            if isinstance(entry, Run):
                yield entry, result_of(entry, self._settings)
                continue
            if self._forest:
                self._forest.add(entry)
            self._spans += 1
            self._replay.add(entry)
            yield from self._pop_closed()
        self._replay.finish()
        self._guard.shutdown()
        while self._open:
            self._close_oldest()
        yield from self._pop_closed()

    def lacking(self) -> str:
        """Why nothing or little can be found in these spans; empty where nothing is missing."""
        if self._spans and not self._steps:
            return f"none of {counted(self._spans, 'span')} is of an agent"
        if self._bare:
            calls = counted(self._calls, "tool call")
            return f"arguments of {self._bare:,} of {calls} were not captured"
        return ""

    def _on_step(self, session: Session, _index: int, step: Step) -> None:
        self._result(session).steps += 1
        self._steps += 1
        self._calls += step.kind is Kind.TOOL
        self._bare += step.kind is Kind.TOOL and "args" in step.lacks

    def _on_decision(self, session: Session, decision: Decision) -> None:
        self._result(session).decisions.append(decision)

    def _result(self, session: Session) -> ReplayResult:
        # By the object, as its key may change while spans come in; the object is kept, so that its
        # id is not reused.
        known = self._open.setdefault(
            id(session), (session, ReplayResult(self._source, session.key))
        )
        self._open.move_to_end(id(session))
        if len(self._open) > _OPEN_SESSIONS:
            self._close_oldest()
        return known[1]

    def _close_oldest(self) -> None:
        _, (session, result) = self._open.popitem(last=False)
        result.session = session.key
        result.report = session.report()
        result.explanation = self._guard.explain(session.key)
        self._closed.append(result)

    def _pop_closed(self) -> Iterator[tuple[None, ReplayResult]]:
        # Given once the guard has returned: it swallows what fails in a callback.
        closed, self._closed = self._closed, []
        for result in closed:
            yield None, result


_TURNS: Final = 15  # an agent stops by itself some time; the guard stops it long before
_QUERY: Final = "refund policy for order 4711"
_FOUND: Final = '{"hits": [], "message": "nothing found in the knowledge base"}'
_SAMPLE: Final = "intercode-sql.otlp.jsonl.gz"
"""The recorded run in `otel_loopguard/cli/data`; its licence is beside it."""
_WHO_STYLES: Final = {"model": "dim", "tool": "", "guard": "yellow", "refused": "bold red"}


def run_demo() -> int:
    """Shows both, and returns the exit code: 0 if the live agent was stopped."""
    out = console()
    out.print(Text("A live agent. Its spans reach the guard by one line:", style="bold"))
    out.print("    otel_loopguard.setup()\n", markup=False)
    stopped = _live()
    recorded = "A recorded run (InterCode, gpt-3.5 at a SQL database), replayed on its trace:"
    out.print(Text(f"\n{recorded}", style="bold"))
    forest = Forest()
    sample = files("otel_loopguard.cli") / "data" / _SAMPLE
    with as_file(sample) as path, Inputs([str(path)], bar=False) as inputs:
        show(list(replay_all(inputs, Settings(), forest)), forest)
    return 0 if stopped else 1


def _live() -> bool:
    """Runs an agent whose model asks for the same search again and again; whether it is stopped."""

    def search(query: str) -> str:
        _say("tool", f"search({query!r}) -> nothing found")
        return _FOUND

    provider = TracerProvider()
    setup(LoopGuard(), tracer_provider=provider)
    said = "Let me search the knowledge base."
    try:
        with turn(agent="support", tracer_provider=provider) as run:
            for _ in range(_TURNS):
                if hint := run.hint():
                    _say("guard", f"{run.control.action}: {hint}")
                    said = "I will search once more."
                _say("model", said)
                if isinstance(run.tool("search", {"query": _QUERY}, search), Refusal):
                    _say("refused", f"search({_QUERY!r}) is not run")
    except LoopGuardAbort as stop:
        console().print(Text(f"\nturn.hint() raised LoopGuardAbort: {stop}", style="bold red"))
        return True
    finally:
        provider.shutdown()
    said = "The agent was not stopped; it says: I could not find it."
    console().print(said, markup=False)
    return False


def _say(who: str, what: str) -> None:
    row = Table.grid(padding=(0, 2))
    row.add_column(width=9, justify="right")
    row.add_row(*(Text(each, style=_WHO_STYLES[who]) for each in (who, what)))
    console().print(row)
