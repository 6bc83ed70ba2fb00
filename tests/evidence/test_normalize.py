"""Canonical forms, masks, outcomes, and the quick looks before patterns."""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import ErrorClass
from otel_loopguard.evidence import model_text, outcomes
from otel_loopguard.evidence.errors import error_class, error_line
from otel_loopguard.evidence.normalize import (
    PrefilteredPattern,
    VolatileArguments,
    as_data,
    bounded,
    bounded_text,
    canonical,
    key_of,
    key_of_text,
    masked_call,
    masked_outcome,
    parsed,
    plain_digits,
    size_of,
    text_bytes,
)
from otel_loopguard.evidence.outcomes import Outcome, outcome_of, rejects, says_nothing_found
from tests.tables import rows

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def test_anything_has_a_form() -> None:
    """Cycles, NaN, surrogates, bytes, huge numbers and objects are taken as they are."""
    assert canonical(parsed((1, 2))) == canonical(parsed([1, 2]))
    loop: dict[str, object] = {}
    loop["self"] = loop
    odd = [loop, math.nan, math.inf, "\ud800", b"\xff", 2**80, object(), {1: None}, {3, 4}, 1e300]
    for value in odd:
        assert canonical(parsed(value))
        assert canonical(parsed({"a": value}))


class Query(BaseModel, extra="allow"):
    """A model; one of its fields is shown nowhere."""

    text: object
    limit: int = 3
    key: SecretStr = SecretStr("k3y")
    inner: str = Field("", exclude=True)


@dataclass
class Part:
    """A dataclass; one of its fields is not shown."""

    amount: object
    whole: str = field(default="", repr=False)


class Plain:
    """An object that says nothing of itself but its address."""

    def __init__(self, text: object) -> None:
        self._text = text


class Bare:
    """The same, with nothing in it."""


class Table:
    """A collection that shows its ends only."""

    def __len__(self) -> int:
        return 1_000

    def __str__(self) -> str:
        return "1 ... 9"


class Colour(Enum):
    """A member."""

    RED = "red"


MADE: list[Callable[[object], object]] = [
    Path, lambda x: Query(text=x), lambda x: Query(text="x", more=x), lambda x: [Query(text=[x])],
    lambda x: Query(text="x", inner=str(x)), lambda x: {"rows": [Part(Decimal(str(x)))]},
    lambda x: Part(1, str(x)), Plain, lambda x: Plain(Plain(x)), lambda x: {Decimal(str(x)): 1},
    lambda x: deque([b"\xff" + str(x).encode()]), lambda x: timedelta(int(str(x))),
    lambda x: {(str(x), 1): 1},
]  # fmt: skip


@pytest.mark.parametrize("make", MADE)
def test_typed_values_are_told_apart_by_what_is_in_them(make: Callable[[object], object]) -> None:
    """And equal ones are equal, whatever their addresses are, alone and in others."""
    for within in (lambda one: one, lambda one: {"query": one, "n": [1]}):
        one, same, other = (as_data(within(make(x))) for x in ("1", "1", "2"))
        assert canonical(one) == canonical(same) != canonical(other)
        assert as_data(one) is one


def test_typed_values_are_told_as_they_are_shown() -> None:
    """What they hide stays hidden; data stays the very same, and what JSON knows as JSON has it."""
    shown = str(as_data([Query(text="x", inner="hidden"), Part(1, "hidden"), Plain("hidden")]))
    assert "hidden" not in shown
    assert "k3y" not in shown
    assert as_data(Query(text=Path("a/b"))) == {
        "text": "a/b", "limit": 3, "key": "**********", "inner": as_data(Part(1))["whole"],
    }  # fmt: skip
    known = {"at": date(2026, 1, 1), "of": Colour.RED, "ids": [1, {"a": None}]}
    assert as_data(known) is known
    mixed = as_data({**known, "path": Path("a")})
    assert mixed == {"at": "2026-01-01", "of": "red", "ids": [1, {"a": None}], "path": "a"}
    assert as_data(b"No results.") == "No results."


@pytest.mark.parametrize("make", [Bare, object, Table, lambda: Bare().__init__, lambda: iter([])])
def test_what_says_too_little_of_itself_is_told_apart(make: Callable[[], object]) -> None:
    """As another object; an address is never looked at, as it is soon that of the next."""
    kept = make()
    assert as_data(kept) != as_data(make())
    assert len({str(as_data({"of": make()})) for _ in range(20)}) == 20
    assert "0x" not in str(as_data(kept))


def test_an_object_is_known_again_as_long_as_it_lives() -> None:
    """A connection or a client that is an argument of each call."""
    kept, table = Bare(), Table()
    for one in (kept, table, len):
        assert as_data({"of": one}) == as_data({"of": one})


