"""Tool calls as evidence, once per step."""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.values import dataclass
from otel_loopguard.core import Effect, ErrorClass, Evidence, Kind, Progress, Step
from otel_loopguard.core.error_kinds import text_signature
from otel_loopguard.evidence.calls import (
    NAMED,
    Call,
    Calls,
    Items,
    Revisions,
    Variants,
    agent_key,
    is_another,
    is_numbered,
    is_respelled,
    place_of,
    terms_of,
)
from otel_loopguard.evidence.effects import (
    ToolName,
    effect_of,
    file_of,
    is_compound,
    looks_at_files,
    makes_something,
    reads_files,
    runs_code,
    tool_name,
)
from otel_loopguard.evidence.errors import (
    error_class,
    error_line,
    error_shape,
    error_text,
    failure_of,
    is_call_error,
    is_transient,
    says_absent,
)
from otel_loopguard.evidence.model_text import Novelty
from otel_loopguard.evidence.normalize import key_of, text_bytes
from otel_loopguard.evidence.outcomes import (
    changed_nothing,
    does_nothing,
    is_empty,
    is_pending,
    prepare,
    refusal_of,
    rejects,
    reports_failure,
    says_nothing_found,
    score_of,
)
from otel_loopguard.evidence.weight import Pace, RepeatBaseline, news_of, weigh

if TYPE_CHECKING:
    from otel_loopguard.evidence.outcomes import Outcome
    from otel_loopguard.settings import Settings

_TOOL: Final = Kind.TOOL
_READ, _WRITE, _UNKNOWN = Effect.READ, Effect.WRITE, ErrorClass.UNKNOWN
_HOUR: Final = 3_600_000_000_000
_AGENTS: Final = 32
_CALLS: Final = 24
"""Calls that one message may ask for; more of them are a program's own loop."""
_EQUAL: Final = 2
"""Equal calls, one after the other, that one message may ask for; likewise."""
_PAUSE: Final = 250_000_000
"""Nanoseconds between two calls in which a model may have been asked unseen."""


@dataclass(slots=True)
class _Message:
    """The calls since an agent's model was asked last."""

    asked: tuple[int, int]
    round: int
    calls: int = 0
    equal: dict[int, int] = field(default_factory=dict[int, int])


class Rounds:
    """Numbers the rounds of one session: by its model calls where they are seen, else by times."""

    __slots__ = ("_asked", "_messages", "_models", "_number", "_open")

    def __init__(self) -> None:
        self._number = 0
        # By agent: the first end of its round, and the number of that.
        self._open: dict[int, tuple[int, int]] = {}
        self._models = 0
        # By agent, and under 0 of those of which it is not known whose they are.
        self._asked: dict[int, int] = {}
        self._messages: dict[int, _Message] = {}

    def asked(self, agent: int = 0) -> None:
        """A model was asked."""
        self._models += 1
        keep(self._asked, agent, self._asked.get(agent, 0) + 1, _AGENTS)

    def add(self, start: int, end: int, agent: int = 0, call: int | None = None) -> int:
        """Number of the round; a clock that jumped by an hour or more begins a new one."""
        first, number = self._open.get(agent, (0, 0))
        # Begun before anything of the round came back.
        beside = bool(start) and -_HOUR < start - first < 0
        paused = bool(start and first) and start - first > _PAUSE
        message = self._message(agent, call, paused=paused) if self._models else None
        if not beside:
            if message is not None and message.calls > 1:
                number, end = message.round, max(end, first)
            else:
                self._number += 1
                number = self._number
        keep(self._open, agent, (min(first, end) if beside else end, number), _AGENTS)
        if message is not None:
            message.round = number
        return number

    def _message(self, agent: int, call: int | None, *, paused: bool) -> _Message | None:
        """What the agent's model was asked last, with this call; None if that asks for no more."""
        own = self._asked.get(agent) if agent else None
        # Where nothing is known of the agent's model, any model may be its.
        asked = (-1, self._models) if own is None else (self._asked.get(0, 0), own)
        message = self._messages.get(agent)
        if message is None or message.asked != asked or paused:
            message = _Message(asked, 0)
        keep(self._messages, agent, message, _AGENTS)
        message.calls += 1
        if call is not None and message.calls <= _CALLS:
            message.equal[call] = message.equal.get(call, 0) + 1
            if message.equal[call] > _EQUAL:
                return None
        return message if message.calls <= _CALLS else None


