"""Whether a call changes the world, told from its tool's name and, for shells, its command.

A changed world is what makes asking again sensible: a test run after an edit is no repeat. When in
doubt a call is UNKNOWN, which neither opens an epoch nor counts as a read.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, cast

from otel_loopguard._util.values import NamedTuple
from otel_loopguard.core import Effect

_LOOK: Final = 4_000
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_WRITES: Final = frozenset(
    "write edit update create delete insert set add remove put post send book cancel apply patch "
    "reset replace move rename save upload submit modify append click clicked type typed press "
    "fill select drag commit push merge install build deploy publish exchange return transfer pay "
    "buy order register execute start stop restart kill run make upsert drop truncate scroll "
    "scrolled navigate goto back forward copy mkdir touch undo redo issue assign close open reopen "
    "approve reject enable disable reply refund invite subscribe unsubscribe revoke".split()
)
_READS: Final = frozenset(
    "get read list search find fetch view show look lookup query check status describe count cat "
    "ls head tail grep inspect visit browse crawl scrape download retrieve calculate calc compute "
    "summarize translate validate verify test lint diff info help page "
    "explore analyze analyse weather wiki wikipedia arxiv".split()
)
_MOVES: Final = frozenset("open close goto scroll scrolled back forward".split())
"""Writes in a browser, where they act on a page; among files they only look elsewhere."""

_FILE_NAMES: Final = frozenset(
    "path file filename file_path filepath file_name line line_number lineno lines line_num "
    "start_line end_line window".split()
)
_FILES: Final = (
    "file_path", "path", "filename", "filepath", "file_name", "file", "notebook_path",
    "relative_path", "target_file",
)  # fmt: skip
FILE_ARGUMENTS: Final = frozenset(_FILES)
"""Arguments that name a file."""
_VIEWS: Final = ("view", "read", "open", "list")
_PAGE_NAMES: Final = frozenset(
    "url uri link href element selector ref xpath x y coordinate coordinates direction pixels "
    "delta amount tab app application browser".split()
)
_PAGES: Final = frozenset(
    "browser browse page web url tab link site window screen desktop app application mouse "
    "surfer websurfer playwright puppeteer selenium webdriver door gate valve lock account "
    "position order ticket issue pr request connection session".split()
)
_A_PLACE: Final = re.compile(
    r"\A\s*(?:\w{1,20}\s+)?(?:[\"']?(?!\w{1,10}://)[\w./~-]{0,200}\.\w{1,6}[\"']?(?:\s+\d{1,7})?|\d{1,7})\s*$"
)
_NO_MOVES: Final = (_WRITES - _MOVES) | _PAGES
_WAITS: Final = frozenset("wait sleep pause delay idle noop nop".split())
_SHELLS: Final = frozenset(
    "bash shell sh zsh terminal cmd command powershell console computerterminal subprocess".split()
)
_PYTHONS: Final = frozenset("python ipython jupyter notebook interpreter code".split())
_RUNNERS: Final = _SHELLS | _PYTHONS | {"sql", "exec", "executor"}
_SHELL_WRITES: Final = re.compile(
    r"(?<![<>=\-0-9&])>{1,2}(?!\s*(?:/dev/null|&))|<<-?\s*['\"]?\w|"
    r"(?:^|[;&|(\n]|&&|\bsudo|\bxargs)[^\S\n]*(?:"
    r"rm|mv|cp|mkdir|rmdir|touch|chmod|chown|ln|tee|dd|truncate|unzip|patch|kill|pkill|"
    r"sed\s+(?:-\w+\s+)*-\w*i|perl\s+-\w*i|tar\s+-?\w*x|"
    r"git\s+(?:add|commit|checkout|reset|stash|apply|am|merge|rebase|clone|pull|push|mv|rm|restore|"
    r"switch|cherry-pick|clean|init|branch|tag|bisect|revert|worktree|fetch|submodule)|"
    r"(?:pip3?|npm|yarn|pnpm|apt(?:-get)?|cargo|go|gem|brew|conda|uv|poetry)\s+(?:\w+\s+)?"
    r"(?:install|add|remove|uninstall|update|upgrade|build|get|sync|i|ci)|"
    r"make(?!\s+-n)|docker|kubectl\s+(?:apply|delete|create|patch)|systemctl|service|"
    r"export|cd|source|submit|edit|create"
    r")\b"
)
_SLEEPS: Final = re.compile(r"\A\s*sleep\s+[\d.]+\s*(?:[smh]\s*)?$")
_SQL: Final = re.compile(
    r"\A\s*(?:insert|update|delete|create|drop|alter|replace|truncate|merge|grant|use|set)\b",
    re.IGNORECASE,
)
_SQL_CHANGES: Final = re.compile(
    r"\A\s*(?:insert\s+into|update\s+\S{1,100}\s+set|delete\s+from|merge\s+into|truncate\s+table|"
    r"(?:create|drop|alter)\s+(?:table|index|view))\b",
    re.IGNORECASE,
)
"""Unlike `_SQL`, nothing that a search for words begins with."""
_SQL_READS: Final = re.compile(
    r"\A\s*(?:(?:--[^\n]*\n|/\*[^*]{0,400}\*/)\s*){0,8}(?:\(\s*)?"
    r"(?:select|show|explain|describe|desc|pragma)\s",
    re.IGNORECASE,
)
_DATABASES: Final = frozenset(
    "query db database statement postgres postgresql mysql mariadb sqlite duckdb bigquery "
    "snowflake redshift athena".split()
)
_PYTHON_WRITES: Final = re.compile(
    r"open\s*\([^)\n]{0,200}['\"][wax]b?\+?['\"]|\.write(?:_text|_bytes|lines)?\(|os\.(?:remove|rename|"
    r"mkdir|makedirs|system|unlink)|shutil\.|subprocess|\.to_(?:csv|json|excel|parquet)\(|"
    r"\.save\(|\.commit\("
)
_COMMANDS: Final = ("command", "cmd", "code", "query", "sql", "statement", "script", "input")
_COMPOUND: Final = re.compile(r"&&|;|\n|<<|\|\|")


class ToolName(NamedTuple):
    """What the name of a tool says about its calls."""

    words: frozenset[str]
    effect: Effect
    shell: bool
    runs_code: bool
    moves: bool
    """Only goes elsewhere: it opens, closes, scrolls; in a browser that acts."""
    asks: bool
    """May ask a database, as `query` does: SQL that it is given says whether it changes."""


@lru_cache(maxsize=4096)
def tool_name(tool: str) -> ToolName:
    """What is read from the name of a tool; the callers cut it to 200 characters."""
    named = [word.lower() for word in _WORDS.findall(tool)]
    words = frozenset(named)
    effects = (
        effect
        for word in named
        for known, effect in (
            (_WAITS, Effect.WAIT), (_WRITES, Effect.WRITE), (_READS, Effect.READ)
        )
        if word in known
    )  # fmt: skip
    return ToolName(
        words=words,
        effect=next(effects, Effect.UNKNOWN),
        shell=not words.isdisjoint(_SHELLS),
        runs_code=not words.isdisjoint(_RUNNERS),
        moves=not words.isdisjoint(_MOVES) and words.isdisjoint(_NO_MOVES),
        asks=not words.isdisjoint(_DATABASES),
    )


def effect_of(tool: str, arguments: object) -> Effect:
    """Effect of one call. O(length of a command, bounded); a plain tool costs a cache lookup."""
    name = tool_name(tool)
    if name.moves and name.effect is Effect.WRITE and looks_at_files(tool, arguments):
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
        writes, otherwise = _SQL.match(command), Effect.READ
    elif not name.words.isdisjoint(_PYTHONS):
        writes, otherwise = _PYTHON_WRITES.search(command), Effect.UNKNOWN
    else:
        return name.effect
    return Effect.WRITE if writes else otherwise


def _effect_of_sql(arguments: object) -> Effect | None:
    """Effect of the SQL among the arguments; None where there is none."""
    command = command_of(arguments) or ""
    if _SQL_CHANGES.match(command):
        return Effect.WRITE
    return Effect.READ if _SQL_READS.match(command) else None


def looks_at_files(tool: str, arguments: object) -> bool:
    """Whether a call moves through files: `open a.py`, `goto 120`; those are reads."""
    if not tool_name(tool).moves:
        return False
    if isinstance(arguments, dict):
        names = {name.lower() for name in cast("dict[str, object]", arguments)}
        return names.isdisjoint(_PAGE_NAMES) and not names.isdisjoint(_FILE_NAMES)
    return isinstance(arguments, str) and _A_PLACE.match(arguments[:400]) is not None


_MAKES: Final = frozenset(
    "create send pay order buy book transfer refund charge publish invite reply submit spawn mail "
    "email".split()
)
"""Words of calls that do something for others to see: made twice, it is done twice."""
_SHELL_READS: Final = re.compile(
    r"\A\s*(?:cd \S+ && )?(?:ls|cat|head|tail|less|grep|rg|find|pwd|wc|tree|stat|file|which|awk|"
    r"sort|sed -n|nl|git (?:status|diff|log|show|blame|branch|ls-files))\b"
)


def reads_files(tool: str, arguments: object) -> bool:
    """Whether a call that reads is known to read files, by an argument or by its command."""
    if tool_name(tool).shell:
        return _SHELL_READS.match(command_of(arguments) or "") is not None
    if not isinstance(arguments, dict):
        return False
    return not FILE_ARGUMENTS.isdisjoint(cast("dict[str, object]", arguments))


def makes_something(tool: str) -> bool:
    """Whether a call creates, sends, orders or pays, by its name."""
    return not tool_name(tool).words.isdisjoint(_MAKES)


def runs_code(tool: str, arguments: object) -> bool:
    """Whether a call runs what the agent wrote: in a shell, an interpreter, a database."""
    name = tool_name(tool)
    return name.runs_code or (name.asks and _effect_of_sql(arguments) is not None)


def file_of(arguments: object) -> str | None:
    """The name of the file that a call names; None if it names none, or only views it."""
    if not isinstance(arguments, dict):
        return None
    named = cast("dict[str, object]", arguments)
    if FILE_ARGUMENTS.isdisjoint(named) or named.get("command") in _VIEWS:
        return None
    for name in _FILES:
        file = named.get(name)
        if isinstance(file, str) and file:
            return file[:_LOOK]
    return None


def is_runner(tool: str) -> bool:
    """Whether a tool runs what the agent wrote: a shell, an interpreter, a database."""
    return tool_name(tool[:200]).runs_code


def command_of(arguments: object) -> str | None:
    """The command, code or query among the arguments, bounded; None where there is none."""
    if isinstance(arguments, dict):
        named = cast("dict[str, object]", arguments)
        found = (named.get(name) for name in _COMMANDS)
        return next((text[:_LOOK] for text in found if isinstance(text, str)), None)
    return arguments[:_LOOK] if isinstance(arguments, str) else None


def is_compound(arguments: object) -> bool:
    """Whether a shell command does several things: then it may have changed state and failed."""
    return _COMPOUND.search(command_of(arguments) or "") is not None
