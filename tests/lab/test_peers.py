"""The rules of other agents, each on small cases, and what a detector is given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from lab.compare import of_recording
from lab.peers import Cline, Crush, DeerFlow, GeminiCli, Goose, OpenCode, OpenHands, RooCode
from lab.runs import Call, Detector, Found, Row, Scenario, calls, judged
from otel_loopguard.core import Kind, Step


def said(detector: Detector, made: Iterable[Call]) -> list[str | None]:
    """The verdicts, one for each call."""
    return [detector.observe(call) for call in made]


def equal(count: int, **given: Any) -> list[Call]:
    """Equal calls with an equal answer, each of a message of its own."""
    one = replace(Call("search", {"q": "x"}, "nothing"), **given)
    return [replace(one, message=number) for number in range(count)]


@pytest.mark.parametrize(
    ("detector", "verdicts"),
    [
        (OpenHands(), {4: "stop"}),
        (GeminiCli(), {5: "warn", 6: "stop"}),
        (OpenCode(), {3: "stop"}),
        (OpenCode(shipped=True), {}),
        (Goose(), {4: "stop"}),
        (Goose(shipped=True), {}),
        (RooCode(), {4: "stop"}),
        (Cline(), {3: "warn", 5: "stop"}),
        (Crush(), {10: "stop"}),
        (DeerFlow(), {3: "warn", 5: "stop"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_equal_calls(detector: Detector, verdicts: dict[int, str]) -> None:
    """At which of equal calls each one speaks first, and stops."""
    found = said(detector, equal(10))
    first = {verdict: at for at, verdict in reversed(list(enumerate(found, 1))) if verdict}
    assert {at: verdict for verdict, at in first.items()} == verdicts


def test_another_answer_matters_to_those_that_compare_it() -> None:
    """OpenHands and crush; the others stop a poll that moves."""
    moving = [Call("get", {"id": 4}, f"{number} %", message=number) for number in range(12)]
    assert not any(said(OpenHands(), moving))
    assert not any(said(Crush(), moving))
    for other in (GeminiCli(), OpenCode(), Goose(), RooCode(), Cline(), DeerFlow()):
        assert "stop" in said(other, moving)


def test_openhands_nudges_at_three_errors() -> None:
    """And stops at the fourth; a program that fails is no error."""
    failing = equal(4, error="no", answer=None)
    assert said(OpenHands(), failing) == [None, None, "warn", "stop"]
    programs = equal(3, tool="bash", error="Exit code 1", answer=None)
    assert said(OpenHands(), programs) == [None, None, None]


def test_openhands_alternates_and_talks() -> None:
    """Two calls in turn three times, three messages; an answer to the user is none."""
    turns = [Call("t", {"n": number % 2}, "a") for number in range(6)]
    assert said(OpenHands(), turns)[-1] == "stop"
    talk = [Call(None, text=str(number)) for number in range(3)]
    assert said(OpenHands(), talk) == [None, None, "stop"]
    answers = [Call(None, text=str(n), answers_user=True, after_user=True) for n in range(9)]
    assert not any(said(OpenHands(), answers))


def test_gemini_finds_cycles_and_chants() -> None:
    """Three calls five times; a sentence over and over, but not rows of a table."""
    cycle = [Call("t", {"n": number % 3}, "a") for number in range(15)]
    assert said(GeminiCli(), cycle)[-1] == "warn"
    sentence = "I have to look at the harbour and the station again to be sure. "
    assert said(GeminiCli(), [Call(None, text=sentence * 12)]) == ["warn"]
    assert said(GeminiCli(), [Call(None, text="| one and the same cell of a table |\n" * 40)]) == [
        None
    ]


def test_goose_denies_the_tool_after_three_equal_errors() -> None:
    """Whatever the arguments."""
    failing = [Call("ssh", {"n": number}, error="Permission denied") for number in range(4)]
    assert said(Goose(shipped=True), failing) == [None, None, None, "stop"]


def test_opencode_ships_a_rule_for_one_message() -> None:
    """Three equal calls side by side."""
    beside = [Call("t", {}, "a", message=1, last=number == 2) for number in range(3)]
    assert said(OpenCode(shipped=True), beside)[-1] == "stop"


def test_deer_flow_knows_a_file_in_pieces_and_a_tool_by_its_calls() -> None:
    """Small pages of one piece are equal; fifty calls of one tool are too many."""
    pages = [Call("read_file", {"path": "a", "start_line": 40 * n}, str(n)) for n in range(5)]
    assert said(DeerFlow(), pages)[2::2] == ["warn", "stop"]
    many = said(DeerFlow(), [Call("t", {"id": number}, "a") for number in range(50)])
    assert (many[29], many[49]) == ("warn", "stop")
    writes = [Call("edit", {"path": "a", "new": str(n)}, "ok") for n in range(9)]
    assert not any(said(DeerFlow(), writes))


def test_a_run_is_judged_until_it_is_stopped() -> None:
    """Each run of an agent by a detector of its own."""
    assert judged(equal(9), Cline) == Found(3, 5)
    two = [Call("t", {}, "a", run=run) for run in "ab" * 4]
    assert judged(two, Cline) == Found(5, None)


def test_calls_of_steps() -> None:
    """What the model wrote, which message, which agent, who speaks."""
    rows: tuple[Row, ...] = (
        {"begin": "assistant", "user": "go"},
        {"model": {"seconds": 1, "text": "I look."}},
        {"tool": "a", "args": {}, "result": "1"},
        {"tool": "b", "args": {}, "error": "no"},
        {"begin": "scout", "nested": True, "user": "look there"},
        {"model": {"seconds": 1, "text": "nothing there"}},
        {"end": "scout"},
        {"model": {"seconds": 1, "text": "hm"}},
        {"model": {"seconds": 1, "text": "done"}},
        {"end": "assistant"},
    )
    made = list(calls(Scenario("s", rows)))
    assert [(one.tool, one.text, one.last) for one in made] == [
        ("a", "I look.", False),
        ("b", "", True),
        (None, "nothing there", True),
        ("scout", "", True),
        (None, "hm", True),
        (None, "done", True),
    ]
    assert [one.answers_user for one in made] == [False, False, True, False, False, True]
    assert made[0].after_user
    assert made[3].answer == "nothing there"


def test_calls_of_a_recording() -> None:
    """A hand-off is a call; a message that another agent follows is an answer."""
    steps = [
        Step(Kind.OTHER, "user"),
        Step(Kind.MODEL, "m", agent="lead", text="You do it."),
        Step(Kind.HANDOFF, "clerk", agent="lead", args="file it"),
        Step(Kind.MODEL, "m", agent="clerk", text="Filed."),
        Step(Kind.MODEL, "m", agent="lead", text="Good."),
    ]
    made = list(of_recording(steps))
    assert [(one.tool, one.text, one.run) for one in made] == [
        ("clerk", "You do it.", "lead"),
        (None, "Filed.", "clerk"),
        (None, "Good.", "lead"),
    ]
    assert made[0].after_user
    assert made[1].answers_user
