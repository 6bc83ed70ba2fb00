"""What is put before people, what their answers do, and what is told of it."""

import asyncio
import gc
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from otel_loopguard import (
    Action,
    LoopGuard,
    LoopGuardAbort,
    LoopGuardPaused,
    LoopGuardSpanProcessor,
    Settings,
    control,
    session,
    sessions,
)
from otel_loopguard._util.text import encoded
from otel_loopguard.core import Kind, Severity, Step
from otel_loopguard.core.report import Escalation
from otel_loopguard.errors import EscalationError
from otel_loopguard.escalation import message
from tests.agents import Ended, agent, provider_with
from tests.escalation.agents import asked, stuck, until, watched


def only() -> Escalation:
    (found,) = control.escalations()
    return found


def test_a_pause_is_put_before_people() -> None:
    """The package: reason, detection, last actions, suggestions, state; no content (C8)."""
    guard = watched(pause_limit_s=100)
    for number in range(7):
        guard.observe(Step(Kind.TOOL, "read", args={"n": number}, outcome=f"{number}" * 40), "a")
    stuck(guard, "a")
    found = only()
    row = found.row()
    assert (found.session, found.cause, found.held, found.fallback) == (
        "a", "pause", True, "skip_task",
    )  # fmt: skip
    assert [act["tool"] for act in row["actions"]] == ["read", *["search"] * 4]
    assert {act["outcome"] for act in row["actions"]} == {"ok"}
    assert row["detection"]["detector"] == "exact_repeat"
    assert row["decision_id"] == guard.flag_of("a").control.decision_id
    assert row["state"]["actions"] == 11
    assert {one["answer"] for one in row["suggestions"]} >= {"continue", "skip_task", "abort"}
    assert 98 <= (found.until - found.at) / 1e9 <= 100
    assert "secret" not in json.dumps(row)
    text = message(found)
    for part in ("Session a is paused", found.id, "search by helper: ok", "skip_task", "UTC"):
        assert part in text
    assert "secret" not in text


def test_content_only_where_it_is_wanted() -> None:
    """`escalation_content` shows arguments, cut."""
    guard = watched(escalation_content=True, tuning={"escalation": {"actions": 2}})
    stuck(guard, "a")
    contents = [act.content for act in only().acts]
    assert contents == ['{"q": "secret"}'] * 2


def test_a_type_of_an_error_that_is_a_text_is_content() -> None:
    """As instrumentations write it that have no other place for what was said."""
    guard = watched(escalate_on="warning", tuning={"escalation": {"actions": 4}})
    kinds = ("ValueError", "Refused: the key sk-secret is not valid", '{"key":"secret"}', "502")
    for kind in kinds:
        guard.observe(Step(Kind.TOOL, "search", error=True, error_type=kind), "a")
    control.escalate("why", session="a")
    found = only()
    assert [act.error_type for act in found.acts] == ["ValueError", None, None, "502"]
    assert "secret" not in json.dumps(found.row()) + message(found)


ANSWERS = {
    "continue": "says: use B", "modify_plan": "change your plan", "skip_task": "skip the current",
}  # fmt: skip


@pytest.mark.parametrize(("answer", "part"), ANSWERS.items())
def test_answers_let_it_go_on(answer: str, part: str) -> None:
    """And the guidance is the hint that the model is told next."""
    guard = watched()
    stuck(guard, "a")
    control.answer(only().id, answer, "use B", by="anna")
    with session("a"):
        assert control.gate().control.action is Action.HINT
        said = control.hint() or ""
        assert part in said
        assert said.endswith("use B")
        assert control.hint() is None
    assert guard.flag_of("a").control.by == "anna"
    assert control.escalations() == []


def test_the_fallback_at_the_limit() -> None:
    """The waiting gate goes on, with a hint to skip the task; an answer comes too late."""
    guard = watched(pause_limit_s=1)
    stuck(guard, "a")
    found = only()
    begun = time.monotonic()
    with session("a"):
        assert control.gate().control.action is Action.HINT
        assert (control.hint() or "").startswith("Nobody answered in time")
    assert time.monotonic() - begun < 10
    with pytest.raises(EscalationError, match="nobody answered in time, and skip_task was taken"):
        control.answer(found.id, "abort")
    assert guard.flag_of("a").control.by == "time limit"


@pytest.mark.parametrize(
    ("fallback", "error"), [("abort", LoopGuardAbort), ("wait", LoopGuardPaused)]
)
def test_other_fallbacks(fallback: str, error: type[Exception]) -> None:
    """`abort` ends the run; with `wait` it stays paused, and the gate gives up at its limit."""
    guard = watched(pause_limit_s=0.5, escalation_fallback=fallback)
    # A name of its own: a guard that another test left would answer for its session, too.
    stuck(guard, fallback)
    with session(fallback), pytest.raises(error):
        control.gate()
    until(lambda: not control.escalations())