_BRIEF: Final = 40
_NOTE: Final = 200
_RECORD: Final = 120
_SEARCHING: Final = frozenset(("search", "grep", "find"))
_JUDGING: Final = frozenset(
    "grade translate classify proofread grammar spell spelling moderate sentiment label".split()
)
"""Tools that look at one text after the other."""
_REMEMBERED: Final = 128
_READERS: Final = 8
"""Agents of which it is known what each has seen; of those beyond, it is what the rest have."""


def _is_record(said: object) -> bool:
    if isinstance(said, list) and said:
        said = cast("list[object]", said)[0]
    return isinstance(said, dict)


_NO_TERMS: Final = frozenset[int]()
_PAGE: Final = 200
"""Characters from which an answer is a state of things: shorter ones coincide."""
_NOTHING_NEW: Final = 0.1
"""New share of an answer that is next to nothing."""
_DIGITS: Final = b"0123456789"
_AMOUNT: Final = re.compile(rb"\d{1,15}(?:\.\d{1,15})?")
_AROUND_NUMBERS: Final = b" .,:;%/#+-()[]{}\"'\n\t"


def without_digits(masked: bytes) -> tuple[int, float] | None:
    """Key of an outcome without its digits, and its first number, of 15 digits at most.

    None for one that is nothing but digits, or has none.
    """
    number = _AMOUNT.search(masked)
    rest = masked.translate(None, _DIGITS)
    if number is None or not rest.strip(_AROUND_NUMBERS):
        return None
    return key_of(rest), float(number[0])


def _state(call: Call, outcome: Outcome, file: int | None) -> int | None:
    """Key of what a call leaves in a file, or else of the page or screen that it shows."""
    if file is not None:
        return call.change
    return outcome.key if outcome.size >= _PAGE else None


