"""Families of runs that get nowhere: several agents, graphs, and rounds of parallel calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape

TURNS = 14


def handed_over_again(tape: Tape) -> None:
    """One instruction in ever other words, and a page that says what it said before."""
    page = "The page shows: " + tape.prose(40)
    ways = ["scroll", "continue looking", "keep scrolling", "go on", "scroll further", "look again"]
    for number in range(TURNS):
        way = ways[number % len(ways)]
        ask = f"Please {way} through the flavor graveyard page and identify the oldest flavor there"
        tape.handoff("Orchestrator", "WebSurfer", ask)
        tape.call("scrolled", {"by": number}, page, agent="WebSurfer")


def ping_pong(tape: Tape) -> None:
    """Two agents hand the same question to and fro, and no tool is asked."""
    for number in range(TURNS):
        giver, taker = ("writer", "critic") if number % 2 else ("critic", "writer")
        tape.handoff(giver, taker, "Please clarify what the customer wants before we go on.")


def ring_of_agents(tape: Tape) -> None:
    """Three agents hand the same work round."""
    agents = ["planner", "coder", "reviewer"]
    for number in range(24):
        giver, taker = agents[number % 3], agents[(number + 1) % 3]
        tape.handoff(
            giver, taker, "Please take over the task; the open point is the failing build."
        )


def graph_without_change(tape: Tape) -> None:
    """Two nodes by turns, the state stays."""
    for _ in range(TURNS):
        tape.node("plan", '{"todo": ["find report"], "found": []}')
        tape.node("review", '{"todo": ["find report"], "found": []}')


def fan_out_again(tape: Tape) -> None:
    """The same three calls side by side, round after round."""
    calls = [("fetch", {"of": name}, f"nothing about {name} in here at all") for name in "abc"]
    for _ in range(TURNS):
        tape.round(list(calls))


def each_agent_in_its_own_loop(tape: Tape) -> None:
    """Two agents side by side, each asks its own question again and again."""
    for _ in range(TURNS):
        tape.call("search", {"q": "alpha"}, "No results for alpha.", agent="one")
        tape.call("search", {"q": "beta"}, "No results for beta.", agent="two")
