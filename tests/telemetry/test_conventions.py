"""Log events of proposed GenAI conventions, where the environment asks for the newest ones."""

import uuid
from collections.abc import Mapping
from typing import Any

import pytest

import otel_loopguard
from otel_loopguard import control
from tests.agents import agent, tool_call
from tests.telemetry.scene import Scene

CALL = "gen_ai.tool.call.decision"
PAUSED, RESUMED = "gen_ai.agent.paused", "gen_ai.agent.resumed"
OPT_IN = "OTEL_SEMCONV_STABILITY_OPT_IN"
DENIED = {"error.type": "loopguard_deny", "gen_ai.tool.call.id": "call_7"}


@pytest.fixture(autouse=True)
def _opted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OPT_IN, "http, gen_ai_latest_experimental")


def proposed(scene: Scene) -> list[Any]:
    return [event for event in scene.events() if event.event_name.startswith("gen_ai.")]


def sent(scene: Scene, name: str) -> list[Mapping[str, object]]:
    """The attributes of the events of a name, without keys that are made anew."""
    return [event.attributes for event in scene.events(name)]


def test_a_refused_call_is_a_decision_with_the_id_of_the_call() -> None:
    """Not the decision of the policy, which comes after a call: the refusal before the next one."""
    scene = Scene()
    with agent(scene.tracer):
        scene.loop(4)
        assert sent(scene, CALL) == []
        refused = tool_call(scene.tracer, result=None, more=DENIED).get_span_context()
    (event,) = proposed(scene)
    last = scene.events("loopguard.decision")[-1].attributes
    assert event.event_name == CALL
    assert (event.trace_id, event.span_id) == (refused.trace_id, refused.span_id)
    assert dict(event.attributes) == {
        "gen_ai.tool.call.decision.outcome": "deny", "gen_ai.tool.call.id": "call_7",
        "gen_ai.tool.name": "search", "gen_ai.agent.name": "a",
        **{name: last[name] for name in ("loopguard.session.id", "loopguard.decision.id")},
    }  # fmt: skip


def test_a_turn_of_ones_own_leaves_the_decision_of_each_refused_call() -> None:
    """The refusals that `turn.tool` makes; the call at which the run ended was not refused."""
    scene, asked, ran = Scene(), list[int](), list[str]()
    turns = otel_loopguard.turn(uuid.uuid4().hex, tracer_provider=scene.provider)
    with pytest.raises(otel_loopguard.LoopGuardAbort), turns as turn:
        for number in range(20):
            asked.append(number)
            turn.tool("search", {"q": "x"}, lambda q: ran.append(q) or "nothing found")
    outcomes = [one["gen_ai.tool.call.decision.outcome"] for one in sent(scene, CALL)]
    assert len(ran) == 4
    assert outcomes == ["deny"] * (len(asked) - len(ran) - 1)


def test_a_pause_of_the_policy_and_its_end() -> None:
    """The next call needs approval; the agent is paused, and goes on by the answer of a person."""
    scene = Scene(max_action="pause")
    key = uuid.uuid4().hex
    with otel_loopguard.session(key), agent(scene.tracer) as run:
        scene.loop(5)
        assert control.current().action.value == "pause"
        assert sent(scene, RESUMED) == []
        control.resume(key, by="ada")
    pause = next(
        one for one in sent(scene, "loopguard.decision")
        if one["loopguard.decision.action"] == "pause"
    )["loopguard.decision.id"]  # fmt: skip
    (call,) = sent(scene, CALL)
    assert call["gen_ai.tool.call.decision.outcome"] == "require_approval"
    assert (call["gen_ai.tool.name"], call["loopguard.decision.id"]) == ("search", pause)
    assert sent(scene, PAUSED) == [{
        "gen_ai.agent.execution.id": key, "gen_ai.agent.pause.id": pause,
        "gen_ai.agent.pause.reason": "human_input", "gen_ai.agent.name": "a",
    }]  # fmt: skip
    assert sent(scene, RESUMED) == [{
        "gen_ai.agent.execution.id": key, "gen_ai.agent.resumed_from.type": "pause",
        "gen_ai.agent.resumed_from.id": pause, "gen_ai.agent.name": "a",
    }]  # fmt: skip
    assert all(event.trace_id == run.get_span_context().trace_id for event in proposed(scene))


@pytest.mark.parametrize("ended", ["resume", "abort"])
def test_a_pause_by_hand_is_resumed_or_ends_with_the_run(ended: str) -> None:
    """A second pause is the same one; an aborted agent does not go on."""
    scene = Scene()
    key = uuid.uuid4().hex
    with otel_loopguard.session(key), agent(scene.tracer):
        tool_call(scene.tracer)
        scene.guard.settle()
        control.pause(key, "let me look", by="ada")
        control.pause(key, "let me look again", by="bob")
        getattr(control, ended)(key, by="ada")
        control.resume(key, by="ada")
    (paused,) = sent(scene, PAUSED)
    resumed = sent(scene, RESUMED)
    assert len(resumed) == (ended == "resume")
    assert all(
        one["gen_ai.agent.resumed_from.id"] == paused["gen_ai.agent.pause.id"] for one in resumed
    )
    assert sent(scene, CALL) == []


def test_in_shadow_nothing_was_refused_or_paused() -> None:
    """What had no effect is no decision about a call."""
    scene = Scene(mode="shadow", max_action="pause")
    with agent(scene.tracer):
        scene.loop(8)
    assert scene.events("loopguard.decision")
    assert proposed(scene) == []


@pytest.mark.parametrize("value", ["", "http/dup", "gen_ai_latest"])
def test_without_the_switch_there_is_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By default no event of an unmerged convention is written, and no step is listened to."""
    monkeypatch.setenv(OPT_IN, value)
    scene = Scene(max_action="pause")
    key = uuid.uuid4().hex
    with otel_loopguard.session(key), agent(scene.tracer):
        scene.loop(5)
        tool_call(scene.tracer, result=None, more=DENIED)
        control.resume(key, by="ada")
    assert proposed(scene) == []
    assert not scene.guard.telemetry.on_steps
