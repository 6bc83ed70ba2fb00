"""Transcripts of coding agents: what they keep of each session on the disk, read as labelled runs.

A file is told by the shape of its lines, so that it may also come from a pipe. Every agent has a
module; `session.py` has what they share, `folders.py` finds the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from otel_loopguard.replay.transcripts import atif, claude_code, codex, gemini, opencode
from otel_loopguard.replay.transcripts.session import Reader, Transcript

__all__ = ["READERS", "Reader", "Transcript", "reader_of"]

READERS: Final[tuple[type[Reader], ...]] = (
    atif.Atif,
    codex.Codex,
    gemini.Gemini,
    opencode.OpenCode,
    claude_code.ClaudeCode,
)


def reader_of(line: Mapping[str, object]) -> type[Reader] | None:
    """The reader of a transcript that begins with a line; None if no transcript does."""
    return next((kind for kind in READERS if kind.begins(line)), None)
