"""32 threads at once decide what one thread decides, span for span."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from opentelemetry import trace

from otel_loopguard import LoopGuard, LoopGuardSpanProcessor, Settings
from tests.agents import agent, provider_with, tool_call

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.trace import Tracer

    from otel_loopguard.core import Decision
    from otel_loopguard.sessions import Session

THREADS = 32
Said = tuple[str, str, str, int, str]


class Runs:
    """What a guard decided about runs of one kind each, by session."""

    def __init__(self) -> None:
        self.said: defaultdict[str, list[Said]] = defaultdict(list)
        self.steps: defaultdict[str, int] = defaultdict(int)
        self.guard = LoopGuard(
            Settings(step_timeout_s=3600, telemetry_events=False),
            on_decision=self._decided,
            on_step=self._stepped,
        )
        self.processor = LoopGuardSpanProcessor(self.guard)
        self.tracer: Tracer = provider_with(self.processor).get_tracer("my.agent")

    def _decided(self, session: Session, decision: Decision) -> None:
        told = (
            decision.action.value, decision.detector, decision.reason, decision.step,
            decision.message,
        )  # fmt: skip
        self.said[session.key].append(told)

    def _stepped(self, session: Session, _index: int, _step: object) -> None:
        self.steps[session.key] += 1

    def run(self, keys: Iterable[str]) -> None:
        for key in keys:
            one_run(self.tracer, key)
        self.guard.settle()

    @property
    def flags(self) -> dict[str, str]:
        found = {key: self.guard.flag_of(key) for key in self.steps}
        return {key: "" if flag is None else flag.control.action for key, flag in found.items()}


def one_run(tracer: Tracer, key: str) -> None:
    """Stuck, in two minds, failing or at work: by its key, and always the same."""
    dice = random.Random(key)
    kind, calls = dice.randrange(4), dice.randrange(3, 14)
    with trace.use_span(trace.INVALID_SPAN), agent(tracer, gen_ai__conversation__id=key):
        for number in range(calls):
            match kind:
                case 0:
                    tool_call(tracer, "search", '{"q": "x"}', "nothing was found here")
                case 1:
                    name = ("look", "move")[number % 2]
                    tool_call(tracer, name, f'{{"at": "{name}"}}', f"you are at {name}")
                case 2:
                    tool_call(tracer, "sql", f'{{"n": {number}}}', "error: no such table: users")
                case _:
                    found = " ".join(dice.choices("abcdefghijklmnop", k=20))
                    tool_call(tracer, "read", f'{{"page": {number}}}', found)


@pytest.mark.parametrize("sessions", [2, pytest.param(40, marks=pytest.mark.rare)])
def test_threads_decide_as_one_thread_does(sessions: int) -> None:
    """Each of 32 threads has sessions of its own: decisions, steps and flags are the same."""
    keys = [[f"{number}-{one}" for one in range(sessions)] for number in range(THREADS)]
    alone, together = Runs(), Runs()
    for own in keys:
        alone.run(own)
    begin = threading.Barrier(THREADS)

    def work(own: list[str]) -> None:
        begin.wait()
        together.run(own)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, keys))
    assert len(alone.steps) == THREADS * sessions
    assert {action for said in alone.said.values() for action, *_ in said} >= {"hint", "deny"}
    assert dict(together.steps) == dict(alone.steps)
    assert dict(together.said) == dict(alone.said)
    assert together.flags == alone.flags
    assert together.guard.faults.counts == alone.guard.faults.counts == {}
