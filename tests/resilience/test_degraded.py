"""resilience.degraded, resilience.combined."""

import pytest

from otel_loopguard import resilience


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


def test_a_reason_has_to_be_given() -> None:
    with pytest.raises(ValueError, match="reason"):
        resilience.degraded("search", "")
