"""Equal, cyclic and similar calls."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from otel_loopguard.detectors.repetition import Cycle
from tests.calls import Run, call
from tests.detectors.alone import STEPS, actions, alone, case, cases, evidence, told_of

ANSWER = "no results for weather in Paris"
MISSING = "cat: {}.py: No such file or directory"


def repeats(run: Run) -> list[str]:
    """What this detector led to."""
    return [found.action.value for found in run.decisions if found.detector == "exact_repeat"]


def test_three_equal_calls_with_an_equal_answer_give_a_hint() -> None:
    """The third repeat is noticed, at its own step, and says what was measured."""
    run = Run()
    assert run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(3)]) == ["hint"]
    (decision,) = run.decisions
    assert decision.step == 2
    assert decision.detector == "exact_repeat"
    assert decision.count == 3
    assert "3 times" in decision.message
    assert ANSWER not in decision.message


def test_a_stubborn_agent_is_denied_and_aborted() -> None:
    """hint at the third, deny with the next confirmation, abort after three more."""
    run = Run()
    run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(8)])
    assert run.actions == ["hint", "deny", "abort"]
    assert [decision.step for decision in run.decisions] == [2, 3, 6]
    assert len({decision.loop for decision in run.decisions}) == 1


def test_volatile_values_do_not_hide_a_loop() -> None:
    """A fresh request id in the arguments and a clock in the answer make no difference."""
    run = Run()
    for number in range(6):
        run.calls(
            call(
                args={"user": "u1", "request_id": f"r-{number:04d}"},
                outcome=f"not found (10:00:{number:02d}, {number + 3} ms)",
            )
        )
    assert run.actions[0] == "hint"
    assert run.decisions[0].step == 3  # masked repeats weigh 0.8 each


def test_a_nonce_of_unknown_name_is_learned() -> None:
    """An argument that is new in each of four otherwise equal calls is no part of the call."""
    steps = [call(args={"user": "u1", "zz": f"{n}f{n}ab{n}c7"}, outcome=ANSWER) for n in range(8)]
    assert actions(alone("exact_repeat", *steps))[:1] == ["hint"]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            [call("tail", {"f": "build.log"}, f"{4 * n}% done") for n in range(25)],
            id="polling whose answer changes",
        ),
        pytest.param(
            [call("read_output", {"session": 1}, f"bytes {n}") for n in range(25)],
            id="paging without a cursor",
        ),
        pytest.param(
            [call("read", {"path": "big.py", "offset": 200 * n}, f"chunk {n}") for n in range(25)],
            id="paging with an offset",
        ),
        pytest.param(
            [
                step
                for n in range(12)
                for step in (
                    call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"),
                    call("bash", {"command": "pytest -q"}, "1 failed, 3 passed in test_a.py"),
                )
            ],
            id="a test run again after an edit",
        ),
        pytest.param(
            [call("edit", {"path": f"m{n}.py", "old": "a", "new": "b"}, "ok") for n in range(25)],
            id="one change in many files",
        ),
        pytest.param(
            [call("job", {"id": 9}, "in_progress", at=30 * n) for n in range(20)],
            id="waiting for a pending job",
        ),
        pytest.param(
            [
                step
                for n in range(12)
                for step in (call("wait", {"seconds": 30}, "ok"), call("status", {}, f"step {n}"))
            ],
            id="a wait tool between checks",
        ),
        pytest.param([call(args={"q": "x"}, outcome=ANSWER) for _ in range(2)], id="only twice"),
        pytest.param(
            [call(args={"q": f"city {n}"}, outcome=ANSWER) for n in range(2)], id="other arguments"
        ),
    ],
)
def test_honest_work_is_left_alone(steps: list) -> None:
    """Progress, paging, verification and waiting are no repetition, and never stopped."""
    run = Run()
    run.calls(*steps)
    assert repeats(run) == []
    assert not any(found.action.stops for found in run.decisions)


def test_a_poll_without_a_pause_is_told_to_wait() -> None:
    """The same poll with no time between: the hint says how long to wait, nothing is stopped."""
    run = Run()
    run.calls(*[call("job", {"id": 9}, "in_progress", at=0.6 * n) for n in range(60)])
    assert run.actions == ["hint"]
    assert run.decisions[0].reason == "polled_too_soon"
    assert "Ask again after 10 seconds" in run.decisions[0].advice


@pytest.mark.parametrize("pause", [0.6, 6, 60])
def test_past_its_budget_a_wait_becomes_a_question(pause: float) -> None:
    """Whoever has waited for longer than `wait_budget_s` asks the user; no words stop it."""
    run = Run(Settings(wait_budget_s=70 * pause))
    run.calls(*[call("job", {"id": 9}, "in_progress", at=pause * n) for n in range(140)])
    assert run.actions[0] == "hint"
    assert run.actions[-1] == "ask"
    assert not any(found.action.stops for found in run.decisions)
    late = [found.step for found in run.decisions if found.reason == "waited_long"]
    assert min(late) > 70


def test_a_hint_says_how_often_and_how_long_it_was_asked() -> None:
    """Since the first such call, and not since the budget ended; and what helps who waits."""
    run = Run()
    run.calls(*[call("job", {"id": 9}, "in_progress", at=60 * n) for n in range(40)])
    found = run.decisions[0]
    assert found.message == (
        f"'job' was asked {found.step + 1} times in {found.step} minutes, and its 11-character "
        "answer is still the same"
    )
    assert found.advice.startswith(f"You have waited {found.step} minutes: ")


def test_missing_is_not_empty() -> None:
    """What was not captured is equal to nothing: no stop without outcomes, nothing without args."""
    unseen = Run()
    unseen.calls(*[call(args={"q": "x"}) for _ in range(30)])
    assert unseen.actions == ["hint"]
    assert unseen.decisions[0].reason == "identical_call_unseen_outcome"
    names = Run()
    names.calls(*[call() for _ in range(30)])
    assert names.actions == []
    outcomes = Run()
    outcomes.calls(*[call(outcome=ANSWER) for _ in range(30)])
    assert repeats(outcomes) == []
    assert not any(found.action.stops for found in outcomes.decisions)


def test_obeying_a_hint_clears_the_flag() -> None:
    """Another call takes the hint down; the ladder still remembers the loop."""
    run = Run()
    run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(3)])
    flag = run.guard.flag_of("run")
    assert flag is not None
    assert flag.control.action == "hint"
    run.calls(call(args={"q": "y"}, outcome="something else"))
    assert flag.control.action == "allow"
    run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(2)])
    assert run.actions == ["hint", "deny"]


def test_shadow_decides_and_never_raises_the_flag() -> None:
    """In shadow mode everything is noted and nothing is stopped."""
    run = Run(Settings(mode="shadow"))
    run.calls(*[call(args={"q": "x"}, outcome=ANSWER) for _ in range(8)])
    assert run.actions == ["hint", "deny", "abort"]
    assert all(decision.shadow for decision in run.decisions)
    flag = run.guard.flag_of("run")
    assert flag is not None
    assert flag.control.action == "allow"


def test_other_spans_in_between_do_not_matter() -> None:
    """Frameworks write one span per turn or twenty; only calls are counted."""
    run = Run()
    for _ in range(3):
        run.calls(*[Step(Kind.NODE, f"node {n}") for n in range(30)])
        run.calls(call(args={"q": "x"}, outcome=ANSWER))
    assert repeats(run) == ["hint"]


def test_a_change_by_an_exempt_tool_is_a_change() -> None:
    """A tool that is not judged may still bring the work on."""
    run = Run(Settings(exempt_tools=frozenset({"edit"})))
    for number in range(6):
        run.calls(
            call("edit", {"path": "a.py", "new": f"v{number}"}, "ok"),
            call("bash", {"command": "pytest -q"}, "1 failed, 3 passed in test_a.py"),
        )
    assert repeats(run) == []


def test_repeats_fade() -> None:
    """Forty other calls between two equal ones leave a little more than half."""
    between = iter(range(1000))

    def others() -> list[Step]:
        pages = [next(between) for _ in range(40)]
        return [call("read", {"page": n}, f"page {n} is of {n * 7919:x}") for n in pages]

    same = call(args={"q": "x"}, outcome=ANSWER)
    decisions = alone("exact_repeat", *[step for _ in range(6) for step in (same, *others())])
    assert decisions == []


def test_transient_errors_have_time() -> None:
    """The same failing call within a minute is a retry."""
    steps = [call(args={"q": "x"}, error="429 Too Many Requests", at=10 * n) for n in range(6)]
    assert alone("exact_repeat", *steps) == []
    assert actions(alone("exact_repeat", *steps, transient_budget_s=15))[:1] == ["hint"]


def test_critical_from_two_above_the_threshold() -> None:
    """The third is a warning; what is denied is critical, what is aborted fatal."""
    decisions = alone("exact_repeat", *[call(args={"q": "x"}, outcome=ANSWER) for _ in range(7)])
    assert [decision.severity.value for decision in decisions] == ["warning", "critical", "fatal"]


def test_no_rows_are_an_answer() -> None:
    """A map of an empty list is no bare acknowledgement, nor is one with a new id."""
    for answer in ('{"rows": []}', '{"sent": true, "id": "0d9f3a2e8b7c4d1f9a6e5b4c3d2f1a0b"}'):
        run = Run()
        run.calls(*[call("ask", {"q": 1}, answer) for _ in range(6)])
        assert run.decisions[0].reason == "identical_call"


def periods(symbols: list[int], **given: Any) -> list[int]:
    cycle = Cycle(Settings())
    found = [
        cycle.observe(evidence(index, call=symbol, **given)) for index, symbol in enumerate(symbols)
    ]
    return [detection.period for detection in found if detection]


def turns(number: int, pages: int = 3) -> list[Step]:
    """Pages that are read again and again in one order."""
    return [
        call("read", {"page": n % pages}, f"the text of page {n % pages} is this")
        for n in range(number)
    ]


@pytest.mark.parametrize("period", range(2, 17))
def test_every_period_to_sixteen_is_found(period: int) -> None:
    """A cycle is found within three turns, with its own period."""
    found = periods(list(range(period)) * 3)
    assert found[:1] == [period]


@pytest.mark.parametrize("period", range(2, 17))
def test_one_turn_is_no_cycle(period: int) -> None:
    """Doing a thing once more in the same order is not enough for short cycles."""
    turns = 2 if period < 9 else 1
    assert periods(list(range(period)) * turns) == []


def test_one_call_over_and_over_is_no_cycle() -> None:
    """A repeat has another detector."""
    assert periods([1] * 60) == []


def test_a_cycle_starts_anywhere() -> None:
    """What went before does not hide it."""
    assert periods([90, 91, 92, 1, 2, 3, 1, 2, 3, 1, 2, 3])[:1] == [3]


def test_a_cycle_is_broken_by_what_differs() -> None:
    """A different call, an unknown outcome or a new epoch is no part of the cycle."""
    assert periods([1, 2, 1, 2, 3, 1, 2, 1, 2, 4]) == []
    assert periods([1, 2] * 10, outcome=None) == []
    cycle = Cycle(Settings())
    steps = [evidence(index, call=1 + index % 2, epoch=index // 2) for index in range(40)]
    assert [cycle.observe(step) for step in steps] == [None] * 40


def test_a_stubborn_cycle_is_denied_and_aborted() -> None:
    """The hint comes after the third turn; each round that still shows the cycle climbs."""
    steps = [call("bash", {"command": f"cat {n % 3}.py"}, MISSING.format(n % 3)) for n in range(18)]
    decisions = alone("cycle", *steps)
    assert actions(decisions) == ["hint", "deny", "abort"]
    assert 8 <= decisions[0].step <= 9
    assert {decision.period for decision in decisions} == {3}
    assert len({decision.loop for decision in decisions}) == 1


def test_a_cycle_of_guessed_calls_weighs_less() -> None:
    """What rests on a value that only looks volatile is found later, and stops later."""
    found = {}
    for guessed in (True, False):
        cycle = Cycle(Settings())
        calls = [evidence(n, call=n % 3, guessed=guessed) for n in range(18)]
        found[guessed] = [one for one in map(cycle.observe, calls) if one]
    assert 0 < len(found[True]) < len(found[False])
    assert found[True][-1].weight < found[False][-1].weight == 1.0


def test_waits_are_passed_over() -> None:
    """A wait between the calls of a cycle neither hides it nor is part of it."""
    cycle = Cycle(Settings())
    steps = [
        step
        for number, symbol in enumerate([1, 2, 3] * 3)
        for step in (
            evidence(2 * number, call=symbol),
            evidence(2 * number + 1, call=9, waits=True),
        )
    ]
    assert [one.period for one in map(cycle.observe, steps) if one] == [3]


def test_parallel_duplicates_are_one_call() -> None:
    """A call that is made twice in one round does not break the cycle."""
    cycle = Cycle(Settings())
    steps = [
        evidence(2 * number + twin, call=symbol, round=number)
        for number, symbol in enumerate([1, 2, 3] * 3)
        for twin in (0, 1)
    ]
    assert [one.period for one in map(cycle.observe, steps) if one] == [3]


@pytest.mark.parametrize(
    ("settings", "pages", "first"),
    [
        pytest.param({"tuning": {"calls": {"cycle_repeats": 5}}}, 3, 14, id="more turns"),
        pytest.param({"tuning": {"calls": {"cycle_repeats": 2}}}, 3, 6, id="fewer turns"),
        pytest.param({"tuning": {"calls": {"cycle_max_period": 4}}}, 4, 9, id="longest period"),
    ],
)
def test_the_settings_say_when(settings: dict[str, Any], pages: int, first: int) -> None:
    """`tuning.calls.cycle_repeats` turns of at most `tuning.calls.cycle_max_period` calls."""
    decisions = alone("cycle", *turns(40, pages), **settings)
    assert decisions[0].step == first


def test_a_user_turn_halves_it() -> None:
    """What went round before a user spoke counts half."""
    user = Step(Kind.OTHER, "user", text="again, please")
    assert actions(alone("cycle", *turns(8), user, *turns(12)[8:9])) == []
    assert actions(alone("cycle", *turns(9)))[:1] == ["hint"]


def test_a_press_and_a_picture_that_is_left_out_are_not_stopped() -> None:
    """None of their answers says anything."""
    run = Run()
    for _ in range(40):
        run.calls(call("press_key", {"key": "tab"}, "ok"), call("take_screenshot", {}, "<image>"))
    assert set(run.actions) == {"hint"}


ASKED = "what is the population of the {} city of Lisbon in Portugal today"
MORE = "population Lisbon Portugal today exact official census latest total number people".split()
OTHERS = [
    "population of Lisbon by year", "rivers that flow through Portugal",
    "who founded the oldest university", "when was the great earthquake",
    "best known writers of that time", "how large is the harbour now",
    "which bridges cross the Tagus",
]  # fmt: skip
WORDS = "quick slow simple long deep broad early late".split()
SOME = [f"Lisbon Portugal census {word} {word}ness" for word in WORDS]
SAID = "Lisbon is the capital of Portugal, and its largest city; it lies on the Tagus."
USER = Step(Kind.OTHER, "user", text="and of the next city?")


def asked(word: str, tool: str = "search", said: object = SAID) -> Step:
    """A question that differs from the others in one word."""
    return call(tool, {"query": ASKED.format(word)}, said)


def found(*steps: Step, **settings: Any) -> list[tuple[int, str]]:
    """Step and action of each decision of this detector."""
    decisions = alone("similar_repeat", *steps, **settings)
    return [(decision.step, decision.action.value) for decision in decisions]


@pytest.mark.parametrize(
    ("texts", "said", "settings", "first"),
    [
        pytest.param([ASKED.format(word) for word in WORDS], SAID, {}, 3, id="one word differs"),
        pytest.param([" ".join(MORE[:n]) for n in range(5, 12)], SAID, {}, 3, id="more words"),
        pytest.param([" ".join(MORE[:n]) for n in range(5, 12)], None, {}, 3, id="all is new"),
        pytest.param(
            [" ".join(MORE[n:] + MORE[:n]) for n in range(8)], None, {}, 3, id="in another order"
        ),
        pytest.param(SOME, SAID, {}, 3, id="half of the words, and nothing new"),
        pytest.param(SOME, None, {}, None, id="half of the words, and news"),
        pytest.param(OTHERS, SAID, {}, None, id="other questions"),
        pytest.param(
            [ASKED.format(word) for word in WORDS], SAID, {"similar_threshold": 5}, 4, id="more"
        ),
        pytest.param(
            [ASKED.format(word) for word in WORDS],
            SAID, {"tools": {"search": {"similar_threshold": 5}}}, 4, id="more for this tool",
        ),
        pytest.param(
            [ASKED.format(word) for word in WORDS], SAID, {"sensitivity": 2}, 1, id="sensitive"
        ),
    ],
)  # fmt: skip
def test_four_questions_in_the_same_words(
    texts: list[str], said: str | None, settings: dict[str, Any], first: int | None
) -> None:
    """Among six; the fewer words need be common the less is new; then another way is asked for."""
    steps = [
        call("search", {"query": text}, said or f"Page {n} is of {n * 7919:x}, see {n * 104729:x}")
        for n, text in enumerate(texts)
    ]
    decisions = alone("similar_repeat", *steps, **settings)
    assert actions(decisions)[:2] in ([], ["hint"], ["hint", "steer"])
    assert next((one.step for one in decisions), None) == first
    for one in decisions:
        assert one.message == f"'search' was asked {one.count:g} times in nearly the same words"


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            [
                asked(word, said=f"Page {n} tells of subject {n * 7919:x}; see chapter {n}.")
                for n, word in enumerate(WORDS * 3)
            ],
            id="each answer is new",
        ),
        pytest.param([asked(word, said=None) for word in WORDS * 3], id="answers not captured"),
        pytest.param(
            [asked(word, tool="update_note") for word in WORDS * 3], id="calls that change things"
        ),
        pytest.param(
            [asked(word, tool="frobnicate") for word in WORDS * 3], id="calls of unknown effect"
        ),
        pytest.param(
            [
                call("bash", {"command": f"grep -r the {word} city of Lisbon docs"}, SAID)
                for word in WORDS * 3
            ],
            id="commands that the agent wrote",
        ),
        pytest.param(
            [call("get_user", {"id": f"user-{n}", "full": True}, SAID) for n in range(24)],
            id="the same asked of many items",
        ),
        pytest.param(
            [
                step
                for n, word in enumerate(WORDS * 3)
                for step in (asked(word), call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"))
            ],
            id="a change in between",
        ),
    ],
)
def test_similar_honest_work_is_left_alone(steps: list[Step]) -> None:
    """News, changes, items of a list and other questions are no repetition."""
    assert found(*steps) == []


def test_failures_do_not_count() -> None:
    """What fails has another detector."""
    steps = [asked(word, said=None) for word in WORDS * 2]
    for step in steps:
        step.error, step.error_text = True, "the index is not there"
    assert found(*steps) == []


def test_a_user_begins_anew() -> None:
    """What was asked before was asked for something else."""
    steps = [asked(word) for word in WORDS]
    assert found(*steps[:3], USER, *steps[3:6]) == []


TOLD = {
    "all": [
        # A JSON text and the equal map are one call.
        case("keys in another order and a json text are the same call", "identical_call: 2 hint",
             call(args={"a": 1, "b": 2}, outcome=ANSWER), call(args='{"b": 2, "a": 1}',
             outcome=ANSWER), call(args={"b": 2.0, "a": 1}, outcome=ANSWER)),
        # Never "in a row": a loop is seen through good calls in between, though later.
        case("other calls may sit between", "same_verdict: 20 hint",
             *[step for number in range(12) for step in (call("pytest", args={"x": 1},
             outcome="1 failed, as always, in test_a.py"), call("read",
             args={"path": f"f{number}.py"}, outcome=f"content {number}"))]),
        # A fan-out of equal calls is waste, no loop.
        case("parallel calls of one round count once", "",
             *[call(args={"q": "x"}, outcome=ANSWER, at=0.001 * n, took=1) for n in range(6)]),
        # A tool can be taken out by name.
        case("exempt tools are never judged", "", *[call(args={"q": "x"}, outcome=ANSWER)
             for _ in range(30)], exempt_tools=frozenset({"search"})),
        # read, edit (no match), test: nothing changes, and it is noticed.
        case("the same edit that never works is a cycle", "identical_call: 8 hint, 9 hint, 10 hint",
             *[step for _ in range(4) for step in (call("bash", {"command": "cat a.py"},
             "def a(): return 1"), call("edit", {"path": "a.py", "old": "x", "new": "y"},
             "no match for old text"), call("bash", {"command": "pytest -q"},
             "1 failed, 2 passed"))]),
    ],
    "exact_repeat": [
        # Where half or more of the calls in between were new, nothing is stopped.
        case("a loop beside work that goes on hints at most", "identical_call: 24 hint",
             *[step for n in range(20) for step in (call("status", {"id": 1},
             "the build of today is what it was"), call("read", {"page": n},
             f"page {n} is about subject {n * 7919:x}"))]),
        # Nobody can tell whether it waits, so nothing is stopped.
        case("without a clock a pending answer hints at most", "polled_too_soon: 4 hint",
             *[call("job", {"id": 9}, "in progress") for _ in range(20)]),
        # Twice the same, then another: that was progress.
        case("another answer begins anew", "",
             *[call(args={"q": "x"}, outcome=f"{ANSWER}, {n // 2}") for n in range(30)]),
    ],
    "cycle": [
        # `tuning.calls.cycle_max_period` bounds what is kept.
        case("a cycle longer than the longest is not looked for", "",
             *turns(60, 5), tuning={"calls": {"cycle_max_period": 4}}),
    ],
}  # fmt: skip
"""What one detector tells by itself, of so many steps; nothing of honest work."""


@pytest.mark.parametrize(STEPS, cases(TOLD))
def test_what_is_told(
    detector: str, told: str, steps: list[Step], settings: dict[str, Any]
) -> None:
    """Reason, step and action of each decision."""
    assert told_of(alone(detector, *steps, **settings)) == told
