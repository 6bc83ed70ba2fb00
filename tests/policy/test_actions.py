"""What the policy of a session makes of detections."""

from dataclasses import replace
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Action, Detection, Severity, Step
from otel_loopguard.core.decision import Source
from otel_loopguard.policy import Policy, certainty_of, follow_ups_of, source_of
from tests.calls import Run, call
from tests.tables import rows


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
    assert all(source.rank < each.rank for each in later)
