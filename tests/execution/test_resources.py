"""Resources: what is measured, when it is an alert, who looks, and how deep the queue is."""

import gc
import importlib
import os
import sys
import threading
import time
from itertools import chain, repeat
from types import SimpleNamespace

import psutil
import pytest

from otel_loopguard import LoopGuard, LoopGuardSettingsError, Settings, execution
from otel_loopguard._util.errors import InternalErrors, raise_faults
from otel_loopguard.core.admission import UNKNOWN_PRESSURE, ResourceUse
from otel_loopguard.execution.resources import Gauges, Reading, Resources, queue_depth
from tests.stores.servers import Server, free_port, wait_for
from tests.tables import rows

LOOKING = Settings(tuning={"resources": {"sample_s": 0.02}})


def resources(sample_s: float = 0.02) -> Resources:
    return Resources(Settings(tuning={"resources": {"sample_s": sample_s}}), InternalErrors())


_of_others: list[threading.Thread] = []


@pytest.fixture(autouse=True)
def _only_own_threads() -> None:
    """Guards of other tests may still look."""
    _of_others[:] = threading.enumerate()


def threads() -> list[threading.Thread]:
    """The threads that look at the machine since the test began."""
    new = [one for one in threading.enumerate() if one not in _of_others]
    return [one for one in new if one.name == "loopguard-resources"]


def test_the_machine_is_measured() -> None:
    """Percentages are percentages, rates come with the second reading, and the process has RAM."""
    gauges = Gauges()
    gauges.read()
    deadline = time.monotonic() + 0.1
    while time.monotonic() < deadline:
        sum(range(1000))
    found = gauges.read()
    assert 0 < (found.cpu or 0) <= 100
    assert 0 < (found.memory or 0) <= 100
    assert found.rss == pytest.approx(psutil.Process().memory_info().rss / 1e6, rel=0.2)
    assert (-1 if found.network is None else found.network) >= 0


def test_what_a_system_does_not_say_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may hide disks, network and more; nothing is raised, and nothing is invented."""

    def hidden(*_: object) -> object:
        raise PermissionError

    for name in ("cpu_times_percent", "virtual_memory", "net_io_counters"):
        monkeypatch.setattr(psutil, name, hidden)
    monkeypatch.setattr(psutil, "disk_io_counters", lambda: None)
    gauges = Gauges()
    gauges.read()
    found = gauges.read()
    assert (found.cpu, found.memory, found.io_wait, found.disk, found.network) == (None,) * 5


def test_rates_and_io_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the difference of two readings; a counter that went backwards is no rate below 0."""
    times = SimpleNamespace(user=20.0, idle=50.0, iowait=30.0)
    sent = iter((0, 5_000_000, 1_000))
    monkeypatch.setattr(psutil, "cpu_times_percent", lambda: times)
    monkeypatch.setattr(
        psutil, "net_io_counters", lambda: SimpleNamespace(bytes_recv=0, bytes_sent=next(sent))
    )
    clock = iter((0.0, 0.0, 2.0, 2.0, 3.0, 3.0))
    # Not of the whole process: threads of other tests ask for the time, too.
    ours = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr("otel_loopguard.execution.resources.time", ours)
    gauges = Gauges()
    gauges.read()
    found, after = gauges.read(), gauges.read()
    assert (found.cpu, found.io_wait, found.network) == (20, 30, 2_500_000)
    assert after.network == 0


@pytest.mark.parametrize(("reading", "expected"), rows(__file__, "alerts"))
def test_alerts(reading: str, expected: str) -> None:
    """80, 85, 70 % and 15 tasks; critical (!) at 1.2 times that, of a percentage at 98 at most."""
    known = resources(0)
    values = dict(one.split() for one in reading.split(", "))
    known.add(Reading(**{name: float(value) for name, value in values.items()}))
    pressure = known.pressure
    found = [alert.resource + "!" * alert.critical for alert in pressure.alerts]
    assert found == expected.split()
    assert pressure.critical is ("!" in expected)
    assert pressure.scale_workers is (len(found) >= 2)


def test_one_peak_is_no_alert() -> None:
    """The mean of the newest three readings is held against the thresholds."""
    known = resources(0)
    for cpu in (10, 10, 100):
        known.add(Reading(cpu=cpu))
    assert known.pressure.load == pytest.approx(0.4)
    assert not known.pressure.alerts
    for _ in range(2):
        known.add(Reading(cpu=100))
    assert known.pressure.critical


