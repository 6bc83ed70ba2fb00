"""The cause of an error, what helps, and how to prevent it.

Written for the model that meets the error: an instruction each, nothing that it cannot do.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Mapping
from keyword import iskeyword
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.locks import new_lock, reset_after_fork
from otel_loopguard._util.worker import BackgroundWorker
from otel_loopguard.core import Diagnosis, Fix
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.policy.hints import LOOK, kind_of

if TYPE_CHECKING:
    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.policy.hints import Call


def _diagnosis(
    signature: str, cause: str, *fixes: str, medium: str = "", high: str = "", prevent: str = ""
) -> Diagnosis:
    """A diagnosis: fixes without risk first, then the one of medium or high risk."""
    known = [Fix(text) for text in fixes]
    known += [Fix(medium, "medium")] if medium else []
    known += [Fix(high, "high")] if high else []
    return Diagnosis(signature, cause, tuple(known), prevent)


_KNOWN: Final = (
    _diagnosis(
        "not_found",
        "What is asked for is not at that place, or has another name.",
        "list what is there before naming it again",
        "search for it by a part of its name",
        medium="create it, if the task asks for it",
        prevent="Take names and paths from a listing, not from memory.",
    ),
    _diagnosis(
        "unknown_name",
        "A name that is used is not defined where it is used.",
        "look up which names there are (schema, columns, attributes, imports)",
        medium="define or import the name",
        prevent="Read the schema or the definition once, before using its names.",
    ),
    _diagnosis(
        "missing_module",
        "A program or package that is called is not installed here.",
        "use something that is installed",
        medium="install it, if that is allowed",
        prevent="Check which programs and packages are there before relying on one.",
    ),
    _diagnosis(
        "permission",
        "The caller may not do this there; asking again changes nothing.",
        "work in a place that may be written to",
        "ask the user for access",
        high="change the permissions, if the task allows it",
        prevent="Find out what may be read and written before the work depends on it.",
    ),
    _diagnosis(
        "auth",
        "The credentials are missing, wrong or expired.",
        "ask the user for credentials, or to log in again",
        "use a source that needs none",
        prevent="Check the login once at the start of the task.",
    ),
    _diagnosis(
        "syntax",
        "What was sent cannot be parsed.",
        "read the place that the message names, and correct it there",
        "send a smaller piece, to see which part is refused",
        prevent="Check syntax with a parser or linter before running.",
    ),
    _diagnosis(
        "wrong_arguments",
        "The call does not fit what the tool takes: an argument is missing, unknown or wrong.",
        "read the tool's schema, and send only the arguments that it names",
        "leave optional arguments out",
        prevent="Build calls from the schema, not from a similar tool.",
    ),
    _diagnosis(
        "unknown_tool",
        "There is no tool of this name in this run.",
        "choose from the tools that are listed",
        "do without it, and say what is missing",
        prevent="Name tools exactly as they are listed.",
    ),
    _diagnosis(
        "no_match",
        "The text to be replaced does not stand in the file as it was given, or stands there more "
        "than once.",
        "read the file again, and copy the text from it",
        "give more lines around it, so that it stands there once",
        medium="write the whole file anew",
        prevent="Read a file again after each change of it.",
    ),
    _diagnosis(
        "assertion",
        "What was checked does not hold: the work, or the check, is wrong.",
        "compare what was found with what was expected, and change the work",
        "read the check, and see whether it asks for the right thing",
        high="change the check, if it is wrong",
        prevent="Check small pieces while they are made.",
    ),
    _diagnosis(
        "wrong_type",
        "A value is of another type, or out of the range that is taken.",
        "look at the value and at what is expected, and convert it",
        "try it with a small value that is known to be good",
        prevent="Check values where they come in.",
    ),
    _diagnosis(
        "conflict",
        "It is there already, or was changed by somebody else meanwhile.",
        "look at what is there: the work may be done",
        "choose another name",
        high="replace what is there",
        prevent="Look before creating.",
    ),
    _diagnosis(
        "timeout",
        "The answer took longer than it may.",
        "ask for less at once",
        "wait before asking again, each time longer",
        medium="run it in the background and look at it later",
        prevent="Keep single calls small.",
    ),
    _diagnosis(
        "rate_limit",
        "More was asked than the service gives in this time.",
        "wait before asking again, each time longer",
        "ask for several things in one call",
        "use another source",
        prevent="Space calls out, and keep answers that will be needed again.",
    ),
    _diagnosis(
        "connection",
        "The service cannot be reached from here.",
        "check the address",
        "wait before asking again, each time longer",
        "go on without it, and say what is missing",
        prevent="Check once that a service can be reached before building on it.",
    ),
    _diagnosis(
        "server_error",
        "The service failed by itself; the call may be right.",
        "wait before asking again, each time longer",
        "use another source",
    ),
    _diagnosis(
        "out_of_memory",
        "It needs more memory than there is.",
        "take the data in smaller pieces",
        "load only the columns or lines that are needed",
        prevent="Look at the size of data before loading it.",
    ),
    _diagnosis(
        "disk_full",
        "There is no room left on the disk.",
        "look at what takes the room",
        "write to another place",
        high="delete what this run made and no longer needs",
        prevent="Delete intermediate files as soon as they are used.",
    ),
)

DIAGNOSES: Final = {diagnosis.signature: diagnosis for diagnosis in _KNOWN}
"""What is known, by signature."""


_UNSURE: Final = _diagnosis(
    "timeout",
    "The answer did not come in time, and the work may have been done all the same.",
    "verify whether it was done before you do it again",
    prevent="Send a key with it, by which the service knows a second try.",
)
"""Of a call that creates, sends, orders or pays."""


_SHELL: Final = _diagnosis(
    "syntax",
    "This tool runs a shell, and it got Python.",
    "write the code to a file and run that",
    "use a tool that runs Python",
)
_PYTHON: Final = _diagnosis(
    "syntax",
    "This tool runs Python, and it got a shell command.",
    "use a tool that runs a shell",
    "run the command by `subprocess.run`",
)
_IS_PYTHON: Final = re.compile(
    r"^\s*(?:import \w|from [\w.]+ import |(?:async )?def \w+\(|class \w+[(:]|print\(|\w+ = \S)",
    re.MULTILINE,
)
"""Lines that no shell understands, by the grammar of Python."""
_IS_COMMAND: Final = re.compile(r"\s*([a-z][\w.-]*) +[-./~$\w]")
"""A word and another one, which Python understands only after words of its own."""


def diagnose(signature: str | None, call: Call | None = None) -> Diagnosis | None:
    """Returns the diagnosis of a kind of error; None for an unknown one.

    Args:
        signature: The kind.
        call: The call that failed; None if it is not at hand.
    """
    if call is not None and signature is not None:
        if call.seen.makes and signature == _UNSURE.signature:
            return _UNSURE
        kind, text = kind_of(call.seen.tool), _longest_text(call.step.args)
        if kind == "shell" and _IS_PYTHON.search(text):
            return _SHELL
        word = _IS_COMMAND.match(text) if kind == "python" else None
        if word is not None and not (iskeyword(word[1]) or hasattr(builtins, word[1])):
            return _PYTHON
    return None if signature is None else DIAGNOSES.get(signature)


def _longest_text(args: object) -> str:
    known = cast("Mapping[object, object]", args) if isinstance(args, Mapping) else {"": args}
    texts = [value for value in known.values() if isinstance(value, str)]
    return max(texts, key=len, default="")[:LOOK]


Diagnose = Callable[[str], object]
"""Takes the text of an error (at most 4,000 characters); returns a `Diagnosis`, the cause alone
as text, or None."""

_KEPT: Final = 256
_WAITING: Final = 16
_LOOK: Final = 4_000
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
            msg = f"a diagnosis must be a Diagnosis, a text or None, got {answer!r:.200}"
            raise TypeError(msg)
        with self._lock:
            if error in self._answers:
                self._answers[error] = answer


def diagnoser(place: str, faults: InternalErrors) -> Diagnoser | None:
    """The diagnoser that a setting names; None if it names none."""
    if not place:
        return None
    refused = f"diagnoser (LOOPGUARD_DIAGNOSER) = {place!r}"
    from pkgutil import resolve_name  # noqa: PLC0415  # who has one

    try:
        function = cast("Diagnose", resolve_name(place))
    except (ImportError, AttributeError, ValueError) as error:
        msg = f"{refused}: cannot be imported: {error}"
        raise LoopGuardSettingsError(msg) from None
    if not callable(function):
        msg = f"{refused}: expected a function"
        raise LoopGuardSettingsError(msg)
    return Diagnoser(function, faults)
