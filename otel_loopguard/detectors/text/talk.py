"""Does a model only talk, and does nothing?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Action, Detection, Saying, Severity
from otel_loopguard.detectors.text.speakers import Speakers

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_LOOP: Final = 0x74616C6B
_SAID: Final = {
    "announced_again": "announced the same",
    "said_again": "said nearly the same",
    "only_announced": "announced to do something",
}


class _Talk(NamedTuple):
    before: Saying
    same: int
    alike: int
    other: int


class TalkWithoutAction:
    """Counts texts in a row of one speaker between which nothing was done.

    Nothing done means: no tool call, no hand-off, no model call without a text, whoever did it. Two
    texts announce the same if `text_alike` (0.85) of them is common, if half of the words that say
    what is announced are common, or if both are to begin and one does not say with what. A
    detection from `text_talk_turns` (4) such texts on;

    - from `text_talk_alike_turns` (6) texts that announce nothing, are alike and speak of their
      author: verdicts of a batch do not;
    - from `text_talk_other_turns` (10) texts that announce one thing after the other, in a session
      whose tool calls are seen: elsewhere it may have been done out of sight.

    A chat, a pipeline of model calls and samples taken beside each other announce nothing, or not
    the same. Data does not count. It hints at most.

    Source: issue 3 ("talk without action"); `notes/detectors.md`, N12.
    """

    name = "talk_without_action"
    family = "text"
    takes = Saying
    __slots__ = ("_settings", "_talks")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._talks: Speakers[_Talk] = Speakers()

    def user_turn(self) -> None:
        """A user spoke: to talk is what a chat is for."""
        self._talks.clear()

    def observe(self, saying: Saying) -> Detection | None:
        """Takes one text; gives a detection if there was nothing but talk for too long."""
        before = self._talks.take(saying.speaker)
        if saying.structured or (saying.promise is None and not saying.personal):
            return None
        talk = self._continued(before, saying)
        self._talks.put(saying.speaker, talk)
        settings = self._settings
        if talk.same >= settings.text_talk_turns:
            return self._found(saying, "announced_again", talk.same, settings.text_talk_turns)
        if talk.alike >= settings.text_talk_alike_turns:
            return self._found(saying, "said_again", talk.alike, settings.text_talk_alike_turns)
        if talk.other >= settings.text_talk_other_turns:
            return self._found(saying, "only_announced", talk.other, settings.text_talk_other_turns)
        return None

    def _continued(self, talk: _Talk | None, now: Saying) -> _Talk:
        promise = now.promise
        first = int(promise is not None)
        if talk is None or talk.before.acts != now.acts or talk.before.turn != now.turn:
            return _Talk(now, first, 1, first)
        if now.beside:
            return talk._replace(before=now)
        alike = now.alike >= self._settings.text_alike
        before = talk.before.promise
        same = promise is not None and before is not None and (alike or promise.is_like(before))
        return _Talk(
            now,
            talk.same + 1 if same else first,
            talk.alike + 1 if alike else 1,
            talk.other + first if now.calls and before is not None else first,
        )

    def _found(self, saying: Saying, reason: str, count: int, threshold: int) -> Detection:
        return Detection(
            detector=self.name,
            reason=reason,
            severity=Severity.WARNING,
            confidence=min(0.85, 0.6 + 0.02 * count),
            keys=frozenset({saying.speaker ^ _LOOP}),
            count=count,
            threshold=threshold,
            message=f"{saying.name} {_SAID[reason]} {count} times in a row, and no tool call or "
            "hand-off was seen in between",
            max_action=Action.HINT,
            advice="Do the first step now, with a tool call, or say what keeps you from it.",
        )
