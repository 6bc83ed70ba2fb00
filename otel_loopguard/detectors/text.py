"""Model texts that go in circles."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from otel_loopguard.core import Action, Detection, Gain, ModelText, Plan, Severity, Tail

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

T = TypeVar("T")

_SPEAKERS: Final = 4


class Speakers(Generic[T]):
    """One thing remembered for each of the newest 4 speakers of a session.

    Different agents are different speakers: what one says is no repetition of the other.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: OrderedDict[int, T] = OrderedDict()

    def take(self, speaker: int) -> T | None:
        """What is remembered of a speaker, if anything is; it is forgotten with that."""
        return self._known.pop(speaker, None)

    def put(self, speaker: int, remembered: T) -> None:
        """Remembers something of a speaker; the one unheard for longest is forgotten."""
        self._known[speaker] = remembered
        if len(self._known) > _SPEAKERS:
            self._known.popitem(last=False)

    def clear(self) -> None:
        """Forgets all speakers."""
        self._known.clear()


class _Row(NamedTuple):
    length: int
    turn: int


class Streaks:
    """How many texts in a row of a speaker show the same sign, within one turn.

    Texts that were written beside each other (samples of one question) are one.
    """

    __slots__ = ("_rows", "_sign")

    def __init__(self, sign: Callable[[ModelText], bool]) -> None:
        self._sign = sign
        self._rows: Speakers[_Row] = Speakers()

    def count(self, saying: ModelText) -> int:
        """Texts in a row with this one, this one included; 0 if it does not show the sign."""
        before = self._rows.take(saying.speaker)
        if not self._sign(saying):
            return 0
        length = before.length if before is not None and before.turn == saying.turn else 0
        length = max(length + (not saying.beside), 1)
        self._rows.put(saying.speaker, _Row(length, saying.turn))
        return length

    def clear(self) -> None:
        """Begins anew for all speakers."""
        self._rows.clear()


_LOOP: Final = 0x61706F6C


class Apologising:
    """Counts texts in a row of one speaker that apologise.

    A detection from `tuning.text.apology_turns` (3) on; whatever was tried in between, it went
    wrong each time. Data does not count. It hints at most.

    Source: FEATURES D7; false alarm F12 (phrases stand on word boundaries, and one alone says
    nothing).
    """

    name = "apologising"
    family = "text"
    takes = ModelText
    __slots__ = ("_rows", "_turns")

    def __init__(self, settings: Settings) -> None:
        self._turns = settings.tuning.text.apology_turns
        self._rows = Streaks(_apologises)

    def user_turn(self) -> None:
        """A user spoke: to answer a complaint politely is no loop."""
        self._rows.clear()

    def observe(self, saying: ModelText) -> Detection | None:
        """Takes one text; gives a detection if it is one too many."""
        count = self._rows.count(saying)
        if count < self._turns:
            return None
        return Detection(
            detector=self.name,
            reason="apologies_in_a_row",
            severity=Severity.WARNING,
            confidence=min(0.75, 0.5 + 0.05 * count),
            keys=frozenset({saying.speaker ^ _LOOP}),
            count=count,
            threshold=self._turns,
            message=f"{count} texts of {saying.name} in a row apologise",
            max_action=Action.HINT,
            advice="Find out what went wrong before the next try; do it in another way.",
        )


def _apologises(saying: ModelText) -> bool:
    return saying.apologies > 0 and not saying.structured


_DOUBTS: Final = 0x68656467
_WORDS: Final = 100


class Hedging:
    """Counts texts in a row of one speaker that are full of doubt.

    Full means a phrase of doubt ("I'm not sure", "perhaps", "it seems") for every 100 words begun.
    A detection from `tuning.text.hedge_turns` (5) on; data does not count. It hints at most.

    Source: FEATURES D7; false alarm F12 (phrases stand on word boundaries, and one alone says
    nothing).
    """

    name = "hedging"
    family = "text"
    takes = ModelText
    __slots__ = ("_rows", "_turns")

    def __init__(self, settings: Settings) -> None:
        self._turns = settings.tuning.text.hedge_turns
        self._rows = Streaks(_in_doubt)

    def user_turn(self) -> None:
        """A user spoke: doubts may be cleared."""
        self._rows.clear()

    def observe(self, saying: ModelText) -> Detection | None:
        """Takes one text; gives a detection if it is one too many."""
        count = self._rows.count(saying)
        if count < self._turns:
            return None
        return Detection(
            detector=self.name,
            reason="doubt_in_a_row",
            severity=Severity.WARNING,
            confidence=min(0.7, 0.4 + 0.04 * count),
            keys=frozenset({saying.speaker ^ _DOUBTS}),
            count=count,
            threshold=self._turns,
            message=f"{count} texts of {saying.name} in a row speak of doubt",
            max_action=Action.HINT,
            advice="Say what is not known, and find out that one thing first.",
        )


