"""Which detectors there are: switched off, of users' own, and with what they say."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from otel_loopguard import LoopGuard, LoopGuardSettingsError, LoopGuardSpanProcessor, Settings
from otel_loopguard._util.errors import raise_faults
from otel_loopguard._util.tables import rows_in
from otel_loopguard.core import Action, Detection, Evidence, Kind, Severity, Step
from otel_loopguard.detectors import DETECTORS, Registry
from otel_loopguard.detectors.base import table_of
from tests.calls import Run, call


def found(detector: str) -> Detection:
    return Detection(
        detector=detector, reason="said_so", severity=Severity.WARNING, confidence=0.5,
        keys=frozenset({7}), count=1, threshold=1, message="I say so", max_action=Action.HINT,
    )  # fmt: skip


class Nothing:
    name = "nothing"
    # Whatever attributes of these names mean to users.
    signs, kinds, lasting, wanted = ("number",), 7, "no", False

    def __init__(self, settings: Settings) -> None:
        self.limit = settings.repeat_threshold
        self.seen = 0

    def observe(self, evidence: Any) -> Any:
        return None


class Calls(Nothing):
    name = "own_calls"
    family = "own"

    def observe(self, evidence: Any) -> Any:
        self.seen += 1
        return found(self.name) if self.seen == self.limit else None

    def user_turn(self) -> None:
        self.seen = 0


class Steps(Nothing):
    name = "own_steps"
    takes = Step

    def observe(self, evidence: Any) -> Any:
        return found(self.name) if evidence.text == "help" else None


class Said(Nothing):
    """Says what a run of the test wants it to say."""

    name = "said"
    fields: ClassVar[dict[str, Any]] = {}

    def observe(self, evidence: Any) -> Any:
        return replace(found(self.name), **self.fields)


def _throw(_self: object, evidence: object = None) -> None:
    raise ValueError(evidence)


ThrowsAtTurns = type("ThrowsAtTurns", (Nothing,), {"name": "at_turns", "user_turn": _throw})
Twin = type("Twin", (Nothing,), {"name": "exact_repeat"})


class Outer:
    class Inner(Calls):
        name = "inner"


class Bare:
    def observe(self, evidence: Any) -> None:
        return None


def made(settings: Settings) -> Bare:
    return Bare()


number = 7
HERE = "tests.detectors.test_registry"
EVERY = Registry(Settings(), DETECTORS).entries
NAMES = tuple(one.name for one in EVERY)
REPEATS = [call(args={"q": "x"}, outcome="no results for weather in Paris") for _ in range(6)]
PAGES = [call("read", {"page": n}, f"page {n} is about {n * 7919:x}") for n in range(9)]
USER = Step(Kind.OTHER, "user", text="again")


def named(*names: str) -> Settings:
    """Detectors of one's own beside the ones that ship."""
    return Settings(detectors=tuple(f"{HERE}:{name}" for name in names))


def heard(settings: Settings, *steps: Step) -> list[tuple[str, int]]:
    """Which detector was heard, at which step."""
    run = Run(settings)
    run.calls(*steps)
    return [(one.detector, one.step) for one in run.decisions]


def test_a_detector_of_ones_own_is_heard() -> None:
    """A class named in the settings gets the settings and user's turns, and leads to a hint."""
    run = Run(named("Calls"))
    run.calls(*PAGES)
    (decision,) = run.decisions
    assert (decision.detector, decision.reason, decision.action) == ("own_calls", "said_so", "hint")
    assert decision.step == 2
    assert heard(named("Calls"), *PAGES[:2], USER, *PAGES[2:4]) == []
    # `takes = Step` gives the bare step, of models too; `user_turn` may be left out.
    fine, cry = (Step(Kind.MODEL, "m", text=text) for text in ("fine", "help"))
    assert [one for one, _ in heard(named("Steps"), fine, USER, cry)] == ["own_steps"]


