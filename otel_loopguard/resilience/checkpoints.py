"""Checkpoints: made and restored through what the application brings, or of a git workspace.

With each goes what the guard had counted of the session, so that work that is done again after a
restore is no repeat. Those of a git workspace are commits on shadow refs, beside everything that is
the user's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from otel_loopguard._control.context import SessionHandle, known_session, session_at
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import logger
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.text import check_number
from otel_loopguard.errors import CheckpointError


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
        """Its checkpoints, in any order."""
        ...

    def restore(self, point: Checkpoint, paths: Sequence[str]) -> None:
        """Goes back to a state; only in these parts, where any are named."""
        ...

    def drop(self, point: Checkpoint) -> None:
        """Forgets a state."""
        ...


class _Counted:
    """The guard's counts of the current session when a checkpoint was made."""

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
        check_number("keep", keep, 1, whole=True)
        self._keep = keep
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
            found = known_session()
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
                session = known_session()
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
        """The checkpoints that are kept."""
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


_REFS: Final = "refs/loopguard/"
_ALWAYS: Final = (
    # What is set for the whole user starts no program either, and no repository is found by chance.
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.splitIndex=false"),
    *("-c", "safe.bareRepository=explicit"),
    *("-c", "advice.addEmbeddedRepo=false"),
    "--literal-pathspecs",
)
_BYTES: Final = "* -filter -text -ident -working-tree-encoding\n"
"""No file is changed on its way into a checkpoint or out of it, whatever `.gitattributes` says."""
_SHARED: Final = ("refs", "packed-refs", "reftable", "shallow", "info/exclude")
_GONE: Final = b"No such file or directory"
_FAILED: Final = re.compile(
    rb"^(?:error|fatal): (?!'.*/' does not have a commit checked out$|invalid path '|"
    rb"unable to add '.*' to index$)",
    re.MULTILINE,
)
"""Not that no commit has room for a file: a repository inside without a commit, a file `.GIT`."""
_AGAIN: Final = 9
"""Readings of a folder: where files come and go every millisecond, every third one misses some."""
_HEAD_BYTES: Final = 1024
"""Bytes of `HEAD` that are copied: a name or a digest; an agent may have put anything there."""
_WHO: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "otel-loopguard"), ("EMAIL", "loopguard@localhost"))
}


