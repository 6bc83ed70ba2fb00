"""Hooks only append; whoever asks has everything judged that ended by then."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import Tracer

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings, control, sessions
from otel_loopguard._control import flag as flags
from otel_loopguard._util import backlog as backlogs
from otel_loopguard.spans.reader import Reader
from tests.agents import Ended, agent, provider_with, tool_call
from tests.control.messages import action_of, new_name
from tests.stores.servers import wait_for


class Scene:
    """A guard whose timer is asleep: only who asks has spans judged."""

    def __init__(self, *others: Any, **settings: Any) -> None:
        self.steps: list[str | None] = []
        self.threads: list[int] = []
        self.guard = LoopGuard(Settings(**settings), on_step=self._step)
        self.processor = LoopGuardSpanProcessor(self.guard)
        # Never woken, however long the test takes.
        self.processor._timer.idle = False
        self.key = new_name()
        self.tracer: Tracer = provider_with(self.processor, *others).get_tracer("my.agent")

    def _step(self, _session: object, _number: int, step: Any) -> None:
        self.steps.append(step.name)
        self.threads.append(threading.get_ident())

    @property
    def waiting(self) -> int:
        return len(self.guard.backlog.events)


@pytest.fixture(autouse=True)
def _nothing_stopped() -> Iterator[None]:
    """Guards of other tests in this process may still have stopped sessions."""
    before = dict(flags.STOPPING)
    flags.STOPPING.clear()
    yield
    flags.STOPPING.update(before)


def test_a_hook_reads_no_step_and_takes_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where another thread holds every lock of the guard."""
    scene = Scene()
    monkeypatch.setattr(Reader, "read", lambda *_: pytest.fail("was read in a hook"))
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with scene.guard._lock, scene.guard.backlog._lock:
            held.set()
            assert done.wait(60)

    holder = threading.Thread(target=hold, daemon=True)
    holder.start()
    assert held.wait(60)
    tool_call(scene.tracer)
    done.set()
    holder.join(60)
    assert scene.waiting == 2
    assert scene.steps == []


def test_what_tells_nothing_of_an_agent_does_not_wait() -> None:
    """Until its scope shows a span of one; an instrumentation of agents is known by its name."""
    scene, waiting = Scene(), [0]
    provider = provider_with(scene.processor)
    shop = provider.get_tracer("my.shop")
    for tracer in (
        shop, provider.get_tracer("opentelemetry.instrumentation.requests"),
        provider.get_tracer("openinference.instrumentation.langchain"),
    ):  # fmt: skip
        tracer.start_span("GET", attributes={"http.request.method": "GET"}).end()
        waiting.append(scene.waiting)
    tool_call(shop)
    shop.start_span("GET").end()
    assert [*waiting, scene.waiting] == [0, 0, 0, 2, 6]


ASKED: dict[str, Callable[[Scene], object]] = {
    "check": lambda _: control.check(),
    "current": lambda _: control.current(),
    "flag": lambda scene: scene.guard.flag_named(scene.key).control,
    "gate": lambda _: control.gate(),
    "hint": lambda _: control.hint(),
    "refused": lambda _: control.refused("search", {"q": "y"}),
    "escalations": lambda _: control.escalations(),
    "report": lambda scene: sessions.report(scene.key),
    "a query": lambda scene: scene.guard.report(scene.key),
    "exporter": lambda scene: scene.guard.annotation(1, 2),
    "settle": lambda scene: scene.guard.settle(),
    "force_flush": lambda scene: scene.processor.force_flush(),
    "shutdown": lambda scene: scene.processor.shutdown(),
    "tick": lambda scene: scene.guard.tick(time.time_ns()),
    "metrics": lambda scene: scene.guard.telemetry.numbers.read("loopguard.steps"),
}


@pytest.mark.parametrize("asked", ASKED)
def test_who_asks_has_everything_judged(asked: str) -> None:
    """On their own thread, listeners included."""
    scene = Scene()
    with otel_loopguard.session(scene.key):
        tool_call(scene.tracer)
        assert scene.waiting == 2
        ASKED[asked](scene)
    assert scene.waiting == 0
    assert scene.steps == ["search"]
    assert scene.threads == [threading.get_ident()]


def test_what_nobody_asks_for_is_judged_by_the_timer() -> None:
    """And its listeners are called on that thread."""
    scene = Scene()
    scene.processor._timer.idle = True
    tool_call(scene.tracer)
    wait_for(lambda: scene.steps == ["search"])
    assert scene.threads != [threading.get_ident()]


