"""Recorded runs: files of spans or of labelled steps, read line by line and replayed.

`Recording` opens a file and gives what is in it; `SpanReplay` and `replay_run` feed it to a guard
on the recording's own clock. Nothing here needs OpenTelemetry, a terminal or the network.
"""

from otel_loopguard.recordings.file import read_whole
from otel_loopguard.recordings.lines import Run
from otel_loopguard.recordings.recording import Recording
from otel_loopguard.recordings.replay import Feed, SpanReplay, replay_run
from otel_loopguard.recordings.shape import oversized

__all__ = [
    "Feed",
    "Recording",
    "Run",
    "SpanReplay",
    "oversized",
    "read_whole",
    "replay_run",
]