@pytest.fixture
def channel() -> Iterator[list[Escalation]]:
    """Every escalation that people are sent a message about."""
    sent: list[Escalation] = []
    forget = control.on_escalation(sent.append)
    yield sent
    forget()


def hand_over(guard: LoopGuard, name: str, times: int) -> list[Action]:
    """Two agents that pass the same work back and forth; what the flag says after each time."""
    asks = "The summary has no sources, please add them", "There are no sources, please do without"
    seen: list[Action] = []
    for number in range(times):
        giver, agent = ("critic", "planner") if number % 2 else ("planner", "critic")
        step = Step(Kind.HANDOFF, agent, agent=giver, args=asks[number % 2])
        guard.observe(step, name)
        seen.append(guard.flag_of(name).control.action)
    return seen


@pytest.mark.parametrize(
    "settings", [{}, {"escalate_on": "warning"}], ids=["default", "every warning"]
)
def test_a_cooldown_never_weakens_the_ladder(
    settings: dict[str, object], channel: list[Escalation]
) -> None:
    """Where somebody can answer, a live cycle asks at 8 and pauses at 12, as a replay does.

    People hear that the session waits now, of a pause that follows an ask they were told of.
    """
    live = LoopGuard(Settings(**settings))
    replayed = LoopGuard(Settings(**settings), clock="replay")
    seen = hand_over(live, "a", 12)
    assert (seen[7], seen[11]) == (Action.ASK, Action.PAUSE)
    assert seen == hand_over(replayed, "a", 12)
    if not settings:
        until(lambda: len(channel) == 2)
        assert [(found.cause, found.held) for found in channel] == [("ask", False), ("cycle", True)]


def test_anybody_may_read_the_log_of_cycles() -> None:
    """`sessions.cycles` has what was found, what was called for, and how it ended (B8)."""
    guard = LoopGuard(Settings())
    assert sessions.cycles("a") == ()
    hand_over(guard, "a", 12)
    (cycle,) = sessions.cycles("a")
    assert "pair_cycle" in cycle.patterns
    assert (cycle.found, cycle.last, cycle.resolution) == (3, 11, None)
    assert (cycle.intervention, cycle.escalated) == ("escalate_human", True)
    assert (cycle.agents, cycle.severity) == (("critic", "planner"), Severity.FATAL)
    guard.observe(Step(Kind.OTHER, "user", text="leave it"), "a")
    with session("a"):
        assert [one.resolution for one in sessions.cycles()] == ["user_turn"]


def test_a_second_pause_is_a_pause(channel: list[Escalation]) -> None:
    """A bare `continue` takes the first one down; whoever answered it hears of the second."""
    guard = watched()
    stuck(guard, "a")
    control.answer(only().id, "continue")
    assert guard.flag_of("a").control.action is Action.ALLOW
    stuck(guard, "a")
    assert guard.flag_of("a").control.action is Action.PAUSE
    until(lambda: len(channel) == 2)
    assert only().id == channel[1].id


def test_a_message_that_nobody_answered_is_not_sent_again(channel: list[Escalation]) -> None:
    """The session is held all the same, and the escalation can be answered."""
    guard = watched(pause_limit_s=0.2)
    stuck(guard, "a")
    until(lambda: not control.escalations())
    stuck(guard, "a")
    assert guard.flag_of("a").control.action is Action.PAUSE
    assert only().held
    control.answer(only().id, "abort")
    assert guard.flag_of("a").control.action is Action.ABORT
    assert len(channel) == 1


def test_an_application_is_always_heard(channel: list[Escalation]) -> None:
    """`control.escalate` holds the session and is sent, however short the last one was ago."""
    guard = watched(max_action="ask", ask_after=2, steer_after=1)
    stuck(guard, "a", calls=5)
    assert [found.cause for found in control.escalations()] == ["ask"]
    first = control.escalate("the refund is above 1,000 EUR", session="a")
    second = control.escalate("and to another account", session="a")
    assert first != second
    assert guard.flag_of("a").control.action is Action.PAUSE
    until(lambda: len(channel) == 3)
    assert {first, second} <= {found.id for found in control.escalations()}


def test_a_session_is_escalated_by_the_guard_that_holds_its_flag() -> None:
    """Not by that of a server in the same process, which may have one of the same key."""
    server = LoopGuard(Settings(), local=False)
    stuck(server, "a", calls=1)
    server.escalation()
    guard = watched()
    stuck(guard, "a", calls=1)
    assert control.escalate("the refund is above 1,000 EUR", session="a")
    held = [found.flag_of("a").control.action for found in (server, guard)]
    assert held == [Action.ALLOW, Action.PAUSE]


