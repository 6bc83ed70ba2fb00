"""What is sent with a request, and what is believed of it; also without a line of code."""

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry import baggage, propagate, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context, attach, detach
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import otel_loopguard
from otel_loopguard import (
    Action,
    LoopGuard,
    LoopGuardPropagator,
    LoopGuardSpanProcessor,
    Settings,
    control,
    detach_baggage,
)
from otel_loopguard._control import signing as keyring
from otel_loopguard._control.context import named_session
from otel_loopguard._control.replication import wire_name
from otel_loopguard._control.signing import Seal, sealed
from otel_loopguard._util.errors import raise_faults
from tests.agents import agent, provider_with
from tests.control.messages import new_name
from tests.tables import content, rows
from tests.zero_code.interpreter import interpreter, run

TRACER = TracerProvider(shutdown_on_exit=False).get_tracer("t")
ANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def sent(context: Context | None = None) -> dict[str, str]:
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    return carrier


def injected(propagator: LoopGuardPropagator) -> dict[str, str]:
    """What one propagator sends by itself."""
    carrier: dict[str, str] = {}
    propagator.inject(carrier)
    return carrier


@contextmanager
def calling(run: str | None = None) -> Iterator[str]:
    """The block of a call, in the span of a new trace and in a session."""
    with otel_loopguard.session(run or new_name()) as key, TRACER.start_as_current_span("call"):
        yield key


def sent_in(run: str | None = None) -> dict[str, str]:
    """What a call in a session sends."""
    with calling(run):
        return sent()


@contextmanager
def attached(context: Context) -> Iterator[None]:
    """The block in which a context is the current one."""
    token = attach(context)
    try:
        yield
    finally:
        detach(token)


def ours(carrier: dict[str, str]) -> dict[str, str]:
    entries = (entry.partition("=") for entry in carrier.get("baggage", "").split(","))
    return {name: value for name, _, value in entries if name.startswith("loopguard.")}


def received(carrier: dict[str, str]) -> Context:
    return propagate.extract(carrier, Context())


@pytest.fixture
def stopped(propagator: LoopGuardPropagator) -> tuple[dict[str, str], str]:
    """What a caller sends whose session is aborted, and the session."""
    return told_to_stop(Action.ABORT)


def told_to_stop(action: Action) -> tuple[dict[str, str], str]:
    """What a caller sends whose session is stopped, and the session; its guard is gone."""
    guard = LoopGuard()
    with calling() as run:
        guard.flag_named(run).set(action, reason="a reason that stays here", by="policy")
        carrier = sent()
    del guard
    gc.collect()
    return carrier, run


def test_the_session_and_nothing_but_its_action_is_sent(propagator: LoopGuardPropagator) -> None:
    """Two entries, at most 128 bytes together, beside the trace."""
    carrier = sent_in(run := new_name())
    assert set(carrier) == {"traceparent", "baggage"}
    assert set(ours(carrier)) == {"loopguard.session", "loopguard.control"}
    assert ours(carrier)["loopguard.session"] == run
    assert ours(carrier)["loopguard.control"].startswith("allow.")
    assert len(carrier["baggage"]) <= 128
    assert named_session(received(carrier)) == run
    assert not propagator.ignored


@pytest.mark.parametrize("action", [Action.DENY, Action.PAUSE, Action.ABORT])
def test_a_stop_reaches_who_is_called(propagator: LoopGuardPropagator, action: Action) -> None:
    """Without any store: the called process sees what the caller's session says."""
    carrier, run = told_to_stop(action)
    assert "reason" not in carrier["baggage"]
    called = LoopGuard()
    with attached(received(carrier)):
        seen = control.current()
        assert (seen.session, seen.action, seen.by) == (run, action, "policy")
        assert str(seen.reason).startswith("the caller's session is ")
        if action is Action.ABORT:
            with pytest.raises(otel_loopguard.LoopGuardAbort):
                control.check()
    assert called.flag_of(run) is not None


