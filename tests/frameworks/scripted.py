"""What the programs of all frameworks share: what they are told to do, and one JSON line.

A program is run by an interpreter that has the framework, as

    python tests/frameworks/NAME/agent.py SCENARIO [--variant VARIANT]
        [--session KEY] [--paused-file FILE]

with the root of the repository in `PYTHONPATH`. It needs the framework and our package, nothing
else. In short:

    run = Run("langchain", "langchain", "langgraph", instrumentor="module:Instrumentor")

    class Agent(Looper): ...    # its model asks for `self.asked(messages)`

    run.main(Agent, its_own_case, another_one)

Variants: `instrumented`, which is the default, has an instrumentation and a provider with the
guard's processor; `bare` has no instrumentation, `alone` no processor either, `unwatched` the
instrumentation only, and `unguarded` no guard at all. Where a framework writes spans itself, that
is its instrumentation; `openinference` has the other one, and `both` both.

Scenarios:

* `stubborn`: the model asks for the same search whatever it is told, 60 times at most;
* `obedient`: the same until a request has the text of a hint; then it answers;
* `paused`: three different searches and an answer; the third request lasts until FILE exists and
  the pause has arrived. FILE.reached is written when it begins, and FILE.executed has a line for
  each search that was made. Without a store (`LOOPGUARD_STORE_URL`) the program pauses and resumes
  itself;
* `six`: six different calls by the framework without its adapter, whose spans others have changed:
  the line tells which calls the guard counted. Variants are then `logfire`, `first` and `last`, in
  which OpenInference's processor comes before and after the guard's, and `models`, without the
  spans of tools;
* `cases`: the cases of `looper.py` and its own; the line has an entry for each.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_loopguard
from otel_loopguard import Action, LoopGuard, LoopGuardSpanProcessor, LoopGuardStop, control
from otel_loopguard.core import Kind, Step
from otel_loopguard.dialects import Reader
from otel_loopguard.spans.sdk_views import EndedSpanView
from tests.frameworks.looper import LIVE, SHARED, Call, Looper, Make, search, turns, unguarded

Cases = dict[str, Callable[[Make], object]]
_MOST_CALLS = 60  # more than any guard lets through, and less than a framework's limit
_WAIT_S = 60.0
_CITIES = ("Paris", "Rome", "Oslo")


class _WithoutTools(LoopGuardSpanProcessor):
    """Passes over the spans of tools, as if nothing had instrumented them."""

    def on_end(self, span: ReadableSpan) -> None:
        kinds = {"gen_ai.operation.name": "execute_tool", "openinference.span.kind": "TOOL"}
        if kinds.items().isdisjoint((span.attributes or {}).items()):
            super().on_end(span)


class Run:
    """One run: what the program was told to do, what the model says, and what was counted.

    A framework that is `native` writes spans as soon as there is a global provider; the bare
    variant has none then, and the adapter has to be given `provider`.
    """

    processor: LoopGuardSpanProcessor

    def __init__(
        self, framework: str, *packages: str, instrumentor: str = "", native: bool = False
    ) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("scenario", choices=("stubborn", "obedient", "paused", "six", "cases"))
        parser.add_argument("--variant", default="instrumented")
        parser.add_argument("--session")
        parser.add_argument("--paused-file", type=Path)
        given = parser.parse_args()
        self.framework = framework
        self.scenario: str = given.scenario
        self.variant: str = given.variant
        self.bare = self.variant in ("bare", "alone", "unguarded")
        self.session: str | None = given.session
        self._packages = packages
        self._file: Path | None = given.paused_file
        self._own_pause = self.scenario == "paused" and not os.environ.get("LOOPGUARD_STORE_URL")
        if self._own_pause:
            self.session = self.session or "paused"
            self._file = self._file or Path(tempfile.mkdtemp(), "go")
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self._steps: list[Step] = []
        self.guard = self._guard()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        if self.variant != "logfire" and (
            not native or self.variant in ("instrumented", "unwatched", "both")
        ):
            trace.set_tracer_provider(self.provider)
        if self.variant in ("openinference", "both") or not (native or self.bare):
            self._instrument(instrumentor)
        self._lock = threading.RLock()
        self._requests = self._executed = self._asked = 0
        self._hinted_at: int | None = None
        self._hint_after: int | None = None
        self._hint_next = False
        self._hints, self._decisions, self._reasons = list[str](), list[str](), list[str]()
        self._counts: dict[Action, tuple[int, int]] = {}

    def script(self, _turn: int, request: str) -> Sequence[Call]:
        with self._lock:
            self._requests += 1
            number, heard = self._requests, self._hears(request)
        cities = _CITIES if self.scenario == "paused" else ["Paris"] * _MOST_CALLS
        if number > len(cities) or (heard and self.scenario == "obedient"):
            return []
        if self.scenario == "paused" and number == len(cities):
            self._wait_for_the_pause()
        return self._call(f"weather in {cities[number - 1]}")

    def answered_by_call(self) -> None:
        """The model answers by a call of a tool of the framework, which has a span too."""
        with self._lock:
            self._asked += not self.bare

    def main(self, make: type[Looper], *cases: Callable[[], object], live: bool = False) -> None:
        """Runs what the program was told to, or all cases, and prints the line."""
        make.spans, make.decided, make.alone = self.exporter, self._reasons, self.bare
        if self.scenario == "cases":
            ran = self._cases(make, SHARED | LIVE if live else SHARED, cases)
        else:
            ran = self._six(make) if self.scenario == "six" else self._ran(make)
        print(json.dumps(ran))

    def _six(self, make: type[Looper]) -> object:
        asked = [f"reset session for {name}" for name in "alice bob carol dave erin frank".split()]
        script = turns(*([("reset", {"query": one})] for one in asked))
        looper = make(script, tool="reset", plain=True)
        looper.found = "the session cookie was reset: {}".format  # type: ignore[method-assign]
        looper.run()
        self.guard.settle()
        calls = [(one.dialect, str(one.args), str(one.outcome)) for one in self._steps]
        faults = dict(self.guard.faults.counts)
        return {"calls": calls, "decisions": self._decisions, "faults": faults}

    def _cases(
        self, make: type[Looper], them: Cases, own: Sequence[Callable[[], object]]
    ) -> object:
        if self.variant == "unguarded":
            return {"unguarded": unguarded(make)}

        def said(case: Callable[[Make], object]) -> object:
            try:
                return case(make)
            except NotImplementedError:
                return "not offered"

        shared = {name: said(case) for name, case in them.items()}
        return shared | {case.__name__: case() for case in own}

    def _ran(self, make: type[Looper]) -> object:
        looper = make(self.script)
        looper.found = self._found  # pyright: ignore[reportAttributeAccessIssue]
        stop: LoopGuardStop | None = None
        try:
            with self._named():
                ends = f"result: {looper.run()[:200]}"
            stop = looper.kept()
        except LoopGuardStop as raised:
            stop, ends = raised, type(raised).__name__
        self.provider.force_flush()
        return self._line(ends, stop)

    def _found(self, query: str) -> str:
        with self._lock:
            self._executed += 1
        if self._file is not None:
            with Path(f"{self._file}.executed").open("a", encoding="utf-8") as file:
                file.write(f"{query}\n")
        return f"no results for {query}"

    def _guard(self) -> LoopGuard:
        if self.variant == "unguarded":
            otel_loopguard.set_testing("off")
        if self.variant in ("alone", "unwatched", "unguarded"):
            return self._default()
        guard = LoopGuard(on_decision=self._decided, on_step=self._stepped)
        kind = _WithoutTools if self.variant == "models" else LoopGuardSpanProcessor
        self.processor = kind(guard)
        processors: list[SpanProcessor] = [] if self.variant == "logfire" else [self.processor]
        if self.variant in ("first", "last"):
            from openinference.instrumentation.pydantic_ai import OpenInferenceSpanProcessor

            processors.insert(self.variant == "last", OpenInferenceSpanProcessor())
        for one in processors:
            self.provider.add_span_processor(one)
        return guard

    def _instrument(self, instrumentor: str) -> None:
        module, _, name = instrumentor.partition(":")
        if module:
            kind = getattr(importlib.import_module(module), name)
            kind().instrument(tracer_provider=self.provider)

    def _default(self) -> LoopGuard:
        """The guard of this process, which an adapter feeds where no processor does."""
        guard = LoopGuard.default()
        told = ("scenario", lambda made: self._decided(made.session, made.decision))
        guard.subscribers.decisions.insert(0, told)
        return guard

    def _named(self) -> AbstractContextManager[Any]:
        return otel_loopguard.session(self.session) if self.session else nullcontext()

    def _line(self, ends: str, stop: LoopGuardStop | None) -> dict[str, object]:
        executed, requests = self._executed, self._requests
        denied, _ = self._counts.get(Action.DENY, (executed, requests))
        aborted, last = self._counts.get(Action.ABORT, (executed, requests))
        return {
            "framework": self.framework, "variant": self.variant, "scenario": self.scenario,
            "versions": {name: version(name) for name in self._packages},
            "hint_after": self._hint_after, "hint_in_next_request": self._hint_next,
            "executed": executed, "executed_after_deny": executed - denied,
            "executed_after_abort": executed - aborted, "model_calls_after_abort": requests - last,
            "ends": ends, "parts": 0 if stop is None else len(stop.parts),
            "decisions": self._decisions, "doubled": max(0, self._tool_spans() - self._asked),
        }  # fmt: skip

    def _tool_spans(self) -> int:
        read = Reader().read
        # The guard's own spans tell of decisions and are no calls.
        ended = (EndedSpanView(span) for span in self.exporter.get_finished_spans())
        steps = (read(span) for span in ended if span.scope != "otel_loopguard")
        return sum(step is not None and step.kind is Kind.TOOL for step in steps)

    def _stepped(self, _session: Any, _index: int, step: Step) -> None:
        if step.kind is Kind.TOOL:
            self._steps.append(step)

    def _decided(self, session: Any, decision: Any) -> None:
        with self._lock:
            self._decisions.append(str(decision.action))
            self._reasons.append(f"{decision.action} {decision.reason}")
            self._counts.setdefault(decision.action, (self._executed, self._requests))
            hint = session.flag.quoting_hint
            if hint:
                self._hints.append(_plain(hint))
                self._hinted_at = self._hinted_at or self._requests

    def _hears(self, request: str) -> bool:
        text = _plain(request)
        heard = any(hint in text for hint in self._hints)
        if heard and self._hint_after is None:
            self._hint_after = self._executed
            self._hint_next = self._requests == (self._hinted_at or 0) + 1
        return heard

    def _call(self, query: str) -> Sequence[Call]:
        with self._lock:
            self._asked += 1
        return [search(query)]

    def _wait_for_the_pause(self) -> None:
        file, session = self._file, self.session
        assert file is not None, "paused: give --paused-file"
        assert session is not None, "paused: give --session"
        if self._own_pause:
            threading.Thread(target=_pause, args=(session, file), daemon=True).start()
        Path(f"{file}.reached").touch()
        _until(file.exists)
        _until(lambda: (flag := self.guard.flag_of(session)) is not None and flag.held)


def _pause(session: str, file: Path) -> None:
    control.pause(session, "a person looks at it")
    file.touch()
    time.sleep(0.3)
    control.resume(session)


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def _plain(text: str) -> str:
    return "".join(sign for sign in text if sign not in "\\\"'")
