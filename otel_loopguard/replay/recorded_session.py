"""A session of a coding agent from several files: its own, and those of its sub-agents."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from otel_loopguard.errors import RecordingError
from otel_loopguard.replay.recording import Recording
from otel_loopguard.replay.transcripts import Transcript
from otel_loopguard.replay.transcripts.folders import (
    SessionFiles,
    holds_sessions,
    session_files,
    sessions_in,
)

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.replay.file import Broken
    from otel_loopguard.replay.labelled_runs import Run
    from otel_loopguard.spans.views import RecordedSpan


class RecordedSession:
    """What the files of a session hold, as one run; likewise a `Recording` where there is one file.

    Args:
        files: The files.
        broken: Told file, line number and reason of every line that was passed over.

    Raises:
        RecordingError: As `Recording` does; a sub-agent's file is reported as broken instead.

    Attributes:
        path: Of the session's own file.
        name: Its name without folders.
        size: Bytes of all files; None where that is not known.
    """

    def __init__(self, files: SessionFiles, broken: Broken) -> None:
        self._broken = broken
        self._files = files
        self._main = Recording(str(files.path), broken)
        self._beside: list[Recording] = []
        for path in files.sub_agents:
            with _told(str(path), broken):
                self._beside.append(Recording(str(path), broken))
        sizes = [one.size for one in (self._main, *self._beside)]
        self.path = self._main.path
        self.name = self._main.name
        self.size = None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def done(self) -> int:
        """How many bytes of `size` were read so far."""
        return sum(one.done for one in (self._main, *self._beside))

    def reopened(self, broken: Broken) -> RecordedSession:
        """The same files, to be read once more."""
        return RecordedSession(self._files, broken)

    def __iter__(self) -> Iterator[RecordedSpan | Run]:
        if not self._beside:
            yield from self._main
            return
        found = list(_transcripts(self._main))
        for recording in self._beside:
            with _told(recording.path, self._broken):
                found += _transcripts(recording)
        if not found:
            return
        whole = found[0]
        timed = merge(*(_timed(run.steps) for run in found), key=itemgetter(0))
        whole.steps = [step for _, step in timed]
        whole.unfinished = sum(run.unfinished for run in found)
        yield whole


def recordings(path: str, broken: Broken) -> list[Recording | RecordedSession]:
    """The recordings at a path: a file, or all transcripts below a folder.

    Raises:
        RecordingError: There is no such file, it may not be read, or the folder has no transcript.
    """
    place = Path(path)
    if path == "-" or not holds_sessions(place):
        files = session_files(place) if path != "-" else None
        beside = files is not None and files.sub_agents
        return [RecordedSession(files, broken) if files and beside else Recording(path, broken)]
    found = sessions_in(place)
    if not found:
        msg = f"{path}: the folder holds no transcript of a coding agent"
        raise RecordingError(msg)
    return opened(found, broken)


def opened(sessions: Iterable[SessionFiles], broken: Broken) -> list[Recording | RecordedSession]:
    """The recordings of sessions; files that cannot be read are reported as broken."""
    found: list[Recording | RecordedSession] = []
    for files in sessions:
        with _told(str(files.path), broken):
            found.append(RecordedSession(files, broken))
    return found


@contextmanager
def _told(path: str, broken: Broken) -> Generator[None]:
    """Reports that a file cannot be read: with the others the rest goes on."""
    try:
        yield
    except RecordingError as error:
        broken(path, 1, str(error).removeprefix(f"{path}: "))


def _transcripts(recording: Recording) -> Iterator[Transcript]:
    return (entry for entry in recording if isinstance(entry, Transcript))


def _timed(steps: list[Step]) -> Iterator[tuple[int, Step]]:
    """Steps by their ends, in the order of their file: a clock that jumps back changes nothing."""
    now = 0
    for step in steps:
        now = max(now, step.end or 0)
        yield now, step
