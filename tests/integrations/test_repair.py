"""Repeats of a loop are folded in what a model reads, and nothing else is changed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from otel_loopguard import LoopGuard, LoopGuardAbort, LoopGuardSpanProcessor, Settings, session
from otel_loopguard.integrations._runs import Round, folded, key_of
from otel_loopguard.integrations.langchain import LoopGuardMiddleware, _rounds
from otel_loopguard.integrations.pydantic_ai import LoopGuardCapability
from otel_loopguard.integrations.pydantic_ai import _rounds as pydantic_rounds
from tests.agents import provider_with
from tests.control.messages import new_name
from tests.tables import rows

FINAL = "The shop is shut."
MOST = 30


def rounds_of(keys: Sequence[str]) -> list[Round]:
    """Messages of one letter each; a capital is a round, anything else is none."""
    known = [key.encode() if len(key) == 1 and key.isupper() else None for key in keys]
    return [Round(place, place + 1, key) for place, key in enumerate(known)]


@pytest.mark.parametrize(("history", "left"), rows(__file__, "folded"))
def test_what_is_folded(history: str, left: str) -> None:
    """Three times and more, up to four rounds long; what is no round is never left out."""
    found = folded(
        list(history), rounds_of(history), lambda said: f"({said.split(' times')[0][-1]})"
    )
    assert "".join(found) == left
    assert folded([], [], str) == []


@given(st.text(alphabet="ABCu", max_size=40))
def test_folding_leaves_all_else_as_it_is(history: str) -> None:
    """What stays is in its order, the end stays the end, and folding twice does no more."""
    left = folded(list(enumerate(history)), rounds_of(history), lambda said: (-1, said))
    kept = [place for place, _ in left if place >= 0]
    assert kept == sorted(set(kept))
    assert set(history) == {key for place, key in left if place >= 0}
    assert [one for one in left if one[1] == "u"] == [
        one for one in enumerate(history) if one[1] == "u"
    ]
    assert not history or left[-1] == (len(history) - 1, history[-1])
    again = rounds_of([key for _, key in left])
    assert folded(left, again, lambda said: (-1, said)) == left


def test_arguments_are_compared_by_value() -> None:
    assert key_of([("a", {"x": 1, "y": 2}, "r")]) == key_of([("a", {"y": 2, "x": 1}, "r")])
    assert key_of([("a", {"x": 1}, "r")]) != key_of([("a", {"x": 1}, "other")])


def calls(number: int, *names: str) -> AIMessage:
    asked = [{"name": name, "args": {"q": "x"}, "id": f"{name}{number}"} for name in names]
    return AIMessage(f"try {number}", tool_calls=asked)


def test_a_round_has_all_its_results() -> None:
    """Of parallel calls; one without a result, or with a stranger's or other messages, is none."""
    results = [ToolMessage("2", tool_call_id="b1"), ToolMessage("1", tool_call_id="a1")]
    whole = [calls(1, "a", "b"), *results]
    assert [(one.start, one.stop) for one in _rounds(whole)] == [(0, 3)]
    lacking = [*whole[:2], HumanMessage("well?")]
    assert [one.key for one in _rounds(lacking)] == [None] * 3
    stranger = [calls(1, "a"), ToolMessage("1", tool_call_id="b1")]
    assert [one.key for one in _rounds(stranger)] == [None] * 2
    asked = ModelResponse([TextPart("hm"), ToolCallPart("a", {"q": 1}, tool_call_id="1")])
    result = ToolReturnPart("a", "none", tool_call_id="1")
    assert [one.stop for one in pydantic_rounds([asked, ModelRequest([result])])] == [2]
    other = ModelRequest([ToolReturnPart("a", "none", tool_call_id="2")])
    assert [one.key for one in pydantic_rounds([asked, other])] == [None, None]
    assert [one.key for one in pydantic_rounds([asked])] == [None]


class Shop:
    """A model that repeats a call that it made twice in a row: only its history changes that."""

    def __init__(self) -> None:
        self.requests = 0
        self.searches = 0
        self.read: list[str] = []

    def asks(self, earlier: list[str]) -> bool:
        """Whether it makes its call once more, after the calls that it reads."""
        self.requests += 1
        return self.requests <= MOST and (self.requests <= 3 or len(earlier) > 1)

    def search(self, query: str) -> str:
        """Searches the shop."""
        self.searches += 1
        return "Nothing found."


