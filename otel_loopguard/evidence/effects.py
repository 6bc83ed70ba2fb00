"""Decides from a tool's name and, for shells, its command whether a call changes the world.

Asking again makes sense after a change: a test run after an edit is no repeat. When in doubt a call
is UNKNOWN, which neither opens an epoch nor counts as a read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple, cast

from otel_loopguard._util.fields import is_list, is_map
from otel_loopguard.core.evidence import Effect
from otel_loopguard.evidence.normalize import NAMED, without_volatile
from otel_loopguard.evidence.vocabulary import COMMAND_ARGUMENTS, FILE_ARGUMENTS, WORDS, pattern_of

_COMMAND: Final = 4_000
"""Characters of a command that are looked through: two pages, for half a millisecond."""
_FEW: Final = 8
"""Arguments that are looked at for a command: tools that run one have few."""
_BETWEEN: Final = re.compile(r"(?:__|[./:])(?=[^\W\d_])")
"""Separators between the names of servers and tools (`mcp__server__tool`, `server.tool`); a version
or number at the end is not separated."""
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_EFFECTS: Final = tuple(
    (WORDS[says], effect)
    for says, effect in (
        ("waits", Effect.WAIT), ("writes", Effect.WRITE), ("reads", Effect.READ)
    )
)  # fmt: skip
_NO_MOVES: Final = (WORDS["writes"] - WORDS["moves"]) | WORDS["pages"]
_RUNNERS: Final = WORDS["shells"] | WORDS["pythons"] | WORDS["runners"]
_VIEWS: Final = ("view", "read", "open", "list")
"""Commands of editors that change nothing."""
_A_PLACE: Final = re.compile(
    r"\A\s*(?:\w{1,20}\s+)?(?:[\"']?(?!\w{1,10}://)[\w./~-]{0,200}\.\w{1,6}[\"']?(?:\s+\d{1,7})?|\d{1,7})\s*$"
)
_SHELL_WRITES: Final = re.compile(pattern_of("writes", "shell"))
_SHELL_READS: Final = re.compile(pattern_of("reads", "shell"))
_PARTS: Final = re.compile(r"&&|\|\|?|;|\n")
_FILES: Final = frozenset(FILE_ARGUMENTS)
_PATH: Final = 300
"""Characters of a path: longer ones are content."""
_WRITTEN_TO: Final = re.compile(r"(?:^|\s)>{1,2}[ \t]{0,4}['\"]?([\w./~+-]{1,300})")
"""The file that a shell writes to; for the report only, it judges nothing."""
_SLEEPS: Final = re.compile(pattern_of("sleeps"))
_ARGV: Final = 100
"""Words of a command that are looked at: more are the names of files."""
_GIVES: Final = re.compile(r"[-/]\w{0,3}c")
"""The option after which a shell or an interpreter is given what it is to run."""
_SEVERAL: Final = re.compile(pattern_of("several"))
_SQL_WRITES: Final = re.compile(pattern_of("writes", "sql"))
_SQL_CHANGES: Final = re.compile(pattern_of("changes"))
_SQL_READS: Final = re.compile(pattern_of("reads", "sql"))
_PYTHON_WRITES: Final = re.compile(pattern_of("writes", "python"))
_PATCHES: Final = re.compile(pattern_of("writes", "patch"))


class ToolName(NamedTuple):
    """Effects of a tool's calls as its name suggests them."""

    words: frozenset[str]
    effect: Effect
    makes: bool
    """Makes something that others see, such as an order or a message."""
    shell: bool
    runs_code: bool
    moves: bool
    """Only goes elsewhere: it opens, closes, scrolls; in a browser that acts."""
    asks: bool
    """May ask a database, as `query` does: SQL that it is given says whether it changes."""

    def has(self, says: str) -> bool:
        """True if a word of the name is one of those that say something."""
        return not self.words.isdisjoint(WORDS[says])