class Broken:
    """Raises whatever is asked of it."""

    def __getattribute__(self, name: str) -> object:
        raise RuntimeError(name)

    def __str__(self) -> str:
        raise RuntimeError


def test_no_value_fails_and_none_is_followed_for_ever() -> None:
    """Objects in a circle, many objects, and objects that raise: nothing equals those."""
    one, other = Plain(None), Plain(None)
    one._text, other._text = other, one
    tree: object = 1
    for _ in range(5):
        tree = Plain([tree] * 10)
    many = [Plain(number) for number in range(20_000)]
    for value in (one, many, tree, Broken(), [Broken()], {1: Broken()}):
        assert as_data(value) is not None
        assert canonical(as_data(value))
    assert as_data([Broken()]) != as_data([Broken()])
    assert as_data(tree) != as_data(tree)


def test_long_text_keeps_head_tail_and_length() -> None:
    """What is too long is told apart by its ends, its length, and what stands for its middle."""
    one, other = (b"x" * 5_000 + middle + b"x" * 5_000 for middle in (b"a", b"b"))
    assert len(bounded(one, 100)) < 130
    assert bounded(one, 100) != bounded(one + b"x", 100)
    assert bounded(one, 20_000) is one
    for form in (bytes, masked_call, masked_outcome):  # not even where that is masked like an id
        assert form(bounded(one, 1_000)) != form(bounded(other, 1_000))


def test_what_is_too_large_is_not_looked_at_to_its_end() -> None:
    """Too many items equal nothing; text that is too costly to parse stays text, all of it."""
    values = {(number, 1): number for number in range(20_000)}
    assert canonical(values) != canonical(values)
    assert canonical([b"a", *range(20_000)]) != canonical([b"a", *range(20_000)])
    for text in ("[1.0," + "[]," * 100_000 + "1]", '{"a":' * 3_000 + "1" + "}" * 3_000):
        assert parsed(text) is text
    assert parsed('{"page": "' + "a, b [c] " * 50_000 + '"}') == {"page": "a, b [c] " * 50_000}


def nonce(number: int) -> str:
    """A value in which letters and digits change about."""
    return f"{number}f{number}ab{number}c7"


def left(
    name: str,
    text: str = "{nonce}",
    outcome: Callable[[int], int | None] = lambda _: 1,
    more: Callable[[int], dict[str, object]] = lambda _: {"user": "u"},
) -> list[bool]:
    """Whether the argument is still part of each of ten calls."""
    volatile = VolatileArguments()
    found: list[bool] = []
    for n in range(10):
        value = text.format(n=n, nonce=nonce(n), third=nonce(n % 3))
        found.append(name in volatile.without(1, {**more(n), name: value}, outcome(n)))
    return found


OTHERS: list[dict[str, Any]] = [
    {"more": lambda n: {"user": n}}, {"outcome": lambda n: n}, {"outcome": lambda _: None},
    {"more": lambda _: {}},
]  # fmt: skip


@pytest.mark.parametrize("given", OTHERS, ids=["arguments", "answers", "unknown", "no other"])
def test_calls_that_differ_in_anything_else_teach_nothing(given: dict[str, Any]) -> None:
    """And the only argument is what is asked for."""
    assert all(left("zz", **given))


FIELDS = ("took", "elapsed", "duration", "latency", "uptime", "created_at", "updated_at",
          "timestamp", "request_id", "correlationid", "trace_id", "nonce")  # fmt: skip
UNITS = ("", "ms", "_us", "_ns", "s", "_sec", "_secs", "_seconds", "_time")


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", FIELDS)
def test_a_field_that_changes_by_itself_is_masked_however_it_is_written(
    name: str, unit: str
) -> None:
    """As JSON, as an assignment, within other text, and with the mark a space away."""
    for form in ('{"%s": %d}', "%s=%d", "ok, %s : %d", "'%s_': 5 then %s= %d"):
        names = (f"{name}{unit}",) * (form.count("%") - 1)
        one, other = (masked_outcome((form % (*names, each)).encode()) for each in (123, 4567))
        assert one == other


@given(st.text(max_size=300), st.integers(1, 400), st.sampled_from((1, 250, 5_000)))
def test_a_long_text_has_the_bytes_and_the_key_that_its_utf8_has(
    text: str, limit: int, times: int
) -> None:
    """Journals and other processes know it by them."""
    text = text.encode(errors="ignore").decode() * times
    assert key_of_text(text) == key_of(text.encode())
    assert bounded_text(text, limit * times) == bounded(text_bytes(text), limit * times)
    plain = text.encode("unicode_escape").decode()
    assert bounded_text(plain, limit * times) == bounded(text_bytes(plain), limit * times)


