"""What fails, ours or others', stops at the hook, and takes nothing from the rest."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from otel_loopguard import (
    LoopGuard,
    LoopGuardSpanProcessor,
    Settings,
    control,
    resilience,
    semconv,
    turn,
)
from otel_loopguard._util.errors import InternalErrors, _warned, logger, swallow
from otel_loopguard._util.locks import new_lock, settle
from otel_loopguard.core import Action, Evidence, Kind, Step
from otel_loopguard.detectors.repetition import ExactRepeat
from otel_loopguard.dialects import RecordedSpan, SpanView, register, unregister
from otel_loopguard.evidence import EXTRACTORS
from otel_loopguard.guard import guard as guards
from tests.agents import Ended, agent, provider_with, tool_call
from tests.control.messages import begin, flag, new_name
from tests.hostile.rig import LOOP, TOOL, Rig
from tests.stores.servers import wait_for

pytestmark = pytest.mark.usefixtures("no_raise")


class BrokenDetector:
    name = "broken"

    def __init__(self, settings: Settings) -> None:
        pass

    def observe(self, evidence: Evidence) -> None:
        raise ZeroDivisionError(f"no idea about {evidence.number}")

    def user_turn(self) -> None:
        """Nothing to forget."""


class Unmakeable(BrokenDetector):
    name = "Unmakeable"

    def __init__(self, settings: Settings) -> None:
        raise ZeroDivisionError(settings.mode)


class Garbage(BrokenDetector):
    name = "garbage"

    def observe(self, evidence: Evidence) -> Any:
        return f"a loop, I think, since {evidence.number}"


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


def runs_on(rig: Rig, calls: int = LOOP) -> None:
    """An agent calls, and no exception reaches it."""
    with agent(rig.tracer):
        for _ in range(calls):
            tool_call(rig.tracer)
    assert len(rig.exported) == calls + 1


def assert_skipped(caplog: pytest.LogCaptureFixture, times: int) -> None:
    """So many lines tell of a fault; they waited for locks, and another thread may write them."""

    def told() -> int:
        return sum("was skipped" in line for line in caplog.messages)

    wait_for(lambda: told() >= times)
    settle()  # and no line too many waits yet
    assert told() == times


@pytest.mark.parametrize("kind", ["BrokenDetector", "Unmakeable", "Garbage"])
def test_a_detector_that_throws_is_switched_off_for_its_session(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At work or when it is made, or gives no detection: counted and logged once; others go on.

    The report says which did not look at the whole session.
    """
    rig = Rig({"detectors": (f"{__name__}:{kind}",)})
    runs_on(rig)
    names = {"BrokenDetector": "broken:ZeroDivisionError", "Garbage": "garbage:TypeError"}
    fault = names.get(kind, f"{kind}:ZeroDivisionError")
    assert rig.faults == {fault: 1}
    report = rig.guard.report(rig.decisions[0].session)
    assert report is not None
    assert report.switched_off == (fault.partition(":")[0],)
    assert_skipped(caplog, 1)
    assert rig.actions == ["hint", "deny", "abort"]
    assert len([step for step in rig.steps if step.name == "search"]) == LOOP


