"""A scenario as steps, as it stands in a recording, and what the guard makes of them afterwards.

    python -m lab.recorded scenarios/everyday-work.txt FILE

writes eight runs of each table as labelled runs, for `otel-loopguard eval` and `lab.evaluate`.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import tables
from lab.scenarios import EPOCH, SECOND, Played
from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Action, Decision, Kind, Step

if TYPE_CHECKING:
    from lab.runs import Row, Scenario


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

    def steps(self, rows: Iterable[Row]) -> Iterator[Step]:
        for row in rows:
            if "wait" in row:
                self.now += row["wait"]
            elif "together" in row:
                yield from self._together(row["together"])
            elif "begin" in row:
                yield from self._begin(row)
            elif "end" in row:
                del self.agents[-1:]
            else:
                yield self._one(row)

    def _together(self, rows: Iterable[Row]) -> Iterator[Step]:
        began = latest = self.now
        for row in rows:
            self.now = began
            yield self._call(row)
            latest = max(latest, self.now)
        self.now = latest

    def _begin(self, row: Row) -> Iterator[Step]:
        if not row.get("nested"):
            if "user" in row:
                yield self._step(Kind.OTHER, "user", 0, None, text=row["user"])
            return
        if "user" in row:
            giver = self.agents[-1] if self.agents else None
            yield self._step(Kind.HANDOFF, row["begin"], 0, giver, args=row["user"])
        self.agents.append(row["begin"])

    def _one(self, row: Row) -> Step:
        if "model" in row:
            model, failed = row["model"], row["model"].get("error")
            said = {"text": model.get("text"), "error": failed is not None, "error_text": failed}
            agent = self._agent(row)
            return self._step(Kind.MODEL, "m", model["seconds"], agent, model="m", **said)
        if "handoff" in row:
            said = {"args": row["args"]}
            return self._step(Kind.HANDOFF, row["handoff"], row["seconds"], row["agent"], **said)
        if "node" in row:
            said = {"outcome": row["result"]}
            return self._step(Kind.NODE, row["node"], row["seconds"], None, **said)
        return self._call(row)

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


SEEDS = 8  # runs of each table: enough for every silent and every mixed kind of them


def labelled(table: tables.Table, seed: int) -> Row:
    """One run as a line of a file of labelled runs."""
    run = table.draw(seed)
    return {
        "id": f"everyday-{table.name}-{seed}",
        "group": table.name,
        "source": "everyday",
        "license": "Apache-2.0",
        "task": table.name,
        "label": {"success": True, "label_quality": "made up", "tier": "neg_everyday"},
        "loop": run.stuck,
        "loop_reason": "",
        "onset_step": None,
        "steps": list(map(_labelled, steps(run))),
    }


def _labelled(step: Step) -> Row:
    kinds = {Kind.MODEL: "llm", Kind.OTHER: "agent", Kind.HANDOFF: "agent"}
    return {
        "kind": kinds.get(step.kind, step.kind.value),
        "agent": step.agent,
        "tool": step.name,
        "args": step.args,
        "output": step.error_text if step.error else step.outcome,
        "error": step.error,
        "t_start": step.start / SECOND,
        "t_end": (step.end or 0) / SECOND,
        "tokens": None,
        "text": step.text,
    }


def main() -> None:
    """Writes the runs of a file of tables."""
    source, target = map(Path, sys.argv[1:])
    rows = [labelled(table, seed) for table in tables.load(source) for seed in range(SEEDS)]
    raw = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    target.write_bytes(gzip.compress(raw, mtime=0) if target.suffix == ".gz" else raw)
    print(f"{len(rows)} runs")


if __name__ == "__main__":
    main()
