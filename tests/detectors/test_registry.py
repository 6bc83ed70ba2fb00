"""Which detectors there are: switched off, and of users' own."""

from __future__ import annotations

import logging
import sys
import textwrap
from pathlib import Path

import pytest

from otel_loopguard import LoopGuard, LoopGuardSettingsError, LoopGuardSpanProcessor, Settings
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import Evidence
from otel_loopguard.detectors import DETECTORS, Registry
from tests.calls import Run, call

OWN = """
    from otel_loopguard.core import Action, Detection, Step
    from otel_loopguard.core.decision import Severity


    def found(detector, keys=frozenset({7})):
        return Detection(
            detector=detector, reason="said_so", severity=Severity.WARNING, confidence=0.5,
            keys=keys, count=1, threshold=1, message="I say so", max_action=Action.HINT,
        )


    class Calls:
        name = "own_calls"
        family = "own"

        def __init__(self, settings):
            self.limit = settings.repeat_threshold
            self.seen = 0

        def observe(self, evidence):
            self.seen += 1
            return found(self.name) if self.seen == self.limit else None

        def user_turn(self):
            self.seen = 0


    class Steps:
        name = "own_steps"
        takes = Step

        def __init__(self, settings):
            pass

        def observe(self, step):
            return found(self.name) if step.text == "help" else None


    class Nothing:
        def observe(self, evidence):
            return None


    def made(settings):
        return Nothing()


    class Throws:
        name = "throws"

        def __init__(self, settings):
            pass

        def observe(self, evidence):
            raise ValueError(evidence.tool)


    class ThrowsAtTurns(Throws):
        name = "throws_at_turns"

        def observe(self, evidence):
            return None

        def user_turn(self):
            raise ValueError("turn")


    class CannotBeMade:
        name = "cannot_be_made"

        def __init__(self, settings):
            raise ValueError("made")


    class Outer:
        class Inner(Calls):
            name = "inner"


    class Garbage(Throws):
        name = "garbage"

        def observe(self, evidence):
            return "a loop, I think"


    class Twin(Throws):
        name = "exact_repeat"


    number = 7
"""
EVERY = Registry(Settings(), DETECTORS).entries
NAMES = tuple(one.name for one in EVERY)
ANSWER = "no results for weather in Paris"
REPEATS = [call(args={"q": "x"}, outcome=ANSWER) for _ in range(6)]
USER = Step(Kind.OTHER, "user", text="again")


@pytest.fixture(autouse=True)
def _own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_detectors.py").write_text(textwrap.dedent(OWN), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_detectors", raising=False)


def own(*names: str) -> Run:
    """A session with detectors of one's own beside the ones that ship."""
    return Run(Settings(detectors=tuple(f"own_detectors:{name}" for name in names)))


def detectors(run: Run) -> list[str]:
    """Which detector was heard, in order."""
    return [decision.detector for decision in run.decisions]


def test_a_detector_of_ones_own_is_heard() -> None:
    """A class named in the settings gets the settings, looks at calls, and leads to a hint."""
    run = own("Calls")
    run.calls(*[call("read", {"page": n}, f"page {n} is about {n * 7919:x}") for n in range(9)])
    (decision,) = run.decisions
    assert (decision.detector, decision.reason, decision.action) == ("own_calls", "said_so", "hint")
    assert decision.step == 2
    run = own("Calls")
    steps = [call("read", {"page": n}, f"page {n} is about {n * 7919:x}") for n in range(4)]
    run.calls(*steps[:2], USER, *steps[2:])  # `user_turn` is called for it too
    assert run.decisions == []


def test_it_may_look_at_steps_of_any_kind() -> None:
    """`takes = Step` gives the bare step, of models too; `user_turn` may be left out."""
    run = own("Steps")
    run.calls(Step(Kind.MODEL, "m", text="fine"), USER, Step(Kind.MODEL, "m", text="help"))
    assert detectors(run) == ["own_steps"]


def test_a_function_may_make_it() -> None:
    """Its name is the function's, its family `custom`, and it looks at calls."""
    registry = Registry(Settings(detectors=("own_detectors:made",)), DETECTORS)
    entry = registry.entries[-1]
    assert (entry.name, entry.family, entry.takes) == ("made", "custom", Evidence)
    deeper = Registry(Settings(detectors=("own_detectors:Outer.Inner",)), DETECTORS)
    assert deeper.by_name["inner"].family == "own"
    assert detectors(_after(own("made"), *REPEATS))[0] == "exact_repeat"


