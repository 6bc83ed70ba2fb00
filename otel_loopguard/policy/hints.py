"""What a model, or a user, is told about a decision: what was measured, and what may help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action

if TYPE_CHECKING:
    from otel_loopguard.core import Decision, Detection, Diagnosis

_HINT: Final = (
    "Do not repeat it unchanged: use what you have, try another way, or say what is missing."
)
_FIXES: Final = 2
_FOLLOWS: Final = {
    Action.STEER: "Leave this way.",
    Action.ASK: "Ask the user before you go on.",
    Action.DENY: "Further calls of this kind are refused: try another way, or finish with what you "
    "have.",
    Action.PAUSE: "The run is paused until a person lets it go on.",
    Action.ABORT: "The run is stopped.",
}


def hint(decision: Decision) -> str:
    """What to tell the model about a decision, in whole sentences.

    First what was measured, then what follows; then the detector's own advice, the other ways of a
    steer or a deny, the question of an ask, and for an error its cause and what may help. Fixes
    that cannot be taken back are named as such.
    """
    parts = [_sentence(decision.message), _FOLLOWS.get(decision.action, "")]
    if decision.action is Action.HINT and not decision.advice:
        # What a detector advises is more to the point than what is always said.
        parts.append(_HINT)
    if decision.action is not Action.ABORT:
        parts.append(decision.advice)
        if decision.alternatives:
            parts.append(f"Other ways: {'; '.join(decision.alternatives)}.")
        if decision.action is Action.ASK:
            parts.append(f"To ask: {decision.question}")
        if decision.diagnosis is not None:
            parts.append(f"Likely cause: {_sentence(decision.diagnosis.cause)}")
            fixes = [
                f"{fix.text} (cannot be taken back)" if fix.risk == "high" else fix.text
                for fix in decision.diagnosis.fixes[:_FIXES]
            ]
            parts.append(f"What may help: {'; '.join(fixes)}." if fixes else "")
    return " ".join(part for part in parts if part)


def question(action: Action, found: Detection, known: Diagnosis | None) -> str | None:
    """What to ask the user; None unless the action is `ask` or `pause`."""
    if action not in (Action.ASK, Action.PAUSE):
        return None
    cause = f" {known.cause}" if known is not None else ""
    return (
        f"{_sentence(found.message)}{cause} Should the agent go on like this, try another way "
        "(which?), or stop?"
    )


def _sentence(text: str) -> str:
    text = text.strip()
    ended = text if text.endswith((".", "?", "!")) else f"{text}."
    return f"{ended[:1].upper()}{ended[1:]}"
