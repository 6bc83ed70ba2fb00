"""Checkpoints: made, listed and restored through what the application brings.

With each goes what the guard had counted of the session, so that work that is done again after a
restore is no repeat.
"""

from __future__ import annotations

import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from otel_loopguard._control.context import current_session, session_at
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.logger import logger
from otel_loopguard.errors import CheckpointError

if TYPE_CHECKING:
    from otel_loopguard._control.context import SessionHandle


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A state that can be gone back to.

    Attributes:
        id: Its id; ids sort by time.
        label: What the application calls it.
        time: When it was made, nanoseconds since the epoch.
    """

    id: str
    label: str
    time: int

    @classmethod
    def now(cls, label: str) -> Checkpoint:
        """A new one, of this moment.

        Args:
            label: What to call it; of longer text the first 200 characters, in one line; empty:
                `checkpoint`.
        """
        made = time.time_ns()
        line = " ".join(label.split())[:200] or "checkpoint"
        return cls(f"{made:016x}-{uuid.uuid4().hex[:8]}", line, made)


class Source(Protocol):
    """Keeps states of an application, or of a workspace. Its errors are `CheckpointError`."""

    def make(self, point: Checkpoint) -> None:
        """Keeps the state as it is now."""
        ...

    def known(self) -> Sequence[Checkpoint]:
        """What it keeps, in any order."""
        ...

    def restore(self, point: Checkpoint, paths: Sequence[str]) -> None:
        """Goes back to a state; only in these parts, where any are named."""
        ...

    def drop(self, point: Checkpoint) -> None:
        """Forgets a state."""
        ...


class _Counted:
    """What the guard had counted of the current session when a checkpoint was made."""

    def __init__(self, found: SessionHandle) -> None:
        # Weak: it is not what keeps a session, which may get its final key meanwhile.
        self._flag = weakref.ref(found.flag)
        self._key = found.key
        self._saved = found.saved()

    def restore(self) -> bool:
        """Goes back to it; False if the session is not known any more."""
        flag = self._flag()
        found = session_at(self._key if flag is None else flag.control.session or self._key)
        if found is not None:
            found.restore(self._saved)
        return found is not None


class Checkpoints:
    """The newest checkpoints of one source. May be called from any thread; it does wait.

    Nothing is ever restored unless `restore` is called: the guard only makes it easy.

    A checkpoint that is made in a session has what the guard counted of it by then, and its
    milestones and plan. A restore goes back to that too: calls since are made for the first
    time when they are made again. What was spent stays spent; a pause, an abort and what a person
    set stay. Where the guard does not know what it had counted (the checkpoint is of another
    process), it forgets what it counted of the current session. It is kept in memory only.

    ::

        points = resilience.Checkpoints(resilience.Callbacks(create=save, restore=load))
        points = resilience.Checkpoints(resilience.GitWorkspace("."))

    Args:
        source: What makes and restores them.
        keep: How many are kept, the newest.

    Raises:
        ValueError: `keep` is below 1.
    """

    def __init__(self, source: Source, *, keep: int = 20) -> None:
        self._source = source
        self._keep = keep
        if self._keep < 1:
            msg = f"keep must be the number of checkpoints to keep, from 1 on, got {keep!r}"
            raise ValueError(msg)
        self._lock = new_lock()
        self._counted: BoundedDict[str, _Counted] = BoundedDict(self._keep)

    def create(self, label: str = "") -> Checkpoint:
        """Makes a checkpoint of what is there now; the oldest goes where there are too many.

        Args:
            label: What to call it; of longer text the first 200 characters.

        Raises:
            CheckpointError: It could not be made; none is dropped then.
        """
        with self._lock:
            found = current_session()
            counted = None if found is None else _Counted(found)
            point = Checkpoint.now(label)
            self._source.make(point)
            if counted is not None:
                self._counted[point.id] = counted
            for old in self._newest_first()[self._keep :]:
                self._source.drop(old)
                self._counted.pop(old.id, None)
        logger.info("checkpoint %s made", point.id)
        return point

    def list(self) -> list[Checkpoint]:
        """The checkpoints, newest first."""
        with self._lock:
            return self._newest_first()[: self._keep]

    def restore(self, checkpoint: Checkpoint | str, paths: Iterable[str] = ()) -> Checkpoint:
        """Goes back to a checkpoint.

        Args:
            checkpoint: The checkpoint, or its id.
            paths: Only these parts; a git workspace needs them to be named.

        Returns:
            The checkpoint.

        Raises:
            CheckpointError: There is no such checkpoint, or it could not be restored.
        """
        named = [paths] if isinstance(paths, str) else list(paths)
        wanted = checkpoint if isinstance(checkpoint, str) else checkpoint.id
        with self._lock:
            found = next((one for one in self._newest_first() if one.id == wanted), None)
            if found is None:
                msg = f"there is no checkpoint {wanted!r}; the newest {self._keep} are kept"
                raise CheckpointError(msg)
            self._source.restore(found, named)
            counted = self._counted.get(found.id)
            if counted is None or not counted.restore():
                # What was counted by then is not known: the current session begins anew.
                session = current_session()
                if session is not None:
                    session.restore(None)
        logger.warning("checkpoint %s restored", found.id)
        return found

    def _newest_first(self) -> list[Checkpoint]:
        return sorted(self._source.known(), key=lambda one: one.id, reverse=True)


class Callbacks:
    """Checkpoints of an application, through its own functions. They live in this process.

    Args:
        create: Takes the label; returns the state, or a reference to it.
        restore: Takes that and goes back to it.
        drop: Takes that and forgets it; by default there is nothing to do.

    What these functions raise is raised as it is.
    """

    def __init__(
        self,
        create: Callable[[str], object],
        restore: Callable[[object], object],
        drop: Callable[[object], object] | None = None,
    ) -> None:
        self._create = create
        self._restore = restore
        self._drop = drop
        self._states: dict[Checkpoint, object] = {}

    def make(self, point: Checkpoint) -> None:
        """Has the application keep its state."""
        self._states[point] = self._create(point.label)

    def known(self) -> Sequence[Checkpoint]:
        """What is kept."""
        return list(self._states)

    def restore(self, point: Checkpoint, paths: Sequence[str]) -> None:
        """Has the application go back.

        Raises:
            CheckpointError: Paths were named: the application's state has none.
        """
        if paths:
            msg = f"checkpoints of an application have no paths, got {list(paths)!r}"
            raise CheckpointError(msg)
        self._restore(self._states[point])

    def drop(self, point: Checkpoint) -> None:
        """Has the application forget a state."""
        state = self._states.pop(point)
        if self._drop is not None:
            self._drop(state)
