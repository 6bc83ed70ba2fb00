"""What is known about errors: signatures, causes, fixes, and a user's own function (C13)."""

import threading
from typing import Any

import pytest

from otel_loopguard import LoopGuard, Settings
from otel_loopguard._util.errors import InternalErrors, raise_faults
from otel_loopguard.core import Decision, Diagnosis, Kind, Step
from otel_loopguard.core.decision import Fix
from otel_loopguard.evidence import signature_of
from otel_loopguard.policy import DIAGNOSES, Diagnoser, diagnose
from tests.calls import Run, call
from tests.evidence.test_readings import ROWS
from tests.sessions.journals import until


def failed(text: str | None, **given: Any) -> Step:
    return Step(Kind.TOOL, "tool", error=True, error_text=text, **given)


def test_every_signature_has_a_diagnosis() -> None:
    """Cause and fixes with their risk; the fix that only looks comes first."""
    met = {row.values[1] for row in ROWS if row.values[0] == "the signature of an error"}
    assert set(DIAGNOSES) == met - {"unknown", "null"}
    for known in DIAGNOSES.values():
        assert known.cause.endswith(".")
        assert known.fixes[0].risk == "low"
        assert {fix.risk for fix in known.fixes} <= {"low", "medium", "high"}
    assert diagnose("unknown") is diagnose(None) is None
    assert signature_of(call(outcome="404 not found")) is None


def test_a_loop_of_errors_is_diagnosed() -> None:
    """The decision has the diagnosis, and the model hears cause and fixes."""
    run = Run()
    run.calls(*[call("read", {"path": "a.txt"}, error="FileNotFoundError: no such file")] * 3)
    assert run.decisions[-1].diagnosis == DIAGNOSES["not_found"]
    known, hint = DIAGNOSES["not_found"], run.guard.flag_named("run").control.hint or ""
    fixes = "; ".join(fix.text for fix in known.fixes[:2])
    assert hint.endswith(f"Likely cause: {known.cause} What may help: {fixes}.")


def test_a_loop_that_is_not_about_the_error_is_not_diagnosed() -> None:
    """A repeat that succeeds has none, though another call failed beside it."""
    run = Run()
    for _ in range(4):
        run.calls(call("search", {"q": "x"}, "Nothing was found, sorry about that."))
        run.calls(call("other", {"n": len(run.decisions)}, error="404 not found"))
    repeats = [found for found in run.decisions if found.detector == "exact_repeat"]
    assert repeats
    assert [found.diagnosis for found in repeats] == [None] * len(repeats)


def test_a_users_function_is_asked_about_unknown_errors() -> None:
    """On another thread and once; its answer goes with the next decision. It may just say why."""
    asked: list[tuple[str, int]] = []
    upset = Diagnosis("flux", "The capacitor is misaligned.", (Fix("realign it", "medium"),))

    def function(text: str) -> object:
        asked.append((text, threading.get_ident()))
        return upset if "flux" in text else " It is Sunday. "

    diagnoser = Diagnoser(function, InternalErrors())  # type: ignore[arg-type]
    assert diagnoser.get(1, "flux capacitor misaligned") is None
    until(lambda: diagnoser.get(1, "again"))
    assert diagnoser.get(1, "again") == upset
    ((text, thread),) = asked
    assert text == "flux capacitor misaligned"
    assert thread != threading.get_ident()
    until(lambda: diagnoser.get(2, "closed"))
    assert diagnoser.get(2, "closed") == Diagnosis("custom", "It is Sunday.")


@pytest.mark.parametrize("answer", [3, ValueError("no idea")], ids=["no diagnosis", "a throw"])
def test_a_function_that_fails_is_counted(answer: object) -> None:
    """It gave no answer, and is not asked about the same error again."""

    def function(_text: str) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    faults = InternalErrors()
    diagnoser = Diagnoser(function, faults)  # type: ignore[arg-type]
    raise_faults(False)
    diagnoser.get(1, "closed")
    until(lambda: faults.counts)
    assert diagnoser._worker.flush(60)
    diagnoser.get(1, "closed")
    assert sum(faults.counts.values()) == 1


def test_a_function_that_hangs_holds_up_nobody() -> None:
    """Questions wait up to a bound, and asking returns at once."""
    free = threading.Event()
    asked: list[str] = []

    def function(text: str) -> None:
        asked.append(text)
        free.wait(60)

    diagnoser = Diagnoser(function, InternalErrors())
    for number in range(1000):
        diagnoser.get(number, "x" * 100_000)
    assert len(asked) <= 1
    assert len(diagnoser._worker) <= 16
    free.set()
    assert diagnoser._worker.flush(60)
    assert len(asked) <= 18
    assert max(len(text) for text in asked) == 4000


def because(text: str) -> str:
    return f"because of {text[:10]}"


def test_a_setting_names_the_function() -> None:
    """A live guard asks it; each decision about that error after the answer has it."""
    seen: list[Decision] = []
    guard = LoopGuard(
        Settings(diagnoser=f"{__name__}:because"), on_decision=lambda _, found: seen.append(found)
    )
    step = call("warp", {"to": "mars"}, error="flux capacitor is upset")
    for _ in range(3):
        guard.observe(step, "run")
    assert seen[-1].diagnosis is None
    decisions = guard._decisions
    assert decisions._diagnoser is not None
    until(lambda: any(decisions._diagnoser._answers.values()))  # type: ignore[union-attr]
    for _ in range(20):
        guard.observe(step, "run")
    newest = {found.detector: found.diagnosis for found in seen}
    expected = Diagnosis("custom", "because of flux capac")
    assert newest == {"exact_repeat": expected, "same_verdict": expected, "error_rate": None}