def test_the_next_call_says_that_it_goes_on(propagator: LoopGuardPropagator) -> None:
    """What a caller's baggage stopped goes on with the caller's next call; nothing else does."""
    caller = LoopGuard()
    with calling() as run:
        stops = caller.flag_named(run)
        stops.set(Action.ABORT, reason="why", by="policy")
        first = sent()
        stops.clear()
        again = sent()
    del caller, stops
    gc.collect()
    called = LoopGuard()
    received(first)
    flag = called.flag_of(run)
    assert flag is not None
    assert flag.control.action is Action.ABORT
    # Of one second both are equally old: the older one is sent again first, as on a slow way.
    received(again)
    later = {**again, **_again(run, again)}
    received(later)
    assert flag.control.action is Action.ALLOW
    flag.set(Action.ABORT, reason="here", by="ada")
    received(later)
    assert flag.control.action is Action.ABORT


def _again(run: str, carrier: dict[str, str]) -> dict[str, str]:
    """The same call, sent two seconds later."""
    trace_id = int(carrier["traceparent"].split("-")[1], 16)
    seal = Seal(run, Action.ALLOW, int(time.time()) + 2)
    entries = sealed(seal, keyring.keys()[0], trace_id)
    return {"baggage": f"loopguard.session={entries.session},loopguard.control={entries.control}"}


def test_entries_of_others_stay(propagator: LoopGuardPropagator) -> None:
    """Baggage of the application goes along, in both directions."""
    context = baggage.set_baggage("tenant", "a b,c", baggage.set_baggage("user.id", "7"))
    with attached(context):
        carrier = sent_in()
    found = baggage.get_all(received(carrier))
    assert dict(found) == {"tenant": "a b,c", "user.id": "7"}
    assert len(ours(carrier)) == 2


def test_the_order_of_the_propagators_is_no_matter_for_what_comes(
    propagator: LoopGuardPropagator, stopped: tuple[dict[str, str], str]
) -> None:
    """Ours may stand first: it reads headers by itself."""
    carrier, run = stopped
    known = [propagator, W3CBaggagePropagator(), TraceContextTextMapPropagator()]
    assert named_session(CompositePropagator(known).extract(carrier, Context())) == run
    assert named_session(propagator.extract(carrier, Context())) == run


def test_a_session_that_only_spans_name_is_sent_too(propagator: LoopGuardPropagator) -> None:
    """The one of the current trace, by its conversation."""
    tracer, run = provider_with(LoopGuardSpanProcessor()).get_tracer("t"), new_name()
    with agent(tracer, gen_ai__conversation__id=run):
        assert ours(sent())["loopguard.session"] == run


@ANY
@example("tenant/" + "ä" * 500)
@given(st.text(min_size=1))
def test_whatever_a_session_is_called_the_header_stays_short(
    propagator: LoopGuardPropagator, key: str
) -> None:
    """What is read of it names the session, in every process alike."""
    carrier = sent_in(key)
    assert len(carrier["baggage"]) <= 128
    assert named_session(received(carrier)) == wire_name(key) == wire_name(wire_name(key))


def test_a_short_key_is_its_own_name(propagator: LoopGuardPropagator) -> None:
    """A UUID, and what people write; longer keys and control characters are digests."""
    for key in ("run-42", "0123456789abcdef" * 2, "12345678-1234-5678-1234-567812345678", "Größe"):
        assert named_session(received(sent_in(key))) == key
    digests = {named_session(received(sent_in(key))) for key in ("x" * 49, "x" * 50, "a\nb")}
    assert len(digests) == 3
    assert all(str(one).startswith("~") for one in digests)


def test_nothing_is_sent_where_nothing_can_be_signed(caplog: pytest.LogCaptureFixture) -> None:
    """No key, which is told; nor does a program without agents."""
    with TRACER.start_as_current_span("call"):
        assert injected(LoopGuardPropagator()) == {}
    assert not caplog.messages
    with calling():
        assert injected(LoopGuardPropagator()) == {}
    assert "LOOPGUARD_PROPAGATION_KEY" in caplog.text
    with TRACER.start_as_current_span("call"):
        assert injected(LoopGuardPropagator(propagation_key="a key of sixteen")) == {}


