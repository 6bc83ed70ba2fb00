"""A session that asks, what tests say of one, and notices that are nothing special."""

import itertools
import time
import uuid
from typing import Any

from typing_extensions import Self

from otel_loopguard import LoopGuard, session
from otel_loopguard._control.flag import Control, Flag
from otel_loopguard._control.replication import ControlMessage
from otel_loopguard.core import Action, Kind, Step
from tests.agents import tool_call
from tests.hostile.rig import Rig

_numbers = itertools.count()


def new_name(kind: str = "run") -> str:
    """A session that no other test uses; guards of other tests may be alive."""
    return f"{kind}-{uuid.uuid4().hex[:12]}"


class Run(Rig):
    """A session with a guard of its own; in its block the context names it."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings)
        self.key = new_name()
        self._named = session(self.key)

    def calls(self, times: int = 1) -> None:
        """Calls the same search, which finds nothing."""
        for _ in range(times):
            tool_call(self.tracer)

    def __enter__(self) -> Self:
        self._named.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._named.__exit__(None, None, None)
        self.processor.shutdown()


def call(tool: str = "search", question: str = "x") -> Step:
    """A call that ended just now."""
    now = time.time_ns()
    said = "No results." if tool == "search" else f"{question} is done."
    return Step(Kind.TOOL, tool, args={"q": question}, outcome=said, start=now - 1000, end=now)


def begin(session: str, *guards: LoopGuard) -> None:
    """Each guard gets to know a session."""
    for guard in guards:
        guard.observe(call("other", f"{session} {next(_numbers)}"), session)


def flag(guard: LoopGuard, session: str) -> Flag:
    found = guard.flag_of(session)
    assert found is not None, f"{session} is not known"
    return found


def control_of(guard: LoopGuard, session: str) -> Control:
    return flag(guard, session).control


def action_of(guard: LoopGuard, session: str) -> Action:
    return control_of(guard, session).action


def notice(**changes: Any) -> ControlMessage:
    """A pause by Ada, changed as said."""
    given: dict[str, Any] = {
        "id": f"n{next(_numbers)}", "session": "s", "action": Action.PAUSE, "reason": "why",
        "hint": None, "who": "ada", "decision_id": None, "at": time.time_ns(), "until": None,
        "guidance": None, "origin": "elsewhere",
    }  # fmt: skip
    return ControlMessage(**{**given, **changes})
