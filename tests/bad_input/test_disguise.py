"""Loops that were made to look like something else, and what comes of them.

12 equal calls, every one dressed up as below; the strongest action.

| disguise                                          | action | found by     |
| ------------------------------------------------- | ------ | ------------ |
| another UUID, time, duration or process in answer | deny   | exact_repeat |
| another value of `nonce` or `reason`              | abort  | exact_repeat |
| a random id under a name that nobody knows        | hint   | exact_repeat |
| order of keys, `1` for `1.0`, JSON text for a map | abort  | exact_repeat |
| two wordings of the answer by turns               | abort  | cycle        |
| upper and lower case by turns                     | abort  | exact_repeat |
| a new call without meaning in between (13 calls)  | hint   | exact_repeat |
| a comment or space in the arguments               | hint   | found_nothing, stagnation |
| a counter in the arguments                        | none   |              |
| a query with one other word of seven              | steer  | similar_repeat |
| a query with one other word of four               | hint   | found_nothing, stagnation |
| a counter in the answer (it may be progress)      | none   |              |
| another word in every answer                      | none   |              |
| one more zero-width space in every answer         | none   |              |
| the same arguments for ever new tools             | hint   | found_nothing, tool_shopping |

What is not found ends with other bounds: those of the framework, of tokens and of time. A counter
in an answer is the price of `37 %` -> `41 %` being progress. What is masked may be news, so that an
abort comes with the fourteenth call then.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.calls import Run, call

if TYPE_CHECKING:
    from otel_loopguard.core import Step

WORDS = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu".split()
NOTHING = "nothing found at all here"


def asked(number: int, args: object = None, outcome: str = NOTHING, tool: str = "search") -> Step:
    """One of the twelve calls."""
    return call(tool, {"q": "x"} if args is None else args, outcome, at=number * 2)


def some_id(number: int) -> int:
    """Random, and the same in every run."""
    return random.Random(number).getrandbits(128)


DISGUISES: dict[str, tuple[str, Callable[[int], Step]]] = {
    "UUID in answer": (
        "deny",
        lambda n: asked(n, outcome=f"{NOTHING}, request {uuid.UUID(int=some_id(n))}"),
    ),
    "time in answer": ("deny", lambda n: asked(n, outcome=f"{NOTHING} 2024-05-01T12:{n:02d}:07Z")),
    "duration in answer": ("deny", lambda n: asked(n, outcome=f"{NOTHING} (took {n * 7 + 1} ms)")),
    "process in answer": ("deny", lambda n: asked(n, outcome=f"{NOTHING}, pid={1000 + n}")),
    "nonce": ("abort", lambda n: asked(n, {"q": "x", "nonce": f"{some_id(n):x}"})),
    "reason": ("abort", lambda n: asked(n, {"q": "x", "reason": f"for {WORDS[n]}"})),
    "random id under a new name": (
        "hint",
        lambda n: asked(n, {"q": "x", "rid": f"r{some_id(n) % 2**40:x}z9"}),
    ),
    "order of keys": (
        "abort",
        lambda n: asked(n, '{"a":1, "b":2}' if n % 2 else {"b": 2, "a": 1.0}),
    ),
    "two wordings": (
        "abort",
        lambda n: asked(n, outcome=f"{'Sorry' if n % 2 else 'Alas'}, {NOTHING}"),
    ),
    "case": ("abort", lambda n: asked(n, {"q": "LOOK" if n % 2 else "look"})),
    # As one of many items: a hint from the fifteenth.
    "counter in arguments": ("none", lambda n: asked(n, {"q": "x", "n": n})),
    "space in arguments": ("hint", lambda n: asked(n, {"q": "x" + " " * n})),
    "comment in a command": (
        "hint",
        lambda n: asked(n, {"command": f"ls /data # {WORDS[n]}"}, tool="bash"),
    ),
    "query with one other word of seven": (
        "steer",
        lambda n: asked(n, {"q": f"price of green tea leaves per {WORDS[n]}"}),
    ),
    "query with one other word of four": (
        "hint",
        lambda n: asked(n, {"q": f"price of tea {WORDS[n]}"}),
    ),
    "counter in answer": ("none", lambda n: asked(n, outcome=f"{NOTHING}, attempt {n}")),
    "word in answer": ("none", lambda n: asked(n, outcome=f"{NOTHING} {WORDS[n]}")),
    "zero-width space": ("none", lambda n: asked(n, outcome=NOTHING + "\u200b" * n)),
    "ever new tools": ("hint", lambda n: asked(n, tool=f"search{n}")),
}


@pytest.mark.parametrize(("strongest", "make"), DISGUISES.values(), ids=DISGUISES.keys())
def test_what_comes_of_a_disguise(strongest: str, make: Callable[[int], Step]) -> None:
    """As the table says; it changes only together with this test."""
    run = Run()
    run.calls(*(make(number) for number in range(12)))
    ranked = sorted(run.decisions, key=lambda decision: decision.action.rank)
    assert (ranked[-1].action.value if ranked else "none") == strongest


def test_calls_without_meaning_in_between_hide_nothing() -> None:
    """An echo after each call, always another one, looks like work that goes on beside it."""
    run = Run()
    for number in range(13):
        run.calls(asked(number * 2), asked(number * 2 + 1, {"n": number}, f"{number}", "echo"))
    assert run.actions == ["hint"]


def test_what_says_that_it_is_ours_changes_nothing() -> None:
    """Texts that name our own attributes, actions and masks are texts."""
    ours = '{"loopguard.decision.action": "allow", "x": "#"} [Scrubbed due to nothing] \0#|9|#'
    plain = '{"weather.tomorrow.morning": "sunny", "x": "y"} [Measured close to harbour] (a|b|c)'
    found = []
    for text in (ours, plain):
        run = Run()
        run.calls(*(asked(number, {"q": text}, text) for number in range(20)))
        found.append([(one.action.value, one.detector, one.step) for one in run.decisions])
    assert found[0] == found[1]
    assert [action for action, _, _ in found[0]] == ["hint", "hint", "deny", "abort"]
