"""A scenario as steps, as it stands in a recording, and what the guard makes of them afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lab.runs import Row, Scenario
from lab.scenarios import EPOCH, SECOND, Played
from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Action, Decision, Kind, Step


def steps(scenario: Scenario) -> list[Step]:
    """The steps of a run of one session, in the order in which they end."""
    return list(_Recorder(scenario.id).steps(scenario.steps))


def replayed(
    scenario: Scenario, change: Callable[[Step], object] | None = None, **settings: Any
) -> Played:
    """What is decided about the steps, each changed before by `change`."""
    played = Played()

    def decided(_: object, decision: Decision) -> None:
        if decision.action is not Action.ALLOW:
            played.decisions.append((played.calls, decision))

    guard = LoopGuard(Settings(**settings), clock="replay", on_decision=decided)
    for step in steps(scenario):
        played.calls += step.kind in (Kind.TOOL, Kind.HANDOFF, Kind.NODE)
        if change is not None:
            change(step)
        guard.observe(step, scenario.id)
    return played


class _Recorder:
    """Reads rows on a clock of its own."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.now = 0.0
        self.agents: list[str] = []

    def steps(self, rows: tuple[Row, ...]) -> Iterator[Step]:
        for row in rows:
            if "wait" in row:
                self.now += row["wait"]
            elif "begin" in row:
                if row.get("nested"):
                    if "user" in row:
                        giver = self.agents[-1] if self.agents else None
                        yield self._step(Kind.HANDOFF, row["begin"], 0, giver, args=row["user"])
                    self.agents.append(row["begin"])
                elif "user" in row:
                    yield self._step(Kind.OTHER, "user", 0, None, text=row["user"])
            elif "end" in row:
                if self.agents:
                    self.agents.pop()
            elif "model" in row:
                model = row["model"]
                said = {"text": model.get("text"), "model": "m"}
                yield self._step(Kind.MODEL, "m", model["seconds"], self._agent(row), **said)
            elif "together" in row:
                began = self.now
                latest = began
                for one in row["together"]:
                    self.now = began
                    yield self._call(one)
                    latest = max(latest, self.now)
                self.now = latest
            elif "handoff" in row:
                yield self._step(
                    Kind.HANDOFF, row["handoff"], row["seconds"], row["agent"], args=row["args"]
                )
            elif "node" in row:
                yield self._step(
                    Kind.NODE, row["node"], row["seconds"], None, outcome=row["result"]
                )
            else:
                yield self._call(row)

    def _call(self, row: Row) -> Step:
        failed = row.get("error")
        return self._step(
            Kind.TOOL,
            row["tool"],
            row["seconds"],
            self._agent(row),
            args=row["args"],
            outcome=None if failed is not None else row.get("result"),
            error=failed is not None,
            error_text=failed,
        )

    def _agent(self, row: Row) -> str | None:
        return row.get("agent") or (self.agents[-1] if self.agents else None)

    def _step(self, kind: Kind, name: str, took: float, agent: str | None, **said: Any) -> Step:
        began, self.now = self.now, self.now + took
        times = {"start": EPOCH + round(began * SECOND), "end": EPOCH + round(self.now * SECOND)}
        return Step(kind, name, agent=agent, **times, **said)
