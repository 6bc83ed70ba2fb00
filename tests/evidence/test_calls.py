"""The identity of a call."""

from typing import Any

from otel_loopguard import Settings
from otel_loopguard.evidence import prepare
from otel_loopguard.evidence.calls import Call, Calls
from tests.calls import call


def of(arguments: object, tool: str = "search", agent: str | None = None, **given: Any) -> Call:
    """The identity of one call."""
    step = call(tool, arguments)
    step.agent = agent
    return Calls(Settings(**given)).identify(step, prepare(step), 1)


def test_a_declared_key_is_the_identity() -> None:
    """`key` of a tool names the arguments that matter; without any of them all do (C5)."""
    tools = {"search": {"key": ("q", "lang")}}
    one = of({"q": "x", "page_size": 10, "mood": "calm"}, tools=tools)
    other = of({"q": "x", "page_size": 50, "mood": "keen"}, tools=tools)
    assert one.key == other.key
    assert one.exact == other.exact
    assert not one.guessed
    assert one.key != of({"q": "y", "page_size": 10}, tools=tools).key
    assert of({"p": 1}, tools=tools).key != of({"p": 2}, tools=tools).key
    assert of({"q": "x", "n": 1}, "find", tools=tools).key != of({"q": "x"}, "find").key


def test_long_arguments_are_bounded() -> None:
    """Told by head, tail and length; of samples 256 characters are kept, whole ones."""
    assert len(of({"q": "x" * 10_000}).sample) == 256
    assert of({"q": "ä" * 10_000}).sample.startswith('{"q":"ää')
    long, short = "x" * 10_000_000, {"calls": {"value_chars": 1000}}
    calls = [of(text, tuning=short) for text in (long, long + "y", "y" + long)]
    assert len({one.key for one in calls}) == 3
    assert len(calls[0].raw) < 1100
