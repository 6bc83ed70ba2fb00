"""The identity of a call."""

from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.evidence import prepare
from otel_loopguard.evidence.calls import NAMED, Call, Calls
from tests.calls import call


def of(arguments: object, tool: str = "search", agent: str | None = None, **given: Any) -> Call:
    """The identity of one call."""
    step = call(tool, arguments)
    step.agent = agent
    return Calls(Settings(**given)).identify(step, prepare(step), 1)


def test_tool_and_agent_belong_to_the_call() -> None:
    """Of a name 200 signs count; what was not captured has no key, and an empty map is a call."""
    calls = [of({"q": "x"}), of({"q": "x"}, "find"), *(of({"q": "x"}, agent=one) for one in "ab")]
    assert len({one.key for one in calls}) == 4
    assert of(None)[:3] == (None, None, None)
    assert of({}).key is not None
    assert of({"q": 1}, "t" * NAMED + "a").key == of({"q": 1}, "t" * NAMED + "b").key


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


def test_a_nonce_is_learned_by_one_session() -> None:
    """After four otherwise equal calls an argument is no part of the key: that is a guess."""
    calls = Calls(Settings())
    steps = [call("s", {"user": "u", "zz": f"{n}f{n}ab{n}c7"}) for n in range(6)]
    found = [calls.identify(step, prepare(step), 1) for step in steps]
    assert len({one.key for one in found[3:]}) == 1
    assert [one.guessed for one in found] == [False] * 3 + [True] * 3
    assert len({one.key for one in found[:3]}) == 3


def test_long_arguments_are_bounded() -> None:
    """Told by head, tail and length; of samples 256 characters are kept, whole ones."""
    assert len(of({"q": "x" * 10_000}).sample) == 256
    assert of({"q": "ä" * 10_000}).sample.startswith('{"q":"ää')
    long, short = "x" * 10_000_000, {"calls": {"value_chars": 1000}}
    calls = [of(text, tuning=short) for text in (long, long + "y", "y" + long)]
    assert len({one.key for one in calls}) == 3
    assert len(calls[0].raw) < 1100


@pytest.mark.parametrize(
    "arguments", ['{"cut": ', "\ud800", {"a": object}, [1, 2], 7, "", b"\xff"], ids=repr
)
def test_odd_arguments_have_keys(arguments: object) -> None:
    """Whatever was captured is a call."""
    assert of(arguments).key is not None
