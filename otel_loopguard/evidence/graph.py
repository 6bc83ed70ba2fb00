"""Turns visits of nodes and runs of agents into evidence: was anything new since the last one?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import BloomSketch, keep
from otel_loopguard.core import Kind
from otel_loopguard.core.evidence import NodeVisit
from otel_loopguard.evidence import normalize
from otel_loopguard.evidence.calls import seed_of
from otel_loopguard.evidence.model_text import LINE, Novelty
from otel_loopguard.evidence.normalize import HOUR, NAMED, key_of, text_bytes
from otel_loopguard.evidence.outcomes import leaves_of, prepare

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.core.progress import Progress
    from otel_loopguard.settings import Settings

_RUNS: Final = 4
"""Graph runs that are told apart, the newest: graphs are nested, seldom deeper."""
_PASSED: Final = 64
"""Places that are remembered of a stretch without news: a cycle of nodes is shorter."""
_FAR: Final = 16
"""Visits after which a stretch has another home: graphs go round in fewer."""
_LOOK: Final = 16_000
"""Bytes of a text or of arguments that are compared as they are; of more their ends."""
_NEW: Final = 2 / 3
"""New part from which a line is news: the rest of it is how such lines are said."""
_DIGITS: Final = "0123456789"
_AGENT, _WORKFLOW, _NODE, _OTHER = Kind.AGENT, Kind.WORKFLOW, Kind.NODE, Kind.OTHER


@dataclass(slots=True)
class _Run:
    """One graph run, and what happened since its last visit."""

    key: int
    epoch: int
    model_time: int
    news: bool = True
    known: bool = False
    unseen: bool = False
    silent: bool = False
    waited: bool = False
    spoke: bool = False
    calls: int = 0
    hints: float = 0.0
    stops: float = 0.0
    start: int = 0
    end: int = 0
    moved: int = 0
    number: int = 0
    home: int | None = None
    home_at: int = 0
    passed: set[int] = field(default_factory=set[int])


class GraphExtractor:
    """The visits of one session's graphs. Not thread-safe: the session's lock is held.

    Nodes that share a parent span are one graph run; the agents of a session are another. A visit
    that began before the one before it ended is beside it or around it, and follows nothing; an
    agent at the root of a trace is the whole run. Until the first visit nothing else is looked at,
    so that agents without a graph cost nothing. Of the newest four graph runs is remembered what
    they have seen, in one sketch. What a model said is news; beside a state that stands, and that
    would show it, a line is as new as its words, and lessens what the stretch weighs.
    """

    __slots__ = ("_model_time", "_novelty", "_progress", "_runs", "_seen", "_settings", "_turn")

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._settings = settings
        self._progress = progress
        self._runs: dict[int, _Run] = {}
        self._seen: BloomSketch | None = None
        self._novelty: Novelty | None = None
        self._model_time = 0
        self._turn = 0

    def extract(self, step: Step) -> NodeVisit | None:
        """Evidence of a visit; of all other steps only what is new in them is noted."""
        kind = step.kind
        if kind is _AGENT or kind is _WORKFLOW:
            if step.span_id and step.parent_id is None:
                self._begin()
                return None
            return self._visited(step) if kind is _AGENT else None
        if kind is _NODE:
            return self._visited(step)
        if kind is _OTHER:
            if step.name == "user":
                self._begin()
        elif self._runs:
            self._noted(step)
        return None

    def _begin(self) -> None:
        """A run at the root has ended, or a user spoke: what comes is another graph run."""
        self._turn += 1
        self._runs.clear()

    def _visited(self, step: Step) -> NodeVisit | None:
        run = self._run_of(step)
        # A visit began before the one before it ended; a jump of an hour is another clock.
        beside = bool(step.start) and -HOUR < step.start - run.end < 0
        if beside or not step.name:
            run.end = max(run.end, step.end or 0)
            return None
        name = _plain(step.name)
        key = key_of(text_bytes(f"{step.agent or ''}\0{name}"), run.key)
        state = self._state(run, step)
        place = key if state is None else key ^ state
        waiting = self._waiting(run, step)
        unkept = run.spoke and state is None
        run.news = run.news or unkept or self._progress.epoch != run.epoch
        if run.news or waiting:
            run.passed.clear()
            run.home = None
            run.calls, run.hints, run.stops = 0, 0.0, 0.0
        gap = step.start - run.start if step.start and run.start else None
        visit = NodeVisit(
            kind=step.kind, name=name, key=key, place=place, graph=run.key, state=state,
            news=run.news, known=run.known or state is not None,
            unseen=run.unseen or (run.silent and state is None), waiting=waiting,
            again=place in run.passed, home=_home(run, key, place), gap=gap,
            hint_weight=run.hints / run.calls if run.calls else 1.0,
            stop_weight=run.stops / run.calls if run.calls else 1.0,
        )  # fmt: skip
        self._start_anew(run, step)
        return visit

    def _run_of(self, step: Step) -> _Run:
        """The graph run that a visit belongs to; the one used longest ago is forgotten."""
        if self._seen is None:
            self._seen = BloomSketch()
        above = (0, 0) if step.kind is Kind.AGENT else (step.trace_id, step.parent_id or 0)
        # What carries no span ids is told apart by the user's turns alone.
        turn = 0 if above[0] else self._turn
        key = key_of(f"{step.kind} {above} {turn}".encode())
        run = self._runs.get(key)
        if run is None:
            run = _Run(key, self._progress.epoch, self._model_time)
        keep(self._runs, key, run, _RUNS)
        return run

    def _state(self, run: _Run, step: Step) -> int | None:
        """Key of the node's state; whether there is anything new in it is noted."""
        gave = step.error_text if step.outcome is None else step.outcome
        known = prepare(step).leaves
        key: int | None = None
        for value, found in zip((gave, step.args), known, strict=True):
            if value is not None:
                leaves = leaves_of(value) if found is None else found
                self._learn(run, list(leaves))
                if key is None:
                    key = key_of(b"%d" % (sum(leaves) & 0xFFFFFFFFFFFFFFFF))
        return key

    def _learn(self, run: _Run, keys: list[int]) -> None:
        if self._seen is not None and self._seen.add([key ^ run.key for key in keys]):
            run.news = True

    def _waiting(self, run: _Run, step: Step) -> bool:
        """True if time was left after the previous visit ended, within the wait budget."""
        end, settings = step.end or 0, self._settings
        took = end - run.end - (self._model_time - run.model_time)
        long = run.end > 0 and step.start > 0 and took >= settings.tuning.calls.wait_gap_s * 1e9
        within = end - run.moved < settings.wait_budget_s * 1e9
        return (run.waited or long) and within

    def _start_anew(self, run: _Run, step: Step) -> None:
        """Assigns everything that is noted from now on to the next visit."""
        if run.news:
            run.moved = step.end or 0
        run.news = run.known = run.unseen = run.silent = run.waited = run.spoke = False
        run.epoch = self._progress.epoch
        run.model_time = self._model_time
        run.start = step.start
        run.end = step.end or 0

    def _noted(self, step: Step) -> None:
        """A tool call, model call or hand-off ended inside of the graphs that are under way."""
        if step.kind is Kind.TOOL:
            self._called()
        elif step.kind is Kind.MODEL:
            self._model_time += max((step.end or 0) - step.start, 0) if step.start else 0
            if step.text:
                self._said(normalize.bounded(text_bytes(step.text), _LOOK))
            elif step.text is None:
                # An empty text is one that only calls tools.
                for run in self._runs.values():
                    run.silent = True
        elif step.args:
            raw = normalize.bounded(normalize.canonical(prepare(step).arguments), _LOOK)
            self._learn_all([key_of(raw, seed_of((step.name or "")[:NAMED]))])

    def _said(self, text: bytes) -> None:
        """A model wrote a text."""
        said = normalize.masked_outcome(text)
        key, new = key_of(said), 1.0
        if len(said) < LINE:
            if self._novelty is None:
                self._novelty = Novelty()
            new = self._novelty.worded(said, self._novelty.add(said).share)
        if new > _NEW:
            self._learn_all([key])
            return
        for run in self._runs.values():
            if self._seen is not None and self._seen.add([key ^ run.key]):
                run.spoke = True
                run.calls += 1
                run.hints += 1.0 - new

    def _called(self) -> None:
        evidence = self._progress.call
        if evidence is None:
            return
        tool, call, outcome = evidence.tool, evidence.call, evidence.outcome
        keys = [] if call is None else [call]
        if outcome is not None:
            keys.append(key_of(b"%d %d" % (call or seed_of(tool), outcome)))
        self._learn_all(keys)
        known = call is not None and outcome is not None
        settings = self._settings
        waits = evidence.waits or tool in settings.polling or tool in settings.exempt
        for run in self._runs.values():
            run.known = run.known or known
            run.unseen = run.unseen or not known
            run.waited = run.waited or waits
            run.calls += 1
            run.hints += evidence.hint_weight
            run.stops += evidence.stop_weight

    def _learn_all(self, keys: list[int]) -> None:
        for run in self._runs.values():
            self._learn(run, keys)


def _home(run: _Run, key: int, place: int) -> bool:
    """True if this is the node that a stretch without news came back to first."""
    run.number += 1
    if run.number - run.home_at > _FAR:
        run.home, run.home_at = None, run.number
    if run.home is None and key in run.passed:
        run.home = key
    if len(run.passed) < _PASSED:
        run.passed.update((key, place))
    if run.home == key:
        run.home_at = run.number
        return True
    return False


def _plain(name: str) -> str:
    """`Step 7` is a visit of `Step`: some frameworks number them (smolagents)."""
    plain = name[:NAMED].rstrip(_DIGITS)
    return plain.rstrip() if plain.endswith(" ") and plain.strip() else name[:NAMED]
