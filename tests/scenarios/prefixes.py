"""What an agent of some trade does when all is well: the beginning of runs, and asides in loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape


def coding(tape: Tape) -> None:
    """A file is read that was not read before."""
    tape.call("bash", {"command": f"cat src/{tape.word()}_{tape.hexadecimal(4)}.py"}, tape.prose())


def web(tape: Tape) -> None:
    """A page that was not visited before."""
    url = f"https://{tape.word()}.example/{tape.word()}/{tape.hexadecimal(5)}"
    tape.call("visit_page", {"url": url}, tape.prose(90))


def data(tape: Tape) -> None:
    """A table that was not looked at before."""
    name = f"{tape.word()}_{tape.hexadecimal(3)}"
    tape.call("run_sql", {"query": f"SELECT * FROM {name} LIMIT 3"}, tape.prose(30))


def support(tape: Tape) -> None:
    """A record of a customer that was not looked up before."""
    tape.call("get_customer", {"id": f"C{tape.dice.randrange(10**6)}"}, tape.prose(25))


def operations(tape: Tape) -> None:
    """The description of a thing that runs."""
    name = f"{tape.word()}-{tape.hexadecimal(5)}"
    tape.call("kubectl", {"args": f"describe deployment {name}"}, tape.prose(50))


TRADES: tuple[Callable[[Tape], None], ...] = (coding, web, data, support, operations)
"""One healthy call of each trade, another one each time."""
