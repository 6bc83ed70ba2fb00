"""Texts for the model and the user: what was measured, what to do now, and what may help.

Causes of errors and what prevents them are as `diagnoses.txt` has them.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from keyword import iskeyword
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.tables import Row, read_table, read_texts
from otel_loopguard._util.text import printable, truncate
from otel_loopguard._util.worker import BackgroundWorker
from otel_loopguard.core import Action, Decision, Detection, Diagnosis, Step
from otel_loopguard.core.decision import Fix, Risk
from otel_loopguard.settings import imported

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
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
    (`web_search`), unless that is a database, an edit or a write.
    """
    words = {word.lower() for word in _WORD.findall(tool[:200])}
    writes = _NAMED["sql"] | _NAMED["edit"] | _NAMED["write"]
    if words & _NAMED["search"] and not words & writes:
        return "search"
    return next((kind for kind, known in _NAMED.items() if words & known), "any")


def alternatives(
    tool: str, own: Mapping[str, tuple[str, ...]], *, shipped: bool = True
) -> tuple[str, ...]:
    """Returns at most three alternatives to a tool, the user's own first."""
    given = [text for name, texts in own.items() if fnmatchcase(tool, name) for text in texts]
    known = STRATEGIES[kind_of(tool)] if shipped else ()
    return tuple(dict.fromkeys((*given, *known)))[:_WAYS]


def _diagnosis_in(row: Row) -> Diagnosis:
    """The cause on the first line, `low`, `medium` or `high: what helps`, and `prevent: how`."""
    fixes: list[Fix] = []
    prevention = ""
    for line in row.lines[1:]:
        said, _, text = line.partition(": ")
        if said == "prevent":
            prevention = text
        else:
            fixes.append(Fix(text, cast("Risk", said)))
    return Diagnosis(row.name.partition(" ")[0], row.lines[0], tuple(fixes), prevention)


_KNOWN: Final = {row.name: _diagnosis_in(row) for row in read_table(__name__, "diagnoses.txt")}
DIAGNOSES: Final = {name: known for name, known in _KNOWN.items() if name == known.signature}
"""Diagnoses by signature."""
_IS_PYTHON: Final = re.compile(
    r"^[ \t]*(?:import \w|from [\w.]+ import |(?:async )?def \w+\(|class \w+[(:]|print\(|\w+ = \S)",
    re.MULTILINE,
)
"""Lines that no shell understands, by the grammar of Python."""
_IS_COMMAND: Final = re.compile(r"\A\s*([a-z][\w.-]*) +[-./~$\w]")
"""Two words in a row, valid in Python only after a keyword."""


def diagnose(signature: str | None, call: Call | None = None) -> Diagnosis | None:
    """Returns the diagnosis of a kind of error; None for an unknown one.

    Args:
        signature: The kind.
        call: The call that failed; None if it is not at hand.
    """
    if call is not None and signature is not None:
        if call.seen.makes and signature == "timeout":
            return _KNOWN["timeout (may be done)"]
        args = call.step.args
        known = cast("Mapping[object, object]", args) if isinstance(args, Mapping) else {"": args}
        texts = (value for value in known.values() if isinstance(value, str))
        kind, text = kind_of(call.seen.tool), max(texts, key=len, default="")[:LOOK]
        if kind == "shell" and _IS_PYTHON.search(text):
            return _KNOWN["syntax (shell)"]
        word = _IS_COMMAND.match(text) if kind == "python" else None
        if word is not None and not (iskeyword(word[1]) or hasattr(builtins, word[1])):
            return _KNOWN["syntax (python)"]
    return None if signature is None else DIAGNOSES.get(signature)


Diagnose = Callable[[str], object]
"""Takes the text of an error (at most 4,000 characters); returns a `Diagnosis`, the cause alone
as text, or None."""

_KEPT: Final = 256
"""Errors whose diagnosis is kept, the newest: asking again costs a model call."""
_WAITING: Final = 16
"""Errors that wait to be diagnosed: by the seventeenth the first is no news any more."""
_LOOK: Final = 4_000
"""Characters of an error that are looked at: a traceback with its last line."""
_ASKED: Final = "custom"


class Diagnoser:
    """Keeps the diagnoses of a user's function, by error.

    It runs on a background thread; each error is asked about once, of further ones at most 16 wait,
    and the newest 256 answers are kept. An answer goes with the decisions that come after it: a
    hint does not wait for a model. A function that throws is counted and gave no answer; one that
    never returns holds up nothing but the other questions.
    """

    def __init__(self, function: Diagnose, faults: InternalErrors) -> None:
        self._function = function
        self._answers: BoundedDict[int, Diagnosis | None] = BoundedDict(_KEPT)
        # The function may well call a model, and its spans are the user's.
        self._worker = BackgroundWorker(
            "diagnoser", self._ask, faults, maximum=_WAITING, suppress=False
        )
        self._lock = new_lock()

    def get(self, error: int, text: str) -> Diagnosis | None:
        """Returns the present diagnosis of an error; requests one if there is none. Never waits."""
        with self._lock:
            if error in self._answers or len(self._worker) >= _WAITING:
                return self._answers.get(error)
            self._answers[error] = None
        self._worker.put((error, text[:_LOOK]))
        return None

    def _ask(self, question: tuple[int, str]) -> None:
        error, text = question
        answer: object = self._function(text)
        if isinstance(answer, str):
            answer = Diagnosis(_ASKED, answer.strip()[:1000]) if answer.strip() else None
        if answer is not None and not isinstance(answer, Diagnosis):
            msg = f"a diagnosis must be a Diagnosis, a string or None, got {answer!r:.200}"
            raise TypeError(msg)
        with self._lock:
            if error in self._answers:
                self._answers[error] = answer


def diagnoser(place: str, faults: InternalErrors) -> Diagnoser | None:
    """The diagnoser that a setting names; None if it names none."""
    if not place:
        return None
    return Diagnoser(imported("diagnoser", place, "a function"), faults)
