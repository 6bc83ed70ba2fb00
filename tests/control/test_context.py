"""Asking where the session is known to a framework only, and where nobody knows it."""

import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import Action, LoopGuard, control, session, sessions
from tests.control.messages import call, control_of, new_name

_PROGRAM = Path(__file__).with_name("langgraph_asking.py")


def _run(way: str) -> tuple[dict[str, Any], str]:
    for module in ("langgraph", "openinference.instrumentation.langchain"):
        pytest.importorskip(module)
    command = [sys.executable, str(_PROGRAM), way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.parametrize("way", ["thread", "run", "async"])
def test_a_node_of_langgraph_is_in_the_session_of_its_run(way: str) -> None:
    """OpenInference makes no span the current one: `thread_id` and the run's own span tell."""
    found, said = _run(way)
    assert (found["told"], found["ran"]) == (2, 4)
    assert set(found["refused"]) == {"deny"}
    assert "asks where no session is known" not in said


def test_where_no_session_can_be_told_it_is_said() -> None:
    """Once, with what to do; the run goes on."""
    found, said = _run("unseen")
    assert found == {"told": 0, "ran": 12, "refused": [], "stop": None}
    assert said.count("asks where no session is known") == 1
    assert "otel_loopguard.session(key)" in said


def test_a_thread_that_lost_the_context_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Only while some session is stopped, and never where one is named."""
    guard, key = LoopGuard(), new_name()
    guard.bind(1, key)
    with caplog.at_level(logging.WARNING), session(key):
        threading.Thread(target=control.check).start()
        control.abort(key)
        with session("not begun yet"):
            control.check()
            control.hint()
        threads = [threading.Thread(target=ask) for ask in (control.check, control.current)]
        for thread in threads:
            thread.start()
            thread.join()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "asks where no session is known" in caplog.text
    control.resume(key)


def test_of_several_guards_the_one_with_the_strongest_action_answers() -> None:
    """What people do goes to all of them."""
    guards = [LoopGuard() for _ in range(3)]
    with session(new_name()) as key:
        for guard, times in zip(guards, (1, 4, 2), strict=True):
            for _ in range(times):
                guard.observe(call(), key)
        assert control.current().action is Action.DENY
        assert control.refused("search", {"q": "x"}) is not None
        report = sessions.report()
        assert report is not None
        assert report.steps == 4
        assert control.pause(key, by="ada")
        assert {control_of(guard, key).by for guard in guards} == {"ada"}
        assert control.resume(key)
        assert control.current().action is Action.ALLOW