class LangChainModel(GenericFakeChatModel):
    """The model in LangChain."""

    shop: Any

    def bind_tools(self, tools: Any, **options: Any) -> LangChainModel:
        return self

    def _generate(self, messages: Any, *rest: Any, **options: Any) -> ChatResult:
        asked = [call["id"] for one in messages for call in getattr(one, "tool_calls", ())]
        answered = [one.tool_call_id for one in messages if one.type == "tool"]
        assert asked == answered
        self.shop.read = [str(one.content) for one in messages]
        again = self.shop.asks(asked)
        wanted = {"name": "search", "args": {"query": "x"}, "id": f"call-{self.shop.requests}"}
        said = AIMessage("" if again else FINAL, tool_calls=[wanted] if again else [])
        return ChatResult(generations=[ChatGeneration(message=said)])


def in_langchain(
    shop: Shop, provider: TracerProvider, *, repair: bool, later: bool = False
) -> tuple[str, int]:
    model, guarding = LangChainModel(messages=iter(()), shop=shop), LoopGuardMiddleware
    middleware = [guarding(repair=repair, tracer_provider=provider)]
    agent = create_agent(model, [shop.search], middleware=middleware)
    asked: Any = {"messages": [("user", "Is it open?")]}, {"recursion_limit": 200}
    done = asyncio.run(agent.ainvoke(*asked)) if later else agent.invoke(*asked)
    results = [one for one in done["messages"] if one.type == "tool"]
    return str(done["messages"][-1].content), len(results)


def in_asyncio(shop: Shop, provider: TracerProvider, *, repair: bool) -> tuple[str, int]:
    return in_langchain(shop, provider, repair=repair, later=True)


def in_pydantic_ai(shop: Shop, provider: TracerProvider, *, repair: bool) -> tuple[str, int]:
    def scripted(messages: Any, info: Any) -> ModelResponse:
        parts = [part for one in messages for part in one.parts]
        asked = [one.tool_call_id for one in parts if one.part_kind == "tool-call"]
        answered = [one.tool_call_id for one in parts if one.part_kind == "tool-return"]
        assert asked == answered
        shop.read = [str(getattr(one, "content", "")) for one in parts]
        if not shop.asks(asked):
            return ModelResponse([TextPart(FINAL)])
        wanted = ToolCallPart("search", {"query": "x"}, tool_call_id=f"call-{shop.requests}")
        return ModelResponse([wanted])

    agent = Agent(
        FunctionModel(scripted),
        capabilities=[LoopGuardCapability(repair=repair, tracer_provider=provider)],
    )
    agent.tool_plain(shop.search)
    done = agent.run_sync("Is it open?")
    parts = [part for one in done.all_messages() for part in one.parts]
    return done.output, len([one for one in parts if one.part_kind == "tool-return"])


@pytest.mark.parametrize("run", [in_langchain, in_asyncio, in_pydantic_ai])
def test_a_model_that_follows_its_history_goes_on(run: Callable[..., tuple[str, int]]) -> None:
    """With the repeats it calls until it is out of requests or aborted; folded, it answers."""
    figures: dict[tuple[str, bool], tuple[str, int, int]] = {}
    kept = 0
    for most, repair in itertools.product(("hint", "abort"), (False, True)):
        shop = Shop()
        guard = LoopGuard(Settings(max_action=most))
        with session(new_name()):
            try:
                said, kept = run(shop, provider_with(LoopGuardSpanProcessor(guard)), repair=repair)
            except LoopGuardAbort:
                said = "aborted"
        figures[most, repair] = said, shop.searches, shop.requests
        assert most == "abort" or any("otel-loopguard" in one for one in shop.read) is repair
    assert kept == 3, "the application's own history has all of it"
    assert figures.pop(("abort", False))[:2] == ("aborted", 4)
    assert figures.pop(("hint", False)) == (FINAL, MOST, MOST + 1)
    assert figures == {("hint", True): (FINAL, 3, 4), ("abort", True): (FINAL, 3, 4)}
