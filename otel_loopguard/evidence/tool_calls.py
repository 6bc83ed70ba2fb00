"""Tool calls as evidence, once per step."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.fields import is_list
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import Effect, ErrorClass, Evidence, Numbers, Waited, text_class
from otel_loopguard.core.progress import Progress
from otel_loopguard.evidence import calls, effects, errors, outcomes
from otel_loopguard.evidence.calls import Call, agent_key, maker_of
from otel_loopguard.evidence.effects import ToolName, tool_name
from otel_loopguard.evidence.model_text import Novelty, ends_of, share_beside
from otel_loopguard.evidence.normalize import (
    AGENTS,
    CALLS,
    HOUR,
    NAMED,
    key_of,
    replace_short_ids,
    text_bytes,
)
from otel_loopguard.evidence.outcomes import prepare
from otel_loopguard.evidence.plans import keeps_plan
from otel_loopguard.evidence.weight import Frame, Pace, RepeatBaseline, may_act, weigh

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.evidence.outcomes import Outcome, Reading
    from otel_loopguard.evidence.weight import Since
    from otel_loopguard.settings import Settings

_TOOL: Final = Kind.TOOL
_READ, _WAIT, _WRITE = Effect.READ, Effect.WAIT, Effect.WRITE
_CALLS: Final = 24
"""Calls that one message may ask for; more of them are a program's own loop."""
_EQUAL: Final = 2
"""Equal calls, one after the other, that one message may ask for; likewise."""
_PAUSE: Final = 250_000_000
"""Nanoseconds between two calls in which a model may have been asked unseen: none is quicker."""


@dataclass(slots=True)
class _Agent:
    """The newest round of an agent, and what its model asked for last.

    Attributes:
        begun: The last begin of a call of the round, nanoseconds since the epoch.
        end: The first end of one; 0 before any.
        number: Number of the round.
        asked: How often its model was asked; 0 where that is not seen.
        message: What tells the message apart that asked for its newest calls.
        round: The round that the first of them began.
        calls: How many they are.
        equal: How many of each.
    """

    begun: int = 0
    end: int = 0
    number: int = 0
    asked: int = 0
    message: tuple[int, int] | None = None
    round: int = 0
    calls: int = 0
    equal: dict[int, int] = field(default_factory=dict[int, int])


class Rounds:
    """Numbers the rounds of one session: by its model calls where they are seen, else by times."""

    __slots__ = ("_agents", "_before", "_models", "_number")

    def __init__(self) -> None:
        self._number = self._models = 0
        self._before = _Agent()
        # Under 0 the calls and the models of which it is not known whose they are.
        self._agents: dict[int, _Agent] = {}

    def follow(self, past: Rounds) -> None:
        """Lets an agent's first call be beside the last round of the past, which had one agent."""
        if not self._number:
            self._before = replace(past._of(0), number=0)

    def _of(self, agent: int) -> _Agent:
        known = self._agents.get(agent) or replace(self._before)
        keep(self._agents, agent, known, AGENTS)
        return known

    def asked(self, agent: int = 0) -> None:
        """A model was asked."""
        self._models += 1
        self._of(agent).asked += 1

    def add(self, start: int, end: int, agent: int = 0, call: int | None = None) -> int:
        """Number of the round; a clock that jumped by an hour or more begins a new one."""
        own = self._of(agent)
        first = own.end
        # Begun before anything of the round came back, and not told late of a time before it.
        beside = bool(start) and -HOUR < start - first < 0 and not 0 < end < own.begun
        paused = bool(start and first) and start - first > _PAUSE
        together = bool(self._models) and self._is_of_message(own, agent, call, paused=paused)
        if not beside:
            if together and own.calls > 1:
                own.number, end = own.round, max(end, first)
            else:
                self._number += 1
                own.number = self._number
        own.begun = max(own.begun, start) if beside else start
        own.end = min(first, end) if beside else end
        if together:
            own.round = own.number
        return own.number

    def _is_of_message(self, own: _Agent, agent: int, call: int | None, *, paused: bool) -> bool:
        """True if the agent's model asked for this call last."""
        # Where nothing is known of the agent's model, any model may be its.
        message = (-1, self._models)
        if agent and own.asked:
            unknown = self._agents.get(0)
            message = (0 if unknown is None else unknown.asked, own.asked)
        if own.message != message or paused:
            own.message, own.round, own.calls, own.equal = message, 0, 0, {}
        own.calls += 1
        if own.calls > _CALLS:
            return False
        if call is not None:
            own.equal[call] = own.equal.get(call, 0) + 1
            return own.equal[call] <= _EQUAL
        return True


