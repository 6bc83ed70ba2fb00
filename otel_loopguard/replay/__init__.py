"""Recorded runs: files of spans or of labelled steps, read line by line and replayed.

`Recording` opens a file and gives what is in it; `SpanReplay` and `replay_run` feed it to a guard
on the recording's own clock. Nothing here needs OpenTelemetry, a terminal or the network.
"""

from __future__ import annotations

from otel_loopguard.replay.file import read_whole
from otel_loopguard.replay.labelled_runs import Run
from otel_loopguard.replay.recording import Recording
from otel_loopguard.replay.replay import Feed, SpanReplay, replay_run

__all__ = [
    "Feed",
    "Recording",
    "Run",
    "SpanReplay",
    "read_whole",
    "replay_run",
]
