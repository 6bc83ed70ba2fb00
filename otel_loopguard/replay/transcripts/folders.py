"""The folders of coding agents' transcripts, and the files that make one session.

Claude Code: `$CLAUDE_CONFIG_DIR` (`~/.claude`), `projects/<project>/<session>.jsonl`, sub-agents in
`<session>/subagents/**/agent-*.jsonl`, in older versions `agent-*.jsonl` beside the session. Codex:
`$CODEX_HOME` (`~/.codex`), `sessions` and `archived_sessions`. gemini-cli: `$GEMINI_CLI_HOME`
(`~`), `.gemini/tmp/<project>/chats`, sub-agents in `chats/<session>`; the folder of the project
stands in `.gemini/tmp/<project>/.project_root`. opencode: `$XDG_DATA_HOME` (`~/.local/share`),
`opencode/opencode.db`, with all sessions in it.
"""

from __future__ import annotations

import errno
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import Final

from otel_loopguard.errors import RecordingError
from otel_loopguard.replay.transcripts.opencode import (
    TranscriptFile,
    is_database,
    is_session,
    session_above,
    stored_sessions,
)


def home() -> Path:
    """The user's home directory.

    Raises:
        FileNotFoundError: There is none, as of a user without a name in a container.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        why = "this user has no home directory"
        raise FileNotFoundError(errno.ENOENT, why, "HOME") from error


_ENDS: Final = (".jsonl.gz", ".json.gz", ".jsonl", ".json")
# Bytes of a file that say what it is: the first line of Codex may carry its instructions.
_HEAD_BYTES: Final = 65_536
# Characters of a path, as of Linux (PATH_MAX).
_PATH_CHARS: Final = 4_096
_GZIP: Final = b"\x1f\x8b"
_HEADS: Final = (
    ("codex", re.compile(rb'"type"\s*:\s*"(?:session_meta|response_item|event_msg|turn_context)"')),
    ("gemini", re.compile(rb'"sessionId"\s*:\s*"[^"]*"\s*,\s*"projectHash"\s*:')),
    ("atif", re.compile(rb'"schema_version"\s*:\s*"ATIF-')),
    ("claude-code", re.compile(rb'"(?:sessionId|session_id|leafUuid|messageId)"\s*:')),
)
_TYPED: Final = re.compile(rb'"type"\s*:\s*"[a-z-]{1,40}"')
_SESSION: Final = re.compile(rb'"sessionId"\s*:\s*"([^"]{1,200})"')
_ID: Final = re.compile(rb'"id"\s*:\s*"([^"]{1,200})"')
_ABOVE: Final = re.compile(rb'"parent_thread_id"\s*:\s*"([^"]{1,200})"')
_SUB_AGENT: Final = re.compile(rb'"kind"\s*:\s*"subagent"')


@dataclass(slots=True)
class SessionFiles:
    """The files of one session."""

    path: Path
    modified: float  # seconds since the epoch, of the newest
    sub_agents: list[Path] = field(default_factory=list[Path])


def usual_folders() -> list[tuple[str, Path]]:
    """The folders in which agents keep transcripts on this machine, with the agents' names.

    Raises:
        RecordingError: There is none.
        FileNotFoundError: There is no home directory.
    """
    user = home()
    claude = os.environ.get("CLAUDE_CONFIG_DIR")
    roots = [Path(claude)] if claude else [user / ".claude", user / ".config" / "claude"]
    codex = Path(os.environ.get("CODEX_HOME") or user / ".codex")
    gemini = Path(os.environ.get("GEMINI_CLI_HOME") or user)
    data = Path(os.environ.get("XDG_DATA_HOME") or user / ".local" / "share")
    wanted = [
        *(("claude-code", root / "projects") for root in roots),
        ("codex", codex / "sessions"),
        ("codex", codex / "archived_sessions"),
        ("gemini", gemini / ".gemini" / "tmp"),
        *(("opencode", file) for file in sorted((data / "opencode").glob("opencode*.db"))),
    ]
    found = [(agent, folder) for agent, folder in wanted if holds_sessions(folder)]
    if not found:
        raise RecordingError(
            "no coding agent keeps transcripts here: neither ~/.claude, ~/.codex, ~/.gemini nor "
            "~/.local/share/opencode has any; name a file or a folder"
        )
    return found


def holds_sessions(path: Path) -> bool:
    """True if a path is a folder, or a database, that may hold many sessions."""
    return path.is_dir() or is_database(path)


def session_files(path: Path) -> SessionFiles:
    """A file that was named, with its sub-agents' where they lie beside it."""
    beside = path.with_suffix("") / "subagents"
    found = SessionFiles(path, modified(path))
    if path.suffix == ".jsonl" and beside.is_dir():
        found.sub_agents = sorted(file.path for file in transcript_files(beside))
    return found


