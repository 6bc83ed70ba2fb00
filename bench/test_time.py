"""Bounds on time: `make bench` runs them, alone on a machine that does nothing else."""

from __future__ import annotations

import gzip
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.spans import SHARED
from otel_loopguard import Settings
from otel_loopguard._util.errors import InternalErrors
from otel_loopguard.core.progress import Progress
from otel_loopguard.core.task import Task
from otel_loopguard.evidence import normalize, outcomes
from otel_loopguard.evidence.model_text import ModelTextExtractor, Novelty
from otel_loopguard.evidence.normalize import key_of_text
from otel_loopguard.evidence.plans import PlanExtractor
from otel_loopguard.plans import groups, validate
from otel_loopguard.stores.redis import RedisStore
from otel_loopguard.stores.write_behind import Writer
from tests.calls import Run, call
from tests.evidence.test_evidence import say
from tests.hostile.test_cost import HUGE as TEXTS
from tests.stores.servers import Server

TASKS = 10_000


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_an_answer_of_ten_megabytes_costs_less_than_a_second(text: str) -> None:
    """Whatever it is made of."""
    run = Run()
    began = time.perf_counter()
    run.calls(*(call("dump", {"of": "db"}, text) for _ in range(3)))
    assert time.perf_counter() - began < 3


def test_a_huge_outcome_is_compared_in_milliseconds() -> None:
    """Twenty of ten million bytes."""
    novelty = Novelty()
    huge = b"line of text, \n" * 700_000
    began = time.perf_counter()
    for _ in range(20):
        novelty.add(huge, b"x" * 256)
    assert time.perf_counter() - began < 1


def test_ten_thousand_tasks_take_less_than_a_second() -> None:
    """To validate in a knot of a hundred thousand dependencies, and to group."""
    knot = [
        Task(str(each), depends_on=tuple(str((each + far) % TASKS) for far in range(1, 11)))
        for each in range(TASKS)
    ]
    tree = [Task(str(each), depends_on=(str(each // 2),) if each else ()) for each in range(TASKS)]
    for work in (lambda: validate(knot), lambda: groups(tree)):
        began = time.perf_counter()
        work()
        assert time.perf_counter() - began < 1


MB = 1_000_000
UNITS = (
    "The value is read again and it differs from before. ", "a", " ", "\n", "```", "plan ", "(",
    "- [ ] a task\n", "- [ ", "i will now just then ", "i am so very really ",
    "i am not quite it is ",
)  # fmt: skip
"""Texts of a model: those that patterns of prose look at."""


@pytest.mark.parametrize("unit", UNITS)
def test_the_cost_does_not_grow_with_the_text(unit: str) -> None:
    """10 MB cost about what 100 kB cost, besides the key of all of it."""
    text = unit * (10 * MB // len(unit))
    small, large = _cost(text[: MB // 10]), _cost(text)
    assert large < 3 * small + 4 * min(_hashed(text) for _ in range(5)) + 0.002


def _hashed(text: str) -> float:
    """Seconds that the key of a text takes."""
    begun = time.perf_counter()
    key_of_text(text.strip())
    return time.perf_counter() - begun


def _cost(text: str) -> float:
    """Seconds that a text takes in both senses, the least of five."""
    took: list[float] = []
    for _ in range(5):
        senses = ModelTextExtractor(Settings(), Progress()), PlanExtractor(Settings(), Progress())
        begun = time.perf_counter()
        for sense in senses:
            sense.extract(say(text))
            sense.extract(say(text))
        took.append(time.perf_counter() - begun)
    return min(took)


def test_no_look_has_more_states_than_its_engine_keeps() -> None:
    """In what recorded agents were answered it takes a hundred times as long as a word at most."""
    texts = recorded()
    word = _looked(normalize.prefilter("traceback", of_bytes=True), texts)
    assert all(_looked(look, texts) < 100 * word for look in outcomes.MAY_TELL)


def recorded() -> list[str]:
    """Answers of commands, of 200 recorded runs."""
    with gzip.open(SHARED / "traces" / "miniswe.jsonl.gz") as lines:
        runs = [json.loads(line) for line in itertools.islice(lines, 200)]
    steps = itertools.chain.from_iterable(run["steps"] for run in runs)
    answers = [step["output"] for step in steps if isinstance(step.get("output"), str)]
    return [answer.encode()[:16_000].decode("latin-1") for answer in answers]


def _looked(look: Callable[[str], bool], texts: list[str]) -> float:
    """Seconds that a look takes, the least of five; the first fills the engine's tables."""
    took: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        for text in texts:
            look(text)
        took.append(time.perf_counter() - began)
    return min(took)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A real Redis."""
    found = Server(tmp_path / "redis").start()
    yield found
    found.kill()


def p99_of_enqueueing(writer: Writer, name: str) -> float:
    """Seconds; the best of five, for the machine has other work, too."""
    best = float("inf")
    for turn in range(5):
        took: list[float] = []
        for number in range(1500):
            began = time.perf_counter()
            assert writer.append(name, [(f"{turn}:{number}", b"x" * 100)])
            took.append(time.perf_counter() - began)
        best = min(best, sorted(took)[int(len(took) * 0.99)])
    return best


def test_a_frozen_server_slows_nobody_down(server: Server) -> None:
    """Adding to the queue takes as long as it does with a healthy one."""
    settings = Settings(store_url=server.url, tuning={"stores": {"queue": 100_000, "slow_s": 0.3}})
    writer = Writer(RedisStore(settings), settings, InternalErrors())
    healthy = p99_of_enqueueing(writer, "healthy")
    assert writer.flush(10)
    server.freeze()
    frozen = p99_of_enqueueing(writer, "frozen")
    server.thaw()
    assert writer.flush(10)
    writer.close(0)
    assert frozen <= 1.5 * healthy + 5e-6, (frozen, healthy)
