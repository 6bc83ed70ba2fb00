"""Turns visits of nodes, hand-offs and runs of sub-agents into evidence.

Of a visit: was anything new since the last one? Of a hand-off: one exchange, once.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from otel_loopguard._util.bounded import BloomSketch, keep
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import Exchange, NodeVisit
from otel_loopguard.evidence import normalize
from otel_loopguard.evidence.calls import agent_key, seed_of
from otel_loopguard.evidence.model_text import LINE, Novelty
from otel_loopguard.evidence.normalize import (
    AGENTS,
    HOUR,
    NAMED,
    canonical,
    key_of,
    masked_call,
    text_bytes,
)
from otel_loopguard.evidence.outcomes import leaves_of, prepare

if TYPE_CHECKING:
    from otel_loopguard.core.progress import Progress
    from otel_loopguard.settings import Settings

_LOOK: Final = 4_000
"""Characters of an instruction that are read: a page and a half."""
_PARSED: Final = 100_000
"""Characters of arguments that are parsed for an instruction: longer ones hand over data."""
_WORDS: Final = 64
"""Words of it that are kept, 4 bytes each: a sample by key, so that both sides keep the same."""
_ITEMS: Final = 16
"""Numbers and names that are kept of it."""
_FEW: Final = 3
"""Words from which an instruction says what is to be done."""
_CONTENT: Final = 4
"""Letters from which a word says what it is about, in most languages, and not how it is said."""
_ANSWER: Final = 80
"""Characters from which the outcome of a hand-off is an answer, and no note that it was made."""

_SMALL: Final = 0xFFFF_FFFF
"""The part of a key that is kept: two of 64 words are equal by chance once in a million texts."""
_WORD: Final = re.compile(r"\w+")
_DIGIT: Final = re.compile(r"\d")
_BEGINS: Final = frozenset(".!?:\n")
_TARGETS: Final = frozenset(("agent_name", "agent", "recipient", "to", "to_agent"))


class _Said(NamedTuple):
    """Keys of a text; see `Exchange`."""

    words: array[int]
    terms: frozenset[int]
    numbers: frozenset[int]
    names: frozenset[int]
    size: int


_NOTHING: Final = _Said(array("I"), frozenset(), frozenset(), frozenset(), 0)


class HandoffExtractor:
    """Exchanges of one session. Not thread-safe: the session's lock is held.

    What is said comes from the instruction; where that has fewer than three words, from what the
    giver wrote before (the context of the hand-off; not for the first one of a session). The text
    that the asked agent writes is its answer, unless it called tools: then theirs are. A
    sub-agent's run is an exchange only where no hand-off was ever seen, for else it was announced.
    Runs of one agent side by side are a fan-out, and none of them an exchange with the others. The
    run at the root of a trace is none, nor is a hand-off that was refused.

    Cost per step: O(4,000 characters) at most; memory does not grow.
    """

    __slots__ = (
        "_announced", "_answers", "_calls", "_context", "_giver", "_holder", "_mute", "_news",
        "_novelty", "_number", "_progress", "_runs", "_said_answers", "_said_news",
        "_said_worded", "_turns", "_unseen", "_untold", "_worded",
    )  # fmt: skip

    def __init__(self, settings: Settings, progress: Progress) -> None:
        del settings
        self._progress = progress
        self._announced = False
        self._number = 0
        self._holder: str | None = None
        self._giver: str | None = None
        self._runs: dict[str, int] = {}
        self._novelty: Novelty | None = None
        # Answers of agents, beside those of tools that `Progress` counts.
        self._answers, self._unseen, self._news, self._worded = 0, 0, 0.0, 0.0
        self._begin()

    def extract(self, step: Step) -> Exchange | None:
        """The exchange that a step is; None if it is none, or says too little."""
        if step.kind is Kind.HANDOFF:
            self._announced = True
            if step.refused:
                return None
            return self._handed(step)
        if step.kind is Kind.MODEL:
            self._turn(step.agent, step.text)
            return None
        return self._ran(step)

    def _handed(self, step: Step) -> Exchange | None:
        outcome = _text_of(step.outcome)
        answer = outcome if outcome is not None and len(outcome) >= _ANSWER else None
        giver = step.agent or self._holder
        untold = 0 if giver and giver == self._holder else self._untold
        found = self._exchange(step, giver, _instruction(step), untold)
        if answer is not None:
            # A call that comes back with the answer: it counts for the exchange after it.
            self._hear(answer)
        return found

    def _ran(self, step: Step) -> Exchange | None:
        """A sub-agent's run ended."""
        name = None if step.name is None else step.name[:NAMED]
        outcome = _text_of(step.outcome)
        # Nobody but a user gave its work to the run at the root of a trace.
        root = step.trace_id != 0 and step.parent_id is None
        if root or self._announced or name is None or self._beside(name, step):
            self._report(name, outcome)
            return None
        giver = self._holder if self._holder != name else None
        self._report(name, outcome)
        said = _instruction(step)
        # All turns were its own; where nothing is seen of a run, its answer may be anything.
        untold = self._untold if self._turns else 1
        return self._exchange(step, giver, said if said is not None else outcome, untold)

    def _report(self, name: str | None, outcome: str | None) -> None:
        """Takes a run's result as its answer, if its model calls did not say it before."""
        if not self._turns and outcome is not None:
            self._turn(name, outcome)

    def _beside(self, name: str, step: Step) -> bool:
        """True if a run of this agent began before its previous run had ended."""
        before = self._runs.get(name, 0)
        keep(self._runs, name, max(before, step.end or 0), AGENTS)
        return 0 < step.start < before

    def _turn(self, agent: str | None, text: str | None) -> None:
        """Handles a text of an agent; what the giver of the work says to itself is no answer.

        A run is one exchange, made when it ends: without hand-offs the giver speaks for itself
        until then.
        """
        gave = agent is not None and agent == self._giver and agent != self._holder
        if gave and self._announced:
            return
        self._turns += 1
        if text is None:
            self._untold += 1
            self._mute = False
        elif text.strip():
            self._mute = False
            if self._number:
                self._context = text[:_LOOK], len(text)
                self._hear(text)

    def _hear(self, text: str) -> None:
        if self._novelty is None:
            self._novelty = Novelty()
        said = masked_call(text_bytes(text[:_LOOK]))
        share = self._novelty.add(said).share
        self._said_answers += 1
        self._said_news += share
        self._said_worded += self._novelty.worded(said, share)

    def _exchange(
        self, step: Step, source: str | None, text: str | None, untold: int
    ) -> Exchange | None:
        called = self._progress.calls != self._calls
        silent = self._turns > 0 and self._mute and not called
        if not called:
            # Who asked called no tool, so that what it said is the answer.
            self._answers += self._said_answers
            self._news += self._said_news
            self._worded += self._said_worded
            self._unseen += untold
        said = _NOTHING if text is None else _said(text, len(text), step.name)
        if len(said.words) < _FEW:
            said = _NOTHING if self._context is None else _said(*self._context)
        if step.name is None:
            self._begin()
            return None
        agent = step.name[:NAMED]
        progress = self._progress
        found = Exchange(
            number=self._number, source=source, agent=agent,
            source_key=None if source is None else agent_key(source), key=agent_key(agent),
            words=said.words, terms=said.terms, numbers=said.numbers, names=said.names,
            size=said.size, silent=silent and len(said.words) < _FEW,
            step=progress.steps, time=step.end or 0,
            answers=progress.answers + self._answers, unseen=progress.unseen + self._unseen,
            news=progress.news + self._news, worded=progress.news + self._worded,
            repeats=progress.repeats, edits=progress.edits,
        )  # fmt: skip
        self._number += 1
        self._giver, self._holder = source, agent
        self._begin()
        return found

    def _begin(self) -> None:
        """A new stretch, from one exchange to the next."""
        self._calls = self._progress.calls
        # Head and length of what was written last: its words are asked for at a hand-off only.
        self._context: tuple[str, int] | None = None
        self._mute = True
        self._turns = self._untold = 0
        self._said_answers, self._said_news, self._said_worded = 0, 0.0, 0.0


