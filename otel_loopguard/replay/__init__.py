"""Recorded runs: files of spans, of labelled steps or of coding agents, read and replayed.

`Recording` reads a file, `recordings` finds the transcripts of a folder; `SpanReplay` and
`replay_run` feed them to a guard on the recording's own clock. Nothing here needs
OpenTelemetry, a terminal or the network.
"""

from __future__ import annotations

from otel_loopguard.replay.file import read_whole
from otel_loopguard.replay.followed_transcripts import FollowedFolders, FollowedSession
from otel_loopguard.replay.labelled_runs import Run
from otel_loopguard.replay.recording import Recording, recordings
from otel_loopguard.replay.replay import Feed, SessionResult, SpanReplay, replay_run
from otel_loopguard.replay.transcripts import Transcript

__all__ = [
    "Feed",
    "FollowedFolders",
    "FollowedSession",
    "Recording",
    "Run",
    "SessionResult",
    "SpanReplay",
    "Transcript",
    "read_whole",
    "recordings",
    "replay_run",
]
