"""A webhook on loopback that does as a test says."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.server.serving import listening

Answer = tuple[int, bytes]


@dataclass
class Hook:
    """What came, headers and body; status, body and headers that answer a post, counted from 1.

    `drip_s` are seconds between two bytes of an answer, `drip_headers_s` those between headers
    before it, without end; `over` is called when an answer was cut off by who posted.
    """

    answer: Callable[[int], Answer] = lambda number: (200, b"ok")
    drip_s: float = 0
    drip_headers_s: float = 0
    sent: dict[str, str] = field(default_factory=dict)
    over: Callable[[], object] = lambda: None
    posts: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    def data(self, number: int = 0) -> dict[str, Any]:
        return json.loads(self.posts[number][1])


@contextmanager
def served(hook: Hook) -> Iterator[Hook]:
    """Serves a hook on a free port."""

    def answer(to: BaseHTTPRequestHandler, body: bytes) -> None:
        hook.posts.append(({name.lower(): value for name, value in to.headers.items()}, body))
        status, said = hook.answer(len(hook.posts))
        try:
            to.send_response(status)
            to.flush_headers()
            while hook.drip_headers_s:
                to.wfile.write(b"x-more: 1\r\n")
                time.sleep(hook.drip_headers_s)
            for name, value in {**hook.sent, "content-length": str(len(said))}.items():
                to.send_header(name, value)
            to.end_headers()
            for sign in said if hook.drip_s else ():
                to.wfile.write(bytes([sign]))
                time.sleep(hook.drip_s)
            if not hook.drip_s:
                to.wfile.write(said)
        except OSError:
            hook.over()

    with listening(answer) as url:
        hook.url = f"{url}/hook"
        yield hook
