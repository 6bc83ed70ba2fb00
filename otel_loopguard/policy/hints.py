"""Texts for the model and the user: what was measured, what to do now, and what may help."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard._util.tables import read_table, read_texts
from otel_loopguard._util.text import printable, truncate
from otel_loopguard.core import Action, Decision, Detection, Diagnosis, Step

if TYPE_CHECKING:
    from otel_loopguard.core.evidence import Evidence

_TEXTS: Final = read_texts(__name__, "hints.txt")
_USUAL, _QUESTION = _TEXTS["usual"], _TEXTS["question"]
_FIXES: Final = 2
"""Fixes per hint: a chosen value; with more, hints grow longer."""
_QUOTED: Final = 60
"""Characters of the quoted line: enough to recognise an answer, and little room for instructions
that a tool's answer tries to give."""


def hint(decision: Decision, quote: str = "") -> str:
    """Renders a decision as sentences for the model.

    The order is always the same: what was measured, what the action means, the advice, then other
    ways (steer and deny), the question for the user (ask), and the likely cause of an error with
    its fixes. Fixes that cannot be undone are marked.

    Args:
        decision: The decision.
        quote: Result of `Call.quoted`. It is content, so the text must not leave the process.
    """
    parts = [_sentence(decision.message), quote, _TEXTS.get(decision.action.value, "")]
    if decision.action is Action.HINT and not decision.advice:
        # A hint that was restored from a journal has no advice.
        parts.append(_USUAL)
    if decision.action is not Action.ABORT:
        parts.append(decision.advice)
        if decision.alternatives:
            parts.append(f"Other ways: {'; '.join(decision.alternatives)}.")
        if decision.action is Action.ASK:
            # The question repeats what was measured, which the hint begins with.
            asked = (decision.question or _QUESTION).removeprefix(_sentence(decision.message))
            parts.append(f"Question for the user: {asked.strip()}")
        if decision.diagnosis is not None:
            parts.append(f"Likely cause: {_sentence(decision.diagnosis.cause)}")
            fixes = [
                f"{fix.text} (cannot be undone)" if fix.risk == "high" else fix.text
                for fix in decision.diagnosis.fixes[:_FIXES]
            ]
            parts.append(f"What may help: {'; '.join(fixes)}." if fixes else "")
    return " ".join(part for part in parts if part)


def advice(action: Action, found: Detection, call: Call | None) -> str:
    """Returns the advice for a hint; empty if the text of the action says enough.

    Args:
        action: What was decided.
        found: The detection; its own advice goes before the usual one.
        call: The call that showed it; None if no call did.
    """
    if found.advice or action is not Action.HINT or call is None:
        return found.advice or (_USUAL if action is Action.HINT else "")
    again = call.seen.call in found.keys and not call.seen.fresh
    return _TEXTS["unchanged" if again else "more"]


class Call(NamedTuple):
    """A call that showed a loop, as a step and as evidence; the step has content."""

    step: Step
    seen: Evidence

    def quoted(self) -> str:
        """Returns the first line of its error or answer, quoted; empty if it is not known."""
        step, failed = self.step, self.seen.error
        text = step.error_text if failed and step.error_text else step.outcome
        if isinstance(text, str):
            text = text[:LOOK].strip().partition("\n")[0]
        # A quotation mark in the text would end the quotation.
        line = printable(truncate(text, _QUOTED)).replace('"', "'")
        if not line:
            return ""
        end = "" if line.endswith((".", "?", "!")) else "."
        return f'The last {"error" if failed else "answer"}: "{line}"{end}'


LOOK: Final = 2_000
"""Characters of an argument or answer that are looked at: about a screenful."""


def question(action: Action, found: Detection, known: Diagnosis | None) -> str | None:
    """Returns the question for the user; None unless the action is `ask` or `pause`."""
    if action not in (Action.ASK, Action.PAUSE):
        return None
    cause = f" {known.cause}" if known is not None else ""
    return f"{_sentence(found.message)}{cause} {_TEXTS['question']}"


def _sentence(text: str) -> str:
    text = text.strip()
    ended = text if text.endswith((".", "?", "!")) else f"{text}."
    return f"{ended[:1].upper()}{ended[1:]}"


_WAYS: Final = 3
"""Alternatives per hint: a chosen value; with more, hints grow longer."""
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")

_TABLE: Final = read_table(__name__, "strategies.txt")
_NAMED: Final = {row.name: frozenset(row.lines[0].split()) for row in _TABLE}
STRATEGIES: Final = {row.name: tuple(row.lines[1:]) for row in _TABLE}
"""Alternatives by kind of tool."""


def kind_of(tool: str) -> str:
    """Returns the kind of a tool by the words of its name; `any` if unknown.

    The first kind in the table wins, except that a search stays one whatever else its name says
    (`web_search`), unless that is a database or an edit.
    """
    words = {word.lower() for word in _WORD.findall(tool[:200])}
    if words & _NAMED["search"] and not words & (_NAMED["sql"] | _NAMED["edit"]):
        return "search"
    return next((kind for kind, known in _NAMED.items() if words & known), "any")


def alternatives(
    tool: str, own: Mapping[str, tuple[str, ...]], *, shipped: bool = True
) -> tuple[str, ...]:
    """Returns at most three alternatives to a tool, the user's own first."""
    given = [text for name, texts in own.items() if fnmatchcase(tool, name) for text in texts]
    known = STRATEGIES[kind_of(tool)] if shipped else ()
    return tuple(dict.fromkeys((*given, *known)))[:_WAYS]
