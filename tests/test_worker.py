"""Background threads: late, idle, renewed after a fork, gone with what they work for."""

import gc
import os
import pickle
import textwrap
import threading
from heapq import heappop

import pytest

from otel_loopguard._util import worker as worker_module
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import InternalErrors, raise_faults
from otel_loopguard._util.worker import BackgroundWorker
from tests.programs import printed
from tests.stores.servers import wait_for


def test_a_fault_ends_no_thread() -> None:
    """It is counted; the next work is done."""
    raise_faults(False)
    errors, done = InternalErrors(), list[float]()
    worker = BackgroundWorker[int]("owner", lambda item: done.append(1 / item), errors, maximum=9)
    for item in (1, 0, 2):
        assert worker.put(item)
    assert worker.flush(60)
    assert done == [1, 0.5]
    assert errors.counts == {"owner:ZeroDivisionError": 1}
    worker.stop()


def test_what_is_just_taken_out_is_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits in that moment, at the end of a process, went on, and it was lost."""
    said = list[bool]()

    def taken(heap: list[tuple[float, int, int]]) -> tuple[float, int, int]:
        item = heappop(heap)
        said.append(worker.flush(0))
        return item

    monkeypatch.setattr(worker_module, "heappop", taken)
    worker = BackgroundWorker[int]("owner", lambda _: None, InternalErrors(), maximum=9)
    assert worker.put(1)
    assert worker.flush(60)
    assert said == [False]
    worker.stop()


@pytest.mark.parametrize(
    ("drop_oldest", "left"), [(False, [0, 1, 2, 3]), (True, [0, 7, 8, 9])], ids=["newest", "oldest"]
)
def test_a_queue_is_bounded_and_keeps_its_order(drop_oldest: bool, left: list[int]) -> None:
    """New ones are refused or the oldest lost; what waits is delivered though nobody holds it."""
    go, done = threading.Event(), list[int]()

    def deliver(item: int) -> None:
        assert go.wait(60)
        done.append(item)

    worker = BackgroundWorker[int](
        "owner", deliver, InternalErrors(), maximum=3, drop_oldest=drop_oldest
    )
    assert worker.put(0)
    wait_for(lambda kept=worker: not len(kept))
    assert [worker.put(item) for item in range(1, 10)] == [True] * 3 + [False] * 6
    del worker
    gc.collect()
    go.set()
    wait_for(lambda: done == left)


def test_who_waits_delivers_where_no_thread_can_be_started(threadless: None) -> None:
    """As while the interpreter ends, from Python 3.12 on: what waited then was lost."""
    done = list[int]()
    worker = BackgroundWorker[int]("owner", done.append, InternalErrors(), maximum=9)
    for item in range(3):
        assert worker.put(item)
    assert worker.flush(60)
    assert done == [0, 1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_has_its_own_thread() -> None:
    """Its parent delivers what waited there."""
    done: list[int] = []
    go = threading.Event()
    worker = BackgroundWorker[int](
        "owner", lambda item: (go.wait(60), done.append(item)), InternalErrors(), maximum=9
    )
    worker.put(1)
    worker.put(2)
    child = os.fork()
    if child == 0:
        go.set()
        right = worker.put(3) and worker.flush(60) and done == [3]
        os._exit(0 if right else 1)
    assert os.waitpid(child, 0)[1] == 0
    go.set()
    assert worker.flush(60)
    assert done == [1, 2]
    worker.stop()


def test_a_guard_that_is_gone_leaves_nothing() -> None:
    """A backtest makes one for each of a million sessions."""
    # In a process of its own: other tests leave threads that make objects.
    program = textwrap.dedent("""
        import gc
        from otel_loopguard import LoopGuard

        def objects_after(guards):
            for _ in range(guards):
                LoopGuard(clock="replay").shutdown()
            gc.collect()
            return len(gc.get_objects())

        before = objects_after(100)
        print(objects_after(200) - before)
    """)
    # One that stayed would be dozens for each; locks that nobody has are let go many at a time.
    assert int(printed(program)) < 400


def _filled() -> BoundedDict[str, int]:
    table = BoundedDict[str, int](3)
    for number, key in enumerate("abac"):
        table[key] = number
    return table


@pytest.mark.parametrize("packed", [False, True])
def test_a_bounded_dict_evicts_what_was_set_longest_ago(packed: bool) -> None:
    """However it is set, and also after it was packed."""
    table = pickle.loads(pickle.dumps(_filled())) if packed else _filled()
    assert list(table) == ["b", "a", "c"]
    table.move_to_end("b")
    table["d"] = 4
    assert list(table) == ["c", "b", "d"]
    assert table.setdefault("e", 5) == 5
    table.update(f=6)
    assert list(table.items()) == [("d", 4), ("e", 5), ("f", 6)]
