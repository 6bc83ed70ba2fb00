"""Checkpoints of a git workspace: commits on shadow refs, beside everything that is the user's."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from otel_loopguard.errors import CheckpointError
from otel_loopguard.resilience.checkpoints import Checkpoint
from otel_loopguard.resilience.registry import current

_REFS: Final = "refs/loopguard/"
_ALWAYS: Final = (
    # No program of the user's is started by what we do, and nothing is asked of anybody.
    *("-c", f"core.hooksPath={os.devnull}"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.safecrlf=false"),
    *("-c", "core.splitIndex=false"),
    *("-c", "advice.addEmbeddedRepo=false"),
    "--literal-pathspecs",
)
_WHO: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "otel-loopguard"), ("EMAIL", "loopguard@localhost"))
}


class GitWorkspace:
    """The files of a folder in a git repository, for `Checkpoints`.

    A checkpoint is a commit that only `refs/loopguard/<id>` leads to. It is made with an index file
    of its own: branch, index, stash and working files stay as they are, hooks do not run. It has
    tracked and untracked files, and none that is ignored; of a repository inside the folder only
    its commit. Other processes on the same repository see the same checkpoints, `git push` takes
    none along without `--mirror`, `git log --all` shows them.

    A checkpoint is restored path by path: named files, and those below named folders, get the
    content and mode that they had. Nothing is deleted: what was added since stays. Before that a
    checkpoint of the state that is overwritten is made, labelled `before restoring <id>`.

    Args:
        folder: The folder; also a part of a repository's.
        limit_s: Seconds that one git command may take; default is the setting
            `tuning.resilience.checkpoint_limit_s` (60).

    Raises:
        CheckpointError: There is no git, or the folder is not in a working tree of one.
    """

    def __init__(self, folder: str | Path, *, limit_s: float | None = None) -> None:
        self._folder = Path(folder).resolve()
        self._limit_s = (
            current().settings.tuning.resilience.checkpoint_limit_s if limit_s is None else limit_s
        )
        if not self._folder.is_dir():
            msg = f"no checkpoints of {str(folder)!r}: it is no folder"
            raise CheckpointError(msg)
        if self._git("rev-parse", "--is-inside-work-tree").strip() != b"true":
            msg = f"no checkpoints of {str(folder)!r}: it is not in a git working tree"
            raise CheckpointError(msg)

    def make(self, point: Checkpoint) -> None:
        """Commits the folder's files as they are to a shadow ref.

        Raises:
            CheckpointError: Git could not; the message has what it said.
        """
        with self._own_index() as index:
            self._git("add", "--all", "--", ".", index=index)
            tree = self._git("write-tree", index=index).decode().strip()
        head = self._run(("rev-parse", "--verify", "--quiet", "HEAD^{commit}"))
        above = () if head.returncode else ("-p", head.stdout.decode().strip())
        commit = self._git("commit-tree", tree, *above, "-m", point.label, at=point.time)
        self._git("update-ref", _REFS + point.id, commit.decode().strip(), "")

    def known(self) -> Sequence[Checkpoint]:
        """The checkpoints of the repository, those of other processes too."""
        shown = "%(refname)%00%(contents:subject)"
        listed = self._git("for-each-ref", f"--format={shown}", _REFS).decode(errors="replace")
        found: list[Checkpoint] = []
        for line in listed.splitlines():
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
        files = self._files(point, [self._inside(path) for path in paths])
        # What is about to be overwritten is kept.
        self.make(Checkpoint.now(f"before restoring {point.id}"))
        with self._own_index(_REFS + point.id) as index:
            named = b"\0".join(files) + b"\0"
            self._git("checkout-index", "--force", "-z", "--stdin", index=index, given=named)

    def drop(self, point: Checkpoint) -> None:
        """Removes the shadow ref; git removes what only it led to in its own time."""
        self._git("update-ref", "-d", _REFS + point.id)

    def _files(self, point: Checkpoint, paths: list[str]) -> list[bytes]:
        """The files of a checkpoint that paths lead to, each as git names it from the folder."""
        if not paths:
            msg = f"name the paths of {str(self._folder)!r} to restore: none was given"
            raise CheckpointError(msg)
        files: list[bytes] = []
        for path in paths:
            below = ("--", path) if path else ()
            listed = self._git("ls-tree", "-r", "-z", _REFS + point.id, *below)
            entries = (entry.partition(b"\t") for entry in listed.split(b"\0") if entry)
            # Of a repository inside the folder there is a commit only.
            found = [name for kind, _, name in entries if b" commit " not in kind]
            if not found:
                msg = f"{path!r} is not in checkpoint {point.id}"
                raise CheckpointError(msg)
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
            msg = f"path must be inside of {str(self._folder)!r}, got {path!r}"
            raise CheckpointError(msg)
        relative = place.relative_to(self._folder).as_posix()
        return "" if relative == "." else relative

    @contextmanager
    def _own_index(self, commit: str | None = None) -> Generator[Path, None, None]:
        """An index file for one job: with a commit's files, or as the user's is (read only).

        The user's is copied for the times of the files in it: git then reads only what changed.
        """
        path = self._git("rev-parse", "--git-path", "index").decode().strip()
        user = self._folder / path
        with tempfile.TemporaryDirectory(prefix="loopguard-") as folder:
            index = Path(folder) / "index"
            if commit is not None:
                self._git("read-tree", commit, index=index)
            elif user.is_file():
                shutil.copyfile(user, index)
            yield index

    def _git(
        self, *words: str, index: Path | None = None, given: bytes = b"", at: int | None = None
    ) -> bytes:
        done = self._run(words, index, given, at)
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()[-500:]
            msg = f"git {words[0]} failed in {str(self._folder)!r}: {said}"
            raise CheckpointError(msg)
        return done.stdout

    def _run(
        self, words: Sequence[str], index: Path | None = None, given: bytes = b"",
        at: int | None = None,
    ) -> subprocess.CompletedProcess[bytes]:  # fmt: skip
        command = ["git", "-C", str(self._folder), *_ALWAYS, *words]
        try:
            return subprocess.run(  # noqa: S603  # a list of words, no shell
                command,
                input=given,
                capture_output=True,
                env=_environment(index, at),
                timeout=self._limit_s,
                check=False,
            )
        except FileNotFoundError:
            msg = f"no checkpoints of {str(self._folder)!r}: there is no git on the PATH"
            raise CheckpointError(msg) from None
        except subprocess.TimeoutExpired:
            msg = f"git {words[0]} took longer than {self._limit_s} s in {str(self._folder)!r}"
            raise CheckpointError(msg) from None


_ELSEWHERE: Final = frozenset(
    f"GIT_{name}"
    for name in """
    DIR WORK_TREE IMPLICIT_WORK_TREE COMMON_DIR PREFIX NAMESPACE INDEX_FILE OBJECT_DIRECTORY
    ALTERNATE_OBJECT_DIRECTORIES GRAFT_FILE SHALLOW_FILE REPLACE_REF_BASE NO_REPLACE_OBJECTS
    GLOB_PATHSPECS NOGLOB_PATHSPECS ICASE_PATHSPECS LITERAL_PATHSPECS
    """.split()
)
"""What would lead to another repository or index: a program that a hook starts has them set."""


def _environment(index: Path | None, at: int | None) -> dict[str, str]:
    """The environment of a git command."""
    kept = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    kept |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", **_WHO}
    if index is not None:
        kept["GIT_INDEX_FILE"] = str(index)
    if at is not None:
        kept["GIT_AUTHOR_DATE"] = kept["GIT_COMMITTER_DATE"] = f"@{at // 10**9} +0000"
    return kept
