"""A provider with a guard between two plain observers, and bad values to put on its spans."""

import json
from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Span, SpanContext, Status, StatusCode, TraceFlags, Tracer

from otel_loopguard import LoopGuard, LoopGuardSpanExporter, LoopGuardSpanProcessor, Settings
from otel_loopguard.core import Decision, Step
from tests.agents import provider_with
from tests.calls import EPOCH, SECOND
from tests.replay.transcripts.reading import cases

LOOP = 10
"""Equal calls that end with an abort, by the clock: seven without a pause, and three to spare where
the machine pauses."""
MARK = "gen_ai.operation.name"
TOOL = {MARK: "execute_tool", "gen_ai.tool.name": "search"}


@dataclass
class Rig:
    """A guard on a real provider: what it was shown, what it decided, what was exported."""

    settings: dict[str, Any] = field(default_factory=dict)
    wrapped: bool = False

    def __post_init__(self) -> None:
        self._steps: list[Step] = []
        self._decisions: list[Decision] = []
        self.guard = LoopGuard(
            Settings(**self.settings),
            on_step=lambda _session, _index, step: self._steps.append(step),
            on_decision=lambda _session, decision: self._decisions.append(decision),
        )
        self.processor = LoopGuardSpanProcessor(self.guard)
        self.memory = InMemorySpanExporter()
        exporter = LoopGuardSpanExporter(self.memory, self.guard) if self.wrapped else self.memory
        self.provider = provider_with(self.processor, SimpleSpanProcessor(exporter))
        self.tracer: Tracer = self.provider.get_tracer("my.agent")

    @property
    def steps(self) -> list[Step]:
        """Steps that were counted, of all spans that ended by now."""
        self.guard.settle()
        return self._steps

    @property
    def decisions(self) -> list[Decision]:
        self.guard.settle()
        return self._decisions

    @property
    def actions(self) -> list[str]:
        return [decision.action.value for decision in self.decisions]

    @property
    def exported(self) -> tuple[ReadableSpan, ...]:
        return self.memory.get_finished_spans()

    @property
    def faults(self) -> dict[str, int]:
        self.guard.settle()
        return dict(self.guard.faults.counts)


class Finalized:
    """Ends a span when the garbage collector takes it, and only then."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.cycle = self

    def __del__(self) -> None:
        self.span.end()


def ended(  # noqa: PLR0917
    attributes: Any = None,
    name: Any = "execute_tool search",
    scope: Any = "my.agent",
    span_id: int = 1,
    trace_id: int = 1,
    parent_id: int | None = None,
    at: float = 0,
    start: Any = None,
    end: Any = None,
    events: Any = (),
    status: Status | None = None,
) -> ReadableSpan:
    """An ended span, made by the SDK's public constructor: nothing cleans its values.

    Without `start` and `end` it took half a second, `at` seconds after the epoch of the tests.
    """
    began = EPOCH + round(at * SECOND)
    return ReadableSpan(
        name=name,
        context=_context(trace_id, span_id),
        parent=None if parent_id is None else _context(trace_id, parent_id),
        resource=Resource({}),
        attributes=attributes,
        events=[Event(kind, values, 1) for kind, values in events],
        status=status or Status(StatusCode.UNSET),
        start_time=began if start is None else start,
        end_time=began + SECOND // 2 if end is None else end,
        instrumentation_scope=None if scope is None else InstrumentationScope(scope),
    )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(1))


class Throwing(Mapping[str, object]):
    """A map whose every access throws."""

    def __getitem__(self, key: str) -> object:
        raise RuntimeError(f"no {key}")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("not today")

    def __len__(self) -> int:
        return 3


def nested(depth: int) -> object:
    value: object = "end"
    for level in range(depth):
        value = [value] if level % 2 else {"inner": value}
    return value


def cyclic() -> list[object]:
    value: list[object] = ["x"]
    value.append({"again": value})
    return value


MEGABYTES = 10_000_000
VALUES: dict[str, object] = {
    "10 MB of text": "x" * MEGABYTES,
    "10 MB of quotes": '"' * MEGABYTES,
    "10 MB of brackets": "[" * MEGABYTES,
    "10 MB of braces": '{"a":' * (MEGABYTES // 5),
    "10 MB of JSON": "[" + ",".join(["12345678"] * (MEGABYTES // 9)) + "]",
    "10 MB of bytes": b"\xff" * MEGABYTES,
    "lone surrogates": "\ud800\udfff" * 1000,
    "JSON with a lone surrogate": '{"q": "\ud800"}',
    "JSON with an escaped surrogate": '{"q": "\\ud800"}',
    "NaN": float("nan"),
    "infinity": float("inf"),
    "JSON with NaN": '{"q": NaN}',
    "NaN in a map": {"q": float("nan"), "r": [float("-inf")]},
    "nested 200": nested(200),
    "JSON nested 5000": "[" * 5000 + "]" * 5000,
    "JSON nested 500": '{"a":' * 500 + "1" + "}" * 500,
    "invalid JSON": '{"q": ',
    "empty": "",
    "null": "null",
    "NUL": "\0",
    "bytes": b"\xff\xfe\0",
    "bytes in a map": {"q": b"\xff"},
    "a number past 64 bits": 2**70,
    "a number past 64 bits in a map": {"q": 2**70, "r": -(2**70)},
    "a number of 1000 digits": 10**1000,
    "a number of 5000 digits in a map": {"q": 10**5000},
    "JSON with a number of 5000 digits": '{"q": ' + "9" * 5000 + "}",
    "no text as a key": {5: "five", None: "none", (1, 2): "pair"},
    "an object": object(),
    "an object in a map": {"q": object()},
    "100,000 keys": {f"key{number}": f"id-{number}" for number in range(100_000)},
    "100,000 items": list(range(100_000)),
    "a list of mixed things": [1, "a", None, b"b", 1.5, {"c": [True]}],
    "false": False,
    "nothing in a list": [],
    "nothing in a map": {},
}
"""Values that the SDK lets through to processors, one way or the other."""


_TEXTS = {
    title: [pair for line in lines.split("\n") if line for pair in json.loads(line).items()]
    for title, lines in cases(Path(__file__).with_name("texts.txt")).items()
}


def texts(n: int, title: str = "texts") -> dict[str, str]:
    """Texts of about `n` characters, by name: what begins them, what is repeated, what ends them.

    Literals have a limit: only so long they are read.
    """
    return {
        name: head + unit * (min([n, *most]) // len(unit)) + tail
        for name, (head, unit, tail, *most) in _TEXTS[title]
    }


def sizes(thing: object, depth: int = 6) -> int:
    """Entries of all tables below an object of the package."""
    seen: set[int] = set()

    def count(value: object, left: int) -> int:
        if id(value) in seen or left < 0 or isinstance(value, (str, bytes, type, int, float)):
            return 0
        seen.add(id(value))
        total = 0
        if isinstance(value, Sized) and hasattr(value, "__iter__"):
            total += len(value)
        if isinstance(value, dict):
            inner = [*value.values()]
        elif isinstance(value, (list, tuple)):
            inner = list(value)
        elif type(value).__module__.startswith("otel_loopguard"):
            names = [*getattr(value, "__dict__", {})]
            for kind in type(value).__mro__:
                names += list(getattr(kind, "__slots__", ()))
            inner = [getattr(value, name, None) for name in names if isinstance(name, str)]
        else:
            inner = []
        return total + sum(count(one, left - 1) for one in inner)

    return count(thing, depth)
