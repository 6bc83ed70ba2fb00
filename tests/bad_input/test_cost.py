"""No input makes a step cost much more than its size: nothing quadratic, nothing catastrophic."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.dialects.messages import written
from otel_loopguard.dialects.unwrapping import (
    agent_result,
    call_inputs,
    execution_result,
    literal,
    protocol_result,
    run_inputs,
    texts,
    tool_message,
    tool_output,
)
from tests.bad_input.rig import TOOL, Rig
from tests.calls import EPOCH, SECOND

LIMIT_S = 2.0
"""Generous, for a machine that is busy: what is found here takes seconds or hours."""
N = 1_000_000
TEXTS = {
    "newlines": "\n" * N,
    "spaces": " " * N,
    "digits": "1" * N,
    "15": "15" * (N // 2),
    "hex": "a1" * (N // 2),
    "0x": "0x" * (N // 2),
    "/tmp/": "/tmp/" * (N // 5),
    "clock": "1:" * (N // 2),
    "took": "took " * (N // 5),
    "took=": "took=" * (N // 5),
    "pid": "pid " * (N // 4),
    "error": "error " * (N // 6),
    "tool": "tool " * (N // 5),
    "missing": "missing " * (N // 8),
    "open(": "open(" * (N // 5),
    "sed -a": "sed " + "-a " * (N // 3),
    "sed -i": "sed -i" * (N // 6),
    "; newline": ";\n" * (N // 2),
    "; spaces": ";" + " " * N,
    "<<-": "<<-" * (N // 3),
    "git": "git " * (N // 4),
    "npm": "npm aaaa " * (N // 9),
    "sleep": "sleep 1" + " " * N + "x",
    "half a UUID": "00000000-0000-" * (N // 14),
    "1.1.": "1." * (N // 2),
    "dates": "2024-01-01T" * (N // 11),
    "one word": "A" * N,
    "one error": "A" * N + "Error: x",
    "tracebacks": "Traceback (most recent call last)" * (N // 33),
    "brackets": "[" * N,
    "braces": "{" * N,
    "quotes": '"' * N,
    "minus": "-" * 99_000 + "1",
    "a list": "[" + "1," * 49_000 + "]",
    "a sum": "+".join(["1"] * 45_000),
    "agno": "status='failure' result=" + " error=" * 150_000 + " updated_session_state=",
    "camel": "aB" * (N // 2),
    "surrogates": "\ud800" * (N // 3),
    "escapes": "'" + "\\d" * 49_000 + "'",
}


def quickest(work: Callable[[], object]) -> float:
    """Seconds of the quicker of two runs."""
    took = []
    for _ in range(2):
        start = time.perf_counter()
        work()
        took.append(time.perf_counter() - start)
    return min(took)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("tool", ["bash", "python", "run_sql", "search"])
def test_a_text_of_a_megabyte_as_everything(tool: str, text: str) -> None:
    """As arguments, command, result and error at once, every pattern of identity included."""
    guard = LoopGuard(Settings(), clock="replay")

    def judge() -> None:
        for error in (False, True):
            fields = {"error": error, "error_text": text if error else None}
            guard.observe(Step(Kind.TOOL, tool, args=text, outcome=text, **fields), "s")
            guard.observe(Step(Kind.TOOL, tool, args={"command": text}, outcome=text), "s")

    assert quickest(judge) < LIMIT_S


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_text_of_a_megabyte_in_every_wrapping(text: str) -> None:
    """Each way to take a wrapping off."""
    for unwrap in (
        agent_result, call_inputs, execution_result, literal, protocol_result, run_inputs, texts,
        tool_message, tool_output, written, lambda value: literal(value[:99_990]),
    ):  # fmt: skip
        assert quickest(lambda unwrap=unwrap: unwrap(text)) < LIMIT_S


def test_arguments_with_100_000_keys() -> None:
    """Names and values that look like ids are not compared one against all."""
    guard = LoopGuard(Settings(), clock="replay")
    args = {f"key{number}": f"id-{number}" for number in range(100_000)}
    step = Step(Kind.TOOL, "t", args=args, outcome="x")
    assert quickest(lambda: guard.observe(step, "s")) < LIMIT_S


@pytest.mark.parametrize("value", ["plain", "calls", "loops", "open spans", "sessions"])
def test_the_10_000th_costs_what_the_first_did(value: str) -> None:
    """A step costs the same after 10,000 calls, loops, sessions or open spans."""
    rig = Rig({"max_sessions": 500})

    def some(first: int) -> None:
        for number in range(first, first + 300):
            start = EPOCH + number * SECOND
            args = {"n": number // 4 if value == "loops" else number if value == "calls" else 0}
            step = Step(Kind.TOOL, "t", args=args, outcome="old", start=start, end=start + 1)
            if value == "open spans":
                rig.tracer.start_span("execute_tool x", attributes=TOOL)
            rig.guard.observe(step, f"s{number}" if value == "sessions" else "s")

    def timed(first: int) -> float:
        # What this thread computed: a busy machine takes time that no step costs.
        start = time.thread_time()
        some(first)
        return time.thread_time() - start

    some(0)
    early = min(timed(300), timed(600), timed(900))
    for first in range(1200, 10_000, 300):
        some(first)
    late = min(timed(10_200), timed(10_500), timed(10_800))
    assert late < early * 2.5 + 0.01


ROUND = """
from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Kind, Step
value = []
value.extend([value, value])
LoopGuard(Settings(), clock="replay").observe(Step(Kind.TOOL, "t", args={"v": value}), "s")
"""


def test_a_list_that_contains_itself_twice_ends() -> None:
    """What goes round is cut, not followed into every branch."""
    subprocess.run([sys.executable, "-c", ROUND], check=True, timeout=5)


def test_messages_that_contain_themselves_end() -> None:
    """A list with itself in it 10,000 times is given up, in memory too."""
    value: list[object] = []
    value.extend([value] * 10_000)
    assert quickest(lambda: written(value)) < LIMIT_S