class GitWorkspace:
    """The files of a folder in a git repository, for `Checkpoints`.

    A checkpoint is a commit that only `refs/loopguard/<id>` leads to. It is made with an index file
    of its own: branch, index, stash and working files stay as they are. It has tracked and
    untracked files byte for byte, and none that is ignored; of a repository inside the folder only
    its commit. Other processes on the same repository see the same checkpoints, `git push` takes
    none along without `--mirror`, `git log --all` shows them.

    An agent that writes files may write `.git/config`, `.gitattributes` and hooks too. Checkpoints
    are made without the repository's configuration, so no program that it names is started: no
    hook, no filter, no monitor.

    A checkpoint is restored path by path: named files, and those below named folders, get the
    content and mode that they had. Nothing is deleted: what was added since stays. Before that a
    checkpoint of the state that is overwritten is made, labelled `before restoring <id>`.

    Args:
        folder: The folder; also a part of a repository's.
        limit_s: Seconds that one git command may take.

    Raises:
        CheckpointError: There is no git, or the folder is not in a working tree of one.
    """

    def __init__(self, folder: str | Path, *, limit_s: float = 60) -> None:
        self._folder = Path(folder).resolve()
        check_number("limit_s", limit_s, 0)
        self._limit_s = limit_s
        if not self._folder.is_dir():
            raise CheckpointError(f"no checkpoints of {str(folder)!r}: it is not a folder")
        asked = ("--absolute-git-dir", "--git-common-dir", "--is-inside-git-dir")
        said = os.fsdecode(self._git("rev-parse", "--show-object-format", *asked))
        self._format, own, common, inside = said.rstrip("\n").split("\n")
        if inside != "false":
            msg = f"no checkpoints of {str(folder)!r}: it is not in a git working tree"
            raise CheckpointError(msg)
        # Not what the configuration calls the working tree.
        above = (self._folder, *self._folder.parents)
        self._top = next(place for place in above if (place / ".git").exists())
        self._directory = Path(own)
        self._common = (self._folder / common).resolve()

    def make(self, point: Checkpoint) -> None:
        """Commits the folder's files as they are to a shadow ref.

        Raises:
            CheckpointError: Git could not; the message has what it said.
        """
        with self._bare() as bare:
            self._copy_index(bare)
            self._add_all(bare)
            tree = self._git("write-tree", bare=bare).decode().strip()
            head = self._run(("rev-parse", "--verify", "--quiet", "HEAD^{commit}"), bare)
            above = () if head.returncode else ("-p", head.stdout.decode().strip())
            said = ("commit-tree", tree, *above, "-m", point.label)
            commit = self._git(*said, bare=bare, at=point.time).decode().strip()
            self._git("update-ref", _REFS + point.id, commit, "", bare=bare)

    def known(self) -> Sequence[Checkpoint]:
        """The checkpoints of the repository, those of other processes too."""
        shown = "%(refname)%00%(contents:subject)"
        with self._bare() as bare:
            listed = self._git("for-each-ref", f"--format={shown}", _REFS, bare=bare)
        found: list[Checkpoint] = []
        for line in listed.decode(errors="replace").splitlines():
            name, _, label = line.partition("\0")
            point_id = name.removeprefix(_REFS)
            made = point_id.partition("-")[0]
            if len(made) == 16 and all(digit in "0123456789abcdef" for digit in made):
                found.append(Checkpoint(point_id, label, int(made, 16)))
        return found

    def restore(self, point: Checkpoint, paths: Sequence[str]) -> None:
        """Restores files of the folder.

        Args:
            point: The checkpoint.
            paths: Files and folders, relative to the folder.

        Raises:
            CheckpointError: No path is named; one leads out of the folder or is not in the
                checkpoint; a folder is now where a file was; or git could not.
        """
        inside = [self._inside(path) for path in paths]
        with self._bare() as bare:
            files = self._files(bare, point, inside)
            # What is about to be overwritten is kept.
            self.make(Checkpoint.now(f"before restoring {point.id}"))
            named = b"\0".join(files) + b"\0"
            self._git("read-tree", _REFS + point.id, bare=bare)
            self._git("checkout-index", "--force", "-z", "--stdin", bare=bare, given=named)

    def drop(self, point: Checkpoint) -> None:
        """Removes the shadow ref; git removes what only it led to in its own time."""
        with self._bare() as bare:
            self._git("update-ref", "-d", _REFS + point.id, bare=bare)

    def _files(self, bare: Path, point: Checkpoint, paths: list[str]) -> list[bytes]:
        """The files of a checkpoint that paths lead to, each as git names it from the folder."""
        if not paths:
            msg = f"name the paths of {str(self._folder)!r} to restore: none was given"
            raise CheckpointError(msg)
        files: list[bytes] = []
        for path in paths:
            below = ("--", path) if path else ()
            listed = self._git("ls-tree", "-r", "-z", _REFS + point.id, *below, bare=bare)
            entries = (entry.partition(b"\t") for entry in listed.split(b"\0") if entry)
            # Of a repository inside the folder there is a commit only.
            found = [name for kind, _, name in entries if b" commit " not in kind]
            if not found:
                raise CheckpointError(f"{path!r} is not in checkpoint {point.id}")
            files += found
        for name in files:
            self._in_the_way(name)
        return files

    def _in_the_way(self, name: bytes) -> None:
        """Git would remove a folder, or what a link leads to, to put a file in its place."""
        place = self._folder / os.fsdecode(name)
        above = [one for one in place.parents if one.is_relative_to(self._folder)]
        odd = next((one for one in above if one.is_symlink() or one.is_file()), None)
        if odd is None and place.is_dir() and not place.is_symlink():
            odd = place
        if odd is not None:
            msg = f"{str(odd)!r} is in the way of the file that was there: move it first"
            raise CheckpointError(msg)

    def _inside(self, path: str) -> str:
        """A path relative to the folder, in git's form."""
        place = Path(os.path.normpath(self._folder / path))
        if not path or not place.is_relative_to(self._folder):
            raise CheckpointError(f"path must be inside of {str(self._folder)!r}, got {path!r}")
        relative = place.relative_to(self._folder).as_posix()
        return "" if relative == "." else relative

    @contextmanager
    def _bare(self) -> Generator[Path, None, None]:
        """A git directory for one job, with the repository's refs and an empty configuration."""
        try:
            with tempfile.TemporaryDirectory(prefix="loopguard-") as folder:
                bare = Path(folder)
                self._lay_out(bare)
                yield bare
        except OSError as error:
            raise CheckpointError(f"no checkpoints of {str(self._folder)!r}: {error}") from None

    def _lay_out(self, bare: Path) -> None:
        """Writes what makes a folder a git directory."""
        (bare / "info").mkdir()
        (bare / "info" / "attributes").write_text(_BYTES)
        extensions = {"objectFormat": self._format}
        if (self._common / "reftable").is_dir():
            extensions["refStorage"] = "reftable"
        told = "".join(f"{name} = {value}\n" for name, value in extensions.items())
        version = "[core]\nrepositoryFormatVersion = 1\n[extensions]\n"
        (bare / "config").write_text(version + told)
        named = self._directory / "HEAD"
        if not named.is_file():
            raise OSError(f"{str(named)!r} is no file")
        with named.open("rb") as head:
            (bare / "HEAD").write_bytes(head.read(_HEAD_BYTES))
        for name in _SHARED:
            if (self._common / name).exists():
                (bare / name).symlink_to(self._common / name)

    def _copy_index(self, bare: Path) -> None:
        """Copies the user's index, for the names of the files that are tracked.

        What it says of their content is what their filters made of it. Looking older than the
        files, it is believed in nothing, and git reads each file.
        """
        user = self._directory / "index"
        if user.is_file():
            shutil.copyfile(user, bare / "index")
        for part in self._directory.glob("sharedindex.*"):
            (bare / part.name).symlink_to(part)
        # In a repository inside that the index knows, `git add` starts another git, which reads
        # that one's configuration; one that is new to the index is read by its HEAD alone.
        entries = self._git("ls-files", "--stage", "-z", bare=bare).split(b"\0")
        inside = [one.partition(b"\t")[2] + b"\0" for one in entries if one.startswith(b"160000 ")]
        if inside:
            forget = ("update-index", "--force-remove", "-z", "--stdin")
            self._git(*forget, bare=bare, given=b"".join(inside))
        if (bare / "index").exists():
            os.utime(bare / "index", (1, 1))

    def _add_all(self, bare: Path) -> None:
        """Reads all files: again where one has gone that git has just seen, as in a build."""
        words = ("add", "--all", "--ignore-errors", "--", ".")
        for _ in range(_AGAIN):
            done = self._run(words, bare)
            if not done.returncode or (done.returncode == 1 and not _FAILED.search(done.stderr)):
                return
            if _GONE not in done.stderr:
                break
        self._git(*words, bare=bare)

    def _git(
        self, *words: str, bare: Path | None = None, given: bytes = b"", at: int | None = None
    ) -> bytes:
        done = self._run(words, bare, given, at)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[-500:]
            raise CheckpointError(f"git {words[0]} failed in {str(self._folder)!r}: {said}")
        return done.stdout

    def _run(
        self, words: Sequence[str], bare: Path | None, given: bytes = b"", at: int | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        command = ["git", "-C", str(self._folder), *_ALWAYS, *words]
        try:
            return subprocess.run(  # noqa: S603  # a list of words, no shell
                command,
                input=given,
                capture_output=True,
                env=self._environment(bare, at),
                timeout=self._limit_s,
                check=False,
            )
        except FileNotFoundError:
            msg = f"no checkpoints of {str(self._folder)!r}: there is no git on the PATH"
            raise CheckpointError(msg) from None
        except subprocess.TimeoutExpired:
            msg = f"git {words[0]} took longer than {self._limit_s} s in {str(self._folder)!r}"
            raise CheckpointError(msg) from None

    def _environment(self, bare: Path | None, at: int | None) -> dict[str, str]:
        """The environment of a git command: in a directory of ours, or where git finds one."""
        kept = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
        kept |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", **_WHO}
        if bare is not None:
            kept["GIT_DIR"], kept["GIT_WORK_TREE"] = str(bare), str(self._top)
            kept["GIT_OBJECT_DIRECTORY"] = str(self._common / "objects")
        if at is not None:
            kept["GIT_AUTHOR_DATE"] = kept["GIT_COMMITTER_DATE"] = f"@{at // 10**9} +0000"
        return kept


_ELSEWHERE: Final = frozenset(
    f"GIT_{name}"
    for name in """
    DIR WORK_TREE IMPLICIT_WORK_TREE COMMON_DIR PREFIX NAMESPACE INDEX_FILE OBJECT_DIRECTORY
    ALTERNATE_OBJECT_DIRECTORIES GRAFT_FILE SHALLOW_FILE REPLACE_REF_BASE NO_REPLACE_OBJECTS
    GLOB_PATHSPECS NOGLOB_PATHSPECS ICASE_PATHSPECS LITERAL_PATHSPECS
    """.split()
)
"""Variables that point to another repository or index; git sets them for hooks."""
