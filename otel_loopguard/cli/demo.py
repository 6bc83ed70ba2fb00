"""`demo`: a live agent that is stopped, then a recorded run of a real one."""

from __future__ import annotations

import json
from importlib.resources import as_file, files
from typing import Final

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Status, StatusCode, Tracer
from rich.table import Table
from rich.text import Text

from otel_loopguard import control
from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import console
from otel_loopguard.cli.replay import Forest, replay_all, show
from otel_loopguard.core import Action
from otel_loopguard.errors import LoopGuardAbort
from otel_loopguard.sdk.processor import LoopGuardSpanProcessor
from otel_loopguard.settings import Settings

_TURNS: Final = 15  # an agent stops by itself some time; the guard stops it long before
_QUERY: Final = "refund policy for order 4711"
_FOUND: Final = '{"hits": [], "message": "nothing found in the knowledge base"}'
_SAMPLE: Final = "intercode-sql.otlp.jsonl.gz"
"""The recorded run in `otel_loopguard/cli/data`; its licence is beside it."""
_STYLES: Final = {"model": "dim", "tool": "", "guard": "yellow", "refused": "bold red"}


def run_demo() -> int:
    """Shows both, and returns the exit code: 0 if the live agent was stopped."""
    out = console()
    out.print(Text("A live agent. Its spans reach the guard by one line:", style="bold"))
    out.print("    provider.add_span_processor(LoopGuardSpanProcessor())\n", markup=False)
    stopped = _live()
    recorded = "A recorded run (InterCode, gpt-3.5 at a SQL database), replayed on its trace:"
    out.print(Text(f"\n{recorded}", style="bold"))
    forest = Forest()
    sample = files("otel_loopguard.cli") / "data" / _SAMPLE
    with as_file(sample) as path, Inputs([str(path)], bar=False) as inputs:
        show(list(replay_all(inputs, Settings(), forest)), forest)
    return 0 if stopped else 1


def _live() -> bool:
    """Runs the stubborn agent; whether it was stopped."""
    provider = TracerProvider()
    provider.add_span_processor(LoopGuardSpanProcessor())
    try:
        _stubborn_agent(provider.get_tracer("otel_loopguard.demo"))
    except LoopGuardAbort as stop:
        text = Text(f"\ncontrol.check() raised LoopGuardAbort: {stop}", style="bold red")
        console().print(text)
        return True
    finally:
        provider.shutdown()
    said = "The agent was not stopped; it says: I could not find it."
    console().print(said, markup=False)
    return False


def _stubborn_agent(tracer: Tracer) -> None:
    """An agent whose model asks for the same search again and again, whatever the hint."""
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"}
    with tracer.start_as_current_span("invoke_agent support", attributes=attributes):
        decision_id = None
        for _ in range(_TURNS):
            control.check()
            state = control.current()
            if state.decision_id != decision_id:
                decision_id = state.decision_id
                _say("guard", f"{state.action}: {state}")
            attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "scripted"}
            with tracer.start_as_current_span("chat scripted", attributes=attributes):
                calm = state.action is Action.ALLOW
                said = "Let me search the knowledge base." if calm else "I will search once more."
                _say("model", said)
            _search(tracer, refused=state.action is Action.DENY)


def _search(tracer: Tracer, *, refused: bool) -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.arguments": json.dumps({"query": _QUERY}),
    }
    with tracer.start_as_current_span("execute_tool search", attributes=attributes) as span:
        if refused:
            span.set_attribute("error.type", "refused")
            span.set_status(Status(StatusCode.ERROR, "refused by the guard"))
            _say("refused", f"search({_QUERY!r}) is not run")
        else:
            span.set_attribute("gen_ai.tool.call.result", _FOUND)
            _say("tool", f"search({_QUERY!r}) -> nothing found")


def _say(who: str, what: str) -> None:
    row = Table.grid(padding=(0, 2))
    row.add_column(width=9, justify="right")
    row.add_row(*(Text(each, style=_STYLES[who]) for each in (who, what)))
    console().print(row)
