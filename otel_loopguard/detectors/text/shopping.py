"""Is one tool after the other tried, once or twice, and none of them helps?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action, Detection, Effect, ErrorClass, Evidence, Severity

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_OLD: Final = 0.1
_TOOLS: Final = 256
_LOOP: Final = 0x73686F70


class ToolShopping:
    """Counts different tools in a row that were tried in vain.

    In vain means: the call failed, found nothing, only echoed its arguments, or said what was
    known before (up to 0.1 of it new). A tool was merely tried if it was called `text_shop_calls`
    (2) times at most; one that is called more often belongs to other detectors. A detection from
    `text_shop_tools` (5) such tools on. Any call that brings news, changes something, or whose
    outcome was not captured, starts the row anew. Transient errors are not the agent's doing, and
    neither count nor help. It hints at most.

    Source: FEATURES D7.
    """

    name = "tool_shopping"
    family = "text"
    takes = Evidence
    __slots__ = ("_calls", "_first", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._calls: dict[str, int] = {}
        self._first: int | None = None

    def user_turn(self) -> None:
        """A user spoke: another task may need other tools."""
        self._over()

    def observe(self, evidence: Evidence) -> Detection | None:
        """Takes one call; gives a detection if it is one tool too many."""
        if evidence.error and evidence.error_class is ErrorClass.TRANSIENT:
            return None
        if not _in_vain(evidence):
            self._over()
            return None
        if len(self._calls) < _TOOLS or evidence.tool in self._calls:
            self._calls[evidence.tool] = self._calls.get(evidence.tool, 0) + 1
        if self._first is None:
            self._first = evidence.number ^ _LOOP
        most = self._settings.text_shop_calls
        tried = sum(calls <= most for calls in self._calls.values())
        return self._detection(tried) if tried >= self._settings.text_shop_tools else None

    def _over(self) -> None:
        self._calls.clear()
        self._first = None

    def _detection(self, tried: int) -> Detection:
        most = self._settings.text_shop_calls
        return Detection(
            detector=self.name,
            reason="tools_tried_in_vain",
            severity=Severity.WARNING,
            confidence=min(0.8, 0.5 + 0.05 * tried),
            keys=frozenset({self._first or _LOOP}),
            count=tried,
            threshold=self._settings.text_shop_tools,
            message=f"{tried} different tools were tried in a row, each {most} times at most, and "
            "each failed, found nothing, or said nothing new",
            max_action=Action.HINT,
            advice="Say what is missing before the next tool is tried, or ask for it.",
        )


def _in_vain(evidence: Evidence) -> bool:
    """Whether nothing came of a call; an outcome that was not captured may be news."""
    if evidence.error or evidence.nothing or evidence.echo:
        return True
    if evidence.effect is Effect.WRITE or evidence.effect is Effect.WAIT:
        return False
    # To look again at what brought something once is no new attempt.
    return evidence.fresh and evidence.novelty is not None and evidence.novelty <= _OLD
