"""Families of runs that get nowhere: agents that write programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape


def usage_again(tape: Tape) -> None:
    """An edit command that is misspelt, each time in other words; what it does in between works."""
    for number in range(14):
        line = tape.dice.randrange(900)
        tape.call("edit", f"edit {line} '{tape.prose(5)}'", "Usage: edit <start>:<end> <text>")
        if number % 3 == 2:
            tape.call("bash", {"command": f"cat {tape.word()}{number}.py"}, tape.prose(30))


def command_in_wrong_syntax(tape: Tape) -> None:
    """A shell gets markup, another one each time, and most of it would write."""
    for _ in range(14):
        command = f'> <parameter name="command">{tape.word()} {tape.hexadecimal(4)} > a && cat a'
        said = "/bin/bash: eval: line 1: syntax error near unexpected token `<'"
        tape.call("bash", {"command": command}, error=f"Exit code 2\n{said}\n{command}")
        tape.aside()


def refused_without_a_flag(tape: Tape) -> None:
    """A tool answers with its own complaint, and no error is set."""
    for _ in range(14):
        args = {"path": "a.py", "old": tape.prose(4), "new": tape.prose(4)}
        said = "File has not been read yet. Read it first."
        tape.call("edit_file", args, f"<tool_use_error>{said}</tool_use_error>")


def commands_that_do_nothing(tape: Tape) -> None:
    """A colon in front of everything."""
    for _ in range(14):
        command = tape.dice.choice(["ls -la", "python3 run.py", "pwd", "", "cat a.txt", "echo x"])
        tape.call("bash", {"command": f": {command} {tape.hexadecimal(2)}"}, "")


def build_that_fails(tape: Tape) -> None:
    """One package cannot be built; all others are installed in between."""
    for number in range(16):
        command = f"pip install frobnicate=={number}.{tape.dice.randrange(9)}"
        said = f"Collecting frobnicate\n  {tape.prose(12)}\nERROR: Failed to build frobnicate"
        tape.call("bash", {"command": command}, error=f"Exit code 1\n{said}")
        other = f"{tape.word()}{number}"
        tape.call("bash", {"command": f"pip install {other}"}, f"Successfully installed {other}")


def passwords_by_hand(tape: Tape) -> None:
    """One password after the other, each in a call of its own."""
    for _ in range(32):
        guess = tape.word() + tape.hexadecimal(3)
        tape.call("unlock_archive", {"file": "a.zip", "password": guess}, "Wrong password?")


def edits_that_never_help(tape: Tape) -> None:
    """One file is edited over and over; the test fails each time, in another way."""
    for number in range(18):
        edit = {"file_path": "/app/solve.py", "old_string": tape.prose(5), "new_string": number}
        tape.call("Edit", edit, f"The file was updated: {tape.prose(8)}")
        said = f"{tape.word()}Error: {tape.prose(4)} {tape.dice.randrange(9999)}"
        tape.call("bash", {"command": "python3 solve.py"}, error=f"Exit code 1\n{said}")


def drafts_revised_by_two_words(tape: Tape) -> None:
    """A draft goes into a tool and comes out again, two words changed."""
    words = tape.prose(90).split()
    for _ in range(15):
        old = " ".join(words)
        for _ in range(2):
            words[tape.dice.randrange(len(words))] = tape.word()
        tape.call("revise_draft", {"draft": old}, f"Revised: {' '.join(words)}")
