"""The long-term context of a session, and the size of a model's: advice to compact it (E13)."""

import pytest

from otel_loopguard import LoopGuard, Settings, control
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.report import Context, Memory
from otel_loopguard.evidence import parsed
from otel_loopguard.evidence.effects import written_file
from tests.calls import Run, call, handle_of
from tests.tables import rows

ANSWER = "No results were found for this question, in any of the sources."


def context_of(run: Run) -> Context:
    return handle_of(run.guard).context()


@pytest.mark.parametrize("mode", ["guard", "shadow"])
def test_a_denied_loop_is_an_avoided_approach(mode: str) -> None:
    """With its arguments, which stay in the process; in shadow nothing was denied."""
    run = Run(Settings(mode=mode))
    run.calls(*[call("search", {"q": "refunds"}, ANSWER)] * 9)
    avoided = context_of(run).avoided
    assert len(avoided) == (mode == "guard")
    for said in avoided:
        assert all(part in said for part in ("search", "refunds", "identical_call"))


def test_files_written_most_come_first() -> None:
    """Reads and failed writes do not count."""
    run = Run()
    for number in range(3):
        run.calls(call("write_file", {"path": "b.py", "content": str(number)}, "ok"))
    run.calls(
        call("edit", '{"file_path": "a.py", "new": "x"}', "ok"),
        call("read_file", {"path": "read.py"}, "text"),
        call("write_file", {"path": "failed.py"}, error="permission denied"),
    )
    assert context_of(run).files == ("b.py", "a.py")


@pytest.mark.parametrize("text", ['"path"' + " " * 50, "> ' ", '{"path":"', ">" * 9, "\n> "])
def test_looking_for_a_file_is_bounded(text: str) -> None:
    """A text of megabytes costs no more than its head and tail: more would take minutes."""
    long = text * 200_000
    for _ in range(20):
        written_file(parsed(long))
        written_file(parsed("{" + long))
    content = '{"content": "' + "x" * 100_000 + '", "path": "end.py"}'
    assert written_file(parsed(content)) == "end.py"


def test_entries_are_bounded_and_the_newest_stay() -> None:
    """The oldest go first; of files the one named least."""
    memory = Memory(3)
    for number in range(9):
        memory.note("insight", f"insight {number}" + "x" * 1000)
        memory.note("file", "kept.py")
        memory.note("file", f"{number}.py")
    now = memory.context()
    assert [text[:9] for text in now.insights] == ["insight 6", "insight 7", "insight 8"]
    assert max(len(text) for text in now.insights) == 200
    assert now.files[0] == "kept.py"
    assert len(now.files) == 3
    assert "8.py" in now.files


def test_what_is_said_again_is_kept_once_and_a_few_of_each_kind_are_offered() -> None:
    """What is said again becomes the newest; where nothing is known nothing is offered."""
    memory = Memory(3)
    assert memory.offer() == ""
    for text in ("a", "b", "a", " ", ""):
        memory.note("pattern", text)
    assert memory.context().patterns == ("b", "a")
    memory = Memory(12)
    memory.note("insight", "the tests need Python 3.12")
    for name in "abcde":
        memory.note("file", f"{name}.py")
    memory.note("avoided", "search {}")
    assert memory.offer() == (
        "Known so far: the tests need Python 3.12. Files changed most: a.py; b.py; c.py. "
        "Tried in vain: search {}."
    )


def hints_of(run: Run) -> str:
    return run.guard.flag_named("run").control.hint or ""