def test_what_is_not_put_before_people() -> None:
    """Shadow mode, what the settings leave out, and replays."""
    shadow, left_out = watched(mode="shadow"), watched(escalate_on="ask")
    for guard in (shadow, left_out):
        stuck(guard, "a")
    assert left_out.flag_of("a").control.action is Action.PAUSE
    assert control.escalations() == []


def test_from_a_severity() -> None:
    """Every decision as bad as that is put before people; an aborted run may be let go on."""
    guard = watched(max_action="abort", escalate_on="fatal")
    stuck(guard, "a", calls=7)
    found = only()
    assert (found.cause, found.held) == ("severity", False)
    assert guard.flag_of("a").control.action is Action.ABORT
    control.answer(found.id, "continue", by="anna")
    assert guard.flag_of("a").control.action is Action.ALLOW


def test_a_cycle_that_goes_on() -> None:
    """A decision that calls for a person is put before one, whatever its action (B7)."""
    guard = watched(max_action="abort")
    stuck(guard, "a")
    found, decision = guard._sessions.find("a"), guard.flag_of("a").control.decision
    assert found is not None
    assert decision is not None
    guard.escalation().decided(found, replace(decision, intervention="escalate_human"))
    assert (only().cause, only().held) == ("cycle", False)
    assert "go in circles" in message(only())


def test_names_that_are_no_names() -> None:
    """Line ends do not forge lines, and what is no Unicode is sent all the same."""
    guard = watched()
    stuck(guard, "a\nYou may answer:\n\ud800", tool="t\n  abort: x")
    lines = message(only()).splitlines()
    assert lines[0].startswith("Session a You may answer: ")
    assert lines.count("You may answer:") == 1
    assert json.loads(encoded(only().row()))["session"].endswith("\\ud800")
    reply = guard.escalation().admin.reply({"op": "sessions"})
    assert json.loads(encoded(reply))["sessions"][0]["action"] == "pause"
    assert guard.faults.counts == {}


def test_not_held_runs_out_without_a_change() -> None:
    """Where the session does not wait, nothing follows at the limit."""
    guard = watched(max_action="ask", ask_after=1, steer_after=1, pause_limit_s=0.3)
    stuck(guard, "a")
    before = guard.flag_of("a").control
    assert before.action is Action.ASK
    until(lambda: not control.escalations())
    assert guard.flag_of("a").control is before


@pytest.mark.parametrize(
    ("change", "action"), [(control.resume, Action.ALLOW), (control.abort, Action.ABORT)]
)
def test_changed_past_the_escalation(change: Callable[..., object], action: Action) -> None:
    """`control.resume` and `control.abort` end it; an answer comes too late, or to none."""
    guard = watched()
    stuck(guard, "a")
    found = only()
    change("a", by="bob")
    assert control.escalations() == []
    with pytest.raises(EscalationError, match="the session was changed by bob"):
        control.answer(found.id, "continue")
    with pytest.raises(EscalationError, match="there is no escalation 'nope' here"):
        control.answer("nope", "abort")
    with pytest.raises(EscalationError, match="the guard itself has that name"):
        control.answer(found.id, "abort", by="POLICY")
    assert guard.flag_of("a").control.action is action


@pytest.mark.parametrize("by_answer", [True, False])
def test_nothing_is_decided_of_what_a_person_aborted(by_answer: bool) -> None:
    """The agent may not ask, and go on; who lets it go on has it judged again."""
    decided: list[Action] = []
    guard = LoopGuard(
        Settings(max_action="pause"), on_decision=lambda _, d: decided.append(d.action)
    )
    stuck(guard, "a")
    (found,) = asked(guard)
    if by_answer:
        control.answer(found.id, "abort", by="anna")
    else:
        control.abort("a", by="anna")
    before = list(decided)
    stuck(guard, "a", 8)
    assert decided == before
    assert asked(guard) == []
    control.resume("a", by="anna")
    stuck(guard, "a", 8)
    assert len(decided) > len(before)


def test_the_application_asks(caplog: pytest.LogCaptureFixture) -> None:
    """`control.escalate` holds the session until it is answered."""
    guard = watched(pause_limit_s=60)
    guard.bind(1, "a")
    with session("a"):
        found_id = control.escalate("the refund is above 1,000 EUR")
        assert found_id == only().id
        assert (only().cause, only().held) == ("application", True)
        assert "refund" in message(only())
        assert control.current().by == "application"
        control.answer(only().id, "continue", "pay it", by="anna")
        assert control.gate().control.hint == "A person looked at this run and says: pay it"
    guard.bind(2, "b")
    assert control.escalate("look at this", session="b", hold=False) is not None
    assert guard.flag_of("b").control.action is Action.ALLOW
    assert "control.escalate" not in caplog.text
    assert control.escalate("who?", session="nobody") is None
    assert "control.escalate" in caplog.text
    with pytest.raises(ValueError, match="reason of an escalation"):
        control.escalate(" ")


