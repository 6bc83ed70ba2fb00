"""Two processes share one session through Redis; one of them is killed and started again.

    LOOPGUARD_STORE_URL=redis://127.0.0.1:6379 python examples/two_processes.py

A researcher asks twice the same and is killed, a planner works on the same session meanwhile. The
researcher's next process knows what was before: the next equal question is the third one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from opentelemetry.sdk.trace import Tracer, TracerProvider

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings, control
from otel_loopguard.faults import Faults
from otel_loopguard.sessions import WriterShelf
from otel_loopguard.stores import open_writer

SETTINGS = Settings(digest_key="the same in all processes", journal_flush_s=0.2, journal_read_s=0.2)
RUNS = (["researcher", "loops", "loops"], ["planner", "rain"], ["researcher", "loops", "loops"])


def ask(tracer: Tracer, question: str) -> None:
    """One call of a tool, with a pause in which what others did arrives."""
    with tracer.start_as_current_span("execute_tool search") as span:
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", "search")
        span.set_attribute("gen_ai.tool.call.arguments", f'{{"q": "{question}"}}')
        span.set_attribute("gen_ai.tool.call.result", f"Nothing is known of {question}.")
    time.sleep(0.5)


def work(name: str, questions: list[str]) -> None:
    """One process, which is killed at its end."""
    guard = LoopGuard(SETTINGS, shelf=WriterShelf(open_writer(SETTINGS, Faults())))
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor(guard))
    tracer = provider.get_tracer("two_processes")
    with otel_loopguard.session("two-processes"):
        with tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"}):
            time.sleep(0.5)
        for question in questions:
            ask(tracer, question)
            print(f"{name} asked for {question}: {control.current().action}", flush=True)
    os._exit(9)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(sys.argv[1], sys.argv[2:])
    for run in RUNS:
        subprocess.run([sys.executable, __file__, *run], check=False)
