"""`demo`: a live agent that is stopped, then a recorded run of a real one. Memory only."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace import TracerProvider
from rich.text import Text

from otel_loopguard.cli.agent import StubbornAgent
from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import console
from otel_loopguard.cli.replay import SpanAccounts, show
from otel_loopguard.cli.tree import Forest
from otel_loopguard.dialects import Reader
from otel_loopguard.errors import LoopGuardAbort
from otel_loopguard.processor import LoopGuardSpanProcessor
from otel_loopguard.recordings import Run
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

    from otel_loopguard.cli.accounts import Account

SAMPLE: Final = "intercode-sql.otlp.jsonl.gz"
"""The recorded run in `otel_loopguard/cli/data`; its licence stands beside it."""

_STYLES: Final = {"model": "dim", "tool": "", "guard": "yellow", "refused": "bold red"}


def run_demo() -> int:
    """Shows both, and gives the exit code: 0 if the live agent was stopped."""
    out = console()
    out.print(Text("A live agent. Its spans reach the guard by one line:", style="bold"))
    out.print("    provider.add_span_processor(LoopGuardSpanProcessor())\n", markup=False)
    stopped = _live(out)
    out.print(
        Text(
            "\nA recorded run (InterCode, gpt-4 at a SQL database), replayed on its trace:",
            style="bold",
        )
    )
    _recorded()
    return 0 if stopped else 1


def _live(out: Console) -> bool:
    """Runs the stubborn agent; whether it was stopped."""

    def report(who: str, what: str) -> None:
        out.print(Text(f"{who:>9}  {what}", style=_STYLES[who]))

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
    spans = SpanAccounts(SAMPLE, Settings(), forest)
    accounts: list[Account] = []
    with as_file(files("otel_loopguard.cli") / "data" / SAMPLE) as path:
        with Inputs([str(path)], bar=False) as inputs:
            for recording in inputs:
                for entry in inputs.entries(recording):
                    if not isinstance(entry, Run):
                        accounts.extend(spans.add(entry))
        accounts.extend(spans.finish())
    show(accounts, forest)
