"""Learns the frame that a session adds to all answers: token counts, costs, ids."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from otel_loopguard.evidence.normalize import key_of_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from otel_loopguard.core import Step
    from otel_loopguard.evidence.outcomes import Reading

_LINE: Final = 200
"""Characters of a line that is put below answers: a longer one is content."""
_LINES: Final = 4
"""Lines at the end of an answer that are looked at: what is put there is brief."""
_FIELDS: Final = 8
"""Fields of an answer that are looked at, likewise."""
_HEAD: Final = 128
"""Bytes at the start of an answer that identify its kind."""
_KINDS: Final = 3
"""Kinds of answers that have it: two may have a line in common by chance."""
_UNLIKE: Final = 2
"""Unlike answers that end alike, as far as it makes them shorter."""
_ANSWERS: Final = 5
"""Answers in a row that have it: of as many unlike numbers one row in sixty only rises or falls."""
_ASKED: Final = 4_000
"""Characters of a question that are looked through for the values of its answer: two pages."""
_BIG: Final = 2**63
"""Numbers from which no counter of anything is: Python writes out only so many digits."""
_VALUE: Final = re.compile(r"(?<![\w.-])[\w.-]{0,40}?\d[\w.-]*")
"""A number, or a word with a digit among its first 40 characters, as ids have them. Two repetitions
without a bound in a row might take the square of a line's length."""
_SHAPE: Final = re.compile(_VALUE.pattern.encode())
_COLOURS: Final = re.compile(r"\x1b\[[0-9;:?]{0,32}[@-~]")
_NUMBER: Final = re.compile(r"\d{1,15}(?:\.\d{1,15})?")


class _Piece(NamedTuple):
    """A line or a field in the last answer: its values, and which way each number has gone."""

    values: tuple[str, ...]
    ways: tuple[int, ...] = ()

    def to(self, values: tuple[str, ...]) -> _Piece | None:
        """It in the next answer; None if it stays, or a number turns."""
        if values == self.values or len(values) != len(self.values):
            return None
        ways = tuple(map(_way, self.values, values))
        before = self.ways or ways
        if any(was * now < 0 for was, now in zip(before, ways, strict=True)):
            return None
        return _Piece(values, tuple(was or now for was, now in zip(before, ways, strict=True)))


def _way(was: str, now: str) -> int:
    """1 if a number rises, -1 if it falls, 0 if it stays or is none."""
    if not (_NUMBER.fullmatch(was) and _NUMBER.fullmatch(now)):
        return 0
    return (float(now) > float(was)) - (float(now) < float(was))


