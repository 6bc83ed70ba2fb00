"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import os
import sys

import pytest

from tests.zero_code.interpreter import ROOT, run

pytestmark = pytest.mark.filterwarnings("default")

SLOW = ("logfire", "pytest_logfire", "langsmith_plugin", "hypothesispytest")
"""Plugins of others that import half a framework at every start."""

AGENT = """
import json
from opentelemetry import trace

ASKED = trace.get_tracer("my.agent")  # before anybody set a provider, as modules do

def search(query, tracer=ASKED):
    call = {"gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": json.dumps({"q": query})}
    with tracer.start_as_current_span("execute_tool search", attributes=call) as span:
        span.set_attribute("gen_ai.tool.call.result", "No results.")

def run(turns, tracer=ASKED):
    from otel_loopguard import control
    run = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
    with tracer.start_as_current_span("invoke_agent helper", attributes=run):
        for turn in range(turns):
            control.check()
            search("x", tracer)
    return "done"
"""
PROVIDED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
provider = TracerProvider()
trace.set_tracer_provider(provider)
"""


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with a small agent, without settings from outside."""
    for name in [name for name in os.environ if name.startswith(("OTEL_", "PYTEST_"))]:
        monkeypatch.delenv(name)
    pytester.makepyfile(agent=AGENT, provided=PROVIDED)
    return pytester


def ran(
    inner: pytest.Pytester, source: str, *options: str, without: str = "asyncio", **outcomes: int
) -> pytest.RunResult:
    """Runs a test file in a process of its own, without a plugin."""
    inner.makepyfile(test_agent=f"import pytest\nfrom agent import run, search\n{source}")
    rest = [f"-pno:{name}" for name in (*SLOW, "cacheprovider", "logging", without)]
    done = inner.runpytest_subprocess(*rest, *options)
    done.assert_outcomes(**outcomes)
    return done


def test_unused_it_does_nothing(inner: pytest.Pytester) -> None:
    """Neither the package is imported nor a provider set; the fixture and the marker are known."""
    source = """
import sys
def test_nothing_is_loaded():
    assert "otel_loopguard_pytest" in sys.modules
    assert not [name for name in sys.modules if name.split(".")[0] == "otel_loopguard"]
    from opentelemetry import trace
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
@pytest.mark.loopguard(mode="shadow")
def test_the_marker_is_known(): ...
"""
    ran(inner, source, "--strict-markers", "-W", "error", passed=2)


def test_what_a_test_asserts(inner: pytest.Pytester) -> None:
    """A short run has no loops, a long one is stopped, and all of it can be asked for.

    An abort ends with its test, and so does the clock that a test moved.
    """
    source = """
import asyncio
import threading
from otel_loopguard import LoopGuardAbort, LoopGuardPaused, control, session
from otel_loopguard._util import clock as rehearsal
CALL = {"gen_ai.tool.name": "search"}
kept = []
async def looping(turns):
    await asyncio.sleep(0)
    return run(turns)
def test_short(loopguard):
    assert loopguard.run(run, 2).result == "done"
    loopguard.assert_no_loops()
    assert loopguard.steps == 3
def test_stopped(loopguard):
    outcome = loopguard.run(run, 60)
    assert outcome.result is None
    decision = loopguard.assert_stopped("exact_repeat")
    assert decision.action == "abort"
    assert outcome.stop.session == decision.session
    assert [one.action for one in loopguard.decisions] == ["hint", "deny", "abort"]
    assert loopguard.spans[6].attributes["loopguard.decision.action"] == "abort"
    assert len(loopguard.spans) == 8
def test_it_raises_as_in_production(loopguard):
    kept.append(loopguard)
    with session("run-42"), pytest.raises(LoopGuardAbort):
        run(60)
def test_next(loopguard):
    with session("run-42"):
        assert run(2) == "done"
def test_without():
    with session("run-42"):
        assert control.current().action == "allow"
        assert run(9) == "done"
    assert not rehearsal.deterministic()
def test_coroutines(loopguard):
    assert asyncio.run(loopguard.run_async(looping, 2)).result == "done"
    assert asyncio.run(loopguard.run_async(looping, 60)).stop
    loopguard.assert_stopped()
    with pytest.raises(TypeError, match="run_async"):
        loopguard.run(looping, 2)
def test_some_may_be_let_pass(loopguard):
    run(3)
    loopguard.assert_no_loops(max_severity="warning")
    loopguard.assert_no_loops(ignore={"exact_repeat"})
    with pytest.raises(ValueError, match="'bad'"):
        loopguard.assert_no_loops(max_severity="bad")
def test_no_threads(loopguard):
    run(3)
    assert [one.name for one in threading.enumerate() if one.name.startswith("loopguard")] == []
def test_hang(loopguard):
    with loopguard.tracer().start_as_current_span("execute_tool search", attributes=CALL):
        loopguard.advance(45)
        loopguard.assert_no_loops(min_steps=0)
        loopguard.advance(16)
    with pytest.raises(AssertionError, match="61 s|61.0 s|60 s|60.0 s"):
        loopguard.assert_no_loops()
@pytest.mark.loopguard(gate_limit_s=0.1)
def test_pause(loopguard):
    loopguard.guard.bind(1, "run")
    control.pause("run")
    with session("run"), pytest.raises(LoopGuardPaused):
        control.gate()
@pytest.mark.loopguard(testing=False)
def test_as_in_production(loopguard):
    assert not rehearsal.deterministic()
"""
    ran(inner, source, passed=11)


