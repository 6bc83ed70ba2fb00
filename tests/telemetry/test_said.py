"""The log says what was done, and not what nobody did."""

import logging
from collections.abc import Callable

import pytest

from otel_loopguard import control
from otel_loopguard._control import flag
from otel_loopguard._util.backlog import settle_all
from otel_loopguard.execution import admit
from otel_loopguard.integrations._adapter import Adapter
from tests.agents import agent
from tests.telemetry.scene import Scene

NOBODY = " decided; nothing here asks for it: add an adapter or `control.check()`"


def _said(caplog: pytest.LogCaptureFixture, **settings: object) -> list[str]:
    """What the log calls the actions of a loop."""
    scene = Scene(**settings)
    with caplog.at_level(logging.INFO, "otel_loopguard"), agent(scene.tracer):
        scene.loop(5)
        scene.guard.settle()
    said = [record.getMessage().removeprefix("otel-loopguard: ") for record in caplog.records]
    return [text.partition(": session ")[0] for text in said if ": session " in text]


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    settle_all()  # guards of other tests speak now, and not once somebody asks
    monkeypatch.setattr(flag, "_asked", False)


def test_where_nobody_asks_nothing_was_stopped(caplog: pytest.LogCaptureFixture) -> None:
    """Deny and abort are decided, and the log says what is missing."""
    assert _said(caplog) == ["hint", f"deny{NOBODY}", f"abort{NOBODY}"]


ASKS = [control.check, control.gate, control.hint, control.current, control.cancelling]
ASKS += [lambda: control.refused("search"), lambda: admit("search"), lambda: Adapter("own")]


@pytest.mark.parametrize("asks", ASKS)
def test_where_somebody_asks_actions_are_called_by_their_names(
    asks: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    """One question is enough, or an adapter that will ask."""
    asks()
    assert _said(caplog) == ["hint", "deny", "abort"]


def test_in_shadow_mode_nothing_is_said_to_be_done(caplog: pytest.LogCaptureFixture) -> None:
    control.check()
    found = _said(caplog, mode="shadow")
    assert found == [f"would {action} (shadow)" for action in ("hint", "deny", "abort")]