def _in_doubt(saying: ModelText) -> bool:
    return saying.hedges > saying.words // _WORDS and not saying.structured


_REFINEMENT: Final = 0x7265666E


class _Spiral(NamedTuple):
    before: ModelText
    times: int


class RefinementSpiral:
    """Counts how often in a row a text of one speaker is like the one before.

    Alike means that `tuning.text.alike` (0.85) of the two samples is common; a detection from
    `tuning.text.refine_times` (3) on, that is with the fourth text: draft, review and final version
    are alike in healthy runs. It starts again where something came of what was done in
    between: a change of the world, or answers of tools that were new (`tuning.text.news`, 0.1).
        Texts
    below `tuning.text.refine_chars` (80 characters) and data (JSON, tables, blocks of code) do not
    count: verdicts and records of a batch are alike. Texts that differ in numbers only count where
    no tool was called in between: "37 %" and "41 %" is progress. It asks for another way at most.

    Source: FEATURES D6; false alarm F11.
    """

    name = "refinement_spiral"
    family = "text"
    takes = ModelText
    __slots__ = ("_settings", "_spirals")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._spirals: Speakers[_Spiral] = Speakers()

    def user_turn(self) -> None:
        """A user spoke: what comes now answers that."""
        self._spirals.clear()

    def observe(self, saying: ModelText) -> Detection | None:
        """Takes one text; gives a detection if it shows (or still shows) a spiral."""
        before = self._spirals.take(saying.speaker)
        count = 0 if before is None else self._count(before, saying)
        self._spirals.put(saying.speaker, _Spiral(saying, count))
        return (
            self._detection(saying, count)
            if count >= self._settings.tuning.text.refine_times
            else None
        )

    def _count(self, spiral: _Spiral, now: ModelText) -> int:
        settings, before = self._settings, spiral.before
        if now.structured or now.size < settings.tuning.text.refine_chars:
            return 0
        if now.alike < settings.tuning.text.alike or not now.gain.nothing_since(
            before.gain, settings.tuning.text.news
        ):
            return 0
        if now.renumbered and now.calls != before.calls:
            return 0
        return spiral.times + (not now.beside)

    def _detection(self, saying: ModelText, count: int) -> Detection:
        return Detection(
            detector=self.name,
            reason="refined_in_vain",
            severity=Severity.WARNING,
            confidence=min(0.85, 0.55 + 0.05 * count),
            keys=frozenset({saying.speaker ^ _REFINEMENT}),
            count=count,
            threshold=self._settings.tuning.text.refine_times,
            message=f"{saying.name} wrote nearly the same text {count + 1} times (the last two "
            f"have {saying.alike:.0%} in common), and nothing came of what was done between",
            max_action=Action.STEER,
            advice="Take the text as it is, or say what exactly is still wrong with it.",
        )


_REPETITION: Final = 0x72657065
_BETWEEN: Final = 2


class _Said(NamedTuple):
    key: int
    turn: int
    gain: Gain