def test_spans_without_a_pause_are_judged_by_the_hook() -> None:
    """So that no more than 256 events wait, whatever the timer does; each at its end if wanted."""
    scene = Scene()
    for number in range(1000):
        tool_call(scene.tracer, args=f'{{"n": {number}}}')
        assert scene.waiting <= backlogs.MOST
    assert len(scene.steps) > 1000 - backlogs.MOST
    scene = Scene(judging="at_end")
    for number in range(3):
        tool_call(scene.tracer)
        assert len(scene.steps) == number + 1
    assert set(scene.threads) == {threading.get_ident()}


def test_a_span_that_starts_in_a_stopped_session_says_so_and_no_other_settles() -> None:
    """One stopped session of a server does not end the batches of the others."""
    ended = Ended()
    scene = Scene(ended, max_action="deny")
    with agent(scene.tracer, gen_ai__conversation__id="healthy"):
        tool_call(scene.tracer, "fetch", args='{"n": 1}', result="something of its own")
        with trace.use_span(trace.INVALID_SPAN), otel_loopguard.session("stuck"):
            for _ in range(8):
                tool_call(scene.tracer)
        assert action_of(scene.guard, "stuck") == "deny"
        before = len(scene.steps)
        tool_call(scene.tracer, "fetch", args='{"n": 2}', result="and of its own again")
        assert len(scene.steps) == before
        with trace.use_span(trace.INVALID_SPAN), otel_loopguard.session("stuck"):
            tool_call(scene.tracer)
    refused = ended.named("execute_tool search")[-1].attributes or {}
    assert refused["loopguard.decision.action"] == "deny"


def test_a_listener_may_ask_and_hold_what_an_asker_holds() -> None:
    """It is called without a lock: who asks meanwhile, with a lock it takes, waits for nobody."""
    own, inside, asked = threading.Lock(), threading.Event(), threading.Event()
    scene = Scene()

    def listens(_: object) -> None:
        if not inside.is_set():
            inside.set()
            assert asked.wait(60)
            control.check()
        with own:
            pass

    scene.guard.subscribers.steps.append(("mine", listens))
    tool_call(scene.tracer)
    other = threading.Thread(target=scene.guard.settle, daemon=True)
    other.start()
    assert inside.wait(60)
    with own:
        tool_call(scene.tracer)
        control.check()
        assert scene.waiting == 0
        asked.set()
    other.join(60)
    scene.guard.settle()
    assert scene.steps == ["search"] * 2


def test_listeners_hear_in_order_from_one_thread_at_a_time() -> None:
    """Whichever threads judge."""
    scene = Scene()
    numbers: list[int] = []
    scene.guard.subscribers.steps.append(("mine", lambda seen: numbers.append(seen.number)))
    stop = threading.Event()

    def asks() -> None:
        while not stop.is_set():
            control.check()

    askers = [threading.Thread(target=asks, daemon=True) for _ in range(3)]
    for each in askers:
        each.start()
    with otel_loopguard.session(scene.key):
        for number in range(300):
            tool_call(scene.tracer, args=f'{{"n": {number}}}', result=f"answer {number}")
    stop.set()
    for each in askers:
        each.join(60)
    scene.guard.settle()
    assert numbers == list(range(300))


class Judge:
    """Judges one event at a time, as if each were decided about; the first thread stops there."""

    def __init__(self) -> None:
        self.judged: list[str] = []
        self.first = threading.Event()
        self.goes_on, self.over = threading.Event(), threading.Event()

    def judge_events(self, events: deque[Any]) -> None:
        self.judged.append(events.popleft())
        if not self.first.is_set():
            self.first.set()
            self.goes_on.wait()

    def publish(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            self.over.wait()


def test_who_asks_while_another_thread_judges_has_what_that_puts_back_judged() -> None:
    """It stops at a decision; who asked then was told what held before it."""
    judge = Judge()
    backlog = backlogs.Backlog(judge)
    for event in "abcd":
        backlog.append(event)  # type: ignore[arg-type]
    other = threading.Thread(target=backlog.settle, daemon=True)
    other.start()
    judge.first.wait()
    assert not backlog.events  # the other thread has all of them in hand
    later = threading.Timer(0.2, judge.goes_on.set)
    later.start()
    backlog.settle()
    assert judge.judged == [*"abcd"]
    judge.over.set()
    other.join()
    later.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_the_child_of_a_fork_judges_its_own_only() -> None:
    """What waited is the parent's, and the locks are new."""
    scene = Scene()
    tool_call(scene.tracer, "parents")
    child = os.fork()
    if not child:
        try:
            tool_call(scene.tracer, "childs")
            scene.guard.settle()
            os._exit(0 if scene.steps == ["childs"] else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    scene.guard.settle()
    assert scene.steps == ["parents"]
