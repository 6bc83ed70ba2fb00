"""What is advised to a pair of agents, and said where no milestone is reached."""

from __future__ import annotations

import otel_loopguard
from otel_loopguard import LoopGuard, control
from otel_loopguard.core import Decision, Kind, Step


def test_a_pair_of_agents_gets_advice() -> None:
    """It grows with the count: skip the agent, add what was tried, ask a person."""
    found: list[Decision] = []
    guard = LoopGuard(clock="replay", on_decision=lambda _, d: found.append(d))
    asks = "The summary has no sources, please add them", "There are no sources, please do without"
    for number in range(12):
        giver, agent = ("critic", "planner") if number % 2 else ("planner", "critic")
        guard.observe(Step(Kind.HANDOFF, agent, agent=giver, args=asks[number % 2]), "run")
    skip = "Skip 'planner' for now: finish this without it, or give it to another agent."
    add = (
        "Before 'planner' gets this again, add what was tried so far, what came of it and what is "
        "still missing."
    )
    stop = "Stop handing this on, and ask a human who is to finish it, and how."
    assert [(d.step, f"{d.action} {d.intervention}", d.advice) for d in found] == [
        (3, "hint break_cycle", skip),
        (5, "steer break_cycle", skip),
        (7, "ask inject_context", add),
        (11, "deny escalate_human", stop),
    ]


def test_no_milestone_for_ten_steps() -> None:
    """It says how many are done."""
    found: list[str] = []
    guard = LoopGuard(
        on_decision=lambda _, d: found.append(f"{d.step} {d.action} {d.reason}: {d.message}")
    )
    with otel_loopguard.session("without-milestones") as key:
        control.milestones({"data read": 20, "model built": 60, "report written": 20})
        assert control.milestone("data read") == 20.0
        for page in range(12):
            step = Step(Kind.TOOL, "read_page", args={"page": page}, outcome=f"Page {page} of it.")
            guard.observe(step, key)
    assert found == [
        "10 hint no_milestone: no milestone changed for 10 steps and 0 s; 1 of 3 are done (20 %)"
    ]
