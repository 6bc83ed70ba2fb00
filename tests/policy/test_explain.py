"""`explain`: why a session was stopped, or why not."""

import json
from pathlib import Path

import pytest

import otel_loopguard
from otel_loopguard import (
    Action,
    LoopGuard,
    LoopGuardAbort,
    LoopGuardSpanProcessor,
    Settings,
    control,
    turn,
)
from otel_loopguard._control.gate import flag_refuses
from otel_loopguard.policy.explain import Explanation
from tests.agents import provider_with
from tests.calls import Run, call, handle_of

SEARCH = call("search", {"q": "x"}, "No results for that.")


def explained(run: Run) -> Explanation:
    return handle_of(run.guard).explain()


def test_what_was_counted_and_what_comes_next() -> None:
    """After a deny: its sum, the weight of a round with its reason, and the way to the abort."""
    run = Run()
    run.calls(*[SEARCH] * 5)
    (loop,) = explained(run).loops
    assert (loop.action, loop.next) == (Action.DENY, Action.ABORT)
    assert loop.counted + loop.missing == Settings().abort_after
    assert loop.weight == 1
    assert loop.because == ("it found nothing",)
    assert loop.why == "abort at 2 more, in 2 such rounds"
    run.calls(*[SEARCH] * 2)
    assert explained(run).loops[0].why == "this is as far as it goes"


def test_which_calls_are_one_loop() -> None:
    """Two that alternate are: each is refused with a sentence about itself."""
    run = Run()
    listing = call("list_dir", {"path": "."}, "a.py b.py")
    run.calls(*[call("read_file", {"path": "a"}, "import os\n" * 30), listing] * 4)
    found = explained(run)
    (loop,) = found.loops
    assert (loop.action, loop.tools) == (Action.DENY, ("list_dir", "read_file"))
    assert "'list_dir', 'read_file'" in str(found)
    for tool, path in (("list_dir", "."), ("read_file", "a")):
        refusal = flag_refuses(handle_of(run.guard), tool, {"path": path})
        assert refusal is not None
        assert str(refusal).startswith(repr(tool))
        assert repr(tool) in (refusal.reason or "")


def test_each_loop_is_refused_with_its_own_decision() -> None:
    """Also the one that was denied first."""
    run = Run()
    for tool in ("search", "query"):
        run.calls(*[call(tool, {"q": tool}, "No results for that.")] * 4)
    for tool in ("search", "query"):
        refusal = flag_refuses(handle_of(run.guard), tool, {"q": tool})
        assert refusal is not None
        assert refusal.decision is not None
        assert refusal.decision.tool == tool


def test_what_ended_a_session_stays_to_be_explained() -> None:
    """However long it runs on after the abort."""
    run = Run()
    run.calls(*[SEARCH] * 7)
    run.calls(*[call("read_file", {"path": str(n)}, f"page {n}" * 20) for n in range(60)])
    found = explained(run)
    assert found.action is Action.ABORT
    assert [loop.action for loop in found.loops] == [Action.ABORT]
    assert "abort at step 7 (exact_repeat, identical_call)" in str(found)


def test_why_nothing_was_said() -> None:
    """A call that is made again and again is listed with what takes its weight away."""
    run = Run()
    run.calls(*[call("poke", {"n": 1}, "ok", at=number * 9) for number in range(12)])
    assert run.actions == []
    found = explained(run)
    (repeat,) = found.repeats
    assert (repeat.tool, repeat.times, repeat.equal) == ("poke", 12, 12)
    assert repeat.towards_hint < found.repeat_threshold
    assert any("of a rest came before it" in why for why in repeat.because)
    assert "'poke' 12 times" in str(found)
    run = Run(Settings(exempt_tools=frozenset({"search"})))
    run.calls(*[SEARCH] * 30)
    assert explained(run).repeats[0].because[0] == "its tool is exempt"
    run = Run()
    answers = ["on", "on", "off", "off", "idle"]
    run.calls(*[call("read_state", {}, answer, at=n / 2) for n, answer in enumerate(answers)])
    (repeat,) = explained(run).repeats
    assert (repeat.times, repeat.equal, repeat.towards_hint) == (5, 1, 1.0)
    assert "its answer has changed" in repeat.because


