"""Families of runs that get somewhere: agents that write programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape


def edit_and_test(tape: Tape) -> None:
    """Each edit mends one more test."""
    for number in range(12):
        tape.call("edit", {"path": "a.py", "old": tape.prose(4), "new": tape.prose(4)}, "ok")
        answer = {"exit_code": 1, "stdout": f"{12 - number} failed, {number} passed"}
        tape.call("bash", {"command": "pytest -q"}, answer)


def edits_that_do_not_help_yet(tape: Tape) -> None:
    """Four different edits, the same failure; the fifth mends it."""
    failed = {"exit_code": 1, "stdout": "E assert 3 == 4\n1 failed, 9 passed in 0.31s"}
    for _ in range(tape.dice.randrange(3, 5)):
        tape.call("edit", {"path": "a.py", "old": tape.prose(4), "new": tape.prose(4)}, "ok")
        tape.call("bash", {"command": "pytest -q"}, failed)
        tape.call(
            "bash", {"command": f"sed -n {tape.dice.randrange(900)},+40p a.py"}, tape.prose(40)
        )
    tape.call("edit", {"path": "a.py", "old": tape.prose(4), "new": tape.prose(4)}, "ok")
    tape.call("bash", {"command": "pytest -q"}, {"exit_code": 0, "stdout": "10 passed in 0.30s"})


def lint_after_each_edit(tape: Tape) -> None:
    """Many edits, and after each of them all is well."""
    for _ in range(14):
        args = {"path": f"src/{tape.word()}.py", "old": tape.prose(3), "new": tape.prose(3)}
        tape.call("str_replace_editor", {"command": "str_replace", **args}, "The file was edited.")
        tape.call("bash", {"command": "ruff check . && pytest -q"}, "All checks passed!\n31 passed")


def edit_by_shell(tape: Tape) -> None:
    """The shell edits and tests in one go."""
    for number in range(8):
        command = f"sed -i 's/{tape.word()}/{tape.word()}/' a.py && python a.py"
        tape.call("bash", {"command": command}, f"result: {number} of 8 cases right")


def files_in_chunks(tape: Tape) -> None:
    """A long file, page by page."""
    size = tape.dice.choice([40, 100, 200])
    for number in range(25):
        args = {"path": "big.py", "offset": number * size, "limit": size}
        tape.call("read_file", args, tape.prose(60))


def opening_reads(tape: Tape) -> None:
    """Many files side by side at the beginning, then one after the other."""
    names = tape.dice.sample(range(1000), 8)
    tape.round([("read_file", {"path": f"src/m{name}.py"}, tape.prose(30)) for name in names])
    for name in names:
        tape.call("read_file", {"path": f"tests/test_m{name}.py"}, tape.prose(30))


def many_edits(tape: Tape) -> None:
    """One change in thirty files."""
    for number in range(30):
        tape.call("edit", {"path": f"m{number}.py", "old": "a", "new": "b"}, "ok")


def small_files_alike(tape: Tape) -> None:
    """Packages whose `__init__.py` are all empty, and a few that are not."""
    for _ in range(10):
        path = f"src/{tape.word()}{tape.hexadecimal(2)}/__init__.py"
        answer = tape.prose(12) if tape.dice.random() < 0.3 else ""
        tape.call("read_file", {"path": path}, answer)


def greps_that_find_nothing(tape: Tape) -> None:
    """Some names are not in the code; others are."""
    for number in range(9):
        answer = tape.prose(25) if number % 3 == 2 else ""
        tape.call("bash", {"command": f"grep -rn {tape.word()}_{tape.word()} src"}, answer)


def looks_around_between_edits(tape: Tape) -> None:
    """`git status` and `ls` after every change."""
    for _ in range(8):
        tape.call("write_file", {"path": f"{tape.word()}.py", "content": tape.prose(20)}, "written")
        tape.call("bash", {"command": "git status --short"}, f" M {tape.word()}.py")
        tape.call("bash", {"command": "ls"}, "README.md\nsrc\ntests")


def looks_around_now_and_then(tape: Tape) -> None:
    """`pwd` and `git status` three times in a long review that only reads."""
    for number in range(36):
        if number % 14 == 0:
            tape.call("bash", {"command": "pwd"}, "/repo")
            tape.call("bash", {"command": "git status"}, "nothing to commit, working tree clean")
        tape.call("bash", {"command": f"cat src/{tape.word()}{number}.py"}, tape.prose(60))


def reads_again_after_compaction(tape: Tape) -> None:
    """Five files are read, worked on, and read once more when the context was cut."""
    files = [(f"src/{tape.word()}{n}.py", tape.prose(60)) for n in range(5)]
    for _ in range(2):
        for path, text in files:
            tape.call("read_file", {"path": path}, text)
        for _ in range(6):
            tape.call("bash", {"command": f"grep -n {tape.word()} src -r"}, tape.prose(30))


def looks_again_with_every_tool(tape: Tape) -> None:
    """After a cut context a file, a list, a search, a schema and a log are looked at again."""
    tools = ["read_file", "list_files", "search_code", "describe_table", "get_log"]
    looks = [(tool, {"of": tape.word()}, tape.prose(50)) for tool in tools]
    for _ in range(2):
        for look in looks:
            tape.call(*look)
        for _ in range(5):
            tape.call("edit", {"path": f"{tape.word()}.py", "old": "a", "new": tape.prose(4)}, "ok")


def cells_without_output(tape: Tape) -> None:
    """A notebook: most cells say nothing."""
    for _ in range(14):
        code = f"{tape.word()} = {tape.word()}.{tape.word()}({tape.dice.randrange(99)})"
        tape.call("python", {"code": code}, "")


def thinks_between(tape: Tape) -> None:
    """A tool to think with, whose answer is always the same."""
    for _ in range(8):
        tape.call("think", {"thought": tape.prose(25)}, "Your thought has been logged.")
        tape.call("bash", {"command": f"cat {tape.word()}{tape.hexadecimal(3)}.py"}, tape.prose(50))


def plans_between(tape: Tape) -> None:
    """A list of tasks is kept up to date."""
    for number in range(8):
        todo = [{"task": f"step {n}", "done": n < number} for n in range(8)]
        tape.call("todo_write", {"todos": todo}, "Todos have been modified successfully.")
        tape.call("edit", {"path": f"{tape.word()}.py", "old": "a", "new": tape.prose(4)}, "ok")


def errors_on_the_way(tape: Tape) -> None:
    """A script fails, each time for another reason, and then runs."""
    for error in ["ModuleNotFoundError: No module named 'yaml'", "KeyError: 'name'",
                  "TypeError: unsupported operand type(s) for +: 'int' and 'str'"]:  # fmt: skip
        tape.call(
            "bash", {"command": "python run.py"}, f"Traceback (most recent call last):\n{error}"
        )
        tape.call("edit", {"path": "run.py", "old": tape.prose(3), "new": tape.prose(3)}, "ok")
    tape.call("bash", {"command": "python run.py"}, "done, 120 rows")


def bisect(tape: Tape) -> None:
    """`git bisect` from commit to commit."""
    for number in range(8):
        verdict = tape.dice.choice(["good", "bad"])
        answer = (
            f"Bisecting: {2 ** (8 - number)} revisions left\n[{tape.hexadecimal(40)}] {tape.word()}"
        )
        tape.call("bash", {"command": f"git bisect {verdict}"}, answer)
        tape.call("bash", {"command": "make check"}, tape.dice.choice(["FAIL: t1", "PASS: t1"]))


def long_work(tape: Tape) -> None:
    """Two hundred calls of all kinds, each another one."""
    for _ in range(60):
        tape.call(
            "bash", {"command": f"cat {tape.word()}/{tape.hexadecimal(4)}.py"}, tape.prose(40)
        )
        tape.call("bash", {"command": f"grep -rn {tape.word()} ."}, tape.prose(20))
        tape.call("edit", {"path": f"{tape.word()}.py", "old": "a", "new": tape.prose(4)}, "ok")


def parallel_checks(tape: Tape) -> None:
    """Rounds of the same three checks after each change."""
    for _ in range(6):
        tape.call("edit", {"path": f"{tape.word()}.py", "old": "a", "new": tape.prose(4)}, "ok")
        tape.round([
            ("run_tests", {}, "31 passed"), ("run_lint", {}, "no problems"),
            ("run_types", {}, "0 errors, 0 warnings"),
        ])  # fmt: skip
