"""What leaves the process: the page says all of it, and none of it is content."""

import json
import logging
import re
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import Tracer

from otel_loopguard import LoopGuardAbort, control, semconv, session
from tests.agents import agent, tool_call
from tests.docs.markdown import ROOT
from tests.stores.servers import Server
from tests.telemetry.scene import Scene

SECRETS = ("tulip", "orchid", "saffron", "juniper")
"""In arguments, in results, in errors, and in what was written to a file."""


def test_the_page_says_all_that_leaves() -> None:
    """docs/security.md has every name that the guard writes or reads; metrics have their page."""
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    text = page.partition("\n## Privacy\n")[2].partition("\n## ")[0]
    constants = {name for name in vars(semconv) if name.isupper() and name != "RULES"}
    names = {vars(semconv)[name] for name in constants if not name.startswith("METRIC_")}
    assert len(names) > 40
    families = tuple(re.findall(r"`([\w.]+\.)\*`", text))
    others = {name for name in names if not name.startswith(families)}
    assert {name for name in others if f"`{name}`" not in text} == set()


@pytest.mark.parametrize(
    "settings",
    [{}, {"max_action": "deny", "span_events": True, "verdicts": ["annotations", "evaluations"]}],
    ids=["aborted", "denied"],
)
def test_nothing_of_what_calls_say_leaves(
    own_redis: Server, caplog: pytest.LogCaptureFixture, settings: dict[str, Any]
) -> None:
    """No argument, result or error text is in spans' own names, metrics, logs or the store."""
    caplog.set_level(logging.DEBUG)
    scene = Scene(store_url=own_redis.url, **settings)
    _runs(scene.tracer, own_redis.port)
    metrics = scene.reader.get_metrics_data()
    assert metrics is not None
    scene.provider.shutdown()
    scene.guard.shutdown()
    said = {
        "spans": "\n".join(_ours(span) for span in scene.spans.get_finished_spans()),
        "metrics": metrics.to_json(),
        "events": "\n".join(each.to_json() for each in scene.logs.get_finished_logs()),
        "log": caplog.text,
        "store": _everything(own_redis),
    }
    assert [way for way, text in said.items() if "search" not in text] == [], "nothing went there"
    assert [(way, word) for way in said for word in SECRETS if word in said[way]] == []


def _runs(tracer: Tracer, place: int) -> None:
    """Work that is well, and then loops: equal calls until the abort, and equal errors."""
    for key, error in (("run-1", None), ("run-2", "saffron is not known")):
        # Keys of its own: guards of other tests may still know the others.
        with session(f"{key}-at-{place}"), agent(tracer):
            written = '{"path": "juniper.py", "content": "juniper"}'
            tool_call(tracer, "write_file", written, "juniper")
            try:
                for _ in range(20):
                    control.check()
                    tool_call(tracer, "search", '{"query": "tulip"}', "orchid is gone", error=error)
            except LoopGuardAbort:
                continue


def _ours(span: ReadableSpan) -> str:
    """What the guard wrote on a span: its attributes, its events, and the status of its own."""
    found = [each for each in (span.attributes or {}).items() if each[0].startswith("loopguard.")]
    events = [dict(one.attributes or {}) for one in span.events if one.name.startswith("loopguard")]
    said = span.status.description or ""
    return json.dumps([found, events, said * said.startswith("loopguard")], default=str)


def _everything(server: Server) -> str:
    """All keys and values of a Redis, as text."""
    client = server.client
    said: list[str] = []
    for key in client.scan_iter(count=1000):
        kind = client.type(key)
        value = {
            b"string": client.get, b"set": client.smembers, b"stream": client.xrange,
            b"hash": client.hgetall, b"list": lambda name: client.lrange(name, 0, -1),
            b"zset": lambda name: client.zrange(name, 0, -1, withscores=True),
        }[kind](key)  # fmt: skip
        said.append(f"{key!r} {value!r}")
    return "\n".join(said)
