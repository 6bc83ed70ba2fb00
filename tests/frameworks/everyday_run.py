"""Everyday work in a real framework, with a scripted model: one JSON object, a case by name.

python everyday_run.py langchain|openai_agents|pydantic_ai
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from tests.frameworks.simple_agents import AGENTS

if TYPE_CHECKING:
    from otel_loopguard.core import Decision

NAME = sys.argv[1]
PAUSE_S = 600


class Case(NamedTuple):
    """What a tool answers, call by call; None for a failure with 503."""

    tool: str
    asked: Sequence[str]
    answers: Sequence[str | None]
    rest_s: float = 0


ITEMS = [f"SKU-{1000 + number}" for number in range(50)]
CASES = {
    "poll": Case("job_status", ["j-7"] * 20, ["running"] * 19 + ["done"]),
    "poll in JSON": Case(
        "get_job", ["j-7"] * 20, ['{"state": "QUEUED"}'] * 19 + ['{"state": "OK"}']
    ),
    "declared poll": Case("look", ["j-7"] * 20, ["the report has 12 pages so far"] * 19 + ["done"]),
    "schedule": Case("get_health", ["shop"] * 20, ["all systems normal"] * 20, PAUSE_S),
    "outage": Case(
        "fetch_item", [item for item in ITEMS[:8] for _ in range(3)],
        [answer for item in ITEMS[:8] for answer in (None, None, f"the text about {item}")],
    ),
    "keys": Case("press_key", ["down"] * 12, ["ok"] * 12),
    "scroll": Case("scroll", ["down"] * 14, ['{"status": "ok"}'] * 14),
    "lookups": Case("find_article", ITEMS, ["Not found"] * 50),
    "long run": Case("read_page", ITEMS, [f"page about {item} and {item[::-1]}" for item in ITEMS]),
}  # fmt: skip

decisions: list[Decision] = []
guard = LoopGuard(
    Settings(poll_tools=frozenset({"look"})), on_decision=lambda _, one: decisions.append(one)
)
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor(guard))
trace.set_tracer_provider(provider)
rehearsal = otel_loopguard.set_testing(True)
left: list[tuple[str, str | None]] = []
rest: list[float] = [0]


def answer(of: str) -> str:
    """Answers what the case says next."""
    _, said = left.pop(0)
    if said is None:
        msg = "503 Service Unavailable"
        raise RuntimeError(msg)
    return said


def asks(_: str) -> dict[str, str] | None:
    """What the model asks for next; None when it is done."""
    if rest[0]:
        rehearsal.advance(rest[0])
    return {"of": left[0][0]} if left else None


said: dict[str, object] = {}
for name, case in CASES.items():
    decisions.clear()
    left[:], rest[0] = list(zip(case.asked, case.answers, strict=True)), case.rest_s
    fault = ""
    try:
        AGENTS[NAME](case.tool, answer, asks)()
    except Exception as error:  # noqa: BLE001
        fault = repr(error)[:300]
    said[name] = {
        "left": len(left),
        "fault": fault,
        "told": [f"{one.action.value} {one.reason}" for one in decisions],
    }
print(json.dumps(said))
