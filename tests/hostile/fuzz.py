"""Hostile spans of every dialect, from a fixed seed, through the real SDK into a real guard.

`python -m tests.hostile.fuzz --spans N` feeds N spans and prints what the hooks took of the
thread's CPU, and the faults that the guard counted. The texts are made before and shared by
reference, so that the program itself costs little.
"""

import argparse
import gc
import json
import logging
import random
import re
import time
from functools import lru_cache
from typing import Any, Final

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanLimits, TracerProvider
from opentelemetry.trace import StatusCode, Tracer, set_span_in_context

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from otel_loopguard.dialects import registered
from otel_loopguard.spans.reader import collect_keys
from otel_loopguard.spans.steps import PLAN_KEYS, TASK_KEYS
from tests.dialects.test_readings import CASES, TABLE, span_of
from tests.hostile.rig import texts
from tests.tables import rows

SEED: Final = 20_261_122
MOST: Final = 500
"""Sessions that the guard keeps."""

_TEMPLATES: Final = [span_of(TABLE[case][:-1]) for case in CASES]
"""Real spans of every dialect: their marks are kept, their contents replaced."""
_MARKS: Final = {mark for dialect in registered() for mark in dialect.marks}
_SCOPES: Final = (
    "my.agent", "pydantic-ai", "agent_framework", "autogen x", "logfire.openai_agents", "\ud800",
    *("openinference.instrumentation." + name for name in
      ("langchain", "llama_index", "google_adk", "smolagents", "crewai")),
    *("opentelemetry.instrumentation." + name for name in
      ("langchain", "agno", "llamaindex", "mcp.x")),
)  # fmt: skip
_TOOLS: Final = (
    "search", "bash", "python", "run_sql", "read_file", "write_file", "transfer_to_agent", "",
    "update_plan", "wait", "get_status", "x" * 3_000, "\ud800", "a\nb",
)  # fmt: skip
_NUMBERS: Final[tuple[Any, ...]] = (
    0, -1, 5, 2**53, 2**63, 2**64, 10**400, -(10**400), 1.5, -1.5, 1e300, float("inf"),
    float("-inf"), float("nan"), True, False, "3287", "-4", "1e400", "9" * 30, "9" * 5_000, "٣",
    "²", "NaN", "", None,
)  # fmt: skip
_SESSION_KEYS: Final = collect_keys("session_keys")
_COUNTED: Final = ("token", "usage", "Tokens", "cost")
_MESSAGE_KEYS: Final = (
    "gen_ai.input.messages", "gen_ai.task.input", "gen_ai.task.output", "gen_ai.prompt.0.content",
    "llm.input_messages.0.message.content", "llm.input_messages.1.message.content",
    "ai.prompt.messages", "request_data", "response_data", "logfire.span_type",
)  # fmt: skip
KEYS: Final = sorted(
    _MARKS.union(
        _SESSION_KEYS, collect_keys("agent_keys"), PLAN_KEYS, TASK_KEYS, _MESSAGE_KEYS,
        *(span.attributes for span in _TEMPLATES),
    )
)  # fmt: skip
_WRAPPINGS: Final = [row.values[0] for row in rows(__file__, "wrappings")]


def wrapped(text: str, wrapping: str) -> str:
    """A text in one of these: as JSON, or as it is."""
    return re.sub(
        '"TEXT"|TEXT', lambda place: json.dumps(text) if place[0][0] == '"' else text, wrapping
    )


_SIZES: Final = {
    0.97: (10, 100, 1_000), 0.995: (4_000, 20_000), 0.9995: (100_000, 300_000),
    1: (1_000_000, 3_000_000),
}  # fmt: skip


