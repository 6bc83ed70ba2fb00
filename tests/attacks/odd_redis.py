"""A server that speaks as Redis does, and answers as a broken or hostile one may."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

Words = list[bytes]
Answer = Callable[[Words], "bytes | Iterable[bytes]"]


def info(said: str = "redis_version:7.0.0\r\n") -> bytes:
    """What INFO is answered, so that a client goes on."""
    return f"${len(said)}\r\n{said}\r\n".encode()


def joined(topic: bytes) -> bytes:
    """What SUBSCRIBE is answered."""
    return b"*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n" % (len(topic), topic)


def told(topic: bytes, message: bytes) -> bytes:
    """A message to who has subscribed."""
    parts = (b"message", topic, message)
    return b"*3\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def slowly(answer: bytes, pause_s: float, released: threading.Event) -> Iterator[bytes]:
    """An answer byte by byte."""
    for place in range(len(answer)):
        yield answer[place : place + 1]
        released.wait(pause_s)


@contextmanager
def odd_redis(answer: Answer) -> Iterator[str]:
    """The address of a server that answers each command as it is told to."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            with suppress(OSError, ValueError):
                while words := _command(self.rfile):
                    said = answer(words)
                    for part in (said,) if isinstance(said, bytes) else said:
                        self.wfile.write(part)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False
        allow_reuse_address = True

        def get_request(self) -> tuple[socket.socket, object]:
            connection, address = super().get_request()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection, address

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        finally:
            server.shutdown()


def _command(stream: IO[bytes]) -> Words:
    """The next command of a client; empty at the end."""
    line = stream.readline()
    return [_word(stream) for _ in range(int(line[1:]))] if line else []


def _word(stream: IO[bytes]) -> bytes:
    return stream.read(int(stream.readline()[1:]) + 2)[:-2]