def test_third_parties_get_nothing_of_ours(propagator: LoopGuardPropagator) -> None:
    """`detach_baggage` takes out our entries, and only ours, also those that came in."""
    context = baggage.set_baggage("loopguard.session", "of a caller", baggage.set_baggage("a", "1"))
    with attached(context), calling() as run:
        with detach_baggage():
            carrier = sent()
            assert named_session() == run
        assert len(ours(sent())) == 2
    assert (carrier["baggage"], len(carrier)) == ("a=1", 2)


@pytest.mark.parametrize(("_", "header", "why"), rows(__file__, "untrusted"))
def test_what_an_outsider_sends_does_nothing(
    propagator: LoopGuardPropagator, stopped: tuple[dict[str, str], str], _: str, header: str,
    why: str,
) -> None:  # fmt: skip
    """It joins no session, stops none, is counted, and is not handed on."""
    (carrier, run), guard = stopped, LoopGuard()
    victims = [guard.flag_named(name) for name in ("victim", run)]
    action, at, seal = ours(carrier)["loopguard.control"].split(".")
    when = int(at, 16)
    known = {"run": run, "action": action, "at": when, "later": when + 1, "seal": seal}
    header = content(header).decode().format(**known)
    header = header.replace("S=", "loopguard.session=").replace("C=", "loopguard.control=")
    context = propagator.extract({**carrier, "baggage": header}, Context())
    assert named_session(context) is None
    assert [victim.control.action for victim in victims] == [Action.ALLOW] * 2
    assert dict(propagator.ignored) == {why: 1}
    assert not [name for name in baggage.get_all(context) if name.startswith("loopguard.")]
    assert not propagator.faults.counts


@pytest.mark.parametrize(("key", "why"), [("", "no_key"), ("the key of another", "forged")])
def test_by_default_nobody_is_believed(
    stopped: tuple[dict[str, str], str], key: str, why: str
) -> None:
    """A process without a key, or with another one, ignores what somebody signed."""
    carrier, run = stopped
    keyring.forget()
    outsider = LoopGuardPropagator(propagation_key=key)
    guard = LoopGuard()
    assert named_session(outsider.extract(carrier, Context())) is None
    assert guard.flag_of(run) is None
    assert dict(outsider.ignored) == {why: 1}


