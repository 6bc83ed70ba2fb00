"""Faults of ours, of listeners, dialects and log handlers stop at the hook; the agent goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from otel_loopguard import control
from otel_loopguard.spans.dialects.registry import register, unregister
from otel_loopguard.spans.views import RecordedSpan
from tests.agents import agent, tool_call
from tests.bad_input.rig import LOOP, Rig

if TYPE_CHECKING:
    from otel_loopguard import Settings
    from otel_loopguard.core import Evidence, Step
    from otel_loopguard.spans.views import SpanView

pytestmark = pytest.mark.usefixtures("no_raise")


class BrokenDetector:
    """Throws at every call."""

    name = "broken"

    def __init__(self, settings: Settings) -> None:
        """Needs nothing of the settings."""
        del settings

    def observe(self, evidence: Evidence) -> None:
        msg = f"no idea about {evidence.number}"
        raise ZeroDivisionError(msg)

    def user_turn(self) -> None:
        """Nothing to forget."""


class Unmakeable(BrokenDetector):
    """Throws already when it is made."""

    name = "Unmakeable"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        raise ZeroDivisionError(settings.mode)


class BrokenDialect:
    """Claims every tool span, and throws."""

    name = "broken"
    marks = frozenset(("gen_ai.tool.name",))

    def read(self, span: SpanView) -> Step | None:
        raise LookupError(span.name)


@pytest.fixture
def broken_dialect() -> Iterator[None]:
    register(BrokenDialect())
    yield
    unregister("broken")


class BrokenHandler(logging.Handler):
    """A log handler that throws into whoever logs."""

    def emit(self, record: logging.LogRecord) -> None:
        raise OSError(record.getMessage())


def runs_on(rig: Rig, calls: int = LOOP) -> None:
    """An agent calls, and no exception reaches it."""
    with agent(rig.tracer):
        for _ in range(calls):
            tool_call(rig.tracer)
    assert len(rig.exported) == calls + 1


def with_broken_detector(kind: str = "BrokenDetector") -> Rig:
    return Rig({"detectors": (f"{__name__}:{kind}",)})


def test_a_detector_that_throws_does_not_reach_the_agent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is switched off for its session: counted and logged once, and reported as broken."""
    rig = with_broken_detector()
    runs_on(rig)
    assert rig.faults == {"broken:ZeroDivisionError": 1}
    assert len([one for one in caplog.records if "was skipped" in one.getMessage()]) == 1
    (session,) = rig.guard._sessions._by_key.values()
    assert session.state.detectors.broken == ("broken",)


def test_a_detector_that_throws_in_one_session_is_tried_in_the_next() -> None:
    """What one session's content brought about says nothing about another one's."""
    rig = with_broken_detector()
    for _ in range(3):
        with agent(rig.tracer):
            tool_call(rig.tracer)
            tool_call(rig.tracer)
    assert rig.faults == {"broken:ZeroDivisionError": 3}


def test_other_detectors_go_on_where_one_throws() -> None:
    """One broken detector must not switch the others off."""
    rig = with_broken_detector()
    runs_on(rig)
    assert [decision.action.value for decision in rig.decisions] == ["hint", "deny", "abort"]


def test_a_detector_that_cannot_be_made_is_left_out() -> None:
    """Counted for the session; the others go on."""
    rig = with_broken_detector("Unmakeable")
    runs_on(rig)
    assert rig.faults == {"Unmakeable:ZeroDivisionError": 1}
    assert rig.decisions


def test_a_step_that_cannot_be_judged_is_still_told() -> None:
    """The listener hears of every canonical step."""
    rig = with_broken_detector()
    runs_on(rig)
    assert len([step for step in rig.steps if step.name == "search"]) == LOOP


def test_a_dialect_that_throws_does_not_reach_the_agent(broken_dialect: None) -> None:
    """Counted; the spans go on."""
    rig = Rig()
    runs_on(rig)
    assert set(rig.faults) == {"read:LookupError"}


def test_a_span_whose_dialect_throws_is_not_kept_open(broken_dialect: None) -> None:
    """What ended is let go of, read or not."""
    rig = Rig()
    runs_on(rig)
    rig.guard.settle()
    assert not rig.guard._dedup._open


def test_a_listener_that_throws_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Decisions are made and marked all the same."""

    def broken(*_given: Any) -> None:
        raise KeyError

    rig = Rig()
    rig.guard.subscribers.steps.append(("on_step", broken))
    rig.guard.subscribers.decisions.append(("on_decision", broken))
    with agent(rig.tracer):
        for _ in range(LOOP):
            tool_call(rig.tracer)
        assert control.current().action == "abort"
    assert rig.faults == {"on_step:KeyError": LOOP + 1, "on_decision:KeyError": 3}
    assert len([one for one in caplog.records if "was skipped" in one.getMessage()]) == 2


@pytest.fixture
def broken_log() -> Iterator[None]:
    handler = BrokenHandler()
    logger = logging.getLogger("otel_loopguard")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield
    logger.removeHandler(handler)
    logger.setLevel(before)


def test_a_log_handler_that_throws_does_not_reach_the_agent(broken_log: None) -> None:
    """Not while a decision is logged, and not while that fault is."""
    rig = Rig()
    runs_on(rig)
    assert any(kind.startswith("log:") for kind in rig.faults)


def test_a_log_handler_that_throws_takes_no_decision_with_it(broken_log: None) -> None:
    """The listener hears of all three decisions."""
    rig = Rig()
    runs_on(rig)
    assert len(rig.decisions) == 3


def test_kinds_of_faults_are_bounded() -> None:
    """A thousand kinds of faults are counted under 256 names and `other`."""
    rig = Rig()
    for number in range(1000):
        rig.guard.faults.note("x", type(f"Fault{number}", (Exception,), {})())
    assert len(rig.guard.faults.counts) == 257
    assert sum(rig.guard.faults.counts.values()) == 1000


def test_what_is_no_exception_passes() -> None:
    """A KeyboardInterrupt in a listener is not ours to swallow."""

    def interrupted(*_given: Any) -> None:
        raise KeyboardInterrupt

    rig = Rig()
    rig.guard.subscribers.steps.append(("on_step", interrupted))
    with pytest.raises(KeyboardInterrupt):
        rig.guard.on_end(
            RecordedSpan(
                name="execute_tool x", attributes={"gen_ai.operation.name": "execute_tool"}, end=1
            )
        )
