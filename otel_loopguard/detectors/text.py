"""Model texts that go in circles."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from otel_loopguard._util.bounded import keep
from otel_loopguard.core import Action
from otel_loopguard.core.evidence import CHANTED, Evidence, Gain, ModelText, Plan
from otel_loopguard.detectors.base import TRANSIENT, WAIT, WRITE, BaseDetector

if TYPE_CHECKING:
    from otel_loopguard.core import Detection

# Speakers that are remembered: what one agent says is no repetition of another.
_SPEAKERS: Final = 4
# Bytes from which equal or like texts are prose, and no mere "Done." or "Ok, next file."
_PROSE: Final = 80


class _TextDetector(BaseDetector):
    takes = ModelText
    absolute = True
    __slots__ = ()


class _PhraseStreak(_TextDetector):
    """Counts texts in a row of one speaker, within one turn, that show the same sign.

    Texts that were written beside each other (samples of one question) count as one.
    """

    lasting = True
    key: ClassVar[int]
    __slots__ = ("_rows",)

    def reset(self) -> None:
        # By speaker: texts in a row, and the turn of the last.
        self._rows: dict[int, tuple[int, int]] = {}

    def shows(self, text: ModelText) -> bool:
        """True if a text shows the sign."""
        raise NotImplementedError

    def observe(self, text: ModelText) -> Detection | None:
        length, turn = self._rows.pop(text.speaker, (0, text.turn))
        if text.structured or not self.shows(text):
            return None
        length = max((length if turn == text.turn else 0) + (not text.beside), 1)
        keep(self._rows, text.speaker, (length, text.turn), _SPEAKERS)
        if length < self.threshold:
            return None
        key = text.speaker ^ self.key
        return self.found(self.rules[0], length, self.threshold, key, name=text.name)


class Apologising(_PhraseStreak):
    """Does a model apologise, text after text?

    Counts: texts in a row with a phrase such as "my mistake" or "Sorry".
    Leaves alone: single ones.
    Cannot see: languages other than English.
    """

    name = "apologising"
    signs = ("apologies",)
    key = 0x61706F6C
    __slots__ = ()

    def shows(self, text: ModelText) -> bool:
        return text.apologies > 0


class Hedging(_PhraseStreak):
    """Is a model in doubt, text after text?

    Counts: texts in a row with a phrase of doubt per 100 words.
    Leaves alone: long texts with a doubt or two.
    Cannot see: languages other than English.
    """

    name = "hedging"
    signs = ("hedges",)
    key = 0x68656467
    __slots__ = ()

    def shows(self, text: ModelText) -> bool:
        return text.hedges > text.words // 100


class RefinementSpiral(_TextDetector):
    """Is the same text written again and again, with hardly any change?

    Counts: texts in a row like the one before, while nothing came of what was done between.
    Leaves alone: short texts; other numbers after a tool call.
    Cannot see: what was not captured between.
    """

    name = "refinement_spiral"
    max_action = Action.STEER
    __slots__ = ("_spirals",)

    def reset(self) -> None:
        self._spirals: dict[int, tuple[ModelText, int]] = {}

    def observe(self, text: ModelText) -> Detection | None:
        before, count = self._spirals.get(text.speaker, (None, 0))
        goes_on = before is not None and self._goes_on(before, text)
        count = count + (not text.beside) if goes_on else 0
        keep(self._spirals, text.speaker, (text, count), _SPEAKERS)
        if count < self.threshold:
            return None
        return self.found(
            "refined_in_vain", count, self.threshold, text.speaker ^ 0x7265666E, name=text.name,
            times=count + 1, alike=text.alike,
        )  # fmt: skip

    def _goes_on(self, before: ModelText, now: ModelText) -> bool:
        tuning = self._settings.tuning.text
        return (
            not now.structured
            and now.size >= _PROSE
            and now.alike >= tuning.alike
            and now.gain.nothing_since(before.gain, tuning.news)
            and not (now.renumbered and now.calls != before.calls)
        )


class TextRepetition(_TextDetector):
    """Does a model repeat itself word by word?

    Counts: equal prose among the last eight texts, with nothing done between; a text's end, or
    sentences, said over and over.
    Leaves alone: refrains; forms; lists; code.
    Cannot see: the same in other words.
    """

    name = "text_repetition"
    max_action = Action.STEER
    __slots__ = ("_earlier",)

    def reset(self) -> None:
        # By speaker: key, turn and gain of the newest texts.
        self._earlier: dict[int, deque[tuple[int, int, Gain]]] = {}

    def observe(self, text: ModelText) -> Detection | None:
        count = self._count(text)
        part = text.tail or text.chant
        if part is not None:
            rule, threshold, confidence = "chanting", CHANTED, 0.75
            if text.tail:
                rule, threshold = "repeating_end", self._settings.tuning.text.tail_times
                confidence = 0.8
            return self.found(
                rule, part.times, threshold, part.key, name=text.name, part=part.period,
                confidence=confidence,
            )  # fmt: skip
        if count < self.threshold:
            return None
        key = text.speaker ^ 0x72657065
        return self.found("same_text", count, self.threshold, key, name=text.name, size=text.size)

    def _count(self, text: ModelText) -> int:
        if text.structured or text.size < _PROSE or text.beside:
            return 0
        earlier = self._earlier.get(text.speaker)
        if earlier is None or earlier[-1][1] != text.turn:
            # Twice as many as it takes: of two texts that alternate, each is every other one.
            most = 2 * self._settings.tuning.text.repeat_times
            earlier = deque[tuple[int, int, Gain]](maxlen=most)
        news = self._settings.tuning.text.news
        count = 1 + sum(
            key == text.key and text.gain.nothing_since(gain, news) for key, _, gain in earlier
        )
        earlier.append((text.key, text.turn, text.gain))
        keep(self._earlier, text.speaker, earlier, _SPEAKERS)
        return count


class _Growth(NamedTuple):
    plan: Plan
    first: int
    times: int
    again: int = 0


class ScopeCreep(_TextDetector):
    """Does the plan keep growing while nothing of it is done?

    Counts: how often in a row a plan grows, or is handed to a tool again with no other call.
    Leaves alone: plans that shrink; a task marked as done; any change.
    Cannot see: plans in prose.
    """

    name = "scope_creep"
    takes = Plan
    __slots__ = ("_growths",)

    def reset(self) -> None:
        self._growths: dict[int, _Growth] = {}

    def observe(self, plan: Plan) -> Detection | None:
        growth = _grown(self._growths.get(plan.speaker), plan)
        keep(self._growths, plan.speaker, growth, _SPEAKERS)
        if growth.again >= self.threshold > growth.times:
            rule, count = "plan_rewritten", growth.again
        elif growth.times >= self.threshold:
            rule, count = "plan_only_grows", growth.times
        else:
            return None
        return self.found(
            rule, count, self.threshold, plan.speaker ^ 0x73636F70, name=plan.name,
            times=count + 1, first=growth.first, tasks=len(plan.items),
        )  # fmt: skip


def _grown(growth: _Growth | None, plan: Plan) -> _Growth:
    if growth is not None:
        before = growth.plan
        more = len(plan.items) - len(before.items)
        worked_on = plan.done > before.done or plan.epoch != before.epoch
        # A task or two of a plan are put otherwise when it is written again.
        same = len(before.items & plan.items) >= 0.7 * len(before.items)
        alone = before.call is not None and plan.call == before.call + 1
        again = growth.again + 1 if alone and not worked_on else 0
        if same and not worked_on and more >= 0:
            return _Growth(plan, growth.first, growth.times + (more > 0), again)
        return _Growth(plan, len(plan.items), 0, again)
    return _Growth(plan, len(plan.items), 0)


# Texts that are alike may be answers to questions that are, as of an interview: half as many more.
_ALIKE_TURNS: Final = 6
# Who announces one thing after the other may do them where nobody sees it.
_OTHER_TURNS: Final = 10


class _Talk(NamedTuple):
    """Texts in a row that announce the same, that are alike, and that announce anything."""

    before: ModelText
    same: int
    alike: int
    other: int


class TalkWithoutAction(_TextDetector):
    """Does a model talk and do nothing?

    Counts: texts in a row, without a tool call or handoff: four that announce the same, six alike
    that speak of their author, ten other announcements.
    Leaves alone: chats and pipelines, which announce nothing.
    Cannot see: languages other than English.
    """

    name = "talk_without_action"
    signs = ("promise", "personal")
    lasting = True
    __slots__ = ("_talks",)

    def reset(self) -> None:
        self._talks: dict[int, _Talk] = {}

    def observe(self, text: ModelText) -> Detection | None:
        before = self._talks.pop(text.speaker, None)
        if text.structured or (text.promise is None and not text.personal):
            return None
        talk = self._continue(before, text)
        keep(self._talks, text.speaker, talk, _SPEAKERS)
        for rule, count, threshold in (
            ("announced_again", talk.same, self.threshold),
            ("said_again", talk.alike, _ALIKE_TURNS),
            ("only_announced", talk.other, _OTHER_TURNS),
        ):
            if count >= threshold:
                key = text.speaker ^ 0x74616C6B
                return self.found(rule, count, threshold, key, name=text.name)
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


# As in `errors` and `standstill`: a tenth of an answer is its date, its id or its greeting.
_KNOWN: Final = 0.1
_TOOLS: Final = 256
# Whoever called a tool three times has not merely tried it.
_TRIES: Final = 2
_SHOPPING: Final = 0x73686F70


class ToolShopping(_TextDetector):
    """Is one tool after the other tried once or twice, and none helps?

    Counts: different tools in a row, each called twice at most, that brought nothing.
    Leaves alone: news; changes; transient errors.
    Cannot see: answers not captured.
    """

    name = "tool_shopping"
    takes = Evidence
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
        tried = sum(calls <= _TRIES for calls in self._calls.values())
        if tried < self.threshold:
            return None
        key = self._first or _SHOPPING
        return self.found("tools_tried_in_vain", tried, self.threshold, key, tries=_TRIES)


def _is_in_vain(evidence: Evidence) -> bool:
    """True if nothing came of a call; an outcome that was not captured may be news."""
    if evidence.error or evidence.nothing or evidence.echo:
        return True
    if evidence.effect is WRITE or evidence.effect is WAIT:
        return False
    # To look again at what brought something once is no new attempt, in another turn either.
    tries = evidence.fresh and not evidence.anew
    return tries and evidence.novelty is not None and evidence.novelty <= _KNOWN
