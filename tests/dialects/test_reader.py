"""Which dialect reads a span, what others add, which scopes are of interest."""

from collections.abc import Iterator
from typing import ClassVar

import pytest

from otel_loopguard import LoopGuardError, dialects
from otel_loopguard.core import Kind, Step
from otel_loopguard.dialects import Reader, RecordedSpan, SpanView, register, registered, unregister
from otel_loopguard.sdk.sampler import _may_be_agent
from otel_loopguard.spans.reader import ScopeKind
from tests.tables import rows


class Mine:
    name = "mine"
    marks = frozenset({"mine.kind"})

    def read(self, span: SpanView) -> Step | None:
        return Step(Kind.TOOL, "mine", self.name, span.scope, call_id="mine")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = {dialect.name for dialect in registered()}
    yield
    for dialect in registered():
        if dialect.name not in before:
            unregister(dialect.name)


def tool(**attributes: object) -> RecordedSpan:
    attributes = {"gen_ai__operation__name": "execute_tool", **attributes}
    known = {key.replace("__", "."): value for key, value in attributes.items()}
    return RecordedSpan(name="execute_tool search", scope="my.agent", end=9, attributes=known)


@pytest.mark.parametrize(("before", "dialect"), [(None, "mine"), ("openinference", "genai")])
def test_a_dialect_can_be_registered(before: str | None, dialect: str) -> None:
    """A user's is asked first, or right before the named one: those further up keep the word."""
    register(Mine(), before=before)
    names = [one.name for one in registered()]
    assert names.index("mine") == (0 if before is None else names.index(before) - 1)
    step = Reader().read(tool(mine__kind="tool"))
    assert step is not None
    assert (step.dialect, step.call_id) == (dialect, "mine")


@pytest.mark.parametrize(("fields", "said"), rows(__file__, "wrong"))
def test_a_wrong_dialect_is_refused(fields: str, said: str) -> None:
    """A dialect that cannot be used is refused with its name and what was expected."""
    wrong = type("Wrong", (Mine,), eval(f"dict({fields})"))()
    with pytest.raises(dialects.DialectError, match=said) as caught:
        register(wrong)
    assert isinstance(caught.value, LoopGuardError)
    assert isinstance(caught.value, ValueError)
    assert "Wrong" not in [type(one).__name__ for one in registered()]


def test_a_place_before_a_dialect_that_there_is_not_is_refused() -> None:
    with pytest.raises(dialects.DialectError, match="no dialect 'nothing'"):
        register(Mine(), before="nothing")
    assert "mine" not in [one.name for one in registered()]


class Declaring(Mine):
    scopes = ("mine.tracer", "mine-*")
    session_keys = ("mine.session",)
    fallback_agent_keys = ("mine.role",)
    call_words: ClassVar = {"mine.kind": frozenset({"tool"})}

    def read(self, span: SpanView) -> Step | None:
        return Step(Kind.AGENT, "mine", self.name, span.scope)


def test_what_a_dialect_declares_is_used_everywhere() -> None:
    """Scopes, keys, calls and the sampler's prefixes follow from the class; no list names it."""
    keys = {"mine.kind": "run", "mine.session": "s", "mine.role": "r", "http.url": "u"}
    span = RecordedSpan(name="x", scope="mine-5", end=9, attributes=keys)
    assert not _may_be_agent("x", {"mine.kind": "run", "http.url": "u"})
    register(Declaring())
    reader = Reader()
    found = [reader.interest(scope) for scope in ("mine.tracer", "mine-5", "mine.tracer.x")]
    assert found == [ScopeKind.AGENT, ScopeKind.AGENT, ScopeKind.UNKNOWN]
    # Keys of conventions that appear on the spans of others are asked first, fallbacks last.
    shared = {"session.id": "shared", "gen_ai.agent.name": "named"}
    for more, whose in (({}, ("s", "r")), (shared, ("shared", "named"))):
        span.attributes = keys | more
        step = reader.run(span)
        assert step is not None
        assert (step.session, step.agent) == whose
    span.attributes = {"mine.kind": "tool"}
    assert reader.run(span) is None
    assert _may_be_agent("x", {"mine.kind": "run", "http.url": "u"})
    unregister("mine")
    assert not _may_be_agent("x", {"mine.kind": "run", "http.url": "u"})


def test_a_dialect_that_builds_on_another_is_not_filled_by_it() -> None:
    """It has read the keys of that one already, and taken off what is wrapped around them."""

    class Above(Mine):
        builds_on = "genai"

        def read(self, span: SpanView) -> Step | None:
            return Step(Kind.TOOL, "mine", self.name, span.scope)

    wrapped = tool(mine__kind="tool", gen_ai__tool__call__arguments="wrapped")
    for dialect, args in ((Mine(), "wrapped"), (Above(), None)):
        step = Reader((dialect, *registered())).read(wrapped)
        assert step is not None
        assert step.args == args


def test_a_readers_memory_is_bounded() -> None:
    """Scopes and combinations of keys without end do not fill the memory."""
    reader = Reader()
    for number in range(10_000):
        reader.interest(f"scope {number}")
    assert len(reader.scopes) <= 4096
