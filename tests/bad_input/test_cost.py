"""No input makes a step cost much more than its size: nothing quadratic, nothing catastrophic."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from otel_loopguard import LoopGuard, Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.messages import written
from otel_loopguard.spans.unwrap import (
    agent_result,
    call_inputs,
    execution_result,
    literal,
    protocol_result,
    run_inputs,
    tool_message,
    tool_output,
)
from otel_loopguard.spans.values import texts
from tests.bad_input.rig import TOOL, Rig
from tests.bad_input.texts import texts as texts_of
from tests.calls import EPOCH, SECOND

LIMIT_S = 4.0
"""Generous, and of the thread's own time: what is found here takes minutes or hours."""
TEXTS = texts_of(1_000_000)


def quickest(work: Callable[[], object]) -> float:
    """Seconds that this thread computed, of the quicker of two runs."""
    took = []
    for _ in range(2):
        start = time.thread_time()
        work()
        took.append(time.thread_time() - start)
    return min(took)


def judge(tool: str, text: str) -> None:
    """A text as arguments, command, result and error at once: every pattern of identity."""
    guard = LoopGuard(Settings(), clock="replay")
    for error in (False, True):
        fields = {"error": error, "error_text": text if error else None}
        guard.observe(Step(Kind.TOOL, tool, args=text, outcome=text, **fields), "s")
        guard.observe(Step(Kind.TOOL, tool, args={"command": text}, outcome=text), "s")


SMALL = texts_of(20_000)


@pytest.mark.parametrize("text", SMALL.values(), ids=SMALL.keys())
def test_any_text_is_judged(text: str) -> None:
    """Of 20,000 characters: what takes exponential time would never end."""
    for tool in ("bash", "python", "run_sql", "search"):
        judge(tool, text)


@pytest.mark.rare
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
@pytest.mark.parametrize("tool", ["bash", "python", "run_sql", "search"])
def test_a_text_of_a_megabyte_as_everything(tool: str, text: str) -> None:
    """As arguments, command, result and error at once, every pattern of identity included."""
    assert quickest(lambda: judge(tool, text)) < LIMIT_S


@pytest.mark.rare
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_a_text_of_a_megabyte_in_every_wrapping(text: str) -> None:
    """Each way to take a wrapping off."""
    for unwrap in (
        agent_result, call_inputs, execution_result, literal, protocol_result, run_inputs, texts,
        tool_message, tool_output, written, lambda value: literal(value[:99_990]),
    ):  # fmt: skip
        assert quickest(lambda unwrap=unwrap: unwrap(text)) < LIMIT_S


@pytest.mark.rare
def test_arguments_with_100_000_keys() -> None:
    """Names and values that look like ids are not compared one against all."""
    guard = LoopGuard(Settings(), clock="replay")
    args = {f"key{number}": f"id-{number}" for number in range(100_000)}
    step = Step(Kind.TOOL, "t", args=args, outcome="x")
    assert quickest(lambda: guard.observe(step, "s")) < LIMIT_S


@pytest.mark.rare
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
    subprocess.run([sys.executable, "-c", ROUND], check=True, timeout=120)


def test_messages_that_contain_themselves_end() -> None:
    """A list with itself in it 10,000 times is given up, in memory too."""
    value: list[object] = []
    value.extend([value] * 10_000)
    written(value)
