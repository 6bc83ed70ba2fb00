"""Checkpoints of an application, and of git workspaces: real repositories."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from otel_loopguard import CheckpointError, resilience
from tests.tables import rows

if shutil.which("git") is None:
    if os.environ.get("CI"):
        pytest.fail("git is missing")
    pytest.skip("git is missing", allow_module_level=True)

WHO = ("-c", "user.name=A User", "-c", "user.email=user@example.com")


class Repository:
    """A repository as a user has it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.git("init", "-q", "-b", "main", *options)

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *WHO, *words], cwd=self.folder, capture_output=True, text=True, check=True
        )
        return done.stdout

    def read(self, name: str) -> str:
        return (self.folder / name).read_bytes().decode()

    def commit(self, message: str, what: str = "-A") -> None:
        self.git("add", what, ".")
        self.git("commit", "-qm", message)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def state(self) -> tuple[str, ...]:
        """Everything that is the user's: what is staged, branch, stash, status, the index file."""
        index = self.folder / ".git" / "index"
        return (
            self.git("status", "--porcelain=v2", "--branch"),
            self.git("ls-files", "--stage"),
            self.git("stash", "list"),
            self.git("for-each-ref", "refs/heads", "refs/tags", "refs/stash"),
            (self.folder / ".git" / "HEAD").read_text(),
            index.read_bytes().hex() if index.exists() else "",
        )


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a commit, a dirty index, a stash, an untracked and an ignored file."""
    made = Repository(tmp_path_factory.mktemp("template") / "work")
    for name, text in {"a.txt": "one\n", "gone.txt": "here\n", ".gitignore": "*.log\n"}.items():
        made.write(name, text)
    made.commit("first")
    made.write("a.txt", "stashed\n")
    made.git("stash")
    made.write("a.txt", "staged\n")
    made.git("add", "a.txt")
    made.write("a.txt", "not staged\n")
    (made.folder / "gone.txt").unlink()
    made.write("deep/new file ü.txt", "untracked\n")
    made.write("x.log", "ignored\n")
    return made.folder


@pytest.fixture
def repository(template: Path, tmp_path: Path) -> Repository:
    """A copy of it."""
    made = Repository(shutil.copytree(template, tmp_path / "work"))
    made.git("status")  # refreshes the index file
    return made


def points(folder: Path, keep: int = 20) -> resilience.Checkpoints:
    """The checkpoints of a workspace."""
    return resilience.Checkpoints(resilience.GitWorkspace(folder), keep=keep)


def test_nothing_of_the_users_is_touched(repository: Repository) -> None:
    """Neither branch, index, stash nor files; by a checkpoint or by a restore of a file."""
    before = repository.state()
    made = points(repository.folder).create("before the edit")
    assert repository.state() == before
    repository.write("a.txt", "spoilt\n")
    points(repository.folder).restore(made, ["a.txt"])
    assert repository.read("a.txt") == "not staged\n"
    assert repository.state()[1:] == before[1:]
    assert list((repository.folder / ".git").glob("*.lock")) == []


def test_it_has_tracked_and_untracked_files(repository: Repository) -> None:
    """As they are, not as they are staged; without ignored and removed ones."""
    made = points(repository.folder).create("label")
    ref = f"refs/loopguard/{made.id}"
    names = repository.git("-c", "core.quotepath=false", "ls-tree", "-r", "--name-only", ref)
    assert names.split("\n") == [".gitignore", "a.txt", "deep/new file ü.txt", ""]
    assert repository.git("show", f"{ref}:a.txt") == "not staged\n"
    head = repository.git("rev-parse", "HEAD")
    assert repository.git("rev-parse", f"{ref}^") == head
    assert repository.git("log", "-1", "--format=%s %an", ref) == "label otel-loopguard\n"


def test_only_named_paths_are_restored_and_nothing_is_deleted(repository: Repository) -> None:
    """Folders, a file called `*`, modes and links; what is overwritten is a checkpoint as well."""
    folder, checkpoints = repository.folder, points(repository.folder)
    script = repository.write("run.sh", "#!/bin/sh\n")
    script.chmod(0o755)
    (folder / "link").symlink_to("a.txt")
    repository.write("*", "star\n")
    made = checkpoints.create()
    for name in ("a.txt", "*", "deep/added.txt"):
        repository.write(name, "an hour of work\n")
    (folder / "deep/new file ü.txt").unlink()
    script.chmod(0o644)
    (folder / "link").unlink()
    checkpoints.restore(made.id, ["deep", "*", "run.sh", "link"])
    names = ("deep/new file ü.txt", "deep/added.txt", "*", "a.txt")
    kept = ["untracked\n", "an hour of work\n", "star\n", "an hour of work\n"]
    assert [repository.read(name) for name in names] == kept
    assert script.stat().st_mode & 0o111
    assert str((folder / "link").readlink()) == "a.txt"
    checkpoints.restore(made, ["."])
    assert repository.read("a.txt") == "not staged\n"
    newest = checkpoints.list()[0]
    assert newest.label == f"before restoring {made.id}"
    checkpoints.restore(newest, ["a.txt"])
    assert repository.read("a.txt") == "an hour of work\n"


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    """The checkpoint has no parent, and HEAD still leads nowhere; nothing in it is no error."""
    made = Repository(tmp_path / "young")
    (made.folder / "sub").mkdir()
    for folder in (made.folder, made.folder / "sub"):
        assert points(folder).create() in points(folder).list()
    made.write("a.txt", "one\n")
    point = points(made.folder).create()
    made.write("a.txt", "two\n")
    points(made.folder).restore(point, ["a.txt"])
    assert made.read("a.txt") == "one\n"
    assert made.git("log", "--format=%P", f"refs/loopguard/{point.id}").strip() == ""
    assert "No commits yet" in made.git("status")


def test_a_part_of_a_repository(repository: Repository) -> None:
    """Paths are relative to it, and none leads out of it."""
    checkpoints = points(repository.folder / "deep")
    made = checkpoints.create()
    for name in ("deep/new file ü.txt", "a.txt"):
        repository.write(name, "changed\n")
    checkpoints.restore(made, ["."])
    assert repository.read("deep/new file ü.txt") == "untracked\n"
    assert repository.read("a.txt") == "changed\n"
    with pytest.raises(CheckpointError, match=r"inside of .*'\.\./a\.txt'"):
        checkpoints.restore(made, ["../a.txt"])


def test_the_newest_20_are_kept(repository: Repository) -> None:
    """Also those of a process before this one; what is not ours under the refs stays."""
    repository.git("update-ref", "refs/loopguard/mine", "HEAD")
    made = [points(repository.folder).create(str(number)) for number in range(22)]
    assert points(repository.folder).list() == made[:1:-1]
    assert len(repository.git("for-each-ref", "refs/loopguard").splitlines()) == 21
    assert points(repository.folder, keep=3).list() == made[:-4:-1]


def test_hooks_and_the_environment_of_a_hook_do_nothing(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No hook runs, and GIT_DIR or GIT_INDEX_FILE from outside lead nowhere else."""
    hook = repository.write(".git/hooks/reference-transaction", "#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    before = repository.state()
    with monkeypatch.context() as outside:
        for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
            outside.setenv(name, str(tmp_path / "elsewhere"))
        made = points(repository.folder).create()
        assert made in points(repository.folder).list()
    assert repository.state() == before
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(("place", "files"), rows(__file__, "planted"))
def test_no_program_of_the_workspace_is_started(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, files: str
) -> None:
    """Neither by a checkpoint nor by a restore, and files come back as they were."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    evil = repository.write("../evil.sh", f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    evil.chmod(0o755)
    if place == "nested":
        inner = Repository(repository.folder / "inner")
        inner.write("b.txt", "one\n")
        inner.commit("inner")
        repository.git("add", "inner")
        inner.write("b.txt", "two\n")
    for name, text in json.loads(files).items():
        with (repository.folder / name).open("a") as file:
            file.write(text.replace("EVIL", str(evil)).replace("WORK", str(repository.folder)))
    checkpoints = points(repository.folder)
    made = checkpoints.create()
    repository.write("a.txt", "spoilt\n")
    checkpoints.restore(made, ["a.txt"])
    assert checkpoints.list()
    assert not (tmp_path / "ran").exists()
    assert repository.read("a.txt") == "not staged\n"


@pytest.mark.parametrize(
    ("attributes", "content", "as_committed"),
    [("* text eol=crlf", "one\r\ntwo\r\n", "one\ntwo\n"), ("* filter=up", "up\n", "UP\n")],
    ids=["line ends", "filter"],
)
def test_files_are_kept_byte_for_byte(
    tmp_path: Path, attributes: str, content: str, as_committed: str
) -> None:
    """Also where a commit has something else in their place, as with large files."""
    made = Repository(tmp_path / "work")
    made.git("config", "filter.up.clean", "tr a-z A-Z")
    made.git("config", "filter.up.smudge", "tr A-Z a-z")
    made.write(".gitattributes", attributes + "\n")
    made.write("a.txt", content)
    made.commit("first")
    assert made.git("cat-file", "-p", "HEAD:a.txt") == as_committed
    point = points(made.folder).create()
    made.write("a.txt", "spoilt")
    points(made.folder).restore(point, ["a.txt"])
    assert made.read("a.txt") == content


@pytest.mark.parametrize(("_name", "init", "after"), rows(__file__, "forms"))
def test_a_repository_of_another_form(tmp_path: Path, _name: str, init: str, after: str) -> None:
    """What git reads, a checkpoint has; a file that is tracked though it is ignored is in it."""
    made = Repository(tmp_path / "work", *init.split())
    made.write(".gitignore", "*.log\n")
    made.write("kept.log", "one\n")
    made.commit("first", "-Af")
    made.git(*after.split())
    made.write("kept.log", "two\n")
    point = points(made.folder).create()
    made.write("kept.log", "three\n")
    points(made.folder).restore(point, ["kept.log"])
    assert made.read("kept.log") == "two\n"
    assert made.git("rev-parse", f"refs/loopguard/{point.id}^") == made.git("rev-parse", "HEAD")


def test_a_merge_conflict_is_no_obstacle(repository: Repository) -> None:
    """The files are kept with their marks, and the index still has its three sides."""
    repository.git("reset", "-q", "--hard")
    for words in (["-b", "side"], ["main"]):
        repository.git("checkout", "-q", *words)
        repository.write("a.txt", f"{words[-1]}\n")
        repository.commit(words[-1])
    with pytest.raises(subprocess.CalledProcessError):
        repository.git("merge", "side")
    before = repository.state()
    made = points(repository.folder).create()
    assert repository.state() == before
    assert "<<<<<<<" in repository.git("show", f"refs/loopguard/{made.id}:a.txt")


def test_a_linked_working_tree(repository: Repository, tmp_path: Path) -> None:
    """It has an index of its own, which is not touched either."""
    repository.git("worktree", "add", "-q", str(tmp_path / "linked"), "HEAD")
    (tmp_path / "linked/a.txt").write_text("linked\n")
    made = points(tmp_path / "linked").create()
    assert repository.git("show", f"refs/loopguard/{made.id}:a.txt") == "linked\n"


@pytest.mark.parametrize(("paths", "said"), rows(__file__, "refused"))
def test_what_cannot_be_restored_is_refused(repository: Repository, paths: str, said: str) -> None:
    """And nothing is written: there may be a folder in the way by now, or a link."""
    made = points(repository.folder).create()
    (repository.folder / "a.txt").unlink()
    repository.write("a.txt/precious.log", "x")
    shutil.move(repository.folder / "deep", repository.folder.parent / "moved")
    (repository.folder / "deep").symlink_to(repository.folder.parent / "moved")
    status = repository.git("status", "--porcelain")
    with pytest.raises(CheckpointError, match=said):
        points(repository.folder).restore(made, json.loads(paths))
    assert repository.git("status", "--porcelain") == status
    assert repository.read("a.txt/precious.log") == "x"


@pytest.mark.parametrize("place", ["plain", "bare", "inside", "missing", "looks like one"])
def test_it_refuses_what_is_no_working_tree(repository: Repository, place: str) -> None:
    """The message has the folder; files that look like a repository name no working tree."""
    folder = repository.folder.parent / place
    if place == "plain":
        folder.mkdir()
    elif place in ("bare", "looks like one"):
        subprocess.run(["git", "init", "-q", "--bare", str(folder)], check=True)
    elif place == "inside":
        folder = repository.folder / ".git"
    if place == "looks like one":
        shutil.move(folder, repository.folder)
        folder = repository.folder / place
        (folder / "config").write_text("[core]\nbare = false\nworktree = .\n")
    with pytest.raises(CheckpointError, match=str(folder.name)):
        resilience.GitWorkspace(folder)


def test_a_git_that_hangs_or_is_not_there(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left after its limit, and told in a sentence."""
    with pytest.raises(CheckpointError, match="longer than 1e-05 s"):
        resilience.GitWorkspace(repository.folder, limit_s=0.00001)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CheckpointError, match="there is no git"):
        resilience.GitWorkspace(repository.folder)


