"""The cause of an error, what helps, and how to prevent it, as `diagnoses.txt` has them."""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.locks import new_lock, reset_after_fork
from otel_loopguard._util.tables import Row, read_table
from otel_loopguard._util.worker import BackgroundWorker
from otel_loopguard.core import Diagnosis
from otel_loopguard.core.decision import Fix
from otel_loopguard.policy.hints import LOOK, Call, kind_of
from otel_loopguard.settings import imported

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors


def diagnosis_in(row: Row) -> Diagnosis:
    """The cause on the first line, `low`, `medium` or `high: what helps`, and `prevent: how`."""
    fixes: list[Fix] = []
    prevention = ""
    for line in row.lines[1:]:
        said, _, text = line.partition(": ")
        if said == "prevent":
            prevention = text
        elif said in _RISKS:
            fixes.append(Fix(text, said))
        else:
            row.fail(f"expected one of {', '.join(_RISKS)}, prevent, got {line!r}")
    return Diagnosis(row.name.partition(" ")[0], row.lines[0], tuple(fixes), prevention)


_RISKS: Final = ("low", "medium", "high")
_KNOWN: Final = {row.name: diagnosis_in(row) for row in read_table(__name__, "diagnoses.txt")}
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
        self.forked()
        reset_after_fork(self)

    def forked(self) -> None:
        """In the child of a fork: a thread that is not here may hold the lock."""
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
