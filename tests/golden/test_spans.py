"""What is decided about recorded runs does not depend on when their spans are judged.

Each run is a trace: an agent's span, and below it a span for each step, in order and with the times
of the recording. Whoever asks after each span has it judged at once; whoever asks later, in a
batch.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Status, StatusCode, set_span_in_context

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from otel_loopguard.core import Decision, Kind, Step
from otel_loopguard.replay import Recording, Run
from otel_loopguard.sessions import Session
from tests.agents import provider_with
from tests.golden.decisions import SHARED, golden

SCOPE: Final = "recorded.agent"
BEGAN: Final = 1_700_000_000_000_000_000
"""When steps without times begin, nanoseconds since the epoch: they take a second each."""

Decided = tuple[str, int, str, str, str]
"""Session, number of the step, action, detector and reason."""


def decided(recorded: Sequence[Run], every: int, **settings: Any) -> list[Decided]:
    """What is decided about runs whose spans are judged after so many of them."""
    found: list[Decided] = []

    def on_decision(session: Session, made: Decision) -> None:
        found.append((session.key, made.step, made.action.value, made.detector, made.reason))

    guard = LoopGuard(Settings(**settings), on_decision=on_decision)
    processor = LoopGuardSpanProcessor(guard)
    provider = provider_with(processor)
    spans = count(1)
    for one in recorded:
        for _ in _spans(provider, one):
            if next(spans) % every == 0:
                processor.force_flush()
    processor.force_flush()
    processor.shutdown()
    return found


def _spans(provider: TracerProvider, recorded: Run) -> Iterator[None]:
    tracer = provider.get_tracer(SCOPE)
    times = list(_times(recorded.steps))
    top = tracer.start_span(
        "invoke_agent recorded", Context(), start_time=times[0][0] if times else BEGAN,
        attributes={
            "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "recorded",
            "gen_ai.conversation.id": recorded.id,
        },
    )  # fmt: skip
    below = set_span_in_context(top, Context())
    for step, (start, end) in zip(recorded.steps, times, strict=True):
        name, attributes = _described(step)
        attributes["gen_ai.conversation.id"] = recorded.id
        span = tracer.start_span(name, below, start_time=start, attributes=attributes)
        if step.error:
            span.set_status(Status(StatusCode.ERROR, step.error_text))
        span.end(end)
        yield
    top.end(times[-1][1] if times else BEGAN)
    yield


def _times(steps: Sequence[Step]) -> Iterator[tuple[int, int]]:
    now = BEGAN
    for step in steps:
        now = max(step.start or now + 1_000_000_000, now + 1)
        end = max(step.end or now + 500_000_000, now)
        yield now, end


def _described(step: Step) -> tuple[str, dict[str, Any]]:
    if step.kind is Kind.MODEL:
        text = [{"type": "text", "content": step.text or ""}]
        answer = json.dumps([{"role": "assistant", "parts": text, "finish_reason": "stop"}])
        model = step.model or "model"
        return f"chat {model}", {
            "gen_ai.operation.name": "chat", "gen_ai.request.model": model,
            "gen_ai.output.messages": answer,
            **({} if step.tokens_out is None else {"gen_ai.usage.output_tokens": step.tokens_out}),
        }  # fmt: skip
    if step.kind is not Kind.TOOL:
        # Of no interest, in a scope that has spans of interest.
        return f"{step.kind.value} {step.name}", {}
    found: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": step.name or "tool",
    }  # fmt: skip
    for key, value in (("arguments", step.args), ("result", step.outcome)):
        if value is not None:
            found[f"gen_ai.tool.call.{key}"] = value if isinstance(value, str) else _json(value)
    if step.agent:
        found["gen_ai.agent.name"] = step.agent
    return f"execute_tool {step.name}", found


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


FILES = "miniswe sentinel codetracer-claude intercode taubench trail codetracer-kimi".split()
PATHS = {name: SHARED / "traces" / f"{name}.jsonl.gz" for name in FILES}
FEW = 12
"""Runs of a file without `--rare`: those about which most was decided, and as many quiet ones."""


@cache
def recorded(name: str, most: int | None) -> list[Run]:
    """Runs of a file; at most so many with decisions, and as many without."""
    all_runs = [run for run in Recording(str(PATHS[name]), print) if isinstance(run, Run)]
    if most is None:
        return all_runs
    said = {run: len(each.decisions) for (_, run), each in golden().items()}
    loud = sorted((run for run in all_runs if run.id in said), key=lambda run: -said[run.id])
    quiet = [run for run in all_runs if run.id not in said]
    return loud[:most] + sorted(quiet, key=lambda run: len(run.steps))[:most]


@cache
def at_once(name: str, most: int | None, mode: str) -> tuple[Decided, ...]:
    """What is decided where every span is judged as it ends."""
    return tuple(decided(recorded(name, most), 1, mode=mode))


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture, shared: Path) -> None:
    assert shared == SHARED
    caplog.set_level(logging.CRITICAL, logger="otel_loopguard")


@pytest.mark.parametrize("mode", ["guard", "shadow"])
@pytest.mark.parametrize("every", [7, 64])
@pytest.mark.parametrize("name", FILES)
def test_batches_decide_the_same(
    name: str, every: int, mode: str, request: pytest.FixtureRequest
) -> None:
    """About each step of each run: the same action, by the same rule."""
    most = None if request.config.getoption("--rare") else FEW
    expected = at_once(name, most, mode)
    assert expected or name == "taubench"  # nothing is decided about those
    assert decided(recorded(name, most), every, mode=mode) == list(expected)