_LOSES_FILES = """#!/bin/sh
case "$*" in *"add --all"*)
    if [ "$(cat tries)" != xx ]; then
        printf x >> tries
        echo "fatal: unable to stat 'deep/temporary': No such file or directory" >&2
        exit 128
    fi
esac
exec {git} "$@"
"""


def test_files_that_come_and_go_keep_none_from_being_made(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the agent builds: git ends where a file has gone that it has just listed."""
    (tmp_path / "tries").touch()
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(_LOSES_FILES.format(git=shutil.which("git")))
    git.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(git.parent), prepend=os.pathsep)
    made = points(repository.folder).create()
    assert (tmp_path / "tries").read_text() == "xx"
    repository.write("a.txt", "later\n")
    points(repository.folder).restore(made, ["a.txt"])
    assert repository.read("a.txt") == "not staged\n"


def test_what_no_commit_can_hold_keeps_none_from_being_made(repository: Repository) -> None:
    """As where the agent has just begun a repository inside."""
    begun = Repository(repository.folder / "be'gun")
    begun.write("src/main.rs", "fn main() {}\n")
    repository.write("deep/.GIT", "no folder\n")
    made = points(repository.folder).create()
    repository.write("a.txt", "spoilt\n")
    points(repository.folder).restore(made, ["."])
    assert repository.read("a.txt") == "not staged\n"
    names = repository.git("ls-tree", "-r", "--name-only", f"refs/loopguard/{made.id}")
    assert len(names.splitlines()) == 3


_CANNOT_READ = """#!/bin/sh
case "$*" in *"add --all"*)
    echo "error: 'inner/' does not have a commit checked out" >&2
    echo "error: open('a.txt'): Permission denied" >&2
    echo "error: unable to index file 'a.txt'" >&2
    exit 1
