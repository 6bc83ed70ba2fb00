"""resilience.degraded, resilience.degrading, resilience.combined."""

import pytest

from otel_loopguard import BreakerOpenError, LoopGuardAbort, resilience


def test_dependants_run_on_partial_data(caplog: pytest.LogCaptureFixture) -> None:
    """What is missing has a reason, is told in a sentence, and is handed on."""
    results = {
        "prices": {"a": 1},
        "news": resilience.degraded("news", "its breaker is open"),
        "rates": resilience.degraded("rates", "time-out", value="secret rates"),
    }
    found = resilience.combined(results)
    assert found.values == {"prices": {"a": 1}, "rates": "secret rates"}
    assert found.missing == {"news": "its breaker is open", "rates": "time-out"}
    assert not found.complete
    missing = "news (its breaker is open), rates (time-out; a stand-in is used)"
    assert found.note == f"This rests on partial data: {missing}."
    assert caplog.messages == [
        "otel-loopguard: step 'news' is skipped: its breaker is open; nothing replaces it",
        "otel-loopguard: step 'rates' is skipped: time-out; a stand-in is used",
    ]
    first = resilience.combined({"news": resilience.degraded("news", "time-out"), "prices": 3})
    second = resilience.combined({"summary": first, "rest": 4})
    assert (second.missing, second.complete) == ({"news": "time-out"}, False)
    assert second.values == {"summary": {"prices": 3}, "rest": 4}
    whole = resilience.combined({"rest": 4})
    assert (whole.complete, whole.note) == (True, None)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError("of a secret host"), "TimeoutError"),
        (ConnectionResetError(), "ConnectionResetError"),
        (BreakerOpenError("open"), "its breaker is open"),
    ],
)
def test_a_failing_step_becomes_a_degraded_result(error: Exception, reason: str) -> None:
    """The class of the error is its reason; its text is not."""
    with resilience.degrading("search", value=[]) as step:
        raise error
    assert step.result == resilience.Degraded("search", reason, [])


@pytest.mark.parametrize(
    ("error", "on"), [(ValueError("a bug"), TimeoutError), (LoopGuardAbort("over", "s"), Exception)]
)
def test_other_errors_go_through(error: Exception, on: type[Exception]) -> None:
    """A bug is no degraded result, and an abort is over."""
    with pytest.raises(type(error)), resilience.degrading("search", on=(on,)):
        raise error


def test_a_step_that_sets_no_value_is_no_complete_one() -> None:
    """Its result says so; None that was set is a value. A reason has to be given."""
    with resilience.degrading("search", value=[]) as step:
        pass
    assert step.result == resilience.Degraded("search", "it gave no result", [])
    with resilience.degrading("search") as step:
        step.value = None
    assert step.result is None
    assert resilience.combined({"search": step.result}).complete
    with pytest.raises(ValueError, match="reason"):
        resilience.degraded("search", "")
