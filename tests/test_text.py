"""Short texts of what others wrote, tables of texts, and values that users hold."""

import io
import logging
import re
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard import LoopGuard, Settings
from otel_loopguard._util.errors import logger
from otel_loopguard._util.tables import rows_in
from otel_loopguard._util.text import printable, truncate
from otel_loopguard.core import Kind, Step
from tests.programs import printed
from tests.tables import content, rows

FORGED = "a\n2026-01-01 CRITICAL root: all is lost\r\x1b]0;owned\x07\x1b[2J\u202egnp\u200b\x9b1m"


@pytest.fixture
def log(listens: Callable[[logging.Handler], None]) -> io.StringIO:
    """What a plain handler of the application prints."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    listens(handler)
    return stream


def is_safe(line: str) -> bool:
    return all(unicodedata.category(sign) not in {"Cc", "Cf", "Cs", "Zl", "Zp"} for sign in line)


PLAIN = ["search_flights: Zürich → 東京 ✔️ 🛫", "a\u00a0b\u3000c", r"C:\new\table"]
ESCAPED = [r"a\nb\r\tc", r"\x1b[31mred", r"\x9b31m", r"user\u202etxt.exe", r"pay\u200bpal"]
ESCAPED += [r"a\u2028b", r"\U000e0041", r"a\u3164b", r"\ud800"]


def test_what_is_escaped() -> None:
    """Commands, line ends and signs that nobody sees; everyday text of any language is not."""
    assert [printable(text) for text in PLAIN] == PLAIN
    assert [printable(text.encode().decode("unicode_escape")) for text in ESCAPED] == ESCAPED


@given(st.text())
def test_nothing_gets_through(text: str) -> None:
    """No text leaves a control character, a line end or a sign of formatting."""
    assert is_safe(printable(text))
    assert printable(printable(text)) == printable(text)


@given(st.recursive(st.none() | st.integers() | st.floats() | st.text() | st.binary(), st.lists))
def test_it_never_throws_and_is_never_longer(value: object) -> None:
    """Whatever the value is."""
    text = truncate(value, 20)
    assert len(text) <= 20
    assert text == " ".join(text.split())


def test_its_cost_does_not_depend_on_the_value() -> None:
    """It takes hours else: ten megabytes, a hundred thousand keys, a thing in itself."""
    endless: list[object] = []
    endless.append(endless)
    deep: object = "x"
    for _ in range(1000):
        deep = [deep]
    values = ("x" * 10_000_000, {str(n): "y" * 1000 for n in range(100_000)}, endless, deep)
    assert all(len(truncate(value, 300)) <= 300 for value in values)


def test_no_name_forges_a_line_of_the_log(log: io.StringIO) -> None:
    """Session, tool, reason and the name of a person: a line of the log each, and no more."""
    guard = LoopGuard(Settings())
    for _ in range(8):
        step = Step(Kind.TOOL, FORGED, args={"q": FORGED}, outcome="nothing to be seen here")
        guard.observe(step, FORGED)
    guard.flag_of(FORGED).clear(by=FORGED, reason=FORGED)
    guard.shutdown()
    lines = log.getvalue().splitlines()
    assert len(lines) > 1
    assert [line for line in lines if "otel-loopguard: " not in line] == []
    assert all(map(is_safe, lines))


def test_arguments_that_are_no_texts(log: io.StringIO) -> None:
    """Exceptions, lists and numbers are printed as ever, and safely; `extra` too."""
    logger.warning("%s %r %d %.1f %s", ValueError(FORGED), [FORGED], 3, 0.5, None)
    logger.warning("%(name)s", {"name": FORGED}, extra={"session": FORGED})
    lines = log.getvalue().splitlines()
    assert len(lines) == 2
    assert all(map(is_safe, lines))
    assert " 3 0.5 None" in lines[0]


def test_the_command_line_prints_no_commands() -> None:
    """Neither a table, nor JSON, nor a message of an error."""
    program = f"""
import sys
from otel_loopguard.cli.output import cell, console, json_line, say, table
name = {FORGED + "[red]x[/nothing]"!r}
console().print(table((name, "b#"), [(name, cell(1))]))
json_line({{"session": name}})
say(name)
say(name, error=True)
"""
    told = printed(program, PYTHONIOENCODING="utf-8")
    assert all(map(is_safe, told.split("\n")))
    assert told.count("[red]x[/nothing]") >= 3
    assert '"session":"a\\n2026' in told


def test_a_bare_standard_error_says_whose_a_message_is() -> None:
    """Without any logging set up, a decision on standard error begins with the package's name."""
    program = """
from otel_loopguard import LoopGuard
from otel_loopguard.core import Kind, Step
guard = LoopGuard()
for _ in range(6):
    guard.observe(Step(Kind.TOOL, "search", args={"q": 1}, outcome="nothing was found here"), "s")
guard.shutdown()
"""
    lines = printed(program).splitlines()
    assert lines
    assert [line for line in lines if not line.startswith("otel-loopguard: ")] == []


@pytest.mark.parametrize(("why", "text"), rows(__file__, "bad"))
def test_a_bad_line_is_refused_with_its_place(why: str, text: str) -> None:
    """With file and line, so that whoever wrote it finds it."""
    with pytest.raises(ValueError, match=f"^{re.escape(why)}"):
        list(rows_in(content(text).decode(), "a.txt"))
