"""What the programs of all frameworks share: a scripted model, a tool that counts, one JSON line.

A program is run by an interpreter that has the framework, as

    python tests/frameworks/NAME/program.py SCENARIO [--bare | --alone | --unwatched]
        [--session KEY] [--paused-file FILE]

with the root of the repository in `PYTHONPATH`. It needs the framework and our package, nothing
else. In short:

    run = Run("langchain", "langchain", "langgraph")
    if not run.bare:
        SomeInstrumentor().instrument(tracer_provider=run.provider)

    model, at each request:   call = run.asked(everything_in_the_request)
                              None: answer with FINAL; else call the tool `call.tool` with
                              `call.args` under the id `call.id`
    tool `search(query)`:     return run.searched(query)

    run.main(lambda: agent.invoke(...))     # gives the text of the answer

Variants: by default there is an instrumentation and a provider with the guard's processor;
`--bare` leaves the instrumentation out, `--alone` the processor too, and `--unwatched` only the
processor.

Scenarios:

* `stubborn`: the model asks for the same search whatever it is told, 60 times at most;
* `obedient`: the same until a request has the text of a hint; then it answers;
* `paused`: three different searches and an answer; the third request lasts until FILE exists and
  the pause has arrived. FILE.reached is written when it begins, and FILE.executed has a line for
  each search that was made. Without a store (`LOOPGUARD_STORE_URL`) the program pauses and resumes
  itself.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import otel_loopguard
from otel_loopguard import Action, LoopGuard, LoopGuardSpanProcessor, LoopGuardStop, control
from otel_loopguard.core import Kind
from otel_loopguard.spans.reader import Reader
from otel_loopguard.spans.sdk_views import EndedSpanView

SCENARIOS = ("stubborn", "obedient", "paused")
FINAL = "I could not find it."
QUESTION = "What is the weather in Paris?"
_MOST = 60
_WAIT_S = 60.0
_CITIES = ("Paris", "Rome", "Oslo")


@dataclass(frozen=True)
class Asked:
    """A tool call that the model asks for."""

    tool: str
    args: dict[str, str]
    id: str


class Run:
    """One run: what the program was told to do, what the model says, and what was counted.

    Args:
        framework: Name of the folder below `tests/frameworks`.
        *packages: Distributions whose versions are told: framework first, instrumentation after.
        native: Whether the framework writes spans itself as soon as there is a global provider; the
            bare variant has none then, and the adapter has to be given `provider`.

    Attributes:
        scenario: `stubborn`, `obedient` or `paused`.
        bare: Whether there is no instrumentation but the adapter, as alone too.
        session: Key of the session; None: nobody names it.
        provider: The tracer provider, which is the global one (but see `native`).
        exporter: All spans that were exported.
        guard: The guard.
    """

    def __init__(self, framework: str, *packages: str, native: bool = False) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("scenario", choices=SCENARIOS)
        variant = parser.add_mutually_exclusive_group()
        for name in ("bare", "alone", "unwatched"):
            variant.add_argument(f"--{name}", action="store_true")
        parser.add_argument("--session")
        parser.add_argument("--paused-file", type=Path)
        given = parser.parse_args()
        self.framework = framework
        self.scenario: str = given.scenario
        self.bare: bool = given.bare or given.alone
        self._variant = next(
            (name for name in ("bare", "alone", "unwatched") if getattr(given, name)),
            "instrumented",
        )
        self.session: str | None = given.session
        self._packages = packages
        self._file: Path | None = given.paused_file
        self._own_pause = self.scenario == "paused" and not os.environ.get("LOOPGUARD_STORE_URL")
        if self._own_pause:
            self.session = self.session or "paused"
            self._file = self._file or Path(tempfile.mkdtemp(), "go")
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        if given.alone or given.unwatched:
            self.guard = self._default()
        else:
            self.guard = LoopGuard(on_decision=self._decided)
            self.provider.add_span_processor(LoopGuardSpanProcessor(self.guard))
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        if not (native and self.bare):
            trace.set_tracer_provider(self.provider)
        self._lock = threading.RLock()
        self._requests = self._executed = self._asked = 0
        self._hints: list[str] = []
        self._hinted_at: int | None = None
        self._hint_after: int | None = None
        self._hint_next = False
        self._decisions: list[str] = []
        self._counts: dict[Action, tuple[int, int]] = {}

    def asked(self, request: object) -> Asked | None:
        """What the model answers: a tool call, or None for the final answer `FINAL`.

        Args:
            request: Everything that the model is given, or a text of it.
        """
        with self._lock:
            self._requests += 1
            number, heard = self._requests, self._hears(str(request))
        if self.scenario == "paused":
            return self._asked_slowly(number)
        if number > _MOST or (heard and self.scenario == "obedient"):
            return None
        return self._call("weather in Paris")

    def answered_by_call(self) -> None:
        """The model answers by a call of a tool of the framework, which has a span too."""
        with self._lock:
            self._asked += not self.bare

    def searched(self, query: str) -> str:
        """What the tool `search` does."""
        with self._lock:
            self._executed += 1
        if self._file is not None:
            with Path(f"{self._file}.executed").open("a", encoding="utf-8") as file:
                file.write(f"{query}\n")
        return f"no results for {query}"

    def main(
        self,
        work: Callable[[], object],
        *,
        stopped: Callable[[], LoopGuardStop | None] = lambda: None,
    ) -> None:
        """Runs the agent and prints the line.

        Args:
            work: Runs the agent; what it returns is the answer.
            stopped: What stopped the run, where the framework swallowed it and the adapter kept it.
        """
        stop: LoopGuardStop | None
        try:
            with self._named():
                answer = str(work())
            stop, ends = stopped(), f"result: {answer[:200]}"
        except LoopGuardStop as raised:
            stop, ends = raised, type(raised).__name__
        self.provider.force_flush()
        print(json.dumps(self._line(ends, stop)), flush=True)

    def _default(self) -> LoopGuard:
        """The guard of this process, which an adapter feeds where no processor does."""
        decided = self._decided

        class Default(LoopGuard):
            def __init__(self) -> None:
                super().__init__(on_decision=decided)

        return Default.default()

    def _named(self) -> AbstractContextManager[Any]:
        return otel_loopguard.session(self.session) if self.session else nullcontext()

    def _line(self, ends: str, stop: LoopGuardStop | None) -> dict[str, object]:
        executed, requests = self._executed, self._requests
        denied, _ = self._counts.get(Action.DENY, (executed, requests))
        aborted, last = self._counts.get(Action.ABORT, (executed, requests))
        return {
            "framework": self.framework,
            "versions": {name: version(name) for name in self._packages},
            "variant": self._variant,
            "scenario": self.scenario,
            "hint_after": self._hint_after,
            "hint_in_next_request": self._hint_next,
            "executed": executed,
            "executed_after_deny": executed - denied,
            "executed_after_abort": executed - aborted,
            "model_calls_after_abort": requests - last,
            "ends": ends,
            "parts": 0 if stop is None else len(stop.parts),
            "decisions": self._decisions,
            "doubled": max(0, self._tool_spans() - self._asked),
        }

    def _tool_spans(self) -> int:
        read = Reader().read
        # The guard's own spans tell of decisions and are no calls.
        ended = (EndedSpanView(span) for span in self.exporter.get_finished_spans())
        steps = (read(span) for span in ended if span.scope != "otel_loopguard")
        return sum(step is not None and step.kind is Kind.TOOL for step in steps)

    def _decided(self, session: Any, decision: Any) -> None:
        with self._lock:
            self._decisions.append(str(decision.action))
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

    def _call(self, query: str) -> Asked:
        with self._lock:
            self._asked += 1
            return Asked("search", {"query": query}, f"call_{self._asked}")

    def _asked_slowly(self, number: int) -> Asked | None:
        if number > len(_CITIES):
            return None
        if number == len(_CITIES):
            self._wait_for_the_pause()
        return self._call(f"weather in {_CITIES[number - 1]}")

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
    """Text without what a `repr` or JSON makes of it."""
    return "".join(sign for sign in text if sign not in "\\\"'")
