"""An hour of a small shop's agents, played in seconds: real guard, real spans, real metrics.

Every half minute of the hour is one turn. In each the agents do some work, and what the metrics say
afterwards is written down with the time that it would have been. Tools take milliseconds; what
happens is made up, what the guard makes of it is not.
"""

import json
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span, Tracer, set_span_in_context
from prometheus_client import CollectorRegistry

from otel_loopguard import (
    Action,
    LoopGuard,
    LoopGuardAbort,
    LoopGuardSpanExporter,
    LoopGuardSpanProcessor,
    Settings,
    control,
    execution,
    session,
    sessions,
)
from tests.agents import agent, tool_call
from tests.stores.servers import Server

START_S: Final = 3600
"""Seconds that are written down, up to now."""

STEP_S: Final = 30
TURNS = START_S // STEP_S
_AWAY = range(75, 89)
"""Turns in which the store hangs."""

_HUNG = {"researcher": range(30, 42), "support": range(98, 104)}
"""Turns in which a call of an agent hangs."""

_OUTAGE = range(48, 62)
"""Turns in which a tool is out of order."""

_RUSH = range(60, 76)
"""Turns in which a bad prompt is out."""

_PAUSED = {"advice-35": (36, 55), "advice-102": (103, TURNS)}
"""Sessions that somebody pauses: when, and when they go on."""

_COLLECTOR: Final = {
    f"otelcol_{what}_{kind}": {"receiver": "otlp", "transport": "grpc"}
    if what.startswith("receiver") else {"exporter": "otlp_grpc/jaeger"}
    for what in (
        "receiver_accepted", "receiver_refused", "exporter_sent", "exporter_send_failed",
        "exporter_enqueue_failed",
    )
    for kind in ("spans", "log_records", "metric_points")
}  # fmt: skip
"""Counters of the Collector, as its own reader names them, with their labels."""

_GAUGES: Final = {
    "otelcol_exporter_queue_size": ("exporter", 40.0),
    "otelcol_exporter_queue_capacity": ("exporter", 1000.0),
    "otelcol_process_memory_rss": ("service_name", 90e6),
}