class Frame:
    """Learns the text that follows every answer, whatever was called.

    Values that change with every call say nothing about it: tokens left, money spent, the number or
    id of the call. A field, or one of the last lines, is learned once five answers in a row from
    three tools (or three programs of a shell) had it, with values that were never those of the last
    answer or of the question, and with numbers that only went one way; numbers of several things
    looked at in turn go up and down. Text that never changes, such as a reminder, does not make an
    answer longer: last lines are learned if answers of two tools, or two of a shell, share them.
    Both are forgotten with the first answer that differs.
    """

    __slots__ = ("_above", "_kinds", "_last", "_pieces", "_still", "_times")

    def __init__(self) -> None:
        self._pieces: dict[str, _Piece] = {}
        # What gave the answers that had them: a tool, or of a shell the beginning of the answer.
        self._kinds: tuple[object, ...] = ()
        self._times = 0
        # The last line, the lines that the last answers end with, and what stood above them: a
        # tool, or of a shell the key of the text.
        self._last = self._still = ""
        self._above: tuple[object, ...] = ()

    def taken_off(self, step: Step, reading: Reading, *, runs_code: bool) -> Step:
        """The step without what was learned, nor colours; the very same one if that is nothing."""
        if step.error or reading.failure:
            return self._failed(step, reading)
        said = reading.said
        # What one tool says below all its answers may be what it was asked for.
        moves = self._kinds != (step.name,)
        if not isinstance(said, str):
            if not (moves and isinstance(said, dict)):
                return step
            fields = cast("dict[str, object]", said)
            self._learn(_fields(fields), step, reading, runs_code=runs_code)
            rest = self._without_fields(fields)
            return step if rest is fields else replace(step, outcome=rest)
        rest = text = (_plain(said) if "\x1b[" in said else said).rstrip()
        if moves:
            self._learn(_lines(rest, self._pieces), step, reading, runs_code=runs_code)
            rest = self._without_lines(rest)
        last = rest[max(rest.rfind("\n") + 1, len(rest) - _LINE) :]
        if last == self._last:
            rest = self._stays(rest, None if runs_code else step.name)
        else:
            self._last, self._above = last, ()
        return step if rest is text and "\x1b[" not in said else replace(step, outcome=rest)

    def _failed(self, step: Step, reading: Reading) -> Step:
        """A failed step without what was learned: of errors many come without it."""
        said = step.error_text if step.error else reading.failure
        if not said:
            return step
        text = _plain(said).rstrip()
        rest = self._without_still(self._without_lines(text))
        if rest is text and "\x1b[" not in said:
            return step
        return replace(step, error=True, error_text=rest)

    def _learn(
        self, here: dict[str, tuple[str, ...]], step: Step, reading: Reading, *, runs_code: bool
    ) -> None:
        """Keeps of the lines or fields that move those that the answer has."""
        kind: object = step.name
        if runs_code:
            kind = _SHAPE.sub(b"#", reading.found.raw[:_HEAD])
        known = not self._pieces.keys().isdisjoint(here)
        moved = _moved(self._pieces, here, reading) if known else {}
        if not moved:
            self._pieces = {name: _Piece(values) for name, values in here.items()}
            self._kinds, self._times = (kind,), 1
            return
        self._pieces = moved
        self._times += 1
        if kind not in self._kinds and len(self._kinds) < _KINDS:
            self._kinds += (kind,)

    def _stays(self, text: str, tool: str | None) -> str:
        """A text that ends like the one before: without the lines that never change."""
        if not self._above:
            self._still = "\n".join(text[-_LINE * _LINES :].rsplit("\n", _LINES)[1:])
        while not text.endswith(self._still):
            self._still = self._still.partition("\n")[2]
        above = tool or key_of_text(text, 0, len(text) - len(self._still))
        if above not in self._above and len(self._above) < _UNLIKE:
            self._above += (above,)
        return self._without_still(text)

    @property
    def _moves(self) -> bool:
        """True if a moving part has been learned."""
        return self._times >= _ANSWERS and len(self._kinds) >= _KINDS

    def _without_fields(self, fields: dict[str, object]) -> dict[str, object]:
        if not self._moves:
            return fields
        return {name: value for name, value in fields.items() if name not in self._pieces}

    def _without_lines(self, text: str) -> str:
        if not self._moves:
            return text
        head, *lines = text.rsplit("\n", _LINES)
        kept = [line for line in lines if _form_of(line[-_LINE:]) not in self._pieces]
        return text if len(kept) == len(lines) else "\n".join((head, *kept)).rstrip()

    def _without_still(self, text: str) -> str:
        above = len(text) - len(self._still)
        # A longer text says all that a length can say.
        if len(self._above) < _UNLIKE or above > _LINE or not text.endswith(self._still):
            return text
        return text[:above].rstrip() if self._still else text


def _moved(
    pieces: Mapping[str, _Piece], here: Mapping[str, tuple[str, ...]], reading: Reading
) -> dict[str, _Piece]:
    """Values of an answer that differ from the last answer and were not in the question."""
    asked = reading.arguments if reading.raw is None else reading.raw[:_ASKED].decode("latin-1")
    given = frozenset(_VALUE.findall(asked[:_ASKED]) if isinstance(asked, str) else ())
    return {
        name: piece
        for name, values in here.items()
        if name in pieces
        and given.isdisjoint(values)
        and (piece := pieces[name].to(values)) is not None
    }


def _plain(text: str) -> str:
    """A text without the colours of a terminal: they hide words, and say nothing."""
    return _COLOURS.sub("", text)


def _form_of(line: str) -> str:
    """A line without its values; of one like `name: value` only the name, as of a field."""
    return _VALUE.sub("#", line).removesuffix(": #")


def _lines(text: str, known: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The last lines of a text with their values; only the last one, if that is not known."""
    last = text[text.rfind("\n") + 1 :][-_LINE:]
    form = _form_of(last)
    found = {form: tuple(_VALUE.findall(last))}
    if form in known:
        lines = text.rsplit("\n", _LINES)[1:-1]
        found.update(
            (_form_of(line), tuple(_VALUE.findall(line))) for line in lines if len(line) <= _LINE
        )
    return found


def _fields(fields: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The fields of a record that are a number, or one word with a digit in it."""
    few = islice(fields.items(), _FIELDS)
    texts = ((name, _as_text(value)) for name, value in few if _as_text(name))
    return {name: (text,) for name, text in texts if text and _VALUE.fullmatch(text)}


def _as_text(value: object) -> str:
    """A number or a short text as text; empty for anything else."""
    if type(value) is str:
        return value if len(value) <= _LINE else ""
    number = type(value) in (int, float) and -_BIG < cast("float", value) < _BIG
    return str(value) if number else ""