def sessions_in(folder: Path) -> list[SessionFiles]:
    """The sessions of a folder and of those below it, the one that changed last at the end.

    Files that are no transcripts are passed over.
    """
    heads = [head for file in transcript_files(folder) if (head := TranscriptHead.of(file.path))]
    above = {(head.agent, head.key): head.above for head in heads if head.above is not None}
    found: list[SessionFiles] = []
    tops: dict[tuple[str, str], SessionFiles] = {}
    for head in sorted(heads, key=lambda head: head.above is not None):
        place = head.agent, top_of(above, head.agent, head.key)
        if place in tops and head.above is not None:
            files = tops[place]
            files.sub_agents.append(head.path)
            files.modified = max(files.modified, head.modified)
            continue
        # One of its own, or a sub-agent whose session is gone.
        found.append(SessionFiles(head.path, head.modified))
        if head.above is None:
            tops[place] = found[-1]
    for files in found:
        files.sub_agents.sort()
    return newest(found, 0)


def top_of(above: Mapping[tuple[str, str], str], agent: str, key: str) -> str:
    """The session that a sub-agent works for in the end; a session of its own is that itself."""
    seen: set[str] = set()
    while (agent, key) in above and key not in seen:
        seen.add(key)
        key = above[agent, key]
    return key


@dataclass(slots=True)
class TranscriptHead:
    """The facts in the first lines of a transcript.

    Attributes:
        agent: Name of the coding agent.
        path: The file.
        key: Key of its session among those of the agent.
        above: Key of the session that a sub-agent works for; None for a session of its own.
        modified: When it changed last, seconds since the epoch.
    """

    agent: str
    path: Path
    key: str
    above: str | None
    modified: float

    @classmethod
    def of(cls, path: Path) -> TranscriptHead | None:
        """The head of a file; None if it is no transcript, or cannot be read."""
        if is_session(path):
            return cls("opencode", path, path.name, *session_above(path))
        try:
            with path.open("rb") as stream:
                head = stream.read(_HEAD_BYTES)
            if head.startswith(_GZIP):
                head = zlib.decompressobj(31).decompress(head, _HEAD_BYTES)
        except (OSError, ValueError, zlib.error):
            return None
        agent = next((name for name, sign in _HEADS if sign.search(head)), None)
        if agent is None or (agent == "claude-code" and not _TYPED.search(head)):
            return None
        key, above = _place(agent, path, head)
        return cls(agent, path, key, above, modified(path))


def _place(agent: str, path: Path, head: bytes) -> tuple[str, str | None]:
    """Key of a session, and of the one above it."""
    if agent == "claude-code":
        if "subagents" in path.parts:
            at = len(path.parts) - 1 - path.parts[::-1].index("subagents")
            return path.stem, path.parts[at - 1]
        if path.name.startswith("agent-"):
            return path.stem, _first(_SESSION, head)
        return next(path.name.removesuffix(end) for end in _ENDS if path.name.endswith(end)), None
    if agent == "codex":
        return _first(_ID, head) or path.stem, _first(_ABOVE, head)
    if agent == "gemini" and _SUB_AGENT.search(head):
        return path.stem, path.parent.name
    return (_first(_SESSION, head) if agent == "gemini" else None) or str(path), None


def _first(sign: re.Pattern[bytes], head: bytes) -> str | None:
    found = sign.search(head)
    return found[1].decode("utf-8", "replace") if found else None


def transcript_files(folder: Path) -> Iterator[TranscriptFile]:
    """The files below a folder that may be transcripts; links to folders are not followed.

    A database of opencode is read as a folder of sessions.
    """
    if is_database(folder):
        yield from stored_sessions(folder)
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            if name.endswith(_ENDS) and not name.endswith(".meta.json"):
                with suppress(OSError):
                    found = path.stat()
                    if S_ISREG(found.st_mode):
                        yield TranscriptFile(path, found.st_size, found.st_mtime)
            elif is_database(path):
                yield from stored_sessions(path)


def project_of(path: Path) -> str:
    """The folder that gemini-cli works in, by the place of a transcript; empty if unknown."""
    if "chats" not in path.parts:
        return ""
    place = next(above for above in path.parents if above.name == "chats").parent / ".project_root"
    if not place.is_file():
        return ""
    try:
        with place.open(encoding="utf-8", errors="replace") as stream:
            return stream.read(_PATH_CHARS).strip()
    except OSError:
        return ""


def modified(path: Path) -> float:
    """When a file changed last, seconds since the epoch; 0 if it is not there."""
    try:
        return path.stat().st_mtime
    except OSError:
        return session_above(path)[1] if is_session(path) else 0.0


def newest(found: Sequence[SessionFiles], count: int) -> list[SessionFiles]:
    """The sessions that changed last, the newest at the end."""
    ordered = sorted(found, key=lambda files: (files.modified, str(files.path)))
    return ordered[-count:] if count else ordered