def test_a_function_may_make_it() -> None:
    """Its name is the function's, its family `custom`, and it looks at calls."""
    entry = Registry(named("made"), DETECTORS).entries[-1]
    assert (entry.name, entry.family, entry.takes) == ("made", "custom", Evidence)
    assert Registry(named("Outer.Inner"), DETECTORS).by_name["inner"].family == "own"
    assert heard(named("made"), *REPEATS)[0] == ("exact_repeat", 2)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"severity": "warning", "max_action": "hint", "keys": [1]}, None),
        ({"severity": "bad"}, "ValueError"),
        ({"max_action": "kill"}, "ValueError"),
        ({"keys": 1}, "TypeError"),
        ({"count": "3"}, "TypeError"),
        ({"threshold": float("nan")}, "ValueError"),
    ],
)
def test_what_ones_own_says_is_checked(
    fields: dict[str, Any], fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that says what the policy cannot use is switched off, and others are heard."""
    raise_faults(False)
    monkeypatch.setattr(Said, "fields", fields)
    run = Run(named("Said"))
    run.calls(*REPEATS)
    assert run.guard.faults.counts == ({f"said:{fault}": 1} if fault else {})
    by = {one.detector for one in run.decisions}
    assert by == ({"exact_repeat"} if fault else {"said", "exact_repeat"})


def test_one_that_throws_at_a_users_turn_is_switched_off() -> None:
    """The turn goes on for all others."""
    raise_faults(False)
    run = Run(named("ThrowsAtTurns", "Calls"))
    run.calls(*PAGES[:2], USER, USER, *PAGES[2:6])
    assert run.guard.faults.counts == {"at_turns:ValueError": 1}
    assert [decision.step for decision in run.decisions] == [6]


@pytest.mark.parametrize("setting", ["detectors", "judge", "diagnoser"])
@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("no_such_module:Calls", "No module named 'no_such_module'"),
        (f"{HERE}:Missing", "Missing"),
        (f"{HERE}:number", "expected "),
        (".relative:Calls", "cannot be imported"),
    ],
    ids=["module", "name", "number", "relative"],
)
def test_what_cannot_be_used_fails_at_start(place: str, told: str, setting: str) -> None:
    """The error has the setting, its variable and the value."""
    given: Any = {setting: [place] if setting == "detectors" else place}
    for make in (lambda: LoopGuard(Settings(**given)), lambda: LoopGuardSpanProcessor(**given)):
        with pytest.raises(LoopGuardSettingsError) as error:
            make()
        said = str(error.value)
        parts = (f"LOOPGUARD_{setting.upper()}", repr(place), told)
        assert all(part in said for part in parts), said


@pytest.mark.parametrize(
    "name", [*NAMES, *sorted({one.family for one in EVERY} - {*NAMES}), "own", "own_calls"]
)
def test_a_family_is_switched_off(name: str) -> None:
    """Its name stands for all of its detectors, and that of a detector for this one only."""
    settings = Settings(detectors=(f"{HERE}:Calls",), switched_off=frozenset({name}))
    left = {one.name for one in Registry(settings, DETECTORS).entries}
    off = {one.name for one in EVERY if name in {one.name, one.family}}
    assert left == {"own_calls", *NAMES} - (off or {"own_calls"})


def test_what_would_never_be_heard_fails_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes no class, the second of a name, a name that there is not."""
    monkeypatch.setattr(Steps, "takes", "Step")
    with pytest.raises(LoopGuardSettingsError, match="own_steps takes 'Step', expected a class"):
        LoopGuard(named("Steps"))
    with pytest.raises(LoopGuardSettingsError, match="exact_repeat"):
        LoopGuard(named("Twin"))
    with pytest.raises(LoopGuardSettingsError) as error:
        LoopGuard(Settings(switched_off="cycle, cycles"))
    for part in ("(LOOPGUARD_SWITCHED_OFF) = cycles: ", "exact_repeat,", "repetition"):
        assert part in str(error.value)


def test_a_misspelt_label_in_the_table_of_rules_is_refused() -> None:
    """With file and line; what stands behind it would be lost."""
    with pytest.raises(ValueError, match=r"^r.txt:1: a: expected Sure, .* got 'Setings: x'"):
        table_of(rows_in("a:\n  Setings: x", "r.txt"))