esac
exec {git} "$@"
"""


def test_a_file_that_cannot_be_read_is_an_error(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint without it would look whole."""
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text(_CANNOT_READ.format(git=shutil.which("git")))
    git.chmod(0o755)
    monkeypatch.setenv("PATH", str(git.parent), prepend=os.pathsep)
    with pytest.raises(CheckpointError, match="Permission denied"):
        points(repository.folder).create()


def test_a_pipe_in_place_of_the_head_holds_up_nobody(repository: Repository) -> None:
    """Git is ended after a time; this process would have waited for ever."""
    made = resilience.GitWorkspace(repository.folder)
    head = repository.folder / ".git" / "HEAD"
    head.unlink()
    os.mkfifo(head)
    with pytest.raises(CheckpointError, match="is no file"):
        resilience.Checkpoints(made).create()


def test_an_application_brings_its_own() -> None:
    """Create, restore and drop are its functions; the newest are kept."""
    state: dict[str, int] = {}
    dropped: list[object] = []
    own = resilience.Callbacks(lambda label: dict(state), state.update, dropped.append)
    checkpoints = resilience.Checkpoints(own, keep=2)
    made = []
    for number in range(3):
        state["step"] = number
        made.append(checkpoints.create(f"step\n{number} " + "x" * 300))
    assert (checkpoints.list(), dropped) == (made[:0:-1], [{"step": 0}])
    assert (made[0].label[:10], len(made[0].label)) == ("step 0 xxx", 200)
    checkpoints.restore(made[1])
    assert state == {"step": 1}
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        checkpoints.restore(made[0])
    with pytest.raises(CheckpointError, match="have no paths"):
        checkpoints.restore(made[1], ["a"])


def test_a_checkpoint_that_fails_drops_none() -> None:
    """What the application raises is raised as it is."""
    checkpoints = resilience.Checkpoints(resilience.Callbacks(int, print), keep=1)
    made = checkpoints.create("1")
    with pytest.raises(ValueError, match="invalid literal for int"):
        checkpoints.create("bad")
    assert checkpoints.list() == [made]
