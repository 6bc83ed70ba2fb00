"""Families of runs that get nowhere: agents that hand the same work on, and nothing comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape


def forty_hand_offs_of_a_swarm(tape: Tape) -> None:
    """Two agents each say that it is the other's, and hand it over."""
    for number in range(40):
        giver, taker = ("triage", "billing") if number % 2 else ("billing", "triage")
        tape.model("")
        tape.handoff(giver, taker, "This request belongs to your department, please take it.")


def a_worker_with_one_answer(tape: Tape) -> None:
    """A supervisor asks one worker in ever other words, which says the same sixty times."""
    answer = f"I cannot reach the archive, so I have no figures on it. {tape.prose(12)}"
    ways = ["now", "please", "once more", "again", "this time", "right away"]
    for number in range(60):
        way = ways[number % len(ways)]
        tape.handoff("supervisor", "archivist", f"Fetch the yearly figures from the archive {way}.")
        tape.model(answer)


def a_ring_without_end(tape: Tape) -> None:
    """Four agents send one request round."""
    agents = ["sales", "support", "billing", "legal"]
    for number in range(48):
        giver, taker = agents[number % 4], agents[(number + 1) % 4]
        tape.handoff(giver, taker, "Please answer the customer who asks for the missing refund.")
