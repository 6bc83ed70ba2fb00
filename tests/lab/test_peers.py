"""The rules of other agents, each on small cases, and what a detector is given."""

import json
import re
from collections.abc import Iterable

import pytest

from lab import peers
from lab.compare import of_recording
from lab.peers import Cline, Crush, DeerFlow, GeminiCli, Goose, OpenCode, OpenHands, RooCode
from lab.runs import Call, Detector, Found, Row, Scenario, calls, judged
from otel_loopguard.core import Kind, Step
from tests.tables import content, rows


def said(detector: Detector, made: Iterable[Call]) -> list[str | None]:
    """The verdicts, one for each call."""
    return [detector.observe(call) for call in made]


def equal(count: int) -> list[Call]:
    """Equal calls with an equal answer, each of a message of its own."""
    return [Call("search", {"q": "x"}, "nothing", message=number) for number in range(count)]


def made(peer: str) -> Detector:
    """One of them by its name, as it is by itself or as it is shipped."""
    name, _, shipped = peer.partition(" ")
    return getattr(peers, name)(**({"shipped": True} if shipped else {}))


@pytest.mark.parametrize(("peer", "verdicts"), rows(__file__, "equal"))
def test_equal_calls(peer: str, verdicts: str) -> None:
    """At which of equal calls each one speaks first, and stops."""
    found = said(made(peer), equal(10))
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


@pytest.mark.parametrize(("_name", "peer", "written", "last"), rows(__file__, "rules"))
def test_rules(_name: str, peer: str, written: str, last: str) -> None:
    """What each says of the last call."""
    found = said(made(peer), calls_of(written))
    assert found[-1] == (last or None)
    assert last or not any(found)


def calls_of(written: str) -> list[Call]:
    """So many calls, each with its number in place of `<N>` and of terms with it."""
    count, _, call = content(written).decode().partition(" ")
    terms = [(f"<{term}>", term) for term in set(re.findall("<([^<>]*N[^<>]*)>", call))]
    made: list[Call] = []
    for number in range(int(count)):
        filled = call
        for place, term in terms:
            filled = filled.replace(place, json.dumps(eval(term, {"N": number})))
        made.append(Call(**json.loads(filled)))
    return made


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