_ANSWER: Final = 2_000
"""Characters of an agent's answer that are looked at for news: half of what is of a tool's."""
_BRIEF: Final = 40
"""Characters below which an answer is a word or two: yes, 17, a name."""
_NOTE: Final = 200
"""Characters of an answer that may be all there is to say about one of many items; from so many on
an answer is a state of things, that does not come again by chance."""
_RECORD: Final = 120
"""Characters of a record that holds nothing but its frame: `{"items": [], "next": null}`."""
_CHANGES: Final = 128
"""Changes that are remembered, to open no epoch twice: one made before is none."""
_READERS: Final = 8
"""Agents with a sketch of their own of what they have seen (8 KiB each), and a pace; others share
one."""
_NOTHING_NEW: Final = 0.1
"""New share of an answer that is next to nothing."""
_DIGITS: Final = b"0123456789"
_AMOUNT: Final = re.compile(rb"\d{1,15}(?:\.\d{1,15})?")
_AMOUNTS: Final = 8
"""Numbers of an answer that are looked at; codes and versions come before the one that moves."""
_AROUND_NUMBERS: Final = b" .,:;%/#+-()[]{}\"'\n\t"


def _as_number(short_id: re.Match[bytes]) -> bytes:
    """A short id as a number, which goes neither up nor down."""
    return b"%d" % int(short_id[0][:12], 16)


def _is_record(said: object) -> bool:
    if isinstance(said, str):
        return said.startswith("<?xml")
    if is_list(said) and said:
        said = said[0]
    return isinstance(said, dict)


def _is_item(found: Evidence, call: Call, name: ToolName, last: str, said: str) -> bool:
    """True if it asks for another item, where that matters; otherwise only if numbers tell it."""
    missing = found.nothing or found.error
    short = missing or found.outcome_size < _BRIEF
    if found.rejects and not (missing or found.runs_code):
        # What is tried is tried on something, which the calls have in common.
        return found.outcome_size < _NOTE and calls.shares_nothing(last, call.sample)
    if short and not missing and found.runs_code:
        # The same query or command about other names, and one number all that it is answered by.
        return calls.is_of_others(last, call.sample)
    if not short:
        known = found.novelty is not None and found.novelty <= _NOTHING_NEW
        # That something fails, or will pass, is no answer about an item.
        if found.outcome_size >= _NOTE or not known or text_class(said) is not ErrorClass.UNKNOWN:
            return False
        if found.runs_code and found.effect is _READ:
            return calls.is_of_others(last, call.sample)
        # Who guesses addresses looks for one thing, not for many; what nobody knows to read may be
        # given its name in whatever words. A file that has an answer is there.
        if found.effect is not _READ or "/" in call.sample:
            return calls.is_numbered(last, call.sample) or calls.is_of_another_file(
                last, call.sample
            )
    # What is not there is asked for in other spellings before it is given up.
    return calls.is_another(last, call.sample, texts=name.has("judges")) and not (
        (missing or not short) and calls.is_respelled(last, call.sample)
    )


def _may_be_item(found: Evidence, call: Call, name: ToolName) -> bool:
    """True if it may ask for another item than a call that is no longer known."""
    missing = found.nothing or found.error
    short = missing or found.outcome_size < _BRIEF
    return short and calls.may_be_another(call.sample, texts=name.has("judges"))


_HARDLY_NEW: Final = 0.2
"""New share of a page up to which it is the one before it, with another advertisement, score or
echo. In 747 healthy runs no tool gave two such pages in a row; at 0.35 five runs had five."""
_SHOWN: Final = 2
"""Tools whose last answer is kept, 4,000 bytes each: an agent seldom searches in more by turns."""
_NUMERIC: Final = 0.1
"""Share of digits from which a page is a table of numbers: those are its news."""


def _is_hardly_new(
    found: Evidence, outcome: Outcome, said: object, arguments: bytes, before: bytes
) -> bool:
    """True if another question was given the answer before it.

    Records about different items are alike by nature, as are views of one file. A next page with
    nothing new but its number is the page before.
    """
    pages = found.place is not None
    most = 0.0 if pages else _HARDLY_NEW
    if found.novelty is None or found.novelty > most:
        return False
    if found.runs_code or found.own or not found.fresh:
        return False
    if outcome.size < (_BRIEF if pages else _NOTE):
        return False
    if not (pages or found.terms) and _is_record(said):
        return False
    raw = outcome.masked
    if len(raw) - len(raw.translate(None, _DIGITS)) >= _NUMERIC * len(raw):
        return False
    # A search in a dozen documents finds known ones, and each time others.
    return share_beside(raw, before, arguments) <= most