def test_a_replayed_header_is_of_no_use(
    propagator: LoopGuardPropagator,
    stopped: tuple[dict[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither in another trace, or in none, nor later, or before it was sent."""
    carrier, run = stopped
    now, header = time.time(), {"baggage": carrier["baggage"]}
    for other in (header, {**header, "traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}):
        assert named_session(received(other)) is None
    for passed in (302, -62):
        monkeypatch.setattr("otel_loopguard.sdk.propagator.time.time", lambda s=passed: now + s)
        assert named_session(received(carrier)) is None
    assert dict(propagator.ignored) == {"forged": 2, "expired": 2}
    monkeypatch.undo()
    assert named_session(received(carrier)) == run


def test_what_was_sent_outside_of_any_trace(propagator: LoopGuardPropagator) -> None:
    """It names the session, also in a server's own span; in another run or trace it is forged."""
    with otel_loopguard.session(new_name()) as run:
        carrier = sent()
    assert set(carrier) == {"baggage"}
    assert named_session(received(carrier)) == run
    with TRACER.start_as_current_span("GET /") as span:
        within = trace.set_span_in_context(span, Context())
        assert named_session(propagate.extract(carrier, within)) == run
    assert dict(propagator.ignored) == {}
    other = {**carrier, "traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    assert named_session(received(other)) is None
    assert dict(propagator.ignored) == {"forged": 1}
    tracer = provider_with(LoopGuardSpanProcessor()).get_tracer("t")
    for conversation, taken in (("somebody else's", None), (run, run)):
        with agent(tracer, gen_ai__conversation__id=conversation) as span:
            within = trace.set_span_in_context(span, Context())
            assert named_session(propagate.extract(carrier, within)) == taken


def test_a_resume_goes_before_an_older_header(
    propagator: LoopGuardPropagator, stopped: tuple[dict[str, str], str]
) -> None:
    """The same request that is tried again does not abort what a person let go on."""
    carrier, run = stopped
    guard = LoopGuard()
    received(carrier)
    flag = guard.flag_of(run)
    assert flag is not None
    assert flag.control.action is Action.ABORT
    flag.clear(by="bob")
    received(carrier)
    assert flag.control.action is Action.ALLOW


@ANY
@given(st.text(max_size=400), st.sampled_from(["", "loopguard.session=", "loopguard.control="]))
def test_no_header_makes_it_raise(propagator: LoopGuardPropagator, text: str, before: str) -> None:
    """Whatever stands in it, what was there before stays."""
    context = baggage.set_baggage("a", "1", Context())
    found = propagator.extract({"baggage": before + text, "traceparent": text}, context)
    assert baggage.get_baggage("a", found) == "1"
    assert named_session(found) is None


def test_a_carrier_that_throws_is_no_matter() -> None:
    """The context is given back as it was, and the fault is counted."""
    raise_faults(False)
    propagator = LoopGuardPropagator(propagation_key="a key of sixteen")
    context = baggage.set_baggage("a", "1", Context())
    assert propagator.extract(None, context) is context  # type: ignore[arg-type]
    with otel_loopguard.session(new_name()):
        propagator.inject(None)  # type: ignore[arg-type]
    assert {kind.partition(":")[0] for kind in propagator.faults.counts} == {"extract", "inject"}


def test_a_setting_that_cannot_be_used_does_not_stop_the_application(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OpenTelemetry makes propagators when it is imported."""
    raise_faults(False)
    monkeypatch.setenv("LOOPGUARD_PROPAGATION_KEY", "short")
    propagator = LoopGuardPropagator()
    assert propagator.faults.counts["settings:LoopGuardSettingsError"] == 1
    with otel_loopguard.session(new_name()):
        assert injected(propagator) == {}


def test_options_of_a_configuration_file_are_settings_by_name() -> None:
    """Wrong ones fail at start."""
    propagator = LoopGuardPropagator(propagation_key="the key of a file")
    assert keyring.keys() == (b"the key of a file",)
    with otel_loopguard.session(new_name()):
        assert len(ours(injected(propagator))) == 2
    with pytest.raises(otel_loopguard.LoopGuardSettingsError, match="propagation_key"):
        LoopGuardPropagator(propagation_key="short")


def test_the_key_of_a_guard_counts_too() -> None:
    """Settings that are given in code need not be in the environment again."""
    propagator = LoopGuardPropagator()
    guard, run = LoopGuard(Settings(propagation_key="a key given in code")), new_name()
    with otel_loopguard.session(run):
        carrier = injected(propagator)
    assert named_session(propagator.extract(carrier, Context())) == run
    assert guard.flag_of(run) is None


PROGRAM = """
from opentelemetry import propagate
import otel_loopguard
{begin}
with otel_loopguard.session("run-42"):
    carrier = {{}}
    propagate.inject(carrier)
print(".".join(carrier["baggage"].split(".")[:3]))
print(type(propagate.get_global_textmap()._propagators[-1]).__name__)
"""
FROM_FILE = """
from opentelemetry.configuration.file import configure_propagator, load_config_file
import os
configure_propagator(load_config_file(os.environ["CONFIG"]).propagator)
"""
FILE = """
file_format: "1.0"
propagator:
  composite: [{tracecontext: }, {baggage: }, {loopguard: {propagation_key: "the key of a file"}}]
"""


WAYS = [
    ("opentelemetry.sdk", "", {
        "OTEL_PROPAGATORS": "tracecontext,baggage,loopguard", "PYTHONWARNINGS": "error",
        "LOOPGUARD_PROPAGATION_KEY": "a key that is theirs",
    }),
    ("opentelemetry.configuration", FROM_FILE, {}),
]  # fmt: skip


@pytest.mark.parametrize(("needed", "begin", "variables"), WAYS)
def test_a_key_is_all_it_takes(
    needed: str, begin: str, variables: dict[str, str], tmp_path: Path
) -> None:
    """Beside `OTEL_PROPAGATORS`, or beside the name of the propagator in a configuration file."""
    place = tmp_path / "otel.yaml"
    place.write_text(FILE, encoding="utf-8")
    program = PROGRAM.format(begin=begin)
    done = run(interpreter(needed), "-c", program, CONFIG=os.fspath(place), **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "loopguard.session=run-42,loopguard.control=allow", "LoopGuardPropagator",
    ]  # fmt: skip