@lru_cache(maxsize=4096)
def tool_name(tool: str) -> ToolName:
    """Parts read from a tool's name, which callers cut to `NAMED` characters."""
    # What a call does its own name says, and not that of the server that it goes to.
    named = [word.lower() for word in _WORDS.findall(_BETWEEN.split(tool)[-1])]
    words = frozenset(word.lower() for word in _WORDS.findall(tool))
    effects = (effect for word in named for known, effect in _EFFECTS if word in known)
    effect = next(effects, Effect.UNKNOWN)
    if effect is Effect.WRITE and named[0] in WORDS["asks whether"]:
        effect = Effect.UNKNOWN
    # Whether `order_list` and `refund_status` order and refund, or tell of it, nobody knows.
    tells = len(named) > 1 and named[-1] in WORDS["reads"]
    made = words & WORDS["makes"]
    if words & WORDS["inputs"]:
        made -= {"send"}
    makes = effect is Effect.WRITE and bool(made)
    return ToolName(
        words=words,
        effect=Effect.UNKNOWN if makes and tells else effect,
        makes=makes and not tells,
        shell=not words.isdisjoint(WORDS["shells"]),
        runs_code=not words.isdisjoint(_RUNNERS),
        moves=not words.isdisjoint(WORDS["moves"]) and words.isdisjoint(_NO_MOVES),
        asks=not words.isdisjoint(WORDS["databases"]),
    )


def effect_of(tool: str, arguments: object) -> Effect:
    """Effect of one call. O(length of a command, bounded); a plain tool costs a cache lookup."""
    name = tool_name(tool)
    if name.moves and name.effect is Effect.WRITE and looks_at_files(name, arguments):
        return Effect.READ
    if not name.runs_code:
        return (_effect_of_sql(arguments) if name.asks else None) or name.effect
    command = command_of(arguments) or ""
    if name.shell:
        if not command:
            return Effect.UNKNOWN
        if _SLEEPS.match(command):
            return Effect.WAIT
        writes, otherwise = _SHELL_WRITES.search(command), Effect.READ
    elif "sql" in name.words:
        writes, otherwise = _SQL_WRITES.match(command), Effect.READ
    elif name.has("pythons"):
        writes, otherwise = _PYTHON_WRITES.search(command), Effect.UNKNOWN
    else:
        writes, otherwise = _PATCHES.search(command), name.effect
    return Effect.WRITE if writes else otherwise


def _effect_of_sql(arguments: object) -> Effect | None:
    """Effect of the SQL among the arguments; None where there is none."""
    command = command_of(arguments) or ""
    if _SQL_CHANGES.match(command):
        return Effect.WRITE
    return Effect.READ if _SQL_READS.match(command) else None


_DAY_S: Final = 86_400
"""The longest sleep of a command, in seconds, that is believed."""
_UNITS: Final = {"m": 60, "h": 3_600, "d": _DAY_S}
"""Seconds of the units that `sleep` takes; without one it is seconds."""
_SLEEP: Final = re.compile(pattern_of("sleep"))
_WAITS_S: Final = 5.0
"""Seconds from which a call may have waited: what takes less has worked, or was soon answered."""
_LATE: Final = 1.1
"""How much longer than it was told to wait a call takes at most, besides a second: the way to a
server and back is seldom a tenth of a wait."""
_TOLD: Final = 32
"""Arguments that are looked at: a call has fewer."""
_SECONDS: Final = re.compile(r"(?<![\w.])\d{1,7}(?:\.\d{1,3})?(?![\w.])")
"""Numbers in a command that may be seconds or milliseconds: `timeout 60 make`."""


def rest_in(arguments: object, raw: bytes, took: int) -> int:
    """Nanoseconds of a call that are a rest: it sleeps first, or waits as long as it is told.

    The name of the tool does not matter, as `sleep` is a word of shells and languages; nor does
    that of an argument: `timeout`, `wait_s`, `block_ms`.
    """
    took_s = took / 1e9
    sleeps = b"sleep" in raw
    if not sleeps and took_s < _WAITS_S:
        return 0
    command = command_of(arguments) or ""
    if sleeps and (found := _SLEEP.findall(command)):
        slept = (float(count) * _UNITS.get(unit, 1) for count, unit in found)
        return round(min(sum(slept), _DAY_S) * 1e9)
    told = [float(one) for one in _SECONDS.findall(command)]
    if isinstance(arguments, dict):
        values = islice(cast("dict[str, float]", arguments).values(), _TOLD)
        told += [one for one in values if type(one) in (int, float)]
    units = (1, 1_000)
    as_told = any(one <= took_s * unit <= one * _LATE + unit for one in told for unit in units)
    return took if took_s >= _WAITS_S and as_told else 0


def looks_at_files(name: ToolName, arguments: object) -> bool:
    """True if a call moves through files: `open a.py`, `goto 120`; those are reads."""
    if not name.moves:
        return False
    if is_map(arguments):
        names = {name.lower() for name in arguments}
        return names.isdisjoint(WORDS["places"]) and not names.isdisjoint(WORDS["files"])
    return isinstance(arguments, str) and _A_PLACE.match(arguments[: 2 * NAMED]) is not None


