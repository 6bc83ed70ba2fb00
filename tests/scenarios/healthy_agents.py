"""Families of runs that get somewhere: several agents, graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape


def react_graph(tape: Tape) -> None:
    """Agent, tools, agent, tools: the graph of nearly every agent."""
    for _ in range(20):
        tape.node("agent")
        tape.node("tools")
        tape.call("read_file", {"path": f"{tape.word()}{tape.hexadecimal(3)}"}, tape.prose(40))


def fast_graph(tape: Tape) -> None:
    """A pipeline over many documents, each node in some milliseconds."""
    for _ in range(15):
        for name in ("load", "split", "embed", "store"):
            tape.node(name, tape.prose(8))


def supervisor(tape: Tape) -> None:
    """Different work for two workers, by turns."""
    for number in range(8):
        worker = ("researcher", "writer")[number % 2]
        tape.handoff("supervisor", worker, tape.prose(18))
        tape.call("work", {"on": tape.prose(4)}, tape.prose(60), agent=worker)


def draft_and_review(tape: Tape) -> None:
    """A draft goes to the critic and back, and gets better."""
    for number in range(5):
        tape.handoff("writer", "critic", f"Please review draft {number}: {tape.prose(40)}")
        tape.call(
            "grade", {"draft": number}, f"grade {number + 4}: {tape.prose(20)}", agent="critic"
        )
        tape.handoff("critic", "writer", f"Please change: {tape.prose(25)}")
        tape.call(
            "write_draft", {"draft": number + 1, "text": tape.prose(30)}, "saved", agent="writer"
        )


def one_instruction_many_items(tape: Tape) -> None:
    """The same instruction for item after item, and each brings news."""
    for _ in range(10):
        item = f"{tape.word()} {tape.word()}"
        tape.handoff("lead", "analyst", f"Find the revenue of the company {item} and report it.")
        tape.call("web_search", {"query": f"revenue {item}"}, tape.prose(80), agent="analyst")


def one_instruction_answers_with_a_frame(tape: Tape) -> None:
    """The same instruction for item after item; the news comes in one field of a fixed frame."""
    for _ in range(10):
        item = f"{tape.word()} {tape.word()}"
        tape.handoff("lead", "analyst", f"Find the revenue of the company {item} and report it.")
        frame = {"status": "ok", "source": "archive", "language": "en", "format": "text"}
        answer = {**frame, "text": tape.prose(40)}
        tape.call("find_article", {"about": item}, answer, agent="analyst")


def workers_with_one_manual(tape: Tape) -> None:
    """Eight workers read the same manual first, each does its own work."""
    manual = tape.prose(60)
    for number in range(8):
        name = f"worker{number}"
        tape.call("read_file", {"path": "MANUAL.md"}, manual, agent=name)
        tape.call("search", {"q": tape.prose(3)}, tape.prose(50), agent=name)
        tape.call("write_report", {"n": number, "text": tape.prose(9)}, "ok", agent=name)


def fan_out_over_items(tape: Tape) -> None:
    """Rounds of parallel calls, each over other items."""
    for _ in range(8):
        tape.round([("fetch", {"id": tape.hexadecimal(6)}, tape.prose(30)) for _ in range(4)])


def side_by_side_alike(tape: Tape) -> None:
    """One round in which a model asks for the same thing five times: one round is one."""
    tape.round([("search", {"q": "x"}, "No results found for x.") for _ in range(5)])
    tape.round([("search", {"q": "y"}, tape.prose(30)) for _ in range(2)])


def long_talk(tape: Tape) -> None:
    """A talk in which the model only answers, turn by turn."""
    for _ in range(12):
        tape.user(tape.prose(12))
        tape.model(tape.prose(50), 3)


def long_answer_in_parts(tape: Tape) -> None:
    """A model writes a report in eight parts without a tool."""
    for number in range(4):
        tape.model(f"Part {number}. {tape.prose(120)}", 6)
    tape.call("save_report", {"text": tape.prose(50)}, "saved")
