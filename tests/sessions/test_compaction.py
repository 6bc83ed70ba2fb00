"""The size of the context: advice to compact it, and what follows when it was (E13)."""

import pytest

from otel_loopguard import LoopGuard, Settings, control
from otel_loopguard.core import Kind, Step
from tests.calls import Run, call, handle_of


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


ANSWER = "No results were found for this question."
SHRINKS = [60_000, 9_000, 10_000]


@pytest.mark.parametrize(
    ("between", "action"),
    [
        ([], "deny"),
        ([model(tokens) for tokens in SHRINKS], "hint"),
        ([model(tokens) for tokens in (60_000, 500, 61_000, 500, 62_000)], "deny"),
        ([model(tokens) for tokens in (60_000, 50_000, 45_000)], "deny"),
        ([model(tokens) for tokens in (6_000, 900, 1_000)], "deny"),
        ([model(60_000, agent="a"), *(model(2000, agent="b") for _ in range(3))], "deny"),
        ([model(60_000), sub_agent(), model(900), model(1000)], "deny"),
    ],
    ids=["none", "compacted", "short questions aside", "a little smaller", "always small",
         "two agents", "another run of an agent"],
)  # fmt: skip
def test_after_a_compaction_counts_weigh_half(between: list[Step], action: str) -> None:
    """Four equal calls are a deny; a model that forgot the first ones gets a hint first."""
    run = Run(Settings(switched_off="budget"))
    # Each call is asked for by a message of its own, or two would be one round.
    twice = [call(args={"q": 1}, outcome=ANSWER), Step(Kind.MODEL, "m")] * 2
    run.calls(*twice)
    run.calls(*between)
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
            guard.observe(call(args={"q": 1}, outcome=ANSWER), "says it compacted")
    assert guard.flag_named("says it compacted").control.action == "hint"
    assert handle_of(guard, "says it compacted").report().run.compactions == 1
    assert control.compacted("no such session") is control.compacted() is False