NEWS: Final = 0.3
"""New share of an answer that is news: less is the date or the spinner of the same one."""


class ToolCallExtractor:
    """Evidence of one session. Not thread-safe: the session's lock is held.

    Cost per call: O(length of arguments and outcome), bounded; memory is bounded by the number of
    calls remembered, not by the length of the session.
    """

    __slots__ = (
        "_answers", "_asked", "_before", "_calls", "_edited", "_frame", "_habits", "_novelty",
        "_paces", "_paid", "_progress", "_rounds", "_said", "_settings", "_shown", "_tools",
        "_versions", "_writes",
    )  # fmt: skip

    def __init__(self, settings: Settings, progress: Progress | None = None) -> None:
        self._settings = settings
        self._progress = progress or Progress()
        self._calls = calls.Calls(settings)
        self._versions = calls.Versions()
        self._frame = Frame()
        self._rounds, self._habits = Rounds(), RepeatBaseline()
        self._paces = {0: Pace()}
        # By tool, the arguments of its last call, the length of its longest answer, what was in the
        # last, and how many different calls in a row were answered by that.
        self._tools: dict[str, tuple[str, int, int | None, int]] = {}
        # By tool, the file that it changed last.
        self._edited: dict[str, int] = {}
        # Of a few tools the last answer itself, as far as it is looked at.
        self._shown: dict[str, bytes] = {}
        # Tools of which a journal has calls.
        self._before = frozenset[str]()
        self._novelty: dict[int, Novelty] = {}
        # Tokens and money of the model calls since the newest tool call.
        self._asked, self._paid = 0, 0.0
        # What agents that others run have answered, and what a model wrote since the newest call;
        # None before the first such run.
        self._answers: Novelty | None = None
        self._said: str | None = None
        self._writes: dict[int, None] = {}

    def adopt(
        self, pace: Pace, habits: RepeatBaseline, tools: Mapping[str, float | None], rounds: Rounds
    ) -> None:
        """Goes on from what the calls of a journal tell of their tools, and of the times they name.

        Their arguments are gone: what the next call of such a tool asks for may be another item.
        """
        self._pace(0).follow(pace)
        self._rounds.follow(rounds)
        self._habits = habits
        self._before = frozenset(tools)
        self._calls.before = {tool: at for tool, at in tools.items() if at is not None}

    def extract(self, step: Step) -> Evidence | None:
        """Evidence of a tool call; of models and agents, notes what they took and answered."""
        if step.kind is _TOOL:
            return self.evidence(step)
        if step.kind is Kind.AGENT:
            self._pace(step.lane).ran(0.0 if step.parent_id is None else self._answered(step))
            return None
        if self._answers is not None:
            self._said = step.text and step.text[:_ANSWER]
        self._asked += step.tokens or 0
        self._paid += step.cost or 0.0
        if step.start and step.end:
            # Without its start nobody knows how long it thought.
            self._pace(step.lane).thought(step.end - step.start)
        self._rounds.asked(agent_key(maker_of(step)))
        return None

    def _pace(self, lane: int) -> Pace:
        """The pace of one of several agents at the same time."""
        if lane not in self._paces:
            if len(self._paces) == _READERS:
                return self._paces[0]
            self._paces[lane] = Pace()
        return self._paces[lane]

    def _answered(self, run: Step) -> float:
        """New part of what an agent's run within another one answered, as far as it is seen."""
        known = self._answers = self._answers or Novelty()
        answer = run.outcome if isinstance(run.outcome, str) else self._said
        if not answer:
            return 0.0
        raw = text_bytes(answer[:_ANSWER])
        return known.worded(raw, known.add(raw).share)

    def evidence(self, step: Step) -> Evidence:
        """Evidence of one finished tool call; counts it."""
        progress = self._progress
        tool, agent = (step.name or "")[:NAMED], agent_key(maker_of(step))
        name = tool_name(tool)
        reading = prepare(step, self._settings.tuning.calls.value_chars)
        bare = self._frame.taken_off(step, reading, runs_code=name.runs_code)
        if bare is not step:
            step, reading = bare, prepare(bare, self._settings.tuning.calls.value_chars)
        outcome = reading.found
        if reading.failure:
            step = replace(step, error=True, error_text=reading.failure)
        # No limit cuts at a length where the tool said more before.
        last, longest, shown, alike = self._tools.get(tool, ("", 0, None, 0))
        cut = outcome.cut > 0 and outcome.cut >= longest
        call = self._calls.identify(step, reading, outcome.exact)
        place = calls.place_of(call)
        found = progress.call = Evidence(
            number=progress.calls, tool=tool, agent=agent, call=call.key, call_exact=call.exact,
            guessed=call.guessed, args_cut=call.guessed and isinstance(call.arguments, str),
            sample=call.sample, place=place,
            outcome=outcome.key, outcome_exact=outcome.exact, outcome_size=outcome.size,
            cut=cut, epoch=progress.epoch, time=step.end or 0,
            round=self._rounds.add(step.start, step.end or 0, agent, call.exact),
            effect=self._effect(tool, name, call.arguments),
            runs_code=effects.runs_code(name, call.arguments),
            ahead=None if call.ahead is None or place is not None else (call.seed, call.ahead),
        )  # fmt: skip
        # To keep a list changes nothing in the world, nor does a text in place of the same text.
        vain = keeps_plan(tool, call.arguments) or (
            found.effect is _WRITE and effects.replaces_by_itself(call.arguments)
        )
        refusal = self._told(found, step, reading, call.raw, name)
        if found.makes:
            found.deed = calls.deed_of(call, once=found.tool in self._settings.once)
        if outcome.key is not None:
            # What is known to one agent is news to another; those beyond share one sketch.
            reader = agent if agent in self._novelty or len(self._novelty) < _READERS else 0
            known = self._novelty.get(reader)
            if known is None:
                known = self._novelty[reader] = Novelty()
            found.novelty, echo, found.seen = known.add(outcome.masked, call.raw, outcome.key)
            found.content = outcomes.content_key(
                outcome, page=reading.said if calls.has_cursor(call.arguments) else None
            )
            # A record that names what was asked for is an answer, and so is a list of them.
            found.echo = echo and (name.runs_code or not _is_record(reading.said))
        # A call that sleeps first, or waits as long as it was told, begins after that.
        slept = effects.rest_in(call.arguments, call.raw, found.time - step.start)
        found.began = min(step.start + slept, found.time) if step.start else 0
        alike = alike if found.content == shown else 0
        since = self._since(found, step.lane, works=not (found.idle or vain), alike=alike)
        found.fresh, found.changed = since.fresh, since.changed
        found.anew = since.fresh and since.equal
        # What is left of a threshold as a budget is used.
        tightened = 1.0 - self._settings.tuning.budget.tighten * progress.used
        found.ease = self._habits.ease(found, since) * tightened / self._settings.sensitivity
        moved = place is not None and calls.is_elsewhere(last, call.sample)
        found.item = not moved and _is_item(found, call, name, last, outcome.low)
        if not last and tool in self._before:
            found.item = found.item or _may_be_item(found, call, name)
        self._compare(found, step, call, outcome, name)
        if self._is_as_before(found, outcome, reading.said, call.raw):
            found.content = shown
        keep(
            self._tools, tool,
            (call.sample, max(longest, outcome.length), found.content, alike + since.fresh), CALLS,
        )  # fmt: skip
        # To its own repeats a tool that always answers the same is no different from any other.
        weigh(found, since._replace(worth=since.news) if alike > 1 else since)
        self._wait(step, found, since)
        if (
            found.effect is _WRITE
            and not vain
            and (
                refusal is None
                or not outcomes.changed_nothing(refusal, call.arguments, shell=name.shell)
            )
        ):
            self._open_epoch(found, call)
        self._count(found)
        return found

    def _since(self, found: Evidence, lane: int, *, works: bool, alike: int) -> Since:
        """What was between a call and the same one before; nothing that other agents only read."""
        pace = self._pace(lane)
        since = pace.add(found, found.began, works=works, turn=self._progress.turn, alike=alike)
        if len(self._paces) > 1 and may_act(found):
            for other in self._paces.values():
                if other is not pace:
                    other.did(found, since, works=works, alike=alike)
        return since

    def _wait(self, step: Step, found: Evidence, since: Since) -> None:
        """Counts a look at what is not ready; other work, or what came of a call, ends a wait."""
        progress, found.asked = self._progress, self._asked
        news = found.novelty is not None and found.novelty >= NEWS
        # Beside other work, or because a call took long, nobody waits, as far as models are seen.
        rests = since.sure > 0.0 or not since.thought
        looks = found.effect is _WAIT or found.pending or rests
        if found.waits and not news and looks and since.news < NEWS:
            found.wait = progress.wait = progress.wait or Waited()
            for wait in (progress.wait, progress.waited):
                wait.add(found.asked, self._paid, step.start, step.end or 0)
        elif news or found.novelty is None or (found.fresh and not found.pending):
            progress.wait = None
        self._asked, self._paid, self._said = 0, 0.0, None

    def _told(
        self, found: Evidence, step: Step, reading: Reading, raw: bytes, name: ToolName
    ) -> bytes | None:
        """Sets what an outcome says of itself; returns the line that refused the call, if any."""
        outcome, said, arguments = reading.found, reading.said, reading.arguments
        writes, once = found.effect is _WRITE, found.tool in self._settings.once
        found.makes = makes = once or (writes and name.makes)
        found.pending = found.tool in self._settings.polling
        # Text that tells nothing neither refuses nor failed; values of JSON may be escaped in it.
        tells, shell = outcome.tells, name.shell
        speaks = tells or step.error or not isinstance(said, str)
        if not (speaks or shell):
            return None
        refusal = outcomes.refusal_of(step, said, arguments, shell=shell) if speaks else None
        sends = writes and not (found.runs_code or name.moves or effects.says_where(arguments))
        failed = sends and outcomes.is_error_status(reading.whole)
        if not step.error and (failed or refusal is not None):
            step = replace(step, error=True)
        elif step.error and shell and found.effect is _READ:
            text = errors.error_text(step)
            if text is not None and outcomes.says_no(text):
                step = replace(step, error=False)
        error = found.error = step.error
        # What ends a build is looked for in the words of a shell only.
        failing = found.failing = error or (
            outcomes.reports_failure(step, reading, shell=shell)
            and not (
                effects.shows_file(name, found.effect, arguments)
                and not outcomes.reports_failure(step, reading, quotes=True)
            )
        )
        found.refused = refusal is not None
        found.rejects = rejects = (tells and outcomes.rejects(outcome)) or (
            outcomes.lists_errors(said) and not outcomes.is_pending(outcome)
        )
        found.empty = empty = outcome.size <= _RECORD and outcomes.is_empty(said)
        searches = name.has("searches")
        found.nothing = (
            (empty and (found.place is not None or searches))
            or (searches and found.effect is _READ and outcomes.is_null(said))
            or (
                tells
                and outcomes.says_nothing_found(outcome)
                # What a shell does not find nobody looked for.
                and not (shell and outcomes.misses_command(step, said))
            )
        )
        saved = writes and not found.runs_code and effects.file_of(arguments) is not None
        if not (error or makes or saved):
            # What was sent, ordered or saved is done: to look again would do it again.
            found.pending = found.pending or outcomes.is_pending(outcome)
        found.idle = shell and outcomes.does_nothing(step, said, arguments)
        found.score = outcomes.score_of(outcome) if tells else None
        if failing or rejects:
            found.transient = errors.is_transient(step, outcome.low)
        if error:
            found.error_class = errors.error_class(step)
            found.call_error = not name.runs_code and errors.is_call_error(step)
        if failing and not error and said is not step.outcome:
            # In JSON all lines of a process are one.
            step = replace(step, outcome=outcomes.text_of(step, said) or step.outcome)
        line = refusal or (errors.error_line(step) if failing else None)
        if line is not None:
            found.error_line = errors.error_shape(line)
            found.error_shape = errors.error_shape(line, raw)
        # As it is asked later, of the same text: it is looked up there.
        found.unanswered = error and errors.signature_of(step) == "timeout"
        found.failure = (
            errors.failure_of(step, line) if failing
            else errors.rejection_of(outcome.masked, raw) if rejects else None
        )  # fmt: skip
        return refusal

    def _compare(
        self, found: Evidence, step: Step, call: Call, outcome: Outcome, name: ToolName
    ) -> None:
        """Sets what a call is beside the calls of its tool before, and what it is about."""
        writes = found.effect is _WRITE
        found.own = found.effect is _READ and effects.reads_files(name, call.arguments)
        found.revises = self._versions.revises(call, outcome)
        found.variant = found.changed and self._versions.varies(call, outcome)
        item = found.item
        file = effects.file_of(call.arguments) if item or writes else None
        if file is not None and writes and not name.runs_code:
            found.file = key_of(text_bytes(file))
            found.idle = not found.error and effects.replaces_by_itself(call.arguments)
            # Another change of the same file is no other item.
            item = found.item = item and found.file != self._edited.get(found.tool)
            keep(self._edited, found.tool, found.file, CALLS)
        found.brief = (
            item
            and (outcome.size < _BRIEF or outcome.raw[:1] == b"{")
            and found.fresh
            and not (found.failing or found.nothing or name.has("searches"))
        )
        found.absent = (
            item
            and found.fresh
            and not (found.call_error or writes or file is not None)
            and not calls.guesses(self._tools.get(found.tool, ("",))[0], call.sample)
            and errors.says_absent(step)
        )
        if not found.fresh:
            said = replace_short_ids(outcome.masked, _as_number)
            rest = said.translate(None, _DIGITS)
            amounts = islice(_AMOUNT.finditer(said), _AMOUNTS + 1)
            numbers = tuple(float(one[0]) for one in amounts)
            # Of a table the numbers that are not looked at may be those that get on.
            if 0 < len(numbers) <= _AMOUNTS and rest.strip(_AROUND_NUMBERS):
                found.numbers = Numbers(key_of(rest), numbers)
        if not found.failing:
            # What was cut may differ behind the cut, and what was made is told by a receipt.
            page = outcome.size >= _NOTE and not (outcome.cut or found.makes)
            shown = outcome.key if page else None
            found.state = shown if found.file is None else call.change
        if not (writes or found.runs_code):
            found.terms = calls.terms_of(call.sample)

    def _is_as_before(
        self, found: Evidence, outcome: Outcome, said: object, arguments: bytes
    ) -> bool:
        """True if a question was given the answer before it; keeps this one for the next."""
        before = self._shown.pop(found.tool, b"")
        if not (found.own or found.runs_code) and outcome.size >= _BRIEF:
            keep(self._shown, found.tool, ends_of(outcome.masked), _SHOWN)
        return bool(before) and _is_hardly_new(found, outcome, said, arguments, before)

    def _count(self, found: Evidence) -> None:
        """Counts a call, and what it brought."""
        progress = self._progress
        progress.calls += 1
        if found.novelty is None:
            progress.unseen += 1
            return
        progress.answers += 1
        progress.repeats += found.call is not None and not (found.fresh or found.changed)
        # Of a file that was changed no answer says more than that it was, and one word about
        # another item, or about what was done for the first time, is all that can be said of it.
        whole = edited = found.file is not None and progress.epoch != found.epoch
        progress.edits += edited
        if found.outcome_size < _BRIEF and not edited:
            reads = found.effect in (_READ, _WAIT) or found.runs_code
            done = found.fresh and not (reads or found.failing or found.rejects)
            whole = found.brief or done
        progress.news += 1.0 if whole else found.novelty

    def refused(self, step: Step) -> int:
        """Round of a refused call, about which nothing else is recorded."""
        exact = self.call_of(step).exact
        return self._rounds.add(step.start, step.end or 0, agent_key(maker_of(step)), exact)

    def call_of(self, step: Step) -> Call:
        """Identity of a call before it has an outcome."""
        reading = prepare(step, self._settings.tuning.calls.value_chars)
        return self._calls.identify(step, reading, None)

    def _effect(self, tool: str, name: ToolName, arguments: object) -> Effect:
        declared = self._settings.effects.get(tool)
        if declared is not None:
            return Effect(declared)
        if not (name.moves or name.runs_code or name.asks):
            return name.effect
        return effects.effect_of(tool, arguments)

    def _open_epoch(self, found: Evidence, call: Call) -> None:
        """Opens an epoch for a change that was not made before with the same outcome."""
        if found.failing and not (found.runs_code and effects.is_compound(call.arguments)):
            return
        # What was changed in another turn of the user is another change.
        gave = (found.outcome, *((found.numbers.around,) if found.numbers else ()))
        changes = [hash((call.change, one, self._progress.turn)) for one in gave]
        if self._writes.keys().isdisjoint(changes):
            self._progress.epoch += 1
        for change in changes:
            keep(self._writes, change, None, _CHANGES)