def test_a_failure_shows_the_tree(inner: pytest.Pytester) -> None:
    """What was decided, where, and why; and no code of ours."""
    source = """
def test_loops(loopguard):
    loopguard.run(run, 60)
    loopguard.assert_no_loops(max_severity="critical")
def test_not_stopped(loopguard):
    run(3)
    loopguard.assert_stopped()
def test_by_another(loopguard):
    loopguard.run(run, 60)
    loopguard.assert_stopped("cycle")
def test_nothing_seen(loopguard):
    loopguard.assert_no_loops()
"""
    done = ran(inner, source, failed=4)
    done.stdout.fnmatch_lines([
        "E*AssertionError: the agent loops: abort, 'search' was called 7 times with equal argu*",
        "E*invoke_agent helper*",
        'E*├─ execute_tool search  {"q": "x"}*',
        'E*├─ ◆ execute_tool search  {"q": "x"}*',
        "E*hint (warning) by exact_repeat: 'search' was called 3 times*",
        "E*└─ ◆ execute_tool search*",
        "E*abort (fatal) by exact_repeat: 'search' was called 7 times*",
        "E*nothing was stopped; decided was: hint by exact_repeat*",
        "E*nothing was stopped by cycle; decided was: hint by exact_repeat, deny by*",
        "E*0 steps of an agent were seen, expected at least 1*",
        "E*no span was seen*",
    ])  # fmt: skip
    done.stdout.no_fnmatch_line("*fixture.py*")