@pytest.mark.parametrize("offers", [True, False])
def test_a_hint_offers_what_is_known(offers: bool) -> None:
    """A loop that was denied before is named when the next one is noticed; its own is not.

    With `context_in_hints` false hints have no content of calls.
    """
    run = Run(Settings(max_action="deny", context_in_hints=offers))
    run.calls(*[call("search", {"q": "refunds"}, ANSWER)] * 5)
    assert "Tried in vain" not in hints_of(run)
    handle_of(run.guard).remember("insight", "the shop is closed on Sundays")
    run.calls(call("note", {"n": 1}, "noted down as number one"))
    run.calls(*[call("lookup", {"id": "A-4711"}, f"{ANSWER} and so on")] * 3)
    for said in ("Known so far: the shop is closed on Sundays.", "Tried in vain: search"):
        assert (said in hints_of(run)) is offers
    assert hints_of(run).count("lookup") == 1


def model(tokens: int, *, agent: str | None = None) -> Step:
    """A model call with so many input tokens."""
    return Step(Kind.MODEL, "m", model="m", tokens_in=tokens, agent=agent)


def sub_agent(name: str = "worker") -> Step:
    """A completed agent inside of another's run."""
    return Step(Kind.AGENT, name, parent_id=1)


def advice(run: Run) -> list[tuple[str, str]]:
    """Reasons and actions of what was advised."""
    found = [one for one in run.decisions if one.detector == "context_size"]
    return [(one.reason, one.action.value) for one in found]


def test_five_completed_agents_are_reason_to_compact() -> None:
    """Said once until the context was compacted; the topmost agent of a run is not counted."""
    run = Run()
    run.calls(*(sub_agent() for _ in range(4)), Step(Kind.AGENT, "a"))
    assert advice(run) == []
    run.calls(*(sub_agent() for _ in range(100)))
    assert advice(run) == [("compact_agents", "allow")]
    handle_of(run.guard).compacted()
    run.calls(*(sub_agent() for _ in range(100)))
    assert advice(run) == [("compact_agents", "allow")] * 2


def test_a_large_context_is_said_once() -> None:
    """From 100,000 input tokens, and again only after it was small; at most as a hint."""
    run = Run()
    run.calls(*map(model, (90_000, 100_000, 110_000, 30_000, 120_000)))
    assert advice(run) == [("compact_tokens", "allow")] * 2
    tuning = {"stalls": {"compact_tokens": 1000}}
    run = Run(Settings(limits="standard", budget_action="abort", tuning=tuning))
    run.calls(model(1000))
    assert advice(run) == [("compact_tokens", "hint")]


NOTHING = "No results were found for this question."


def worked(text: str) -> list[Step]:
    """Model calls with so many input tokens, `a:2000` by an agent; and runs of a sub-agent."""
    calls = [word.rpartition(":") for word in text.split()]
    return [
        sub_agent() if tokens == "agent" else model(int(tokens), agent=name or None)
        for name, _, tokens in calls
    ]


@pytest.mark.parametrize(("_name", "action", "between"), rows(__file__, "compactions"))
def test_after_a_compaction_counts_weigh_half(_name: str, action: str, between: str) -> None:
    """Four equal calls are a deny; a model that forgot the first ones gets a hint first."""
    run = Run(Settings(switched_off="budget"))
    # Each call is asked for by a message of its own, or two would be one round.
    twice = [call(args={"q": 1}, outcome=NOTHING), Step(Kind.MODEL, "m")] * 2
    run.calls(*twice)
    run.calls(*worked(between))
    run.calls(*twice)
    assert [decision.action.value for decision in run.decisions][-1] == action


def test_the_application_says_that_it_compacted() -> None:
    """`control.compacted()` does the same as a compaction that is noticed; both are counted."""
    run = Run(Settings(switched_off="budget"))
    run.calls(*map(model, (10_000, 20_000, 3000, 3200)))
    assert handle_of(run.guard).report().run.compactions == 1
    guard = LoopGuard()
    for after in (False, True):
        assert control.compacted("says it compacted") is after
        for _ in range(2):
            guard.observe(call(args={"q": 1}, outcome=NOTHING), "says it compacted")
    assert guard.flag_named("says it compacted").control.action == "hint"
    assert handle_of(guard, "says it compacted").report().run.compactions == 1
    assert control.compacted("no such session") is control.compacted() is False
