"""Two processes share one session through Redis; one of them is killed and started again.

    LOOPGUARD_STORE_URL=redis://127.0.0.1:6379 python examples/two_processes.py

A planner works on a session and then waits for a researcher, in a process of its own, that asks
twice the same and is killed. The researcher's next process knows what was before: its first equal
question is the third one. When it is stopped, so is the planner.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from opentelemetry.sdk.trace import Tracer, TracerProvider

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor, Settings, control

SETTINGS = Settings(
    digest_key="the same in all processes", tuning={"journal": {"flush_s": 0.2, "read_s": 0.2}}
)


def ask(tracer: Tracer, question: str) -> None:
    """One call of a tool, with a pause in which what others did arrives."""
    with tracer.start_as_current_span("execute_tool search") as span:
        span.set_attribute("gen_ai.operation.name", "execute_tool")
        span.set_attribute("gen_ai.tool.name", "search")
        span.set_attribute("gen_ai.tool.call.arguments", f'{{"q": "{question}"}}')
        span.set_attribute("gen_ai.tool.call.result", f"No results found for {question}.")
    time.sleep(0.5)


def wait() -> str:
    """Waits for the researcher, and asks once per step whether to go on."""
    try:
        for _ in range(1000):
            control.check()
            time.sleep(0.02)
    except LoopGuardAbort as stop:
        return f"is stopped by the {control.current().by}: {stop}"
    return "waited in vain"


def work(name: str, questions: list[str]) -> None:
    """One process, which is killed at its end."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(LoopGuardSpanProcessor(LoopGuard(SETTINGS)))
    tracer = provider.get_tracer("two_processes")
    with otel_loopguard.session("two-processes"):
        with tracer.start_as_current_span("chat", attributes={"gen_ai.operation.name": "chat"}):
            time.sleep(0.5)
        for question in questions:
            ask(tracer, question)
            action = control.current().action
            print(f"{name} asked for {question}: {action}", flush=True)
            if action == "abort":
                break
        if name == "planner":
            print(f"{name} {wait()}", flush=True)
    os._exit(9)


def begin(name: str, *questions: str) -> subprocess.Popen[str]:
    """Starts a process."""
    command = [sys.executable, __file__, name, *questions]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        work(sys.argv[1], sys.argv[2:])
    planner = begin("planner", "rain")
    print(planner.stdout.readline(), end="")
    print(begin("researcher", "loops", "loops").communicate()[0], end="")
    print(begin("researcher", *["loops"] * 20).communicate()[0], end="")
    print(planner.communicate()[0], end="")