def test_it_says_what_a_loop_waits_for() -> None:
    """Until its hint was heard, or ignored as often as it is set."""
    run = Run()
    run.calls(SEARCH)
    run.guard.flag_named("run").asked = True
    run.calls(*[SEARCH] * 4)
    said = explained(run).loops[0].why
    assert said == "waits until the hint was heard: no round before that counts"
    run = Run(Settings(hint_climbs_after=6))
    run.calls(*[call("poke", {"n": 1}, at=number / 2) for number in range(14)])
    assert run.actions == ["hint"]
    assert explained(run).loops[0].why.endswith("more that ignore it (hint_climbs_after)")


def test_it_is_json_and_has_no_content() -> None:
    run = Run()
    secret = "hunter2"
    run.calls(*[call("search", {"q": secret}, f"No {secret} was found.")] * 4)
    found = explained(run)
    assert secret not in json.dumps(found.to_dict()) + str(found)
    assert json.loads(json.dumps(found.to_dict()))["loops"][0]["action"] == "hint"


def test_the_current_session_is_explained() -> None:
    """By key, or that of the context; None where none is known."""
    guard = LoopGuard()
    for _ in range(4):
        guard.observe(call("search", {"q": "x"}, "No results for that."), "explained")
    with otel_loopguard.session("explained"):
        found = control.explain()
    assert found is not None
    assert found == control.explain("explained")
    assert control.explain("unknown") is None
    assert control.explain() is None


def test_an_allow_names_the_setting_that_makes_it_last() -> None:
    """For each kind of decision."""
    guard = LoopGuard()
    for _ in range(4):
        guard.observe(call('a "b"', {"q": "x"}, "No results for that."), "allowed")
    assert handle_of(guard, "allowed").allow("call", "ann") == r'exempt_tools = ["a \"b\""]'
    assert guard.find("unknown") is None
    for _ in range(9):
        guard.observe(call('a "b"', {"q": "x"}, "No results for that."), "allowed")
    flag = guard.flag_named("allowed")
    assert flag.control.action is Action.ALLOW
    found = control.explain("allowed")
    assert found is not None
    assert [(loop.next, loop.missing) for loop in found.loops] == [(None, 0.0)] * len(found.loops)


def test_no_tool_that_runs_what_the_agent_writes_is_exempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own threshold is raised, in a file that then lets the same run through."""
    repeat = call("Bash", {"command": "make"}, "No results for that.")
    run = Run()
    run.calls(*[repeat] * 5)
    assert Action.DENY in run.actions
    (tmp_path / "own.toml").write_text(handle_of(run.guard).allow("call", "ann"))
    monkeypatch.setenv("LOOPGUARD_SETTINGS_FILE", str(tmp_path / "own.toml"))
    run = Run(Settings())
    run.calls(*[repeat] * 9)
    assert not run.actions
    run.calls(*[call("Bash", {"command": "cat x"}, error="cat: no such file")] * 5)
    assert Action.DENY in run.actions
    assert handle_of(run.guard).allow("call", "ann") == 'switched_off = "error_repeat"'


def test_after_an_abort_the_setting_is_that_of_the_deny() -> None:
    """That a denied call came again says nothing of its loop."""
    guard = LoopGuard()
    provider = provider_with(LoopGuardSpanProcessor(guard=guard))
    with (
        pytest.raises(LoopGuardAbort) as found,
        turn("aborted", tracer_provider=provider) as run,
    ):
        for _ in range(20):
            run.tool("Bash", {"command": "make"}, lambda **_: "No results for that.")
            run.hint()
    assert found.value.decision is not None
    assert found.value.decision.reason == "denied_call"
    setting = handle_of(guard, "aborted").allow("call", "ann")
    assert setting == 'tools."Bash".repeat_threshold = 1000'
