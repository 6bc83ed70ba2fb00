"""The policy of a session, and what users say of actions elsewhere: none of it holds here."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import otel_loopguard
from otel_loopguard import LoopGuardAbort, Settings, control
from otel_loopguard.core import Action, Detection, Severity, Step
from otel_loopguard.core.decision import Source
from otel_loopguard.policy import Policy, certainty_of, follow_ups_of, place_of, source_of
from tests.agents import agent, tool_call
from tests.calls import Run, call
from tests.hostile.rig import Rig
from tests.tables import rows

NOTHING = "No results found."


@contextmanager
def searched(rig: Rig, times: int) -> Iterator[str]:
    """An agent's run in a session of its own, that made so many equal calls; gives its key."""
    with otel_loopguard.session(uuid.uuid4().hex) as key, agent(rig.tracer):
        for _ in range(times):
            tool_call(rig.tracer, result=NOTHING)
        yield key


def test_a_session_that_was_stopped_can_go_on() -> None:
    """An abort says why, and only the runtime's own `check` raises it; who resumes it keeps it."""
    rig = Rig()
    with searched(rig, 8) as key:
        with pytest.raises(LoopGuardAbort, match=r"'search' was called .* with the same arguments"):
            control.check()
        assert control.resume(key)
        control.check()
        tool_call(rig.tracer, args='{"q": "y"}', result="something new")
        assert control.current().action is Action.ALLOW


def test_nothing_is_put_into_the_conversation() -> None:
    """Arguments, results and messages on the spans are what the agent wrote."""
    rig = Rig(wrapped=True)
    with searched(rig, 5):
        pass
    own = {"operation.name", "tool.name", "tool.call.arguments", "tool.call.result", "agent.name"}
    for span in rig.exported:
        written = dict(span.attributes or {})
        names = {name for name in written if not name.startswith("loopguard.")}
        assert names <= {"error.type", *(f"gen_ai.{name}" for name in own)}
        assert written.get("gen_ai.tool.call.result", NOTHING) == NOTHING


def found(
    key: int = 1, *, family: str = "repetition", own: Action | None = None, message: str = "m"
) -> Detection:
    return Detection(
        family, "rule", Severity.WARNING, 0.7, frozenset({key}), 3, 3, message, family=family,
        own=own,
    )  # fmt: skip


def stuck(times: int, tool: str = "search") -> list[Step]:
    return [call(tool, {"q": "x"}, "Nothing was found, sorry about that.") for _ in range(times)]


def judged(*detections: Detection, **settings: Any) -> list[Detection]:
    """What is said of detections of one step, the actions carried out in its place."""
    said = Policy(Settings(**settings)).judge([*detections], 0, 0)
    return [replace(one.detection, own=one.action) for one in said]


def test_the_strongest_comes_last_and_a_graph_is_heard_before_a_tool() -> None:
    """The last one is what the span keeps; `max_action` holds for verdicts of budgets too."""
    said = judged(found(1, own=Action.PAUSE), found(2), found(3, own=Action.ALLOW))
    assert [one.own for one in said] == [Action.ALLOW, Action.HINT, Action.PAUSE]
    assert [one.family for one in judged(found(1), found(2, family="graph"))] == ["graph"]
    for most in (Action.HINT, Action.DENY, Action.ABORT):
        assert [one.own for one in judged(found(own=Action.ABORT), max_action=most)] == [most]


def test_too_many_different_warnings_stop_a_session() -> None:
    """The third loop that is warned of is one too many where two are the limit."""
    run = Run(Settings(warning_limit=2, max_action="abort"))
    for tool in ("alpha", "beta", "gamma"):
        run.calls(*stuck(3, tool))
    assert run.actions == ["hint", "hint", "hint", "abort"]
    last = run.decisions[-1]
    assert (last.detector, last.reason, last.severity) == (
        "warnings", "too_many_warnings", Severity.FATAL,
    )  # fmt: skip
    assert last.message.startswith("3 different warnings were given; the limit is 2. The last one:")


@pytest.mark.parametrize("most", ["hint", "deny", "pause", "abort"])
def test_every_decision_names_what_follows(most: Any) -> None:
    """The runtime learns what to do next, and how sure that is."""
    run = Run(Settings(max_action=most))
    run.calls(*stuck(8))
    last = run.decisions[-1]
    assert last.follow_ups == follow_ups_of(Action(most), None)
    assert last.source is Source.TOOL_LOOP
    assert last.certainty == (0.95 if last.action.stops else 0.85)


@pytest.mark.parametrize(("name", "families", "sure"), rows(__file__, "sources"))
def test_sources(name: str, families: str, sure: str) -> None:
    """In this order; a stop is surer than a word."""
    source = Source(name)
    for family in filter(None, families.split(", ")):
        assert source_of(found(family=family)) is source
    said = [certainty_of(source, action, 0.6) for action in (Action.ABORT, Action.HINT)]
    assert said == [float(one) for one in sure.split()]
    later = [*Source][[*Source].index(source) + 1 :]
    assert all(place_of(source) < place_of(each) for each in later)