def says_where(arguments: object) -> bool:
    """True if a call says nothing but where: a page, or a place on one."""
    return is_map(arguments) and WORDS["places"].issuperset(arguments)


def reads_files(name: ToolName, arguments: object) -> bool:
    """True if a call is known to read files: by an argument, or as all its programs only read."""
    if name.shell:
        parts = [part for part in _PARTS.split(command_of(arguments) or "") if part.strip()]
        return bool(parts) and all(map(_SHELL_READS.match, parts))
    # No `is_map`, which is a call, where every call of a tool comes by.
    return isinstance(arguments, dict) and not _FILES.isdisjoint(arguments)  # pyright: ignore[reportUnknownArgumentType]


def shows_file(name: ToolName, effect: Effect, arguments: object) -> bool:
    """True if a call reads a file that it names, or writes a text into it: it runs nothing."""
    if name.runs_code or not is_map(arguments) or _FILES.isdisjoint(arguments):
        return False
    texts = sum(isinstance(value, str) for value in arguments.values())
    # The path, and what is written there.
    return effect is Effect.READ or (effect is Effect.WRITE and texts > 1)


def runs_code(name: ToolName, arguments: object) -> bool:
    """True if a call runs what the agent wrote: in a shell, an interpreter, a database."""
    return name.runs_code or (name.asks and _effect_of_sql(arguments) is not None)


def is_runner(tool: str) -> bool:
    """True if a tool runs what the agent wrote: a shell, an interpreter, a database."""
    return tool_name(tool[:NAMED]).runs_code


def file_of(arguments: object) -> str | None:
    """The name of the file that a call names; None if it names none, or only views it."""
    if not is_map(arguments) or arguments.get("command") in _VIEWS:
        return None
    for name in FILE_ARGUMENTS:
        file = arguments.get(name)
        if isinstance(file, str) and file:
            return file[:_COMMAND]
    return None


def replaces_by_itself(arguments: object) -> bool:
    """True if a call that names a file has its longest text twice: the old one and the new one."""
    file = file_of(arguments)
    if file is None:
        return False
    values = without_volatile(cast("dict[str, object]", arguments)).values()
    texts = [value for value in values if isinstance(value, str) and value != file]
    longest = max(texts, key=len, default="")
    # A word may stay as it is, as in a translation.
    return len(longest.split(None, 1)) > 1 and texts.count(longest) > 1


def written_file(arguments: object) -> str | None:
    """The file that a changing call writes: one it names, or that a shell redirects to."""
    file = file_of(arguments)
    if file is not None:
        return file if len(file) <= _PATH and "\n" not in file else None
    if is_map(arguments):
        # A text under any other name is no command.
        arguments = {name: arguments[name] for name in COMMAND_ARGUMENTS if name in arguments}
    for found in _WRITTEN_TO.finditer(command_of(arguments) or ""):
        path = found[1]
        # `x > 5` in a program on the command line is no file.
        if not path.startswith("/dev/") and any(sign.isalpha() for sign in path):
            return path
    return None


def command_of(arguments: object) -> str | None:
    """The command, code or query among the arguments, bounded; None where there is none."""
    if is_map(arguments):
        for name in COMMAND_ARGUMENTS:
            if name in arguments and (text := _as_command(arguments[name])) is not None:
                return text[:_COMMAND]
        # Of one text alone there is no doubt, whatever its name is.
        found = [text for text in islice(arguments.values(), _FEW) if isinstance(text, str)]
        return found[0][:_COMMAND] if len(found) == 1 else None
    return arguments[:_COMMAND] if isinstance(arguments, str) else None


def _as_command(value: object) -> str | None:
    """A command, or the words of one: of `bash -lc` what the shell is given to run."""
    if not is_list(value):
        return value if isinstance(value, str) else None
    words = [word for word in value[:_ARGV] if isinstance(word, str)]
    shell = len(words) > 2 and tool_name(words[0][-NAMED:]).runs_code
    return words[2] if shell and _GIVES.fullmatch(words[1]) else " ".join(words) or None


def is_compound(arguments: object) -> bool:
    """True if a shell command does several things: it may have changed state and failed."""
    return _SEVERAL.search(command_of(arguments) or "") is not None
