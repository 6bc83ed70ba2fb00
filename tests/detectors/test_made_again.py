"""Effects made twice, and states come back to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from otel_loopguard import Settings
from tests.calls import Run, call

if TYPE_CHECKING:
    from otel_loopguard.core import Step

ORDER = {"sku": "A1", "qty": 1}
MAIL = {"to": "ann", "text": "The report is ready."}


def orders(count: int) -> list[Step]:
    """The same order, each with a number of its own."""
    return [call("create_order", args=ORDER, outcome={"order_id": 30609 + n}) for n in range(count)]


@pytest.mark.parametrize(
    "steps",
    [
        orders(2),
        [call("create_order", args=ORDER, outcome=f"rcpt_{n:016x}") for n in range(2)],
        [call("send_email", args=MAIL, outcome="sent") for _ in range(2)],
    ],
    ids=["a number", "a receipt", "a word"],
)
def test_what_was_done_before_is_told_at_the_second(steps: list[Step]) -> None:
    """Whatever the shape of the id in the answer."""
    run = Run()
    run.calls(*steps)
    assert [(one.action.value, one.reason) for one in run.decisions] == [("hint", "done_before")]


def test_it_is_never_stopped_unless_declared() -> None:
    """An inferred effect may be meant."""
    run = Run()
    run.calls(*orders(40))
    assert set(run.actions) == {"hint"}


def test_the_third_is_denied_where_it_is_declared() -> None:
    """As a name, or in the table of the tool."""
    for settings in (
        Settings(once_tools=frozenset({"create_order"})),
        Settings(tools={"create_order": {"once": True}}),
    ):
        run = Run(settings)
        run.calls(*orders(3))
        assert run.actions == ["hint", "deny"]


@pytest.mark.parametrize(
    "steps",
    [
        [call("create_order", args={**ORDER, "qty": n}, outcome="ok") for n in range(12)],
        [call("create_order", args=ORDER, error="out of stock") for _ in range(2)],
        [call("click", args={"x": 1}, outcome="ok") for _ in range(4)],
    ],
    ids=["others", "in vain", "no effect of that kind"],
)
def test_what_was_not_done_before_is_not_told(steps: list[Step]) -> None:
    """Only equal calls that succeeded, of tools that make something."""
    run = Run()
    run.calls(*steps)
    assert "done_before" not in {one.reason for one in run.decisions}


def test_what_is_started_again_in_place_of_waiting_is_told() -> None:
    """Each pending answer names another run; progress in numbers is a poll."""
    names = ["header-beacon", "parcel-branch", "invoice-socket", "window-packet", "tunnel-ratio"]
    starts, polls = Run(), Run()
    for number, name in enumerate(names):
        said = (
            f"Command still running (session {name}, pid {20431 + number}). "
            "Use process (list/poll/log) for follow-up."
        )
        starts.calls(call("bash", args={"command": "bash scan.sh"}, outcome=said))
        polls.calls(call("bash", args={"command": "job 7"}, outcome=f"still running, {number} %"))
    assert [one.reason for one in starts.decisions] == ["started_again"]
    assert "started_again" not in {one.reason for one in polls.decisions}


def test_a_file_that_comes_back_to_what_it_was_is_told() -> None:
    """Every edit succeeds, and the third that was made before is one too many."""
    run = Run()
    for number in range(6):
        edit = {"path": "Cargo.toml", "old": f"1.0.{number % 3}", "new": f"1.0.{(number + 1) % 3}"}
        run.calls(call("edit_file", args=edit, outcome="edited"))
    assert [one.reason for one in run.decisions] == ["state_seen_before"]