@pytest.mark.parametrize("zero", "٠۰०০੦૦୦௦౦೦൦๐໐༠၀០０")
def test_digits_of_every_script_are_digits(zero: str) -> None:
    """Between words of any script, and other marks of its own stay."""
    digits = "".join(chr(ord(zero) + each) for each in range(10))
    text = "nº {0} є 第{0}号 मे । ٪ ไม้๏"
    assert plain_digits(text.format(digits).encode()).decode() == text.format("0123456789")


@given(st.text(max_size=300))
def test_no_script_weighs_more_than_its_bytes(text: str) -> None:
    """And none nothing: what has a character has a letter."""
    raw = text.encode(errors="surrogatepass")
    assert bool(raw) <= size_of(raw) <= len(raw)
    assert not text.isascii() or size_of(raw) == len(text)


def of(value: object, limit: int = 1_000_000) -> Outcome:
    return outcome_of(Step(Kind.TOOL, "t", outcome=value), limit)


def test_missing_is_not_empty() -> None:
    """A long one is told by its head, its tail and its length; its size is bounded."""
    assert of(None).key is None
    assert of("").key is not None
    assert not says_nothing_found(of(None))
    assert not rejects(of(None))
    long = "x" * 50_000
    keys = {of(text, 1000).key for text in (long, long + "x", long + "y", "y" + long)}
    assert len(keys) == 4
    assert of(long, 1000).size < 1100


def test_words_of_a_long_answer_count_at_its_ends() -> None:
    """Nothing was found only where that is about all that is said."""
    long = "x" * 1000
    assert rejects(of(f"{long} 1 failed"))
    assert rejects(of(f"1 failed {long}"))
    assert not rejects(of(f"{long} 1 failed {long}"))
    assert not says_nothing_found(of("No results found. " + "But elsewhere there is a lot. " * 20))


def test_of_a_failed_call_its_error_is_the_outcome() -> None:
    """The error's text, or what came back if that is all there is."""
    failed = Step(Kind.TOOL, "t", outcome="partly", error=True, error_text="it broke")
    assert outcome_of(failed, 1000).key == of("it broke").key
    failed = Step(Kind.TOOL, "t", outcome="it broke", error=True)
    assert outcome_of(failed, 1000).key == of("it broke").key
    assert error_line(failed) == b"it broke"
    padded = Step(Kind.TOOL, "t", error=True, error_text="it broke: an error" + 9_000 * " ")
    assert error_line(padded) == b"it broke: an error"
    for said in (None, "  "):
        assert error_line(Step(Kind.TOOL, "t", error=True, outcome=said)) is None
    assert outcome_of(Step(Kind.TOOL, "t", error=True), 1000).key is None
    # A call that did not fail has no error, whatever its outcome says.
    assert error_class(Step(Kind.TOOL, "t", outcome="429")) is ErrorClass.UNKNOWN


PATTERNS = {
    f"{module.__name__}.{name}": each
    for module in (model_text, outcomes)
    for name, each in vars(module).items()
    if isinstance(each, PrefilteredPattern) and not each.pattern.flags & 2
}
PARTS = (
    "status", "build state", "phase", '": "', ": ", " = ", "running", "queued", "is done", "false",
    "HTTP/1.1 202", " accepted", "202", "not ready", "still going", "check back", "no new output",
    "3 minutes remaining", "no results", "not found", "nothing", "found", "12 failed", "incorrect",
    "tests fail", "not accepted", "score", "test_loss", "0.25", "7", "truncated", "...", "more",
    "10 more lines", "i'm not sure", "perhaps", "i apologize", "sorry about", "let me", "i will",
    "begin", "searching", "the weather", "\n", " ", " ", "_", "é", "\u2026", "\ud800",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS), max_size=8).map("".join)


@pytest.mark.parametrize("name", PATTERNS)
@given(text=TEXTS)
def test_the_outline_stands_wherever_the_pattern_does(name: str, text: str) -> None:
    """Also beside letters of other alphabets, and halves of letters."""
    one = PATTERNS[name]
    if one.pattern.flags & 256:
        text = text.encode("utf-8", "surrogatepass").decode("latin-1")
    assert one.may_match(text) or one.pattern.search(text) is None


@pytest.mark.parametrize("value", rows(__file__, "volatile"))
def test_a_volatile_value_is_masked_wherever_it_stands(value: str) -> None:
    """In a short text, in the middle of a long one, and at its very end."""
    long = "the weather is mild and " * 20
    for text in (f"at {value}", f"{long}{value} {long}.", long + value):
        outcome = outcome_of(Step(Kind.TOOL, "t", outcome=text), 10_000)
        assert outcome.masked == masked_outcome(text.encode()) != text.encode()
