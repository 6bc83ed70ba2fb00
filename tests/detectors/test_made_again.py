"""Effects made twice, and states come back to."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from otel_loopguard import LoopGuard, Settings, control, session
from otel_loopguard.core import Kind, Step
from tests.calls import Run, call

ORDER = {"sku": "A1", "qty": 1}


@pytest.mark.parametrize(
    "settings",
    [
        Settings(once_tools=frozenset({"zorb"})),
        Settings(tools={"zorb": {"once": True}}),
    ],
    ids=["a name", "a table"],
)
def test_the_third_is_refused_where_it_is_declared(settings: Settings) -> None:
    """Whatever the tool is called, and whatever ids its answers have; others of it may run."""
    guard = LoopGuard(settings)
    with session(uuid.uuid4().hex) as key:
        for number in range(2):
            assert control.refused("zorb", ORDER) is None
            guard.observe(call("zorb", args=ORDER, outcome={"id": 30609 + number}), key)
        refusal = control.refused("zorb", ORDER)
        assert refusal is not None
        assert "done before" in refusal.hint
        assert control.refused("zorb", {**ORDER, "qty": 2}) is None
        # Other loops are forgotten after 24 calls; what is to be done once is not.
        for number in range(40):
            text = f"Chapter {number}: {uuid.uuid4().hex} and {uuid.uuid4().hex}"
            guard.observe(call("read_page", args={"page": number}, outcome=text), key)
        assert control.refused("zorb", ORDER) is not None


def test_after_a_time_out_it_is_to_be_verified_first() -> None:
    """It may have been done; what was turned down was not."""
    said = {}
    for error in ("Timed out after 30 s", "503 Service Unavailable"):
        run = Run()
        run.calls(call("create_order", args=ORDER, error=error))
        said[error] = [(one.reason, one.advice) for one in run.decisions]
    assert list(said.values()) == [
        [("may_be_done", "Verify first whether it was done, before you do it again.")],
        [],
    ]


WORDS = "log in to the old host by another way than before".split()


def test_a_tool_that_only_fails_is_refused_whatever_it_is_asked() -> None:
    """None of the last twenty calls succeeded; another tool may run."""
    guard = LoopGuard(Settings())
    ran = 0
    with session(uuid.uuid4().hex) as key:
        for number in range(60):
            asked: Any = {"command": " ".join(WORDS[number % 7 :] + WORDS[: number // 7])}
            if control.refused("login", asked) is None:
                ran += 1
                guard.observe(call("login", asked, error="Permission denied (publickey)"), key)
        assert ran == 20
        assert control.refused("read", {"path": "notes"}) is None


def test_sixty_failing_model_calls_are_denied() -> None:
    """Told at the sixth, denied at the tenth, and the gate says so."""
    guard = LoopGuard(Settings())
    with session(uuid.uuid4().hex) as key:
        for _ in range(60):
            if control.current().action == "deny":
                break
            error = "Error code: 400 - the context is too long"
            guard.observe(Step(Kind.MODEL, "m", agent="w", error=True, error_text=error), key)
        assert control.current().action == "deny"
        assert guard.report(key).steps == 10