@pytest.mark.parametrize("name", ["Throws", "CannotBeMade"])
def test_one_that_throws_is_switched_off_for_the_session(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked once, counted and logged once; the others go on, and the next session has it."""
    raise_faults(False)
    run = own(name)
    with caplog.at_level(logging.WARNING, "otel_loopguard"):
        run.calls(*REPEATS)
    assert run.actions[:2] == ["hint", "deny"]
    ((kind, times),) = run.guard.faults.counts.items()
    assert kind.endswith(":ValueError")
    assert times == 1
    assert sum(kind in record.getMessage() for record in caplog.records) == 1
    run.guard.observe(REPEATS[0], "another session")
    assert run.guard.faults.counts[kind] == 2


def test_one_that_throws_at_a_users_turn_is_switched_off() -> None:
    """The turn goes on for all others."""
    raise_faults(False)
    run = own("ThrowsAtTurns", "Calls")
    steps = [call("read", {"page": n}, f"page {n} is about {n * 7919:x}") for n in range(6)]
    run.calls(*steps[:2], USER, USER, *steps[2:])
    assert run.guard.faults.counts == {"throws_at_turns:ValueError": 1}
    assert [decision.step for decision in run.decisions] == [6]


def test_one_that_gives_something_else_takes_nobody_down() -> None:
    """What is no detection is a fault of its detector, and the others go on."""
    raise_faults(False)
    run = own("Garbage")
    run.calls(*REPEATS)
    assert run.actions[:2] == ["hint", "deny"]
    assert sum(run.guard.faults.counts.values()) == 1


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("no_such_module:Calls", "No module named 'no_such_module'"),
        ("own_detectors:Missing", "Missing"),
        ("own_detectors", "expected something that makes a detector"),
        ("own_detectors:number", "expected something that makes a detector"),
        ("", "cannot be imported"),
        (".relative:Calls", "cannot be imported"),
    ],
    ids=["module", "name", "no name", "number", "empty", "relative"],
)
def test_what_cannot_be_used_fails_at_start(named: str, told: str) -> None:
    """The error has the setting, its variable and the value."""
    for make in (lambda: LoopGuard(Settings(detectors=(named,))), lambda: _processor(named)):
        with pytest.raises(LoopGuardSettingsError) as error:
            make()
        said = str(error.value)
        assert all(part in said for part in ("LOOPGUARD_DETECTORS", repr(named), told)), said


def test_a_name_that_is_taken_fails_at_start() -> None:
    """Two detectors of one name could not be told apart, nor switched off one by one."""
    with pytest.raises(LoopGuardSettingsError, match="exact_repeat"):
        LoopGuard(Settings(detectors=("own_detectors:Twin",)))


@pytest.mark.parametrize(
    "name", [*NAMES, *sorted({one.family for one in EVERY} - {*NAMES}), "own", "own_calls"]
)
def test_a_family_is_switched_off(name: str) -> None:
    """Its name stands for all of its detectors, and that of a detector for this one only."""
    settings = Settings(detectors=("own_detectors:Calls",), switched_off=frozenset({name}))
    left = {one.name for one in Registry(settings, DETECTORS).entries}
    off = {one.name for one in EVERY if name in {one.name, one.family}}
    assert left == {"own_calls", *NAMES} - (off or {"own_calls"})


def test_what_is_not_there_cannot_be_switched_off() -> None:
    """The error names what is unknown, and what there is."""
    with pytest.raises(LoopGuardSettingsError) as error:
        LoopGuard(Settings(switched_off=frozenset({"exact_repeats"})))
    said = str(error.value)
    assert "LOOPGUARD_SWITCHED_OFF" in said
    assert "exact_repeats" in said
    assert "exact_repeat," in said
    assert "repetition" in said


def _after(run: Run, *steps: Step) -> Run:
    run.calls(*steps)
    return run


def _processor(named: str) -> LoopGuardSpanProcessor:
    return LoopGuardSpanProcessor(detectors=(named,))