def _instruction(step: Step) -> str | None:
    """The text of an instruction, without whom it goes to; None if it was not captured."""
    value = step.args
    if not isinstance(value, str) or len(value) <= _PARSED:
        value = prepare(step).arguments
    if isinstance(value, Mapping):
        named = cast("Mapping[str, object]", value)
        kept = [item for name, item in named.items() if name not in _TARGETS]
        return " \n".join(text for text in map(_text_of, kept) if text is not None)
    return _text_of(value)


def _text_of(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value[:_LOOK]
    return canonical(value)[:_LOOK].decode("utf-8", "replace")


def _said(text: str, size: int, agent: str | None = None) -> _Said:
    """The words of a text, volatile values masked, without the name of the agent it goes to."""
    masked = masked_call(text_bytes(text[:_LOOK])).decode("utf-8", "replace")
    words, terms, numbers, names = set[int](), set[int](), set[int](), set[int]()
    own = (agent or "").lower()
    for match in _WORD.finditer(masked):
        word = match[0].lower()
        if word == own:
            continue
        key = key_of(word.encode()) & _SMALL
        words.add(key)
        if len(word) >= _CONTENT:
            terms.add(key)
        if _DIGIT.search(word):
            numbers.add(key)
            continue
        start, end = match.span()
        around = masked[max(start - 1, 0) : start] + masked[end : end + 1]
        before = masked[max(start - 3, 0) : start].rstrip(" \t'\"")
        # A path, an identifier, or a capital that begins no sentence.
        inside = before != "" and before[-1] not in _BEGINS
        if "_" in match[0] or "/" in around or (inside and match[0][0].isupper()):
            names.add(key)
    return _Said(
        array("I", sorted(words)[:_WORDS]),
        frozenset(sorted(terms)[:_WORDS]),
        frozenset(sorted(numbers)[:_ITEMS]),
        frozenset(sorted(names)[:_ITEMS]),
        size,
    )


_RUNS: Final = 4
"""Graph runs that are told apart, the newest: graphs are nested, seldom deeper."""
_PASSED: Final = 64
"""Places that are remembered of a stretch without news: a cycle of nodes is shorter."""
_FAR: Final = 16
"""Visits after which a stretch has another home: graphs go round in fewer."""
_READ: Final = 16_000
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
                self._said(normalize.bounded(text_bytes(step.text), _READ))
            elif step.text is None:
                # An empty text is one that only calls tools.
                for run in self._runs.values():
                    run.silent = True
        elif step.args:
            raw = normalize.bounded(normalize.canonical(prepare(step).arguments), _READ)
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
