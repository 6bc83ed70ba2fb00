"""Families of runs that get somewhere: turns of a conversation, several agents, many in a round."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape


def same_question_every_turn(tape: Tape) -> None:
    """A user asks the same again and again, and it is looked up each time."""
    tool, args, answer = f"get_{tape.word()}", {"of": tape.word()}, tape.prose(20)
    for _ in range(12):
        tape.user()
        tape.call(tool, args, answer)
        tape.model(tape.prose(20))


def same_two_lookups_every_turn(tape: Tape) -> None:
    """In every turn the same account is looked up, and something else."""
    account, answer = {"id": tape.hexadecimal()}, tape.prose(25)
    for _ in range(10):
        tape.user()
        tape.call("get_account", account, answer)
        tape.call("search", {"q": tape.prose(3)}, tape.prose(40))
        tape.model(tape.prose(20))


def agents_read_one_file(tape: Tape) -> None:
    """Agents by different names read the same pages, once each."""
    pages = {f"{tape.word()}.md": tape.prose(60) for _ in range(tape.dice.randrange(1, 4))}
    for name in ("writer", "critic", "editor", "lector", "planner", "tester"):
        for page, text in pages.items():
            tape.call("read_file", {"path": page}, text, agent=name)


def agents_fail_alike_once(tape: Tape) -> None:
    """Each of several agents meets the same error once, and goes another way."""
    for number in range(6):
        name = f"agent{number}"
        tape.call("open_page", {"url": tape.word()}, error="PermissionError: denied", agent=name)
        tape.call("search", {"q": tape.prose(3)}, tape.prose(50), agent=name)


def agents_find_nothing_once(tape: Tape) -> None:
    """Each of several agents looks in one place where nothing is."""
    for number in range(6):
        name = f"agent{number}"
        tape.call("grep", {"pattern": tape.word()}, "No matches found.", agent=name)
        tape.call("read_file", {"path": tape.hexadecimal()}, tape.prose(50), agent=name)


def greps_of_one_message(tape: Tape) -> None:
    """Seventeen calls that one message asks for run one after the other, and find nothing."""
    tape.model(tape.prose(10))
    for _ in range(17):
        took = tape.dice.uniform(0.01, 0.2)
        tape.at_once("grep", {"pattern": f"{tape.word()}_{tape.word()}"}, "No matches found.", took)
    tape.model(tape.prose(10))
    tape.call("read_file", {"path": tape.hexadecimal()}, tape.prose(60))