def test_options(inner: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker goes before one farther away, and that before the ini file and the environment."""
    inner.makepyprojecttoml(
        """
        [tool.pytest.ini_options]
        loopguard = ["repeat_threshold = 5", 'poll_tools = ["job"]', "mode = guard"]
        """
    )
    places = {"STORE_URL": "redis://127.0.0.1:1/0", "WEBHOOK_URL": "http://127.0.0.1:1/"}
    given = {"ERROR_THRESHOLD": "6", "REPEAT_THRESHOLD": "9", "VERDICTS": "phoenix", **places}
    for name, value in given.items():
        monkeypatch.setenv(f"LOOPGUARD_{name}", value)
    source = """
pytestmark = pytest.mark.loopguard(mode="shadow", similar_threshold=7)
@pytest.mark.loopguard(similar_threshold=8)
def test_all(loopguard):
    settings = loopguard.guard.settings
    assert (settings.repeat_threshold, settings.poll_tools, settings.mode) == (5, {"job"}, "shadow")
    assert (settings.similar_threshold, settings.error_threshold) == (8, 6)
    assert not (settings.store_url or settings.webhook_url or settings.control_socket)
    assert not (settings.telemetry_metrics or settings.verdicts)
def test_shadow_is_a_loop_and_no_stop(loopguard):
    assert loopguard.run(run, 9).result == "done"
    with pytest.raises(AssertionError, match="the agent loops"):
        loopguard.assert_no_loops()
    with pytest.raises(AssertionError, match="nothing was stopped"):
        loopguard.assert_stopped()
"""
    ran(inner, source, passed=2)


def test_a_wrong_option_is_named(inner: pytest.Pytester) -> None:
    """Its test fails with the message, and does not run."""
    wrong = {
        "mode='loud'": "mode (LOOPGUARD_MODE) = 'loud'",
        "treshold=3": "treshold: there is no such setting",
        "'shadow'": "takes keywords only, got ('shadow',)",
        "provider='none'": "provider must be 'global', 'own' or a tracer provider",
    }
    test = "@pytest.mark.loopguard({})\ndef test_{}(loopguard): assert False"
    done = ran(inner, "\n".join(map(test.format, wrong, range(4))), errors=4)
    done.stdout.fnmatch_lines([f"*{message}*" for message in wrong.values()])
    inner.makeini("[pytest]\nloopguard = mode")
    done = ran(inner, "def test_it(loopguard): assert False", errors=1)
    done.stdout.fnmatch_lines(["*expected lines `name = value`, got 'mode'*"])


def test_providers(inner: pytest.Pytester) -> None:
    """The global one, one of its own, a given one, and one more that the agent makes."""
    source = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
def test_first(loopguard):
    assert loopguard.tracer_provider is trace.get_tracer_provider()
    run(2)
    loopguard.assert_no_loops(min_steps=3)
def test_second(loopguard):
    run(2)
    assert len(loopguard.spans) == 3
@pytest.mark.loopguard(provider="own")
def test_own(loopguard):
    run(5)
    assert loopguard.steps == 0
    run(5, loopguard.tracer())
    loopguard.assert_stopped()
GIVEN = TracerProvider()
@pytest.mark.loopguard(provider=GIVEN)
def test_given(loopguard):
    run(5, GIVEN.get_tracer("t"))
    loopguard.assert_stopped()
    GIVEN.shutdown()
def test_one_more(loopguard):
    made = TracerProvider()
    loopguard.watch(made)
    loopguard.watch(made)
    run(2, made.get_tracer("t"))
    loopguard.assert_no_loops(min_steps=3)
    assert len(loopguard.spans) == 3
    with pytest.raises(Exception, match="NoOpTracerProvider takes no span processors"):
        loopguard.watch(trace.NoOpTracerProvider())
def test_what_ended_is_not_watched(loopguard):
    assert len(GIVEN._active_span_processor._span_processors) == 1
    assert trace.get_tracer_provider()._active_span_processor._span_processors[0]._listeners
"""
    ran(inner, source, passed=6)


def test_a_provider_that_is_there_stays(inner: pytest.Pytester) -> None:
    """What the tests have set up before is used, and goes on exporting."""
    inner.makeconftest(
        """
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        from provided import provider
        memory = InMemorySpanExporter()
        provider.add_span_processor(SimpleSpanProcessor(memory))
        """
    )
    source = """
from conftest import memory, provider
def test_both_see(loopguard):
    assert loopguard.tracer_provider is provider
    run(4)
    assert len(memory.get_finished_spans()) == len(loopguard.spans) == 5
def test_afterwards():
    run(9)  # no guard is left that stops it
    assert len(memory.get_finished_spans()) == 15
"""
    ran(inner, source, passed=2)


def test_beside_a_guard_that_is_switched_off_for_all_tests(inner: pytest.Pytester) -> None:
    """`set_testing("off")` in conftest.py holds for tests without the fixture."""
    inner.makeconftest(
        """
        import otel_loopguard
        from provided import provider
        otel_loopguard.set_testing("off")
        provider.add_span_processor(otel_loopguard.LoopGuardSpanProcessor())
        """
    )
    source = """
def test_before():
    assert run(60) == "done"
def test_with(loopguard):
    assert loopguard.run(run, 60).stop
    loopguard.assert_stopped()
test_after = test_before
"""
    ran(inner, source, passed=3)


def test_beside_pytest_asyncio(inner: pytest.Pytester) -> None:
    """Coroutine tests use the fixture, in both modes of that plugin."""
    source = """
import asyncio
async def search_twice():
    await asyncio.gather(*(asyncio.to_thread(search, number) for number in range(2)))
@pytest.mark.asyncio
async def test_fine(loopguard):
    await loopguard.run_async(search_twice)
    loopguard.assert_no_loops(min_steps=2)
@pytest.mark.asyncio
async def test_loops(loopguard):
    run(5)
    loopguard.assert_stopped()
"""
    ran(
        inner,
        source,
        "-o",
        "asyncio_default_fixture_loop_scope=function",
        without="xdist",
        passed=2,
    )


def test_beside_xdist(inner: pytest.Pytester) -> None:
    """Each worker has its own provider and guards; a tree comes back to the terminal."""
    source = """
@pytest.mark.parametrize("number", range(8))
def test_fine(loopguard, number):
    run(2)
    loopguard.assert_no_loops(min_steps=3)
def test_loops(loopguard):
    run(5)
    loopguard.assert_no_loops()
"""
    done = ran(inner, source, "-n", "2", passed=8, failed=1)
    done.stdout.fnmatch_lines(["E*◆ execute_tool search*"])


def test_the_example_passes() -> None:
    """`pytest examples/test_my_agent.py`, with the plugin that is installed."""
    file = str(ROOT / "examples" / "test_my_agent.py")
    done = run(
        sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", file
    )
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