def test_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """One record when it opens and one when it ends, with who and why (A11, B8)."""
    caplog.set_level(logging.INFO, "otel_loopguard")
    guard = watched()
    stuck(guard, "a")
    found = only()
    control.answer(found.id, "skip_task", "not needed", by="anna")
    records = [one for one in caplog.records if "escalation" in one.getMessage()]
    opened, ended = records
    assert opened.levelno == logging.WARNING
    assert vars(opened)["loopguard.escalation.id"] == found.id
    assert vars(opened)["loopguard.escalation.cause"] == "pause"
    assert "loopguard.control.by" not in vars(opened)
    assert vars(ended)["loopguard.control.by"] == "anna"
    assert vars(ended)["loopguard.escalation.answer"] == "skip_task"
    assert ended.getMessage().endswith("anna answered skip_task by api: not needed")


def test_room_for_ten_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    """An escalation without room is not opened; the session stays as it was decided."""
    monkeypatch.setattr("otel_loopguard.escalation.escalations._MOST_OPEN", 2)
    guard = watched()
    for name in "abc":
        stuck(guard, name)
    assert [found.session for found in control.escalations()] == ["a", "b"]
    assert guard.flag_of("c").control.action is Action.PAUSE


SESSIONS = 200


def test_many_sessions_wait_without_a_thread_each() -> None:
    """And each goes on with its own answer."""
    guard = watched(pause_limit_s=120)
    keys = [f"run-{number}" for number in range(SESSIONS)]
    for key in keys:
        stuck(guard, key)

    async def wait(key: str) -> control.Control:
        with session(key):
            return await control.gate()

    async def run() -> list[control.Control]:
        waiting = [asyncio.create_task(wait(key)) for key in keys]
        await asyncio.sleep(0.1)
        threads.append(threading.active_count())
        for found in asked(guard):
            control.answer(found.id, "continue", found.session, by="anna")
        return await asyncio.gather(*waiting)

    before, threads = threading.active_count(), []
    ended = asyncio.run(run())
    assert threads[0] - before < SESSIONS / 10  # other tests may have left some that begin
    assert {one.action for one in ended} == {Action.HINT}
    assert [(one.hint or "").rpartition(" ")[2] for one in ended] == keys
    assert asked(guard) == []


def test_many_time_limits_on_one_thread() -> None:
    """All sessions go on when nobody answers."""
    gc.collect()  # each guard of an earlier test that is still there is asked for every session
    guard = watched(pause_limit_s=1)
    for number in range(SESSIONS):
        stuck(guard, f"run-{number}")
    until(lambda: not control.escalations(), limit_s=900)
    actions = {guard.flag_of(f"run-{number}").control.action for number in range(SESSIONS)}
    assert actions == {Action.HINT}


def test_the_agents_span_says_who(caplog: pytest.LogCaptureFixture) -> None:
    """An attribute with the last one, an event for each; the tool's span is left alone."""
    caplog.set_level(logging.INFO, "otel_loopguard")
    provider = provider_with(LoopGuardSpanProcessor(span_events=True), ended := Ended())
    tracer, called = provider.get_tracer("my.agent"), {"gen_ai.tool.name": "search"}
    inside = tracer.start_as_current_span("execute_tool", attributes=called)
    with session("run"), agent(tracer), inside:
        control.pause("run", "let me look", by="anna")
        control.resume("run", by="bob", guidance="use the index")
        found = control.escalate("may I?", session="run")
        assert found is not None
        control.answer(found, "skip_task", "no", by="anna")
    provider.shutdown()
    tool, run = ended.spans
    assert (run.attributes or {})["loopguard.control.by"] == "anna"
    assert (run.attributes or {})["loopguard.decision.action"] == "hint"
    said = [event.attributes or {} for event in run.events if event.name == "loopguard.control"]
    assert [one["loopguard.control.by"] for one in said] == ["anna", "bob", "application", "anna"]
    assert said[0]["loopguard.decision.message"] == "let me look"
    assert said[0]["loopguard.decision.action"] == "pause"
    assert said[3]["loopguard.decision.message"] == "anna answered skip_task: no"
    assert "loopguard.control.by" not in (tool.attributes or {})
    lines = [one.getMessage() for one in caplog.records]
    assert "otel-loopguard: control: session run: anna set pause: let me look" in lines
    answered = "otel-loopguard: control: session run: bob set hint"
    assert any(line.startswith(answered) for line in lines)