@pytest.mark.parametrize("lack", [MemoryError, RecursionError])
def test_a_detector_begins_anew_once_there_is_memory_again(
    lack: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the process lacks for a moment switches no detector off."""
    rig, real = Rig({"switched_off": ("found_nothing", "made_again")}), ExactRepeat.observe
    lacks = iter((lack(),))

    def observe(detector: ExactRepeat, evidence: Evidence) -> object:
        for fault in lacks:
            raise fault
        return real(detector, evidence)

    monkeypatch.setattr(ExactRepeat, "observe", observe)
    runs_on(rig)
    assert rig.faults == {f"exact_repeat:{lack.__name__}": 1}
    assert rig.actions == ["hint", "deny", "abort"]


def test_a_detector_that_throws_in_one_session_is_tried_in_the_next() -> None:
    """What one session's content brought about says nothing about another one's."""
    rig = Rig({"detectors": (f"{__name__}:BrokenDetector",)})
    for number in range(3):
        with agent(rig.tracer, gen_ai__conversation__id=f"s{number}"):
            tool_call(rig.tracer)
            tool_call(rig.tracer)
    assert rig.faults == {"broken:ZeroDivisionError": 3}


def test_a_dialect_that_throws_does_not_reach_the_agent(broken_dialect: None) -> None:
    """Counted; the spans go on, and none that ended is kept open."""
    rig = Rig()
    runs_on(rig)
    assert set(rig.faults) == {"read:LookupError"}
    assert not rig.guard._dedup._open


def test_a_listener_that_throws_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Decisions are made and marked all the same."""

    def broken(*_given: Any) -> None:
        raise KeyError

    rig = Rig()
    rig.guard.subscribers.steps.append(("on_step", broken))
    rig.guard.subscribers.decisions.append(("on_decision", broken))
    runs_on(rig)
    assert rig.actions == ["hint", "deny", "abort"]
    assert rig.faults == {"on_step:KeyError": LOOP + 1, "on_decision:KeyError": 3}
    assert_skipped(caplog, 2)


class Unbound:
    """As a proxy of Flask's is outside of a request."""

    @property
    def __class__(self) -> type[Any]:
        raise RuntimeError


def test_an_argument_that_does_not_say_its_class_reaches_its_tool() -> None:
    """It may not be judged; the call is made."""
    given: dict[str, Any] = {"request": Unbound()}
    assert control.refused("echo", given) is None
    with turn("unbound") as now:
        assert now.tool("echo", given, lambda request: type(request).__name__) == "Unbound"


@pytest.fixture
def broken_log(listens: Callable[[logging.Handler], None]) -> None:
    """A handler of the application's that throws."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError(record.getMessage())

    settle()  # what others left to be logged
    listens(Broken())


@pytest.mark.usefixtures("broken_log")
def test_a_log_handler_that_throws_does_not_reach_the_agent() -> None:
    """Not while a decision is logged, nor while that fault is; the listener hears all three."""
    rig = Rig()
    runs_on(rig)
    assert any(kind.startswith("log:") for kind in rig.faults)
    assert rig.actions == ["hint", "deny", "abort"]


def asks_below_a_lock() -> None:
    """A line that waits until no lock is held is logged by whoever comes first."""
    with new_lock():
        logger.warning("something failed")
    control.check()


@pytest.mark.usefixtures("broken_log")
@pytest.mark.parametrize(
    "ask",
    [asks_below_a_lock, lambda: resilience.partial("a page"), lambda: control.allow("a session")],
    ids=["what waited", "what cannot be seen", "what a person does"],
)
def test_a_log_handler_that_throws_does_not_reach_who_asks(ask: Callable[[], object]) -> None:
    rig = Rig()
    tool_call(rig.tracer, more={"gen_ai.conversation.id": "a session"})
    _warned.clear()
    ask()


def test_kinds_of_faults_are_bounded() -> None:
    """A thousand kinds of faults are counted under 256 names and `other`."""
    faults = LoopGuard().faults
    for number in range(1000):
        faults.note("x", type(f"Fault{number}", (Exception,), {})())
    assert (len(faults.counts), sum(faults.counts.values())) == (257, 1000)


def test_what_is_no_exception_passes() -> None:
    """A KeyboardInterrupt in a listener is not ours to swallow."""

    def interrupted(*_given: Any) -> None:
        raise KeyboardInterrupt

    rig = Rig()
    rig.guard.subscribers.steps.append(("on_step", interrupted))
    with pytest.raises(KeyboardInterrupt):
        rig.guard.on_end(RecordedSpan("execute_tool x", attributes=TOOL, end=1))


class Interrupted(BrokenDetector):
    """The application's limit of time is over while it looks at the second call."""

    name = "interrupted"

    def observe(self, evidence: Evidence) -> None:
        if evidence.number == 1:
            signal.raise_signal(signal.SIGTERM)


def test_what_a_handler_of_a_signal_raises_passes() -> None:
    """A limit that struck while the guard was at work was lost, and a detector switched off."""

    def over(*_given: object) -> None:
        raise TimeoutError

    rig = Rig({"detectors": (f"{__name__}:Interrupted",), "judging": "at_end"})
    before = signal.signal(signal.SIGTERM, over)
    try:
        with agent(rig.tracer):
            tool_call(rig.tracer)
            with pytest.raises(TimeoutError):
                tool_call(rig.tracer)
            for _ in range(LOOP):
                tool_call(rig.tracer)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert rig.faults == {}
    report = rig.guard.report(rig.decisions[0].session)
    assert report is not None
    assert report.switched_off == ()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("ends", [True, False], ids=["by a listener", "before it begins"])
def test_a_timer_without_a_thread_gets_another(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener may exit, and a container may have no thread left for a moment."""
    heard = list[int]()

    def hear(_session: object, number: int, _step: Step) -> None:
        heard.append(number)
        if ends and len(heard) == 1:
            raise SystemExit

    processor = LoopGuardSpanProcessor(LoopGuard(on_step=hear))
    tracer = provider_with(processor).get_tracer("my.agent")
    if ends:
        tool_call(tracer)
        wait_for(lambda: bool(heard))
    else:
        with monkeypatch.context() as short:
            short.setattr(threading.Thread, "start", out_of_threads)
            tool_call(tracer)
    # Nobody asks; the thread that ends may not have said so at the first of them.
    for _ in range(20):
        tool_call(tracer)
        with suppress(AssertionError):
            wait_for(lambda: len(heard) > 1, 0.5)
            break
    assert len(heard) > 1
    processor.shutdown()  # nothing is judged in the time of the next test


def out_of_threads(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


class BrokenExtractor:
    def __init__(self, *_given: object) -> None:
        pass

    def extract(self, step: Step) -> None:
        raise RecursionError(step.name)


def test_what_others_look_at_is_found_without_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The fault of an extractor is counted, and logged once; the loop is found all the same."""
    monkeypatch.setitem(EXTRACTORS, Kind.TOOL, (BrokenExtractor, *EXTRACTORS[Kind.TOOL]))
    rig = Rig()
    runs_on(rig)
    assert "abort" in rig.actions
    (kind,) = rig.faults
    assert kind.endswith(":RecursionError")
    assert_skipped(caplog, 1)


@pytest.mark.parametrize("key", [semconv.PLAN, "crew_tasks", "crewai.crew.tasks"])
@pytest.mark.parametrize("levels", [40, 1000])
def test_a_deep_plan_blinds_nobody(key: str, levels: int, rig: Rig) -> None:
    """Comparing it with the one before would go down level by level."""
    plan = '[{"id": "a", "args": ' + "[" * levels + "]" * levels + "}]"
    with agent(rig.tracer):
        for _ in range(2 * LOOP):
            tool_call(rig.tracer, more={key: plan})
    assert "abort" in rig.actions


PARTS = ["_sessions", "_replication", "_escalation", "telemetry"]


@pytest.mark.parametrize("part", PARTS)
def test_a_shutdown_goes_on_past_a_part_that_fails(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And raises nothing into the application, whose own exporters come after it."""
    guard, ended, after = LoopGuard(Settings()), list[str](), Ended()
    guard.escalation()

    def close(name: str) -> None:
        ended.append(name)
        if name == part:
            raise MemoryError

    for name in PARTS:
        known = getattr(guard, name)
        monkeypatch.setattr(type(known), "close", lambda _, *given, name=name: close(name))
    monkeypatch.setattr(after, "shutdown", lambda: ended.append("after"))
    provider_with(LoopGuardSpanProcessor(guard), after).shutdown()
    assert ended == [*PARTS, "after"]
    assert sum(guard.faults.counts.values()) == 1


def test_a_guard_that_is_being_made_hears_of_no_flag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another guard's session, say: it has no table to look it up in."""
    other, run = LoopGuard(Settings()), new_name()
    begin(run, other)
    real = guards.ControlReplication

    def meanwhile(*given: Any, **named: Any) -> object:
        there = threading.Thread(target=flag(other, run).set, args=(Action.PAUSE,))
        there.start()
        there.join()
        return real(*given, **named)

    monkeypatch.setattr(guards, "ControlReplication", meanwhile)
    guard = LoopGuard(Settings())
    assert flag(other, run).control.action is Action.PAUSE
    assert guard.faults.counts == {}


def test_of_an_exception_its_type_and_place_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Neither its message nor its cause, which may have content; what nothing raised is ours.

    A record has no exception either, as other handlers would print and export it.
    """
    faults, hidden = InternalErrors(), "hunter2"
    with swallow(faults, "store"):
        raise ValueError(hidden) from KeyError(hidden)
    faults.note("judge", TimeoutError("no answer within 3 s"))
    raised, ours = caplog.messages
    assert "store:ValueError failed and was skipped: hostile/test_faults.py:" in raised
    assert ours.endswith("judge:TimeoutError failed and was skipped: no answer within 3 s")
    assert [record for record in caplog.records if hidden in repr(vars(record))] == []
