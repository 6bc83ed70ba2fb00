"""Families of runs that get somewhere: agents that give work to other agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape


def thirty_pieces_of_work(tape: Tape) -> None:
    """A supervisor gives other work to the same three workers, and each says that it is done."""
    for number in range(30):
        worker = ("researcher", "writer", "checker")[number % 3]
        tape.handoff("supervisor", worker, f"{tape.prose(12)} Use {tape.word()} {tape.word()}.")
        tape.call("work", {"on": tape.prose(4)}, tape.prose(30), agent=worker)
        tape.handoff(worker, "supervisor", f"Done. {tape.prose(10)}")


def other_work_and_a_bare_done(tape: Tape) -> None:
    """Work for one worker, always other, whose answer is no more than a word."""
    for _ in range(12):
        tape.handoff("supervisor", "clerk", f"File the document about {tape.prose(10)}")
        tape.call("file", {"text": tape.prose(20)}, "filed", agent="clerk")


def a_worker_that_brings_news(tape: Tape) -> None:
    """The same instruction each time, and each time the worker finds something else."""
    for _ in range(20):
        tape.handoff("lead", "scout", "Look for further sources on the question and report them.")
        tape.call("web_search", {"query": tape.prose(4)}, tape.prose(60), agent="scout")


def a_supervisor_by_the_clock(tape: Tape) -> None:
    """Every quarter of an hour the same look, which mostly finds nothing."""
    for _ in range(15):
        tape.now += 900
        tape.handoff("supervisor", "watcher", "Look into the mailbox and report urgent messages.")
        tape.now += 5


def a_debate_that_moves(tape: Tape) -> None:
    """Two agents pass a text to and fro, and each answer says something else."""
    for number in range(12):
        giver, taker = ("writer", "critic") if number % 2 else ("critic", "writer")
        tape.handoff(giver, taker, f"About the draft: {tape.prose(40)}")