@lru_cache(maxsize=64)
def _hostile(size: int) -> tuple[str, ...]:
    """Texts of about a size that parsers and patterns stumble over, plain and wrapped."""
    values = [
        *texts(size).values(),
        *texts(size, "documents").values(),
        "{" + ",".join(f'"k{number}":{number}' for number in range(size // 12)) + "}",
        "[" * size + "]" * size,
        '{"a":' * (size // 6) + "1" + "}" * (size // 6),
        "(" * 200 + "1" + ")" * 200,
    ]
    drawn = random.Random(size)
    return tuple(values + [wrapped(text, drawn.choice(_WRAPPINGS)) for text in values])


class Timed(LoopGuardSpanProcessor):
    """Notes what its hooks take, without what the garbage collector takes in them."""

    spent = 0

    def on_start(self, span: Span, parent_context: Any = None) -> None:
        self.spent -= time.thread_time_ns()
        super().on_start(span, parent_context)
        self.spent += time.thread_time_ns()

    def on_end(self, span: ReadableSpan) -> None:
        self.spent -= time.thread_time_ns()
        super().on_end(span)
        self.spent += time.thread_time_ns()

    def collecting(self, phase: str, _info: object) -> None:
        """For `gc.callbacks`."""
        self.spent += time.thread_time_ns() * (1 if phase == "start" else -1)


class Fuzz:
    """Feeds spans to a guard, all drawn from a seed."""

    def __init__(self, seed: int = SEED) -> None:
        self._draw = random.Random(seed)
        self._numbers = InMemoryMetricReader()
        self._meters = MeterProvider([self._numbers], shutdown_on_exit=False)
        self.guard = LoopGuard(
            Settings(max_sessions=MOST, tuning={"stalls": {"open_steps": 1_000}}),
            meter_provider=self._meters,
        )
        self.processor = Timed(self.guard)
        self.took: list[int] = []
        limits = SpanLimits(max_span_attributes=512)
        provider = TracerProvider(span_limits=limits, shutdown_on_exit=False)
        provider.add_span_processor(self.processor)
        self._tracers: list[Tracer] = [provider.get_tracer(scope) for scope in _SCOPES]
        self._open: list[tuple[Span, int]] = []
        self._usual = [
            wrapped(text, one)
            for one in _WRAPPINGS
            for text in ("a", "no results", "ok", "5 files", "")
        ]

    def run(self, spans: int) -> None:
        gc.callbacks.append(self.processor.collecting)
        try:
            while self._open or len(self.took) < spans:
                most = 200 if len(self.took) < spans else 0
                if len(self._open) > most or (self._open and self._draw.random() < 0.5):
                    self._end()
                else:
                    self._start()
        finally:
            gc.callbacks.remove(self.processor.collecting)
        self.processor.shutdown()
        assert self._numbers.get_metrics_data() is not None

    def _start(self) -> None:
        draw, parent = self._draw, None
        if self._open and draw.random() < 0.8:
            parent = draw.choice(self._open[-8:])[0]
        attributes, name = self._attributes()
        early = draw.random() < 0.5
        self.processor.spent = 0
        span = draw.choice(self._tracers).start_span(
            name,
            context=None if parent is None else set_span_in_context(parent),
            attributes=attributes if early else dict(list(attributes.items())[:2]),
        )
        if not early:
            span.set_attributes(attributes)
        assert isinstance(span, Span)
        self._open.append((span, self.processor.spent))

    def _end(self) -> None:
        """Ends a span: the newest as a rule, an older one at times."""
        draw = self._draw
        at = -1 if draw.random() < 0.8 else draw.randrange(len(self._open))
        span, spent = self._open.pop(at)
        if draw.random() < 0.1:
            said = self._text()[:200_000].encode("ascii", "replace").decode()
            span.record_exception(ValueError(said))
        if draw.random() < 0.1:
            span.set_status(StatusCode.ERROR, self._text()[:200_000])
        if draw.random() < 0.05:
            span.add_event("gen_ai.choice", {"message": self._text()})
        self.processor.spent = spent
        span.end()
        self.took.append(self.processor.spent)

    def _attributes(self) -> tuple[dict[str, Any], str]:
        draw = self._draw
        tool = draw.choice(_TOOLS)
        found: dict[str, Any] = {}
        for key, value in draw.choice(_TEMPLATES).attributes.items():
            counted = any(word in key for word in _COUNTED)
            found[key] = (
                tool if value == "search"
                else value if key in _MARKS
                else draw.choice(_NUMBERS) if counted
                else self._value()
            )  # fmt: skip
        if draw.random() < 0.2:
            found[draw.choice(_SESSION_KEYS)] = f"s{draw.randrange(900)}"
        for _ in range(draw.choice((0, 0, 0, 1, 2, 5))):
            found[draw.choice(KEYS)] = self._value()
        return found, draw.choice(("execute_tool ", "chat ", "")) + tool

    def _value(self) -> Any:
        drawn = self._draw.random()
        if drawn < 0.04:
            return self._draw.choice(_NUMBERS)
        if drawn < 0.06:
            return [self._text()[:1_000] for _ in range(self._draw.randrange(5))]
        return self._text()

    def _text(self) -> str:
        """A text: short as a rule, seldom of up to a megabyte, very seldom of ten."""
        drawn, choice = self._draw.random(), self._draw.choice
        if drawn < 0.85:
            return choice(self._usual)
        for most, sizes in _SIZES.items():
            if drawn < most:
                return choice(_hostile(choice(sizes)))
        raise AssertionError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    fuzz = Fuzz(given.seed)
    fuzz.run(given.spans)
    took = [one / 1e6 for one in sorted(fuzz.took)]
    shares = (f"p{part:g} {took[int(part / 100 * len(took))]:.2f}" for part in (50, 99, 99.9))
    print(f"{len(took)} spans, CPU of their hooks in ms: {', '.join(shares)}, worst {took[-1]:.2f}")
    print("faults:", dict(fuzz.guard.faults.counts))


if __name__ == "__main__":
    main()