class TextRepetition:
    """Counts equal texts of one speaker, and looks at the end of each text.

    Across texts: equal ones, not necessarily in a row, among the newest `text_repeat_times` (4)
    times 2 of a turn; a detection from 4 on. Only texts of `tuning.text.repeat_chars` (80
    characters) or more that are prose, and only where nothing came of what was done since.

    Inside of one: the end of a text that repeats itself `tuning.text.tail_times` (10) times, with a
    period of up to `tuning.text.tail_period` (500) characters and over at least
    `tuning.text.tail_chars` (400). Not in blocks of code, tables, JSON or markup. Or a sentence, or
    up to 24 of them, anywhere in it, that is said `tuning.text.chant_times` (6) times in a row,
    over as many characters. It asks for another way at most.

    Source: `notes/detectors.md`, gemini-cli's text rules and false alarm F11.
    """

    name = "text_repetition"
    family = "text"
    takes = ModelText
    __slots__ = ("_earlier", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._earlier: Speakers[deque[_Said]] = Speakers()

    def user_turn(self) -> None:
        """A user spoke: the same answer to the same question is none of the model's doing."""
        self._earlier.clear()

    def observe(self, saying: ModelText) -> Detection | None:
        """Takes one text; gives a detection if it shows (or still shows) a repetition."""
        count = self._count(saying)
        if saying.tail is not None:
            return self._stuck(saying, saying.tail)
        if saying.chant is not None:
            return self._chanting(saying, saying.chant)
        return self._again(saying, count) if count >= self._settings.text_repeat_times else None

    def _count(self, saying: ModelText) -> int:
        settings = self._settings
        if saying.structured or saying.size < settings.tuning.text.repeat_chars or saying.beside:
            return 0
        earlier = self._earlier.take(saying.speaker)
        if earlier is None or earlier[-1].turn != saying.turn:
            earlier = deque[_Said](maxlen=_BETWEEN * settings.text_repeat_times)
        count = 1 + sum(
            before.key == saying.key
            and saying.gain.nothing_since(before.gain, settings.tuning.text.news)
            for before in earlier
        )
        earlier.append(_Said(saying.key, saying.turn, saying.gain))
        self._earlier.put(saying.speaker, earlier)
        return count

    def _again(self, saying: ModelText, count: int) -> Detection:
        return Detection(
            detector=self.name,
            reason="same_text",
            severity=Severity.WARNING,
            confidence=min(0.9, 0.6 + 0.05 * count),
            keys=frozenset({saying.speaker ^ _REPETITION}),
            count=count,
            threshold=self._settings.text_repeat_times,
            message=f"{saying.name} wrote the same text of {saying.size} characters {count} times, "
            "and nothing came of what was done in between",
            max_action=Action.STEER,
            advice="This was said already: do something else, or say what is missing.",
        )

    def _stuck(self, saying: ModelText, tail: Tail) -> Detection:
        return Detection(
            detector=self.name,
            reason="repeating_end",
            severity=Severity.WARNING,
            confidence=0.8,
            keys=frozenset({tail.key}),
            count=tail.times,
            threshold=self._settings.tuning.text.tail_times,
            message=f"a text of {saying.name} ends with the same {tail.period} characters, "
            f"{tail.times} times or more one after the other",
            max_action=Action.STEER,
            advice="The text does not end by itself: begin it anew, and shorter.",
        )

    def _chanting(self, saying: ModelText, chant: Tail) -> Detection:
        return Detection(
            detector=self.name,
            reason="chanting",
            severity=Severity.WARNING,
            confidence=0.75,
            keys=frozenset({chant.key}),
            count=chant.times,
            threshold=self._settings.tuning.text.chant_times,
            message=f"a text of {saying.name} says the same {chant.period} characters "
            f"{chant.times} times or more in a row",
            max_action=Action.STEER,
            advice="Said once is enough: go on from there, or begin the text anew.",
        )


_SAME: Final = 0.7
_SCOPE: Final = 0x73636F70


class _Growth(NamedTuple):
    plan: Plan
    first: int
    times: int


class ScopeCreep:
    """Counts how often in a row a plan grows, while none of it is done.

    It is the same plan if 0.7 of the tasks before are still on it; it grows if it has more tasks
    than before. A detection from `tuning.text.scope_turns` (4) on. It starts again when a task more
    is marked as done, when the plan shrinks, and when anything is changed in the world: then the
    plan is worked on, marked or not. It hints at most.

    Source: FEATURES D7.
    """

    name = "scope_creep"
    family = "text"
    takes = Plan
    __slots__ = ("_growths", "_times")

    def __init__(self, settings: Settings) -> None:
        self._times = settings.tuning.text.scope_turns
        self._growths: Speakers[_Growth] = Speakers()

    def user_turn(self) -> None:
        """A user spoke: there may be more to do."""
        self._growths.clear()

    def observe(self, plan: Plan) -> Detection | None:
        """Takes one plan; gives a detection if it has grown too often."""
        growth = _grown(self._growths.take(plan.speaker), plan)
        self._growths.put(plan.speaker, growth)
        if growth.times < self._times:
            return None
        return Detection(
            detector=self.name,
            reason="plan_only_grows",
            severity=Severity.WARNING,
            confidence=min(0.75, 0.5 + 0.05 * growth.times),
            keys=frozenset({plan.speaker ^ _SCOPE}),
            count=growth.times,
            threshold=self._times,
            message=f"the plan of {plan.name} grew {growth.times} times in a row, from "
            f"{growth.first} to {len(plan.items)} tasks, and no further task was done",
            max_action=Action.HINT,
            advice="Do the first task of the plan before the next one is added.",
        )


def _grown(before: _Growth | None, plan: Plan) -> _Growth:
    anew = _Growth(plan, len(plan.items), 0)
    if before is None or not _continues(before.plan, plan):
        return anew
    more = len(plan.items) - len(before.plan.items)
    return anew if more < 0 else _Growth(plan, before.first, before.times + (more > 0))


def _continues(before: Plan, now: Plan) -> bool:
    """Whether it is the same plan, and none of it was done in between."""
    if now.done > before.done or now.epoch != before.epoch:
        return False
    return len(before.items & now.items) >= _SAME * len(before.items)


_TALK: Final = 0x74616C6B
_SAID: Final = {
    "announced_again": "announced the same",
    "said_again": "said nearly the same",
    "only_announced": "announced to do something",
}


class _Talk(NamedTuple):
    before: ModelText
    same: int
    alike: int
    other: int


class TalkWithoutAction:
    """Counts texts in a row of one speaker between which nothing was done.

    Nothing done means: no tool call, no hand-off, no model call without a text, whoever did it. Two
    texts announce the same if `tuning.text.alike` (0.85) of them is common, if half of the words
    that say what is announced are common, or if both are to begin and one does not say with what. A
    detection from `tuning.text.talk_turns` (4) such texts on;

    - from `tuning.text.talk_alike_turns` (6) texts that announce nothing, are alike and speak of
    their
      author: verdicts of a batch do not;
    - from `tuning.text.talk_other_turns` (10) texts that announce one thing after the other, in a
    session
      whose tool calls are seen: elsewhere it may have been done out of sight.

    A chat, a pipeline of model calls and samples taken beside each other announce nothing, or not
    the same. Data does not count. It hints at most.

    Source: issue 3 ("talk without action"); `notes/detectors.md`, N12.
    """

    name = "talk_without_action"
    family = "text"
    takes = ModelText
    __slots__ = ("_settings", "_talks")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._talks: Speakers[_Talk] = Speakers()

    def user_turn(self) -> None:
        """A user spoke: to talk is what a chat is for."""
        self._talks.clear()

    def observe(self, saying: ModelText) -> Detection | None:
        """Takes one text; gives a detection if there was nothing but talk for too long."""
        before = self._talks.take(saying.speaker)
        if saying.structured or (saying.promise is None and not saying.personal):
            return None
        talk = self._continued(before, saying)
        self._talks.put(saying.speaker, talk)
        settings = self._settings
        if talk.same >= settings.tuning.text.talk_turns:
            return self._found(
                saying, "announced_again", talk.same, settings.tuning.text.talk_turns
            )
        if talk.alike >= settings.tuning.text.talk_alike_turns:
            return self._found(
                saying, "said_again", talk.alike, settings.tuning.text.talk_alike_turns
            )
        if talk.other >= settings.tuning.text.talk_other_turns:
            return self._found(
                saying, "only_announced", talk.other, settings.tuning.text.talk_other_turns
            )
        return None

    def _continued(self, talk: _Talk | None, now: ModelText) -> _Talk:
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

    def _found(self, saying: ModelText, reason: str, count: int, threshold: int) -> Detection:
        return Detection(
            detector=self.name,
            reason=reason,
            severity=Severity.WARNING,
            confidence=min(0.85, 0.6 + 0.02 * count),
            keys=frozenset({saying.speaker ^ _TALK}),
            count=count,
            threshold=threshold,
            message=f"{saying.name} {_SAID[reason]} {count} times in a row, and no tool call or "
            "hand-off was seen in between",
            max_action=Action.HINT,
            advice="Do the first step now, with a tool call, or say what keeps you from it.",
        )
