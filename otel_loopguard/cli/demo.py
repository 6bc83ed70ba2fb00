"""`demo`: a live agent that is stopped, then a recorded run of a real one."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Status, StatusCode
from rich.table import Table
from rich.text import Text

from otel_loopguard import control
from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import console
from otel_loopguard.cli.replay import Forest, SpanResults, show
from otel_loopguard.core import Action
from otel_loopguard.errors import LoopGuardAbort
from otel_loopguard.replay import Run
from otel_loopguard.sdk.processor import LoopGuardSpanProcessor
from otel_loopguard.settings import Settings
from otel_loopguard.spans.reader import Reader

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
    from rich.console import Console

    from otel_loopguard._control.flag import Control
    from otel_loopguard.cli.replay import ReplayResult

_TURNS: Final = 15  # an agent stops by itself some time; the guard stops it long before
_QUERY: Final = {"query": "refund policy for order 4711"}
_FOUND: Final = '{"hits": [], "message": "nothing found in the knowledge base"}'

Report = Callable[[str, str], None]
"""Called with what happens: one of `model`, `tool`, `guard`, `refused`, and a sentence."""


class StubbornAgent:
    """An agent whose model asks for the same search again and again, whatever the hint."""

    def __init__(self, tracer: Tracer, report: Report) -> None:
        self._tracer = tracer
        self._report = report
        self._decision_id: str | None = None

    def run(self) -> str:
        """Runs the loop."""
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"}
        name = "invoke_agent support"
        with self._tracer.start_as_current_span(name, attributes=attributes):
            for _ in range(_TURNS):
                control.check()
                state = control.current()
                self._tell(state)
                self._ask_model(state)
                self._search(state)
        return "I could not find it."

    def _tell(self, state: Control) -> None:
        if state.decision_id != self._decision_id:
            self._decision_id = state.decision_id
            self._report("guard", f"{state.action}: {state.hint or state.reason}")

    def _ask_model(self, state: Control) -> None:
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "scripted"}
        with self._tracer.start_as_current_span("chat scripted", attributes=attributes):
            warned = state.action is not Action.ALLOW
            text = "I will search once more." if warned else "Let me search the knowledge base."
            self._report("model", text)

    def _search(self, state: Control) -> None:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "search",
            "gen_ai.tool.call.arguments": json.dumps(_QUERY),
        }
        with self._tracer.start_as_current_span(
            "execute_tool search", attributes=attributes
        ) as span:
            if state.action is Action.DENY:
                span.set_attribute("error.type", "refused")
                span.set_status(Status(StatusCode.ERROR, "refused by the guard"))
                self._report("refused", f"search({_QUERY['query']!r}) is not run")
                return
            span.set_attribute("gen_ai.tool.call.result", _FOUND)
            self._report("tool", f"search({_QUERY['query']!r}) -> nothing found")


SAMPLE: Final = "intercode-sql.otlp.jsonl.gz"
"""The recorded run in `otel_loopguard/cli/data`; its licence is beside it."""

_STYLES: Final = {"model": "dim", "tool": "", "guard": "yellow", "refused": "bold red"}


def run_demo() -> int:
    """Shows both, and returns the exit code: 0 if the live agent was stopped."""
    out = console()
    out.print(Text("A live agent. Its spans reach the guard by one line:", style="bold"))
    out.print("    provider.add_span_processor(LoopGuardSpanProcessor())\n", markup=False)
    stopped = _live(out)
    out.print(
        Text(
            "\nA recorded run (InterCode, gpt-3.5 at a SQL database), replayed on its trace:",
            style="bold",
        )
    )
    _recorded()
    return 0 if stopped else 1


def _live(out: Console) -> bool:
    """Runs the stubborn agent; whether it was stopped."""

    def report(who: str, what: str) -> None:
        row = Table.grid(padding=(0, 2))
        row.add_column(width=9, justify="right")
        row.add_row(*(Text(each, style=_STYLES[who]) for each in (who, what)))
        out.print(row)

    provider = TracerProvider()
    provider.add_span_processor(LoopGuardSpanProcessor())
    try:
        answer = StubbornAgent(provider.get_tracer("otel_loopguard.demo"), report).run()
    except LoopGuardAbort as stop:
        out.print(Text(f"\ncontrol.check() raised LoopGuardAbort: {stop}", style="bold red"))
        return True
    finally:
        provider.shutdown()
    out.print(f"The agent was not stopped; it says: {answer}", markup=False)
    return False


def _recorded() -> None:
    forest = Forest(Reader().read)
    spans = SpanResults(SAMPLE, Settings(), forest)
    results: list[ReplayResult] = []
    with as_file(files("otel_loopguard.cli") / "data" / SAMPLE) as path:
        with Inputs([str(path)], bar=False) as inputs:
            for recording in inputs:
                for entry in inputs.entries(recording):
                    if not isinstance(entry, Run):
                        results.extend(spans.add(entry))
        results.extend(spans.finish())
    show(results, forest)
