"""Families of runs that get somewhere: agents that write programs, and stumble."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape


def many_greps(tape: Tape) -> None:
    """Greps for many things, most of which are there."""
    for number in range(24):
        command = f"grep -rn {tape.word()}_{tape.hexadecimal(3)} src"
        tape.call("bash", {"command": command}, tape.prose(30) if number % 4 else "")


def tests_between_edits(tape: Tape) -> None:
    """One test run many times, an edit before each, and ever fewer failures."""
    for number in range(12):
        tape.call("edit", {"path": "a.py", "old": tape.prose(4), "new": tape.prose(4)}, "ok")
        error = f"Exit code 1\nFAILED tests/test_{tape.word()}.py\n{12 - number} failed"
        tape.call("bash", {"command": "pytest -q tests"}, error=error)


def installs_with_progress(tape: Tape) -> None:
    """Each install gets one package further."""
    for number in range(9):
        failed = f"Exit code 1\nERROR: Failed to build {tape.word()}{number}"
        tape.call("bash", {"command": "pip install -r requirements.txt"}, error=failed)
        pin = f"sed -i 's/{tape.word()}/{tape.word()}{number}/' requirements.txt"
        tape.call("bash", {"command": pin}, "")


def usage_then_right(tape: Tape) -> None:
    """A command is misused once, and used rightly from then on."""
    for number in range(5):
        tool = f"{tape.word()}{number}"
        tape.call("bash", {"command": f"{tool} run"}, error=f"usage: {tool} [-x] FILE")
        tape.call(
            "bash", {"command": f"{tool} --help"}, f"usage: {tool} [-x] FILE\n{tape.prose(20)}"
        )
        tape.call("bash", {"command": f"{tool} {tape.word()}.txt"}, tape.prose(20))


def editors_that_are_missing(tape: Tape) -> None:
    """Which of the tools is there? The third is."""
    for tool in ("vim", "nano"):
        tape.call(
            "bash", {"command": f"{tool} --version"}, error=f"bash: {tool}: command not found"
        )
    tape.call("bash", {"command": "ed --version"}, "GNU ed 1.19")


def lint_line_by_line(tape: Tape) -> None:
    """The linter has the same complaint, at ever fewer places."""
    for number in range(10):
        tape.call("edit", {"path": "a.py", "old": tape.prose(4), "new": tape.prose(4)}, "ok")
        error = f"a.py: E501 line too long\nFound {40 - 4 * number} errors."
        tape.call("bash", {"command": "ruff check a.py"}, error=error)


def brute_force_by_a_script(tape: Tape) -> None:
    """All passwords are tried by one program; it is run three times, with longer lists."""
    for number in range(3):
        list_of = f"head -{10 ** (number + 2)} words > list{number}"
        tape.call("bash", {"command": list_of}, "")
        said = f"tried {10 ** (number + 2)} passwords: wrong password" if number < 2 else "found it"
        tape.call("bash", {"command": f"python crack.py list{number}"}, said)


def a_few_guesses(tape: Tape) -> None:
    """Four passwords from the hints of the task, then the right one."""
    for _ in range(4):
        tape.call("unlock", {"password": tape.word()}, "Wrong password?")
        tape.call("read_file", {"path": f"notes/{tape.hexadecimal(4)}.txt"}, tape.prose(20))
    tape.call("unlock", {"password": tape.word()}, "Unlocked. 14 files")


def notes_by_echo(tape: Tape) -> None:
    """A note now and then between real commands."""
    for number in range(3):
        for _ in range(5):
            tape.call("bash", {"command": f"cat src/{tape.hexadecimal(4)}.py"}, tape.prose(30))
        tape.call("bash", {"command": f"echo 'part {number} is read'"}, f"part {number} is read")


def viewer_of_files(tape: Tape) -> None:
    """Opens a file, goes to lines, scrolls on: the view is another one each time."""
    for _ in range(3):
        name = f"src/{tape.word()}{tape.hexadecimal(2)}.py"
        tape.call("open", f"open {name}", tape.prose(60))
        for _ in range(4):
            tape.call("goto", f"goto {tape.dice.randrange(900)}", tape.prose(60))
            tape.call("scroll_down", "", tape.prose(60))


def one_file_made_step_by_step(tape: Tape) -> None:
    """One file is edited forty times; its tests fail between, and pass every fifth time."""
    for number in range(40):
        edit = {"file_path": "/app/solve.py", "old_string": tape.prose(5), "new_string": number}
        tape.call("Edit", edit, f"The file was updated: {tape.prose(8)}")
        command = {"command": f"cd /app && pytest -q tests/test_solve.py -k {tape.word()}"}
        if number % 5 == 4:
            tape.call("bash", command, f"{number} passed in {tape.dice.randrange(1, 90)} s")
        else:
            said = f"{tape.prose(3)}\nFAILED tests/test_solve.py: {tape.prose(4)}"
            tape.call("bash", command, error=f"Exit code 1\n{said}")


def letters_from_one_template(tape: Tape) -> None:
    """The same letter goes to one customer after another, and comes back with its number."""
    body = tape.prose(60)
    for number in range(10):
        name = f"{tape.word()}{number}"
        letter = f"Dear {name}, {body}"
        args = {"to": f"{name}@example.org", "body": letter}
        tape.call("send_letter", args, f"Letter {tape.hexadecimal(6)} is on its way: {letter}")
