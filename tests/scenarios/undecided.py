"""Families of runs that may be work or a loop: a hint may be given, a stop may not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape


def all_sold_out(tape: Tape) -> None:
    """Fifteen articles of a list, none of them in store."""
    for number in range(15):
        tape.call("get_stock", {"sku": f"SKU{number}X", "store": "main"}, "out of stock")


def no_flight_on_any_day(tape: Tape) -> None:
    """A search over fifteen days that finds nothing on any of them."""
    for day in range(1, 16):
        tape.call("search_flights", {"to": "JFK", "date": f"2024-05-{day:02d}"}, "[]")


def all_is_well(tape: Tape) -> None:
    """Twenty signatures, all valid."""
    for number in range(20):
        tape.call("verify_signature", {"file": f"{number}.pdf"}, '{"valid": true, "by": "CA"}')


def nobody_is_found(tape: Tape) -> None:
    """Eight different names, each not found."""
    for name in "ann bob cid dan eve fay gus hal".split():
        tape.call("find_user", {"name": name}, error="Error: user not found")


def locked_files(tape: Tape) -> None:
    """Ten files, none of which may be read."""
    for number in range(10):
        path = f"/srv/{tape.word()}{number}.db"
        tape.call("read_file", {"path": path}, error=f"PermissionError: [Errno 13]: '{path}'")


def state_asked_between_reads(tape: Tape) -> None:
    """The same `git status` after each file of a review."""
    for number in range(12):
        tape.call("read_file", {"path": f"src/{number}.py"}, tape.prose(40))
        tape.call("get_status", {}, "nothing to commit, working tree clean")


def one_question_of_many_users(tape: Tape) -> None:
    """Users of one talk ask for the same balance again and again."""
    for _ in range(10):
        tape.user("what is my balance now?")
        tape.call("get_balance", {"account": "A1"}, "balance: 100.00 EUR")


def same_verdict_after_each_edit(tape: Tape) -> None:
    """Twelve different edits, and the test fails as before each time."""
    for _ in range(12):
        tape.call("edit", {"path": "a.py", "old": tape.prose(3), "new": tape.prose(4)}, "ok")
        tape.call("bash", {"command": "pytest -q"}, {"exit_code": 1, "stdout": "1 failed"})
