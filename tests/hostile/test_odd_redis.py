"""A Redis that answers nonsense, too much or too slowly costs what it holds, and nothing else."""

import logging
import re
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest

import otel_loopguard
from otel_loopguard import LoopGuard, Settings
from otel_loopguard.stores.redis import RedisStore
from tests.control.messages import begin, call, new_name
from tests.stores.servers import wait_for
from tests.tables import content, rows

Words = list[bytes]
Answer = Callable[[Words], "bytes | Iterable[bytes]"]


def joined(topic: bytes) -> bytes:
    return b"*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n" % (len(topic), topic)


def told(topic: bytes, message: bytes) -> bytes:
    parts = (b"message", topic, message)
    return b"*3\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


@contextmanager
def odd_redis(answer: Answer) -> Iterator[str]:
    """The address of a server that answers each command as it is told to."""

    class Handler(socketserver.StreamRequestHandler):
        disable_nagle_algorithm = True

        def handle(self) -> None:
            with suppress(OSError, ValueError):
                while words := _command(self.rfile):
                    said = answer(words)
                    for part in (said,) if isinstance(said, bytes) else said:
                        self.wfile.write(part)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = allow_reuse_address = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        finally:
            server.shutdown()


def _command(stream: IO[bytes]) -> Words:
    line = stream.readline()
    return [_word(stream) for _ in range(int(line[1:]))] if line else []


def _word(stream: IO[bytes]) -> bytes:
    return stream.read(int(stream.readline()[1:]) + 2)[:-2]


SECRET = "hunter2"
ODD = {name: content(said) for name, said in (row.values for row in rows(__file__, "answers"))}
odd = pytest.mark.parametrize("answer", list(ODD.values()), ids=list(ODD))


@odd
def test_who_listens_goes_on_after_an_odd_message(answer: bytes) -> None:
    """Nobody would hear a pause from elsewhere any more, in that process, for good."""
    subscribed: list[bytes] = []

    def reply(words: Words) -> bytes:
        if words[0].upper() != b"SUBSCRIBE":
            return b"+OK\r\n"
        subscribed.append(words[1])
        after = answer if len(subscribed) == 1 else b""
        return joined(words[1]) + after + told(words[1], b"pause")

    heard: list[bytes] = []
    with odd_redis(reply) as url:
        store = RedisStore(Settings(store_url=url, tuning={"stores": {"retry_s": 0.05}}))
        subscription = store.subscribe("control", heard.append)
        wait_for(lambda: heard)
        subscription.close()
        store.close()
    assert set(heard) == {b"pause"}


@odd
@pytest.mark.usefixtures("no_raise")
def test_odd_answers_are_trouble_of_the_store_and_not_ours(
    answer: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """No fault, no traceback, and no byte of what it said in the log."""

    def reply(words: Words) -> bytes:
        if words[0].upper() == b"SUBSCRIBE":
            return joined(words[1]) + told(words[1], b"hunter2")
        return answer

    caplog.set_level(logging.DEBUG, "otel_loopguard")
    with odd_redis(reply) as url:
        stores = {"retry_s": 0.05, "flush_s": 0.1}
        guard = LoopGuard(Settings(store_url=url, tuning={"stores": stores}))
        run = new_name()
        begin(run, guard)
        for _ in range(3):
            guard.observe(call(), run)
        guard.flush()
        guard.shutdown()
    assert guard.faults.counts == {}
    assert SECRET not in caplog.text
    assert not any(record.exc_info for record in caplog.records)


def test_shutdown_waits_for_no_whole_answer() -> None:
    """Of a server that sends its answers byte by byte; it is left behind."""
    released, begun, ended = threading.Event(), threading.Event(), threading.Event()

    def dripping(answer: bytes) -> Iterable[bytes]:
        begun.set()
        for byte in answer:
            yield bytes([byte])
            released.wait(0.1)
        ended.set()

    def reply(words: Words) -> bytes | Iterable[bytes]:
        if words[0].upper() == b"EVALSHA":
            return dripping(b"$200\r\n" + b"x" * 200 + b"\r\n")
        return b"+OK\r\n"

    with odd_redis(reply) as url:
        guard = LoopGuard(Settings(store_url=url, tuning={"stores": {"flush_s": 0.1}}))
        run = new_name()
        begin(run, guard)
        guard.observe(call(), run)
        assert begun.wait(60)
        guard.shutdown()
        assert not ended.is_set()
        released.set()


def test_nothing_from_outside_is_unpickled() -> None:
    """Only idle sessions of the same process are, out of its own memory."""
    package = Path(otel_loopguard.__file__).parent
    imports = re.compile(r"(?m)^\s*(?:from|import) \S*(?:pickle|marshal|shelve|dill|packing)\b")
    files = [path for path in package.rglob("*.py") if imports.search(path.read_text("utf-8"))]
    found = {path.relative_to(package).as_posix() for path in files}
    assert found == {"_util/packing.py", "sessions/session.py"}