def test_the_newest_hundred_are_kept() -> None:
    """Mean and peak are over those; what a system does not say is not there."""
    known = resources(0)
    for number in range(150):
        known.add(Reading(cpu=number % 100, rss=50))
    assert known.use() == {"cpu": ResourceUse(49.5, 99, 100), "rss": ResourceUse(50, 50, 100)}
    assert known.sample == (49, 50, None)


def test_the_thread_ends_with_the_shutdown_of_its_guard() -> None:
    """And the next question starts it again, as the guard remains usable."""
    guard = LoopGuard()
    for _ in range(2):
        execution.admit("search")
        assert threads()
        guard.shutdown()
        wait_for(lambda: not threads())


def test_it_rests_when_nobody_asks_and_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured grows stale; the thread holds nothing alive, and 0 seconds need none."""
    assert resources(0).pressure == UNKNOWN_PRESSURE
    assert not threads()
    assert resources().pressure == UNKNOWN_PRESSURE
    gc.collect()
    wait_for(lambda: not threads())
    monkeypatch.setattr("otel_loopguard.execution.resources._IDLE_S", 0.1)
    known = resources()
    assert known.pressure == UNKNOWN_PRESSURE
    wait_for(lambda: not threads())
    wait_for(lambda: known.newest == UNKNOWN_PRESSURE)
    assert known.pressure == UNKNOWN_PRESSURE
    assert threads()
    known.stop()


def test_a_fault_in_the_thread_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted, and the next look is made."""

    class Faulty(Gauges):
        def __init__(self) -> None:
            self.looks = chain((1, 0), repeat(1))

        def read(self) -> Reading:
            return Reading(cpu=1 // next(self.looks))

    monkeypatch.setattr("otel_loopguard.execution.resources.Gauges", Faulty)
    raise_faults(False)
    faults = InternalErrors()
    known = Resources(LOOKING, faults)
    assert known.pressure == UNKNOWN_PRESSURE
    wait_for(known.use)
    known.stop()
    assert faults.counts == {"resources:ZeroDivisionError": 1}


def test_a_queue_by_the_name_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """`module:function`, asked with every look; what gives no number is not known."""
    queues = SimpleNamespace(seven=lambda: 16, odd=lambda: "many")
    monkeypatch.setitem(sys.modules, "queue_of_mine", queues)
    raise_faults(False)
    faults = InternalErrors()
    assert asked("queue_of_mine:odd", faults) is None
    assert faults.counts == {"queue:ValueError": 1}
    known = Resources(LOOKING, faults, queue_depth("queue_of_mine:seven", faults))
    wait_for(lambda: known.pressure.queue == 16)
    assert "queue" in [alert.resource for alert in known.pressure.alerts]
    known.stop()


def asked(place: str, faults: InternalErrors) -> int | None:
    depth = queue_depth(place, faults)
    assert depth is not None
    return depth()


@pytest.mark.parametrize(("place", "told"), rows(__file__, "unusable"))
def test_a_queue_that_cannot_be_read(place: str, told: str) -> None:
    """The error comes at the start, with the setting and its value, without a password."""
    with pytest.raises(LoopGuardSettingsError, match=told) as error:
        queue_depth(place, InternalErrors())
    assert repr(place.rpartition("@")[2].partition("?")[0]) in str(error.value)
    assert "secret" not in str(error.value)


def test_queues_on_redis(own_redis: Server) -> None:
    """A plain list, and what the brokers' real libraries put there; one that is not is empty."""
    load = importlib.import_module if os.environ.get("CI") else pytest.importorskip
    celery, redis, rq = (load(name) for name in ("celery", "redis", "rq"))
    with redis.Redis.from_url(own_redis.url) as client:
        client.rpush("jobs", 1, 2, 3)
        for _ in range(2):
            rq.Queue("slow", connection=client).enqueue("time.sleep", 0)
    with celery.Celery(broker=own_redis.url) as app:
        for priority in (0, 3, 6, 9):
            app.send_task("work", priority=priority)
    places = ("{}#jobs", "{}#none", "celery+{}", "celery+{}#other", "rq+{}#slow", "rq+{}")
    depths = [asked(place.format(own_redis.url), InternalErrors()) for place in places]
    assert depths == [3, 0, 4, 0, 2, 0]


def test_a_queue_that_is_gone_is_not_known() -> None:
    """It is counted, and nobody waits longer than the time-out."""
    raise_faults(False)
    faults = InternalErrors()
    assert asked(f"redis://127.0.0.1:{free_port()}/0#jobs", faults) is None
    assert sum(faults.counts.values()) == 1
