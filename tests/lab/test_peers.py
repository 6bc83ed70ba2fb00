"""The rules of other agents, each on small cases, and what a detector is given."""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from lab import peers
from lab.compare import of_recording
from lab.peers import Cline, Crush, DeerFlow, GeminiCli, Goose, OpenCode, OpenHands, RooCode
from lab.runs import Call, Detector, Found, Row, Scenario, calls, judged
from otel_loopguard.core import Kind, Step
from tests.tables import rows


def said(detector: Detector, made: Iterable[Call]) -> list[str | None]:
    """The verdicts, one for each call."""
    return [detector.observe(call) for call in made]


def equal(count: int, **given: Any) -> list[Call]:
    """Equal calls with an equal answer, each of a message of its own."""
    one = replace(Call("search", {"q": "x"}, "nothing"), **given)
    return [replace(one, message=number) for number in range(count)]


@pytest.mark.parametrize(("peer", "verdicts"), rows(__file__, "equal"))
def test_equal_calls(peer: str, verdicts: str) -> None:
    """At which of equal calls each one speaks first, and stops."""
    name, _, shipped = peer.partition(" ")
    detector = getattr(peers, name)(**({"shipped": True} if shipped else {}))
    found = said(detector, equal(10))
    first = {verdict: at for at, verdict in reversed(list(enumerate(found, 1))) if verdict}
    spoken = sorted((at, verdict) for verdict, at in first.items())
    assert ", ".join(f"{at} {verdict}" for at, verdict in spoken) == verdicts


def test_another_answer_matters_to_those_that_compare_it() -> None:
    """OpenHands and crush; the others stop a poll that moves."""
    moving = [Call("get", {"id": 4}, f"{number} %", message=number) for number in range(12)]
    assert not any(said(OpenHands(), moving))
    assert not any(said(Crush(), moving))
    for other in (GeminiCli(), OpenCode(), Goose(), RooCode(), Cline(), DeerFlow()):
        assert "stop" in said(other, moving)


PAGES = [Call("read_file", {"path": "a", "start_line": 40 * n}, str(n)) for n in range(5)]
SENTENCE = "I have to look at the harbour and the station again to be sure. "


@pytest.mark.parametrize(
    ("detector", "made", "last"),
    [
        # Three errors of one call, not of a program; two calls in turn; three messages, no answers.
        (OpenHands, equal(3, error="no", answer=None), "warn"),
        (OpenHands, equal(4, error="no", answer=None), "stop"),
        (OpenHands, equal(3, tool="bash", error="Exit code 1", answer=None), None),
        (OpenHands, [Call("t", {"n": n % 2}, "a") for n in range(6)], "stop"),
        (OpenHands, [Call(None, text=str(n)) for n in range(3)], "stop"),
        (OpenHands, [Call(None, text=str(n), answers_user=True) for n in range(9)], None),
        # Three calls five times; a sentence over and over, but not rows of a table.
        (GeminiCli, [Call("t", {"n": n % 3}, "a") for n in range(15)], "warn"),
        (GeminiCli, [Call(None, text=SENTENCE * 12)], "warn"),
        (GeminiCli, [Call(None, text="| one and the same cell of a table |\n" * 40)], None),
        # Three equal errors, whatever the arguments.
        (partial(Goose, shipped=True), [Call("s", {"n": n}, error="no") for n in range(4)], "stop"),
        # Three equal calls side by side in one message.
        (
            partial(OpenCode, shipped=True),
            [Call("t", {}, "a", message=1, last=n == 2) for n in range(3)],
            "stop",
        ),
        # Small pages of one piece of a file are equal; fifty calls of one tool; writes are not.
        (DeerFlow, PAGES[:3], "warn"),
        (DeerFlow, PAGES, "stop"),
        (DeerFlow, [Call("t", {"id": n}, "a") for n in range(30)], "warn"),
        (DeerFlow, [Call("t", {"id": n}, "a") for n in range(50)], "stop"),
        (DeerFlow, [Call("edit", {"path": "a", "new": str(n)}, "ok") for n in range(9)], None),
    ],
)
def test_rules(detector: Any, made: list[Call], last: str | None) -> None:
    """What each says of the last call."""
    found = said(detector(), made)
    assert found[-1] == last
    assert last is not None or not any(found)


def test_a_run_is_judged_until_it_is_stopped() -> None:
    """Each run of an agent by a detector of its own."""
    assert judged(equal(9), Cline) == Found(3, 5)
    two = [Call("t", {}, "a", run=run) for run in "ab" * 4]
    assert judged(two, Cline) == Found(5, None)


def test_calls_of_steps() -> None:
    """What the model wrote, which message, which agent, who speaks."""
    told: tuple[Row, ...] = (
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
    made = list(calls(Scenario("s", told)))
    assert [one.tool for one in made] == ["a", "b", None, "scout", None, None]
    assert [one.text for one in made] == ["I look.", "", "nothing there", "", "hm", "done"]
    assert [one.last for one in made] == [False, *[True] * 5]
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
