"""Requests from outside of the process: whatever they hold, there is a reply."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_loopguard import Action, LoopGuard, control, set_testing
from otel_loopguard.core import Kind, Step
from tests.escalation.agents import asked, stuck, watched

if TYPE_CHECKING:
    from otel_loopguard.escalation.admin import AdminHandlers


@pytest.fixture
def guard() -> LoopGuard:
    return watched()


@pytest.fixture
def admin(guard: LoopGuard) -> AdminHandlers:
    return guard.escalation().admin


def test_the_list(guard: LoopGuard, admin: AdminHandlers) -> None:
    """Where each session is, what its flag says, what it was put before people with; no content."""
    now = time.time_ns()
    tokens = {"tokens_in": 30, "tokens_out": 12, "start": now - 10**9, "end": now}
    guard.observe(Step(Kind.MODEL, "gpt", agent="writer", **tokens), "well")
    stuck(guard, "held")
    reply = admin.reply({"op": "sessions"})
    rows = {row["session"]: row for row in reply["sessions"]}
    assert reply["ok"]
    assert rows["well"]["tokens"] == 42
    assert (rows["well"]["agent"], rows["well"]["step"]) == ("writer", "gpt")
    assert (rows["well"]["action"], rows["well"]["escalation"]) == ("allow", None)
    assert rows["held"]["action"] == "pause"
    assert rows["held"]["by"] == "policy"
    assert rows["held"]["detector"] == "exact_repeat"
    assert rows["held"]["escalation"] == asked(guard)[0].id
    assert rows["held"]["process"] == reply["process"]
    assert "secret" not in json.dumps(reply)


def test_what_is_listed() -> None:
    """The newest `admin.sessions`; not those that were idle for long, unless they are stopped."""
    guard = watched(tuning={"admin": {"sessions": 3, "idle_s": 60}})
    with set_testing(True) as clock:
        for key in "abcd":
            guard.observe(Step(Kind.TOOL, "t", args={"q": key}, outcome="x"), key)
        control.pause("b")
        clock.advance(61)
        guard.observe(Step(Kind.TOOL, "t", args={"q": 1}, outcome="y"), "e")
        reply = guard.escalation().admin.reply({"op": "sessions"})
    assert [row["session"] for row in reply["sessions"]] == ["e"]
    more = watched(tuning={"admin": {"sessions": 2}})
    for key in "abcd":
        more.observe(Step(Kind.TOOL, "t", args={"q": key}, outcome="x"), key)
    reply = more.escalation().admin.reply({"op": "sessions"})
    assert [row["session"] for row in reply["sessions"]] == ["d", "c"]
    assert reply["omitted"] == 2


def test_stopped_sessions_stay_on_the_list() -> None:
    """They wait for somebody."""
    guard = watched(tuning={"admin": {"idle_s": 0.01}})
    stuck(guard, "held")
    time.sleep(0.05)
    reply = guard.escalation().admin.reply({"op": "sessions"})
    assert [row["session"] for row in reply["sessions"]] == ["held"]


def test_one_session(guard: LoopGuard, admin: AdminHandlers) -> None:
    """Its totals, last actions, decisions, and the package with how it ended."""
    stuck(guard, "held")
    view = admin.reply({"op": "show", "session": "held"})["session"]
    assert view["totals"]["actions"] == 4
    assert [act["tool"] for act in view["actions"]] == ["search"] * 4
    assert [decision["action"] for decision in view["decisions"]] == ["hint", "pause"]
    assert view["package"]["ended"] is None
    control.answer(view["escalation"], "skip_task", by="anna")
    view = admin.reply({"op": "show", "session": "held"})["session"]
    assert view["escalation"] is None
    assert view["package"]["ended"]["by"] == "anna"


def test_orders(guard: LoopGuard, admin: AdminHandlers) -> None:
    """Pause, resume with guidance, abort: with who and why."""
    guard.bind(1, "a")
    flag = guard.flag_of("a")
    assert admin.reply({"op": "pause", "session": "a", "reason": "look", "by": "anna"})["ok"]
    assert (flag.control.action, flag.control.reason, flag.control.by) == (
        Action.PAUSE, "look", "anna",
    )  # fmt: skip
    reply = admin.reply({"op": "resume", "session": "a", "guidance": "use B", "by": "bob"})
    assert reply["action"] == "hint"
    assert (flag.control.hint, flag.control.by) == ("use B", "bob")
    assert admin.reply({"op": "resume", "session": "a"})["action"] == "allow"
    assert admin.reply({"op": "abort", "session": "a"})["action"] == "abort"
    assert flag.control.reason == "aborted by hand"


@pytest.mark.parametrize("op", ["show", "pause", "resume", "abort"])
@pytest.mark.parametrize("session", ["nobody", "", None], ids=repr)
def test_unknown_sessions(admin: AdminHandlers, op: str, session: str | None) -> None:
    """Are told of by name."""
    reply = admin.reply({"op": op} if session is None else {"op": op, "session": session})
    assert (reply["ok"], reply["error"]) == (False, "unknown_session")


def test_answers(guard: LoopGuard, admin: AdminHandlers) -> None:
    """Once; then the reply says how it ended, and nothing is changed."""
    stuck(guard, "held")
    request = {"op": "answer", "escalation": asked(guard)[0].id, "by": "anna"}
    refused = admin.reply({**request, "answer": "perhaps"})
    assert (refused["error"], "must be one of" in refused["message"]) == ("refused", True)
    assert admin.reply({**request, "answer": "continue"})["ok"]
    late = admin.reply({**request, "answer": "abort"})
    assert (late["error"], "anna answered continue" in late["message"]) == ("refused", True)
    unknown = admin.reply({**request, "escalation": "nope", "answer": "abort"})
    assert unknown["error"] == "unknown_escalation"
    assert guard.flag_of("held").control.action is Action.ALLOW


def test_an_answer_may_raise_a_budget() -> None:
    """As the command line sends it, as text."""
    guard = watched(budget_cost=1, budget_action="pause")
    for _ in range(2):
        guard.observe(Step(Kind.MODEL, "m", cost=0.6), "spends-by-hand")
    (waiting,) = asked(guard)
    request = {"op": "answer", "escalation": waiting.id, "by": "anna", "answer": "continue"}
    admin = guard.escalation().admin
    refused = admin.reply({**request, "limit": "1.2"})
    assert (refused["error"], "above the 1.2 spent" in refused["message"]) == ("refused", True)
    assert admin.reply({**request, "limit": "2"})["ok"]
    guard.observe(Step(Kind.MODEL, "m", cost=0.6), "spends-by-hand")
    assert [one.threshold for one in guard.report("spends-by-hand").alerts][-1] == 1.6
    guard.shutdown()


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_NAMES = ("session", "by", "reason", "guidance", "escalation", "answer")
_OPS = st.sampled_from(["sessions", "show", "pause", "resume", "abort", "answer"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.text(), _ANYTHING, max_size=3)
    | st.fixed_dictionaries(
        {"op": _OPS | _ANYTHING},
        optional=dict.fromkeys(_NAMES, _ANYTHING),
    )
)
def test_any_request_gets_a_reply(admin: AdminHandlers, request_: dict[str, object]) -> None:
    """Nothing is raised for what a request holds."""
    reply = admin.reply(request_)
    assert reply["ok"] is True or {"error", "message"} <= set(reply)
