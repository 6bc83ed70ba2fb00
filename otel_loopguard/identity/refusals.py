"""Whether a call was refused before it did anything, and whether a command does anything at all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard.identity.canonical import text_bytes
from otel_loopguard.identity.effects import command_of, is_compound, is_shell
from otel_loopguard.identity.errors import is_call_error
from otel_loopguard.identity.readings import said_of

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_OUTPUTS: Final = ("error", "stderr", "stdout", "output", "message", "result")
_LINES: Final = 3
_WIDTH: Final = 400
_HEAD: Final = 1_200
_MANUAL: Final = 600
_SKIPPED: Final = re.compile(r"(?i)exit ?code:? ?\d{1,3}$|\W*$")
_REFUSED: Final = re.compile(
    r"(?i)<tool_use_error>|input ?validation ?error|"
    r"\b(?:unrecogni[sz]ed|unknown|invalid|illegal) (?:command(?:[: ]|$)|option\b|arguments?:)|"
    r"the following arguments are required"
)
_USAGE: Final = re.compile(r"(?i)\A[\d:.,\[\]TZ+ -]{0,40}(?:\S{1,40} ?: )?usage:? ")
_SYNTAX: Final = re.compile(
    r"syntax error (?:near|:|at) |^\S{0,40}sh: .{0,80}syntax error|"
    r"unexpected EOF while looking for|syntax error: unexpected"
)
_UNKNOWN: Final = re.compile(
    r"\S: (?:command not found|not found(?:$| \())|command not found: |"
    r"is not recogni[sz]ed as (?:an internal or external command|the name of a cmdlet)"
)
_A_SHELL: Final = re.compile(r"sh(?:: |$)|command|cmdlet")
_HELP: Final = re.compile(
    r"(?:^|[;&|]\s*)(?:help|man|info|cat|head|tail|less|more|grep|sed)\b|\s(?:--?help|-h|-\?|/\?)(?:\s|$)"
)

_QUIET: Final = re.compile(r"(?i)\A\W{0,2}[\w ]{0,60}\b(?:no|any) (?:console )?output\W{0,2}$")
_METER: Final = re.compile(
    r"(?i)(?:\d{4}-\d\d-\d\d[T ])?\d{1,2}:\d\d[\d:.,Z+-]*|"
    r"(?:(?:took|in|after|elapsed|duration|time)\W{1,4})?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})"
    r" ?(?:ns|us|ms|s|secs?|seconds?)"
)
"""A clock or a duration, which some tools put around every answer."""
_COLON: Final = re.compile(r"\A\s*(?::(?:\s|$)|true\s*$|#[^\n]*$)")
_ECHO: Final = re.compile(r"\A\s*echo\b(?:[^|<>;&$`\n\\]|\\.)*$")
_REDIRECT: Final = re.compile(r"(?<!\d)(?<!&)>{1,2}\s*(?![&\s]|/dev/null)\S|<<|\$\(|`")


def refusal_of(step: Step, arguments: object) -> bytes | None:
    """The line that says that a call was refused; None if it was not, or nothing says so.

    Refused: the tool or the shell did not understand the call. It says how it is to be used, that
    it has no such command or option, or where the syntax is wrong. Help that was asked for is no
    refusal, and neither is text that only quotes one: it has to stand in the first three lines.

    Args:
        step: The finished call.
        arguments: Its arguments, as `canonical.parsed` gives them.
    """
    text = _said(step)
    if not text:
        return None
    shell = is_shell(step.name or "")
    for line in _first_lines(text):
        if _is_refusal(line, shell=shell) or (
            _USAGE.match(line) and _asked_nothing(step, arguments, text)
        ):
            return text_bytes(line)
    if step.error and not shell and is_call_error(step):
        return text_bytes(text[:_WIDTH])
    return None


def changed_nothing(line: bytes, step: Step, arguments: object) -> bool:
    """Whether a refused call did nothing at all: of a list of commands the others may have run.

    Args:
        line: What `refusal_of` gave.
        step: The finished call.
        arguments: Its arguments.
    """
    if not is_shell(step.name or ""):
        return True
    return _SYNTAX.search(line.decode("utf-8", "replace")) is not None or not is_compound(arguments)


def does_nothing(step: Step, arguments: object) -> bool:
    """Whether a call of a shell does nothing: `:`, a comment, punctuation, no more than an `echo`.

    Args:
        step: The finished call.
        arguments: Its arguments.
    """
    if step.error or not is_shell(step.name or ""):
        return False
    command = command_of(arguments)
    if command is None:
        return False
    if not any(letter.isalnum() for letter in command[:_WIDTH]):
        return len(command) <= _WIDTH and _says_nothing(step)
    if _ECHO.match(command):
        return True
    return (
        _COLON.match(command) is not None
        and _says_nothing(step)
        and _REDIRECT.search(command) is None
    )


def _said(step: Step) -> str:
    """What a call came to, as text: of a map what it has under the names of a process's output."""
    if step.error_text:
        return step.error_text
    found = said_of(step)
    if isinstance(found, dict):
        named = cast("dict[str, object]", found)
        parts = (named.get(name) for name in _OUTPUTS)
        return "\n".join(part[:_HEAD] for part in parts if isinstance(part, str) and part)
    return step.outcome if isinstance(step.outcome, str) else ""


def _first_lines(text: str) -> list[str]:
    lines = [line.strip() for line in text[:_HEAD].split("\n")[: 2 * _LINES]]
    return [line[:_WIDTH] for line in lines if not _SKIPPED.match(line)][:_LINES]


def _is_refusal(line: str, *, shell: bool) -> bool:
    if _REFUSED.search(line):
        return True
    if not shell:
        return False
    if _SYNTAX.search(line):
        return True
    return _UNKNOWN.search(line) is not None and _A_SHELL.search(line) is not None


def _asked_nothing(step: Step, arguments: object, text: str) -> bool:
    """Whether nobody asked for the text that says how something is used."""
    if is_shell(step.name or "") and _HELP.search((command_of(arguments) or "")[:_WIDTH]):
        return False
    return step.error or len(text) <= _MANUAL


def _says_nothing(step: Step) -> bool:
    if step.outcome is None:
        return False
    said = _said(step)[:_WIDTH]
    rest = _METER.sub("", said)
    silent = not said.strip() if rest == said else re.search(r"\w", rest) is None
    return silent or _QUIET.match(said) is not None