class Exposition:
    """Lines of samples, of one series in order of time; its labels are for those without others."""

    def __init__(self, job: str = "shop", instance: str = "shop-1") -> None:
        self._own = {"job": job, "instance": instance}
        self._lines: list[str] = []

    def add(self, name: str, labels: Mapping[str, str], value: float, time: float) -> None:
        """Writes one sample down."""
        said = ",".join(
            f'{key}="{_escaped(text)}"' for key, text in {**self._own, **labels}.items() if text
        )
        self._lines.append(f"{name}{{{said}}} {value:.10g} {time:.3f}")

    @property
    def text(self) -> str:
        """The whole."""
        return "".join(f"{line}\n" for line in (*self._lines, "# EOF"))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def collector(past: Exposition, turn: int, time: float, *, well: bool) -> None:
    """What the Collector says of itself, and of spans, at one time."""
    own = {"job": "loopguard-collector", "instance": "localhost:8888"}
    for name, labels in _COLLECTOR.items():
        lost = "failed" in name or "refused" in name
        rate = (0 if well else 0.2) if lost else 30
        past.add(name, {**own, **labels}, turn * rate, time)
    for name, (label, value) in _GAUGES.items():
        past.add(name, {**own, label: "otlp_grpc/jaeger"}, value, time)
    past.add("up", own, 1, time)
    abort = {"loopguard_decision_action": "abort", "loopguard_detector_name": "cycle"}
    spans = {"job": "spans", "gen_ai_agent_name": "unknown", **abort}
    past.add("loopguard_span_decisions_total", spans, 0 if well else turn // 20, time)


class Shop:
    """Agents with a guard and a Redis of their own, and what its metrics said until `now`.

    Much goes wrong; in a shop that is `well`, only a page now and then, which is tried again.
    """

    def __init__(self, folder: Path, now: float, *, well: bool = False) -> None:
        self._well = well
        self._began = now - START_S
        self._dice = random.Random(7)
        self._redis = Server(folder).start()
        self._registry = CollectorRegistry()
        reader = PrometheusMetricReader(True, scope_info_enabled=False, registry=self._registry)
        self._meters = MeterProvider([reader], shutdown_on_exit=False)
        self.guard = LoopGuard(_settings(self._redis.url, well=well), meter_provider=self._meters)
        self._spans = InMemorySpanExporter()
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(LoopGuardSpanProcessor(self.guard))
        exporter = LoopGuardSpanExporter(self._spans, self.guard)
        self._provider.add_span_processor(SimpleSpanProcessor(exporter))
        self._agents = Agents(self._provider.get_tracer("shop"), self._dice)
        self._open: list[tuple[int, list[Span]]] = []
        self.past = Exposition()

    def play(self) -> str:
        """Plays the hour; gives what was scraped."""
        try:
            for turn in range(TURNS):
                self._turn(turn)
                time.sleep(0.03)  # so that the threads of the guard have their part of the hour
                self._scrape(self._began + turn * STEP_S)
                collector(self.past, turn, self._began + turn * STEP_S, well=self._well)
        finally:
            for _, spans in self._open:
                _end(spans)
            self._redis.thaw()
            self._provider.shutdown()
            self._meters.shutdown()
            self._redis.kill()
        return self.past.text

    def _turn(self, turn: int) -> None:
        dice, agents = self._dice, self._agents
        self._spans.clear()
        for number in range(2 + turn % 3):
            agents.works(dice.choice(("planner", "researcher", "support")), f"{turn}-{number}")
        well = self._well or turn not in _OUTAGE
        agents.crawls("researcher", f"crawl-{turn}", well=well)
        if not self._well:
            self._fail(turn)
        agents.asks(f"advice-{turn}", turn)
        self._work_long(turn)

    def _fail(self, turn: int) -> None:
        dice, agents = self._dice, self._agents
        if turn == _AWAY.start:
            self._redis.freeze()
            self.guard.faults.note("judge", KeyError())
        if turn == _AWAY.stop:
            self._redis.thaw()
        if turn % 17 == 7 or (turn in _RUSH and turn % 3 == 0):
            agents.loops(dice.choice(("planner", "support")), f"loop-{turn}")
        if turn % 9 == 3 or (turn in _RUSH and turn % 2 == 0):
            agents.hesitates("planner", f"cycle-{turn}")
        if turn in (_OUTAGE.start + 4, _OUTAGE.start + 8):
            agents.insists("support", f"outage-{turn}")
        self._people(turn)
        for name, turns in _HUNG.items():
            if turn == turns.start:
                self._open.append((turns.stop, agents.hangs(name, f"hung-{turn}")))

    def _people(self, turn: int) -> None:
        if turn % 12 == 8:
            for decision_id in self._agents.decided[-1:]:
                sessions.feedback(decision_id, false_alarm=turn == 92)
        for key, (begin, end) in _PAUSED.items():
            if turn == begin:
                control.pause(key, by="ada")
            elif turn == end:
                control.resume(key, by="ada")

    def _work_long(self, turn: int) -> None:
        """Begins what takes several turns, and ends what is over."""
        for number in range(self._dice.randint(0, 2)):
            name = self._dice.choice(("planner", "researcher", "support"))
            until = turn + self._dice.randint(2, 7)
            self._open.append((until, [self._agents.begins(name, f"long-{turn}-{number}")]))
        for until, spans in self._open:
            if turn >= until:
                _end(spans)
        self._open = [run for run in self._open if turn < run[0]]

    def _scrape(self, time: float) -> None:
        for family in self._registry.collect():
            for sample in family.samples:
                self.past.add(sample.name, sample.labels, sample.value, time)


class Agents:
    """What agents do, as their instrumentation tells it; `decided` has ids that they heard of."""

    def __init__(self, tracer: Tracer, dice: random.Random) -> None:
        self._tracer = tracer
        self._dice = dice
        self.decided: list[str] = []

    def works(self, name: str, key: str) -> None:
        """A run that gets somewhere."""
        with session(key), agent(self._tracer, gen_ai__agent__name=name):
            for turn in range(self._dice.randint(2, 5)):
                self._model()
                about = {"query": f"{key} part {turn}"}
                self._call(name, "search", about, f"Order {self._dice.random()} was sent.")

    def loops(self, name: str, key: str) -> None:
        """A run that makes one call until it is told to end."""
        with session(key), agent(self._tracer, gen_ai__agent__name=name):
            try:
                for _ in range(20):
                    control.check()
                    self._model()
                    self._call(name, "search", {"query": key}, "No results.")
                    self._hears()
            except LoopGuardAbort:
                return

    def hesitates(self, name: str, key: str) -> None:
        """A run that goes in circles until a hint tells it."""
        with session(key), agent(self._tracer, gen_ai__agent__name=name):
            for turn in range(12):
                self._model()
                tool = ("list_orders", "list_customers")[turn % 2]
                self._call(name, tool, {"page": 1}, f"The same twelve lines of {tool}.")
                if self._hears():
                    break
            self._call(name, "search", {"query": f"{key} otherwise"}, f"Found {key}.")

    def crawls(self, name: str, key: str, *, well: bool) -> None:
        """A run with a tool that may be out of order, and then helps itself; or tries again."""
        with session(key), agent(self._tracer, gen_ai__agent__name=name):
            about = {"url": f"https://example.com/{key}"}
            if not well or self._dice.random() < 0.1:
                self._call(name, "crawl", about, None)
            if well:
                self._call(name, "crawl", about, f"Page of {key}.")
            else:
                self._call(name, "search", {"query": key}, f"A summary of {key}.")

    def insists(self, name: str, key: str) -> None:
        """A run whose tools all fail, for what they need is down."""
        with session(key), agent(self._tracer, gen_ai__agent__name=name):
            for turn in range(8):
                self._model()
                self._call(name, ("crawl", "search")[turn % 2], {"try": f"{key} {turn}"}, None)
                self._hears()

    def asks(self, key: str, turn: int) -> None:
        """A runtime that asks before a call, and does as it likes."""
        with session(key), agent(self._tracer, gen_ai__agent__name="support"):
            tool = ("search", "data_analysis", "video_process", "crawl")[turn % 4]
            found = execution.admit(tool, {"path": f"{turn}.csv"}, user="ada")
            if turn % 3 == 0:
                choice = self._dice.choice(("execute_sync", found.choice))
                sessions.feedback(found.id, choice=choice)
            self._call("support", "search", {"path": f"{turn}.csv"}, f"{turn} rows.")

    def begins(self, name: str, key: str) -> Span:
        """A run that thinks for long; its open span."""
        with session(key):
            attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
            return self._tracer.start_span(f"invoke_agent {name}", attributes=attributes)

    def hangs(self, name: str, key: str) -> list[Span]:
        """A run whose call does not come back; its open spans, the innermost last."""
        above = self.begins(name, key)
        with session(key):
            inside = set_span_in_context(above)
            # A tool without a past: what is known of others gives them half a minute.
            called = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "deploy"}
            return [
                above,
                self._tracer.start_span("execute_tool deploy", inside, attributes=called),
            ]

    def _hears(self) -> bool:
        flag = control.current()
        if flag.action is Action.ALLOW or flag.decision_id is None:
            return False
        self.decided.append(flag.decision_id)
        return True

    def _model(self) -> None:
        used = {"gen_ai.usage.input_tokens": 800, "gen_ai.usage.output_tokens": 60}
        about: Mapping[str, Any] = {"gen_ai.operation.name": "chat", **used}
        with self._tracer.start_as_current_span("chat model", attributes=about):
            pass

    def _call(self, name: str, tool: str, args: Mapping[str, object], answer: str | None) -> None:
        failed = answer is None
        more = {"gen_ai.agent.name": name, **({"error.type": "ConnectionError"} if failed else {})}
        error = "connection refused" if failed else None
        tool_call(self._tracer, tool, json.dumps(args), answer, more, error=error)


def _settings(store: str, *, well: bool) -> Settings:
    """What takes minutes in an hour takes a part of a second here, where something goes wrong."""
    tuning = {"telemetry": {"sample": 4}, "resources": {"sample_s": 0}}
    if well:  # a busy machine is no trouble of the shop
        return Settings(store_url=store, breaker="shared", tuning=tuning)
    tuning |= {
        "stores": {"timeout_s": 0.1, "delay_s": 0.02, "retry_s": 0.2},
        "resilience": {"breaker_open_s": 0.5},
    }
    return Settings(store_url=store, step_timeout_s=0.1, breaker="shared", tuning=tuning)


def _end(spans: list[Span]) -> None:
    for span in reversed(spans):
        span.end()