class ToolCallExtractor:
    """Evidence of one session. Not thread-safe: the session's lock is held.

    Cost per call: O(length of arguments and outcome), bounded; memory is bounded by the number of
    calls remembered, not by the length of the session.
    """

    __slots__ = (
        "_calls", "_habits", "_items", "_novelty", "_pace", "_progress", "_revisions", "_rounds",
        "_settings", "_variants", "_viewer", "_writes",
    )  # fmt: skip

    def __init__(self, settings: Settings, progress: Progress | None = None) -> None:
        self._settings = settings
        self._progress = progress or Progress()
        self._calls = Calls(settings)
        self._rounds = Rounds()
        self._pace = Pace()
        self._habits = RepeatBaseline()
        self._items = Items()
        self._revisions = Revisions()
        self._variants = Variants()
        self._novelty: dict[int, Novelty] = {}
        self._viewer = False
        self._writes: dict[int, None] = {}

    def extract(self, step: Step) -> Evidence | None:
        """Evidence of a tool call; of a model call only its time, and that it was made."""
        if step.kind is _TOOL:
            return self.evidence(step)
        if step.start and step.end:
            # Without its start nobody knows how long it thought.
            self._pace.thought(step.end - step.start)
        self._rounds.asked(agent_key(step.agent))
        return None

    def evidence(self, step: Step) -> Evidence:
        """Evidence of one finished tool call; counts it."""
        settings, progress = self._settings, self._progress
        tool, agent = (step.name or "")[:NAMED], agent_key(step.agent)
        name = tool_name(tool)
        reading = prepare(step, settings.max_value_chars)
        outcome, said = reading.found, reading.said
        call = self._calls.identify(step, reading, outcome.key)
        arguments = call.arguments
        # Text that tells nothing neither refuses nor failed; values of JSON may be escaped in it.
        tells = outcome.tells
        speaks = tells or step.error or not isinstance(said, str)
        refusal = refusal_of(step, said, arguments, shell=name.shell) if speaks else None
        if refusal is not None and not step.error:
            step = replace(step, error=True)
        effect = self._effect(tool, name, arguments)
        writes = effect is _WRITE
        novelty, echo, seen = None, False, False
        if outcome.key is not None:
            known = self._novelty.get(agent) or self._seen_by(agent)
            novelty, echo, seen = known.add(outcome.masked, call.raw, outcome.key)
            # A record that names what was asked for is an answer, and so is a list of them.
            echo = echo and (name.runs_code or not _is_record(reading.said))
        failing = step.error or (
            # What ends a build is looked for in the words of a shell only.
            (speaks or name.shell) and reports_failure(step.outcome, said, shell=name.shell)
        )
        since = self._pace.add(
            call.key, outcome.key, step.start, step.end or 0,
            news=news_of(novelty, effect, failing=failing), waits=effect is Effect.WAIT,
        )  # fmt: skip
        line = refusal or (error_line(step) if failing else None)
        call_error = step.error and not name.runs_code and is_call_error(step)
        place = place_of(call)
        empty = outcome.size <= _RECORD and is_empty(said)
        searches = place is not None or not name.words.isdisjoint(_SEARCHING)
        nothing = (tells and says_nothing_found(outcome)) or (empty and searches)
        missing = nothing or step.error
        matters = missing or outcome.size < _BRIEF
        item = self._is_item(tool, call, outcome, novelty, matters=matters, missing=missing)
        file = file_of(arguments) if item or writes else None
        # What is left of a threshold as a budget is used.
        tightened = 1.0 - settings.tuning.budget.tighten * progress.used
        ease = self._habits.ease(tool, again=not since.fresh, changed=since.changed)
        turned_down = tells and rejects(outcome)
        edited = None if file is None or not writes or name.runs_code else key_of(text_bytes(file))
        progress.call = found = object.__new__(Evidence)
        # To call the class would make a dictionary of all these first.
        found.__init__(
            number=progress.calls,
            tool=tool,
            call=call.key,
            call_exact=call.exact,
            guessed=call.guessed,
            fresh=since.fresh,
            changed=since.changed,
            pending=tool in settings.polling or (not step.error and is_pending(outcome)),
            outcome=outcome.key,
            outcome_exact=outcome.exact,
            outcome_size=outcome.size,
            novelty=novelty,
            echo=echo,
            nothing=nothing,
            rejects=turned_down,
            failing=failing,
            error=step.error,
            error_class=error_class(step) if step.error else _UNKNOWN,
            error_line=None if line is None else error_shape(line),
            error_shape=None if line is None else error_shape(line, call.raw),
            call_error=call_error,
            effect=effect,
            runs_code=runs_code(tool, arguments),
            sample=call.sample,
            place=place,
            epoch=progress.epoch,
            time=step.end or 0,
            round=self._rounds.add(step.start, step.end or 0, agent, call.exact),
            ease=ease * tightened / settings.sensitivity,
            agent=agent,
            refused=refusal is not None,
            idle=name.shell and does_nothing(step, said, arguments),
            failure=failure_of(step, line) if failing else None,
            item=item,
            absent=(
                item
                and since.fresh
                and not call_error
                and not writes
                # Who guesses paths and addresses looks for one thing, not for many items.
                and "/" not in call.sample
                and file is None
                and says_absent(step)
            ),
            file=edited,
            score=score_of(outcome) if tells else None,
            revises=self._revisions.revises(call, outcome),
            brief=(
                item
                and not failing
                and outcome.size < _BRIEF
                and name.words.isdisjoint(_SEARCHING)
                and place is None
            ),
            variant=self._variants.alike(call, outcome, changed=since.changed),
            makes=tool in settings.once or (effect is _WRITE and makes_something(tool)),
            own=effect is Effect.READ and reads_files(tool, arguments),
            empty=empty,
            transient=is_transient(step, outcome.low if failing or turned_down else ""),
            cut=outcome.cut,
            seen=seen,
            digits=None if since.fresh else without_digits(outcome.masked),
            unanswered=step.error and text_signature(error_text(step) or "") == "timeout",
            state=_state(call, outcome, edited) if not failing else None,
            terms=_NO_TERMS if writes or runs_code(tool, arguments) else terms_of(call.sample),
        )
        weigh(found, since)
        if writes and (
            refusal is None or not changed_nothing(refusal, arguments, shell=name.shell)
        ):
            self._open_epoch(found, call)
        progress.calls += 1
        if novelty is None:
            progress.unseen += 1
        else:
            progress.answers += 1
            # Of a file that was changed no answer says more than that it was, and one word about
            # another item is all that can be said of it.
            changed = edited is not None and progress.epoch != found.epoch
            told = found.brief and found.fresh and not nothing
            progress.news += 1.0 if changed or told else novelty
        return found

    def _is_item(  # noqa: PLR0913
        self, tool: str, call: Call, outcome: Outcome, novelty: float | None, *, matters: bool,
        missing: bool,
    ) -> bool:  # fmt: skip
        """Whether it asks for another item, where that matters; else only where numbers tell it."""
        last = self._items.add(tool, call.sample)
        if matters:
            if not missing and tool_name(tool).asks and runs_code(tool, call.arguments):
                # Another query is another question, and one number all that it is answered by.
                return last != call.sample
            judges = not tool_name(tool).words.isdisjoint(_JUDGING)
            # What is not there is asked for in other spellings before it is given up.
            return is_another(last, call.sample, texts=judges) and not (
                missing and is_respelled(last, call.sample)
            )
        if novelty is None or novelty > _NOTHING_NEW:
            return False
        return outcome.size < _NOTE and is_numbered(last, call.sample)

    def _seen_by(self, agent: int) -> Novelty:
        """What an agent has seen: what is known to one is news to another."""
        if len(self._novelty) >= _READERS:
            agent = 0
        known = self._novelty[agent] = self._novelty.get(agent) or Novelty()
        return known

    def refused(self, step: Step) -> int:
        """Round of a call that was refused, of which nothing else is noted."""
        exact = self._calls.identify(
            step, prepare(step, self._settings.max_value_chars), None
        ).exact
        return self._rounds.add(step.start, step.end or 0, agent_key(step.agent), exact)

    def call_of(self, step: Step) -> int | None:
        """Key of a call before it has an outcome; None if its arguments are not known yet."""
        reading = prepare(step, self._settings.max_value_chars)
        return self._calls.identify(step, reading, None).key

    def _effect(self, tool: str, name: ToolName, arguments: object) -> Effect:
        declared = self._settings.effects.get(tool)
        if declared is not None:
            return Effect(declared)
        if not (name.moves or name.runs_code or name.asks):
            return name.effect
        if looks_at_files(tool, arguments):
            self._viewer = True
        elif self._viewer and not arguments and tool_name(tool).moves:
            # Beside `open a.py` a bare `scroll_down` is the viewer's.
            return Effect.READ
        return effect_of(tool, arguments)

    def _open_epoch(self, found: Evidence, call: Call) -> None:
        """Opens an epoch for a change that was not made before with the same outcome."""
        if found.error and not is_compound(call.arguments):
            return
        change = hash((call.change, found.outcome))
        if change not in self._writes:
            self._progress.epoch += 1
        keep(self._writes, change, None, _REMEMBERED)
