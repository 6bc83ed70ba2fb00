"""Model texts that go in circles."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.values import NamedTuple
from otel_loopguard.core import Action, Evidence, Gain, ModelText, Plan
from otel_loopguard.detectors.base import TRANSIENT, WAIT, WRITE, BaseDetector

if TYPE_CHECKING:
    from otel_loopguard.core import Detection

_SPEAKERS: Final = 4
"""Speakers that are remembered; what one agent says is no repetition of another."""


class _Row(NamedTuple):
    length: int
    turn: int


class _TextDetector(BaseDetector):
    family = "text"
    takes = ModelText
    absolute = True
    __slots__ = ()


class _PhraseStreak(_TextDetector):
    """Counts texts in a row of one speaker, within one turn, that show the same sign.

    Texts that were written beside each other (samples of one question) count as one.
    """

    says: ClassVar[str]
    key: ClassVar[int]
    __slots__ = ("_rows",)

    def reset(self) -> None:
        self._rows: dict[int, _Row] = {}

    def count(self, text: ModelText, threshold: int, *, shows: bool) -> Detection | None:
        """A detection if it is the text that makes them too many in a row."""
        before = self._rows.pop(text.speaker, None)
        if not shows or text.structured:
            return None
        length = before.length if before is not None and before.turn == text.turn else 0
        length = max(length + (not text.beside), 1)
        keep(self._rows, text.speaker, _Row(length, text.turn), _SPEAKERS)
        if length < threshold:
            return None
        message = f"{length} texts of {text.name} in a row {self.says}"
        return self.found(message, length, threshold, text.speaker ^ self.key)


class Apologising(_PhraseStreak):
    """Counts texts in a row of one speaker that apologise: each time something went wrong."""

    name = "apologising"
    signs = ("apologies",)
    lasting = True
    says, key = "apologise", 0x61706F6C
    sure = (0.75, 0.5, 0.05)
    reason = "apologies_in_a_row"
    advice = "Find out what went wrong before the next try; do it in another way."
    __slots__ = ()

    def observe(self, text: ModelText) -> Detection | None:
        return self.count(text, self._settings.tuning.text.apology_turns, shows=text.apologies > 0)


class Hedging(_PhraseStreak):
    """Counts texts in a row of one speaker with a phrase of doubt for every 100 words begun."""

    name = "hedging"
    signs = ("hedges",)
    lasting = True
    says, key = "speak of doubt", 0x68656467
    sure = (0.7, 0.4, 0.04)
    reason = "doubt_in_a_row"
    advice = "Say what is not known, and find out that one thing first."
    __slots__ = ()

    def observe(self, text: ModelText) -> Detection | None:
        doubts = text.hedges > text.words // 100
        return self.count(text, self._settings.tuning.text.hedge_turns, shows=doubts)


class _Spiral(NamedTuple):
    before: ModelText
    times: int


class RefinementSpiral(_TextDetector):
    """Counts how often in a row a text of one speaker is like the one before.

    Only from the fourth text on: draft, review and final version are alike in healthy runs. Short
    texts and data do not count (verdicts and records of a batch are alike), nor do texts that
    differ in numbers only after a tool call: "37 %" and "41 %" is progress.
    """

    name = "refinement_spiral"
    sure = (0.85, 0.55, 0.05)
    reason = "refined_in_vain"
    advice = "Take the text as it is, or say what exactly is still wrong with it."
    max_action = Action.STEER
    __slots__ = ("_spirals",)

    def reset(self) -> None:
        self._spirals: dict[int, _Spiral] = {}

    def observe(self, text: ModelText) -> Detection | None:
        spiral = self._spirals.get(text.speaker)
        count = 0
        if spiral is not None and self._goes_on(spiral.before, text):
            count = spiral.times + (not text.beside)
        keep(self._spirals, text.speaker, _Spiral(text, count), _SPEAKERS)
        threshold = self._settings.tuning.text.refine_times
        if count < threshold:
            return None
        message = (
            f"{text.name} wrote nearly the same text {count + 1} times (the last two "
            f"have {text.alike:.0%} in common), and nothing came of what was done between"
        )
        return self.found(message, count, threshold, text.speaker ^ 0x7265666E)

    def _goes_on(self, before: ModelText, now: ModelText) -> bool:
        tuning = self._settings.tuning.text
        return (
            not now.structured
            and now.size >= tuning.refine_chars
            and now.alike >= tuning.alike
            and now.gain.nothing_since(before.gain, tuning.news)
            and not (now.renumbered and now.calls != before.calls)
        )


class _Earlier(NamedTuple):
    key: int
    turn: int
    gain: Gain


class TextRepetition(_TextDetector):
    """Counts equal texts of one speaker, and finds texts that repeat themselves.

    Equal texts count in prose of some length only, and where nothing came of what was done since.
    A text repeats itself at its end, or in sentences that are said over and over.
    """

    name = "text_repetition"
    sure = (0.9, 0.6, 0.05)
    reason = "same_text"
    max_action = Action.STEER
    advice = "This was said already: do something else, or say what is missing."
    __slots__ = ("_earlier",)

    def reset(self) -> None:
        self._earlier: dict[int, deque[_Earlier]] = {}

    def observe(self, text: ModelText) -> Detection | None:
        count = self._count(text)
        tuning, least = self._settings.tuning.text, self._settings.text_repeat_times
        if text.tail is not None:
            message = (
                f"a text of {text.name} ends with the same {text.tail.period} characters, "
                f"{text.tail.times} times or more one after the other"
            )
            return self.found(
                message, text.tail.times, tuning.tail_times, text.tail.key, confidence=0.8,
                reason="repeating_end",
                advice="The text does not end by itself: begin it anew, and shorter.",
            )  # fmt: skip
        if text.chant is not None:
            message = (
                f"a text of {text.name} says the same {text.chant.period} characters "
                f"{text.chant.times} times or more in a row"
            )
            return self.found(
                message, text.chant.times, tuning.chant_times, text.chant.key, confidence=0.75,
                reason="chanting",
                advice="Said once is enough: go on from there, or begin the text anew.",
            )  # fmt: skip
        if count < least:
            return None
        message = (
            f"{text.name} wrote the same text of {text.size} characters {count} times, and nothing "
            "came of what was done in between"
        )
        return self.found(message, count, least, text.speaker ^ 0x72657065)

    def _count(self, text: ModelText) -> int:
        tuning = self._settings.tuning.text
        if text.structured or text.size < tuning.repeat_chars or text.beside:
            return 0
        earlier = self._earlier.get(text.speaker)
        if earlier is None or earlier[-1].turn != text.turn:
            earlier = deque[_Earlier](maxlen=2 * self._settings.text_repeat_times)
        count = 1
        for before in earlier:
            if before.key == text.key and text.gain.nothing_since(before.gain, tuning.news):
                count += 1
        earlier.append(_Earlier(text.key, text.turn, text.gain))
        keep(self._earlier, text.speaker, earlier, _SPEAKERS)
        return count


class _Growth(NamedTuple):
    plan: Plan
    first: int
    times: int
    again: int = 0


class ScopeCreep(_TextDetector):
    """Counts how often in a row a plan grows, or is written again, while none of it is done.

    It is the same plan if 0.7 of the tasks before are still on it. It begins again when a task more
    is done, when the plan shrinks, and when the world is changed: then the plan is worked on,
    marked or not. A plan that a tool keeps is written again, in whatever words, if no other call
    stands in between.
    """

    name = "scope_creep"
    takes = Plan
    sure = (0.75, 0.5, 0.05)
    reason = "plan_only_grows"
    advice = "Do the first task of the plan before the next one is added."
    __slots__ = ("_growths",)

    def reset(self) -> None:
        self._growths: dict[int, _Growth] = {}

    def observe(self, plan: Plan) -> Detection | None:
        growth = _grown(self._growths.get(plan.speaker), plan)
        keep(self._growths, plan.speaker, growth, _SPEAKERS)
        threshold = self._settings.tuning.text.scope_turns
        if growth.again >= threshold > growth.times:
            message = (
                f"the plan of {plan.name} was written {growth.again + 1} times in a row, and "
                "nothing else was done"
            )
            key = plan.speaker ^ 0x73636F70
            return self.found(message, growth.again, threshold, key, reason="plan_rewritten")
        if growth.times < threshold:
            return None
        message = (
            f"the plan of {plan.name} grew {growth.times} times in a row, from "
            f"{growth.first} to {len(plan.items)} tasks, and no further task was done"
        )
        return self.found(message, growth.times, threshold, plan.speaker ^ 0x73636F70)


def _grown(growth: _Growth | None, plan: Plan) -> _Growth:
    if growth is not None:
        before = growth.plan
        more = len(plan.items) - len(before.items)
        worked_on = plan.done > before.done or plan.epoch != before.epoch
        same = len(before.items & plan.items) >= 0.7 * len(before.items)
        alone = before.call is not None and plan.call == before.call + 1
        again = growth.again + 1 if alone and not worked_on else 0
        if same and not worked_on and more >= 0:
            return _Growth(plan, growth.first, growth.times + (more > 0), again)
        return _Growth(plan, len(plan.items), 0, again)
    return _Growth(plan, len(plan.items), 0)


class _Talk(NamedTuple):
    """Texts in a row that announce the same, that are alike, and that announce anything."""

    before: ModelText
    same: int
    alike: int
    other: int


class TalkWithoutAction(_TextDetector):
    """Counts texts in a row of one speaker between which nothing was done, by whomever.

    They announce the same; or are alike and speak of their author (verdicts of a batch do not); or
    announce one thing after the other, in a session whose tool calls are seen: elsewhere it may
    have been done out of sight. A chat or a pipeline of model calls announces nothing.
    """

    name = "talk_without_action"
    signs = ("promise", "personal")
    lasting = True
    sure = (0.85, 0.6, 0.02)
    advice = "Do the first step now, with a tool call, or say what keeps you from it."
    __slots__ = ("_talks",)

    def reset(self) -> None:
        self._talks: dict[int, _Talk] = {}

    def observe(self, text: ModelText) -> Detection | None:
        before = self._talks.pop(text.speaker, None)
        if text.structured or (text.promise is None and not text.personal):
            return None
        talk = self._continue(before, text)
        keep(self._talks, text.speaker, talk, _SPEAKERS)
        tuning = self._settings.tuning.text
        for reason, says, count, threshold in (
            ("announced_again", "announced the same", talk.same, tuning.talk_turns),
            ("said_again", "said nearly the same", talk.alike, tuning.talk_alike_turns),
            (
                "only_announced", "announced to do something", talk.other, tuning.talk_other_turns,
            ),
        ):  # fmt: skip
            if count >= threshold:
                message = (
                    f"{text.name} {says} {count} times in a row, and no tool call or "
                    "hand-off was seen in between"
                )
                return self.found(
                    message, count, threshold, text.speaker ^ 0x74616C6B, reason=reason
                )
        return None

    def _continue(self, talk: _Talk | None, now: ModelText) -> _Talk:
        promise = now.promise
        first = int(promise is not None)
        if talk is None or talk.before.acts != now.acts or talk.before.turn != now.turn:
            return _Talk(now, first, 1, first)
        if now.beside:
            return talk._replace(before=now)
        alike = now.alike >= self._settings.tuning.text.alike
        before = talk.before.promise
        same = promise is not None and before is not None and (alike or promise.is_like(before))
        return _Talk(
            now,
            talk.same + 1 if same else first,
            talk.alike + 1 if alike else 1,
            talk.other + first if now.calls and before is not None else first,
        )


_KNOWN: Final = 0.1
_TOOLS: Final = 256
_SHOPPING: Final = 0x73686F70


class ToolShopping(_TextDetector):
    """Counts different tools in a row that were tried in vain, each a few times at most.

    A call that brings news, changes something, or whose outcome was not captured begins a new row.
    Transient errors are not the agent's doing, and neither count nor help.
    """

    name = "tool_shopping"
    takes = Evidence
    sure = (0.8, 0.5, 0.05)
    reason = "tools_tried_in_vain"
    advice = "Say what is missing before the next tool is tried, or ask for it."
    __slots__ = ("_calls", "_first")

    def reset(self) -> None:
        self._calls: dict[str, int] = {}
        self._first: int | None = None

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.error and evidence.error_class is TRANSIENT:
            return None
        if not _is_in_vain(evidence):
            if self._first is not None:
                self.reset()
            return None
        if len(self._calls) < _TOOLS or evidence.tool in self._calls:
            self._calls[evidence.tool] = self._calls.get(evidence.tool, 0) + 1
        if self._first is None:
            self._first = evidence.number ^ _SHOPPING
        tuning = self._settings.tuning.text
        tried = sum(calls <= tuning.shop_calls for calls in self._calls.values())
        if tried < tuning.shop_tools:
            return None
        message = (
            f"{tried} different tools were tried in a row, each {tuning.shop_calls} times "
            "at most, and each failed, found nothing, or said nothing new"
        )
        return self.found(message, tried, tuning.shop_tools, self._first or _SHOPPING)


def _is_in_vain(evidence: Evidence) -> bool:
    """Whether nothing came of a call; an outcome that was not captured may be news."""
    if evidence.error or evidence.nothing or evidence.echo:
        return True
    if evidence.effect is WRITE or evidence.effect is WAIT:
        return False
    # To look again at what brought something once is no new attempt.
    return evidence.fresh and evidence.novelty is not None and evidence.novelty <= _KNOWN
