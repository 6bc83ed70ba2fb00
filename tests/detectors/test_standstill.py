"""Different calls that get the run no further."""

from __future__ import annotations

import re
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Effect, Kind, Step
from otel_loopguard.detectors.standstill import Sweep
from tests.calls import Run, call
from tests.detectors.alone import STEPS, actions, alone, case, cases, evidence, told_of

LONG = "No results were found. Please try again with other words."


def test_three_different_questions_with_one_long_answer_give_a_hint() -> None:
    """The tool has nothing more to say, and the agent is told so."""
    run = Run()
    run.calls(*[call("grep", {"pattern": f"p{n}"}, LONG) for n in range(3)])
    assert run.actions == ["hint"]
    assert run.decisions[0].detector == "stagnation"
    assert "3 different calls" in run.decisions[0].message


def test_it_never_stops_anything() -> None:
    """Questions without an answer may be honest research."""
    steps = [call("grep", {"pattern": f"p{n}"}, LONG) for n in range(40)]
    assert actions(alone("stagnation", *steps)) == ["hint"]
    run = Run()
    run.calls(*steps)
    assert set(run.actions) == {"hint"}


@pytest.mark.parametrize("answer", ["rainy", "[]", "False", "ok"])
def test_short_answers_coincide(answer: str) -> None:
    """Four cities may well have the same weather."""
    run = Run()
    assert run.calls(*[call("weather", {"city": n}, answer) for n in range(4)]) == []


def test_equal_answers_to_changes_are_normal() -> None:
    """Many edits are answered alike."""
    run = Run()
    done = "The file was written, and no problem was found in it at all."
    assert run.calls(*[call("write_file", {"path": n}, done) for n in range(30)]) == []


def test_a_tool_of_unknown_effect_is_left_alone() -> None:
    """When in doubt a call may have changed something."""
    run = Run()
    done = "It went well, and there is nothing else to be said about it."
    steps = [call("frobnicate", {"what": n}, done) for n in range(30)]
    assert alone("stagnation", *steps) == []
    run.calls(*steps)
    assert not any(found.action.stops for found in run.decisions)


def test_a_short_answer_to_other_questions_counts_less() -> None:
    """As much less as it is shorter than fifty characters."""
    words = "the first part,of what and why,who said so,in which year,really,how old".split(",")
    first: list[int] = []
    for said in ("it is a secret", "it is a well kept secret of ours", "nobody knows it" * 4):
        steps = [call("lookup", {"q": f"{word} {word[::-1]}"}, said) for word in words]
        first += [one.step for one in alone("stagnation", *steps)] or [99]
    assert first == [99, 4, 2]


def test_a_user_turn_halves_it() -> None:
    """What a user asked for before counts half."""
    steps = [call("grep", {"pattern": f"p{n}"}, LONG) for n in range(3)]
    user = Step(Kind.OTHER, "user", text="look for the others too")
    assert actions(alone("stagnation", *steps)) == ["hint"]
    assert alone("stagnation", *steps[:2], user, steps[2]) == []


TEXTS = (
    "I will look at the file with care and tell what stands in it",
    "then I shall compare both of the tables by their dates",
    "the answer has to be the sum of the last three columns",
    "to be sure I check the result once more from the start",
    "now the final answer can be written down in one line",
)
USER = Step(Kind.OTHER, "user", text="go on")


def printed(text: str, said: str | None = None) -> Step:
    """A program that prints a text."""
    return call("python", {"code": f"print('{text}')"}, text if said is None else said)


def test_three_programs_that_print_their_own_text_give_a_hint() -> None:
    """It looks busy and learns nothing; it is told so once, and never stopped."""
    decisions = alone("found_nothing", *[printed(text) for text in TEXTS])
    assert actions(decisions) == ["hint"]
    assert decisions[0].step == 2
    assert decisions[0].message == (
        "'python' gave back what it was given, and nothing else: 3 calls brought nothing"
    )


def test_echo_a_user_turn_halves_it() -> None:
    """What was printed before a user spoke counts half."""
    steps = [printed(text) for text in TEXTS]
    assert alone("found_nothing", *steps[:2], USER, steps[2]) == []


WORDS = "parser lexer token grammar syntax tree node leaf branch root".split()


def searched(word: str, said: str | None = "No results found.", **given: Any) -> Step:
    """A search for one word."""
    return call("search", {"q": word}, said, **given)


def test_four_searches_that_find_nothing_give_a_hint() -> None:
    """The agent is told once, and never stopped: to look may be what was asked for."""
    decisions = alone("found_nothing", *[searched(word) for word in WORDS])
    assert actions(decisions) == ["hint"]
    assert decisions[0].step == 3
    assert decisions[0].message == "4 different calls, of 'search' the last, found nothing"


@pytest.mark.parametrize(
    "said",
    [
        "No results found for parser.",
        "0 matches",
        "no such table",
        "Nothing found",
        "No files matching the pattern were found",
        "The query returned no rows",
        "empty set",
        "did not match any documents",
        '{"total": 0, "message": "no records found"}',
    ],
)
def test_nothing_is_said_in_many_words(said: str) -> None:
    """Tools have many ways to say it, and each may say it in its own."""
    assert actions(alone("found_nothing", *[searched(word, said) for word in WORDS])) == ["hint"]


def test_found_nothing_a_user_turn_halves_it() -> None:
    """What was looked for before a user spoke counts half."""
    steps = [searched(word) for word in WORDS]
    assert alone("found_nothing", *steps[:3], USER, steps[3]) == []


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"tuning": {"calls": {"nothing_threshold": 2}}}, 1),
        ({"tuning": {"calls": {"nothing_threshold": 6}}}, 5),
        ({"sensitivity": 0.5}, 7),
    ],
    ids=["fewer", "more", "less sensitive"],
)
def test_found_nothing_the_settings_say_when(settings: dict[str, Any], first: int) -> None:
    """`tuning.calls.nothing_threshold` searches, divided by `sensitivity`."""
    decisions = alone("found_nothing", *[searched(word) for word in WORDS], **settings)
    assert decisions[0].step == first


ROOMS = (
    "the door to the south is shut, and so is its lock",
    "the window above the desk is shut, and it is dark",
    "nobody is here, and nobody has been for some time",
)


def looked(number: int, said: str | None = None) -> Step:
    """A call that nobody made before, with an answer that was there before."""
    return call("look", {"at": number}, ROOMS[number % 3] if said is None else said)


def test_answers_that_were_all_given_before_give_a_hint() -> None:
    """All calls differ, and so do the answers; nothing of them is new. Never more than a hint."""
    decisions = alone("nothing_new", *[looked(n) for n in range(60)])
    assert actions(decisions) == ["hint"]
    # The first answers are new, and of a tool that always says the same none counts.
    assert decisions[0].step == 24
    assert decisions[0].message == "22 of the last 24 answers were given before in this run"


def test_a_user_begins_anew() -> None:
    """What was asked before was asked for something else."""
    steps = [looked(n) for n in range(36)]
    assert alone("nothing_new", *steps[:18], USER, *steps[18:]) == []


def ran(command: str, said: object = "") -> Step:
    """A command and what it said."""
    return call("bash", {"command": command}, said)


NOTHING = [
    ran(":"),
    ran(": ls -la /app", "(Bash completed with no output)"),
    ran('echo "test"', "test"),
    ran(">>> {", ""),
    ran("# now the tests", {"exit_code": 0, "stdout": "", "stderr": ""}),
    ran("", "Your command ran successfully and did not produce any output."),
    ran("true"),
]


def test_commands_that_do_nothing_are_equal_to_each_other() -> None:
    """Whatever stands behind the colon."""
    decisions = alone("idle_command", *NOTHING)
    assert [(decision.step, decision.action) for decision in decisions] == [
        (3, "hint"), (4, "deny"),
    ]  # fmt: skip
    assert decisions[0].reason == "does_nothing"


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(ran(": ls && ls", "a.py"), id="more behind it"),
        pytest.param(ran(": > a.txt"), id="empties a file"),
        pytest.param(ran(": ${FROB:=$(date)}"), id="runs something inside"),
        pytest.param(ran("echo $PATH", "/bin"), id="asks for a value"),
        pytest.param(ran("echo hello > a.txt"), id="writes a file"),
        pytest.param(ran("echo x | md5sum", "abc"), id="feeds another"),
        pytest.param(ran("grep -rn frob src"), id="finds nothing"),
        pytest.param(ran("mkdir -p out"), id="says nothing"),
        pytest.param(ran(":", None), id="not captured"),
        pytest.param(call("search", {"query": "..."}, ""), id="no shell"),
    ],
)
def test_honest_commands_are_left_alone(step: Step) -> None:
    """Whatever reads, writes or runs something does something."""
    assert alone("idle_command", *[step] * 8) == []


FLAT = (0.71, 0.74, 0.72, 0.73, 0.74, 0.72, 0.71, 0.73)


def trained(*scores: float, said: str = "accuracy: {}") -> list[Step]:
    """One try for each score, each with other arguments."""
    return [
        call("train", {"rate": n / 100, "layers": 2}, said.format(score))
        for n, score in enumerate(scores)
    ]


@pytest.mark.parametrize(
    "said",
    ["accuracy: {}", "epoch 9\nval_loss={} (best)", "score: {}\n", "mean error = {}", "F1: {}"],
)
def test_six_tries_without_a_better_number_are_noted(said: str) -> None:
    """Higher or lower, whichever is better; and nothing else follows."""
    decisions = alone("no_better_score", *trained(*FLAT, said=said))
    assert [(one.step, one.action) for one in decisions] == [(7, "allow")]
    assert decisions[0].message == "a number that 'train' measures was no better in 6 tries"


TEST = {"command": "cd /app && pytest -q tests"}


def edit(number: int, file: str = "/app/a.py", named: str = "file_path") -> Step:
    return call("edit", {named: file, "old": "x", "new": f"x = {number}"}, "ok")


def failing(number: int) -> Step:
    return call("bash", TEST, error=f"Exit code 1\nAssertionError: got {number}")


def tried(times: int, named: str = "file_path") -> list[Step]:
    """Edits of one file, the test failing after each."""
    return [step for n in range(times) for step in (edit(n, named=named), failing(n))]


@pytest.mark.parametrize("named", ["file_path", "path", "filename"])
def test_twelve_edits_with_failures_between_give_a_hint(named: str) -> None:
    """By whatever name the tool is told the file; more of them lead no further."""
    decisions = alone("repeated_edit", *tried(30, named))
    assert [(one.step, one.action) for one in decisions[:1]] == [(22, "hint")]
    assert set(actions(decisions)) == {"hint"}
    assert decisions[0].message == (
        "one file was edited 12 times, and what was tried after each edit failed"
    )


def test_an_answer_that_turns_down_counts_as_a_failure() -> None:
    """A tool that runs the tests need not raise."""
    said = "The program did not pass"
    steps = [step for n in range(12) for step in (edit(n), call("run_tests", {"n": n}, said))]
    assert actions(alone("repeated_edit", *steps)) == ["hint"]


def test_edits_the_setting_says_when() -> None:
    """`tuning.calls.edit_threshold` edits."""
    decisions = alone("repeated_edit", *tried(6), tuning={"calls": {"edit_threshold": 4}})
    assert decisions[0].step == 6


VERDICT = "2 tests did not pass: test_a, test_b"


def guesses(times: int, said: str = VERDICT, **given: Any) -> list[Step]:
    """A change and a check, over and over."""
    return [
        step
        for n in range(times)
        for step in (
            call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"),
            call("run_tests", {"at": n}, said, **given),
        )
    ]


def test_six_equal_verdicts_give_a_hint() -> None:
    """It is told once, and left at that for long."""
    steps = [call("run_tests", {"at": n}, VERDICT) for n in range(19)]
    decisions = alone("same_verdict", *steps)
    assert actions(decisions) == ["hint"]
    assert decisions[0].step == 5
    assert decisions[0].message == (
        "'run_tests' turned down what was tried 6 times with an equal 36-character answer"
    )


def test_what_cannot_be_reached_turned_nothing_down() -> None:
    """An error says nothing about what was tried."""
    said = "Error: connection to 10.0.0.5, port 5432 failed: refused"
    decisions = alone("same_verdict", *[call("query_db", {"of": n}, said) for n in range(30)])
    assert re.fullmatch(
        r"'query_db' failed \d+ times with an equal 56-character answer", decisions[0].message
    )


def test_the_same_check_without_a_change_is_half_a_try() -> None:
    """Nothing was tried in between."""
    steps = [call("look_at_tests", {}, VERDICT) for _ in range(20)]
    assert alone("same_verdict", *steps)[0].step == 10


def test_a_clock_in_the_verdict_does_not_hide_it() -> None:
    """Volatile values are masked, a number of failures is not."""
    steps = [call("run_tests", {"at": n}, f"3 failed, 2 passed in {n + 1}.{n}1s") for n in range(8)]
    assert actions(alone("same_verdict", *steps)) == ["hint"]
    steps = [call("run_tests", {"at": n}, f"{20 - n} failed, 2 passed") for n in range(12)]
    assert alone("same_verdict", *steps) == []


def test_same_verdict_a_user_turn_halves_it() -> None:
    """What was tried before a user spoke counts half."""
    steps = guesses(7)
    assert alone("same_verdict", *steps[:10], USER, *steps[10:]) == []


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"tuning": {"calls": {"verdict_threshold": 3}}}, 5),
        ({"tuning": {"calls": {"verdict_threshold": 8}}}, 15),
        ({"sensitivity": 2}, 5),
    ],
    ids=["fewer", "more", "more sensitive"],
)
def test_same_verdict_the_settings_say_when(settings: dict[str, Any], first: int) -> None:
    """`tuning.calls.verdict_threshold` verdicts, divided by `sensitivity`."""
    assert alone("same_verdict", *guesses(12), **settings)[0].step == first


def test_guesses_typed_by_hand_climb_from_twenty_on() -> None:
    """Who types in one password after another does not stop by being told so."""
    steps = [call("unlock", {"password": f"secret{n}"}, "Wrong password?") for n in range(30)]
    decisions = alone("same_verdict", *steps)
    assert [(decision.step, decision.action) for decision in decisions] == [
        (5, "hint"), (19, "deny"),
    ]  # fmt: skip


def page(place: object, name: str = "offset", tool: str = "read", **more: object) -> Step:
    """A page of a file; what it says is new each time."""
    page.said += 1  # type: ignore[attr-defined]
    said = f"chunk {page.said} tells of {page.said * 7919:x}"  # type: ignore[attr-defined]
    return call(tool, {"path": "a.py", name: place, **more}, said)


page.said = 0  # type: ignore[attr-defined]


def places(*found: float, **given: Any) -> list[int]:
    """Where a detector of its own finds that a place was read again."""
    sweep = Sweep(Settings())
    steps = [evidence(n, place=(1, place), **given) for n, place in enumerate(found)]
    return [n for n, step in enumerate(steps) if sweep.observe(step)]


@pytest.mark.parametrize("name", ["offset", "page", "start_line", "cursor", "skip"])
def test_a_sweep_that_wraps_around_is_noticed(name: str) -> None:
    """Shifted by half a page every answer is new, and still the range is read again."""
    steps = [page(100 * (n % 10) + 50 * (n // 10), name) for n in range(30)]
    decisions = alone("sweep", *steps)
    assert actions(decisions) == ["hint"]
    assert decisions[0].step == 17
    assert decisions[0].reason == "read_again"
    assert decisions[0].message == "'read' read 8 places again that it had read through before"


def test_the_same_places_count_too() -> None:
    """Eight places that were read before, after the first step back."""
    assert places(*[n % 10 for n in range(20)]) == [17, 18, 19]


def test_a_search_that_halves_a_range_is_no_sweep() -> None:
    """What lies between two places that are far apart was not read."""
    assert places(0, 1000, 500, 250, 375, 312, 343, 328, 335, 339, 341, 342) == []


def test_waits_and_writes_do_not_count() -> None:
    """Neither asks for a place of a range."""
    wrapped = [n % 10 for n in range(40)]
    assert places(*wrapped, waits=True) == []
    assert places(*wrapped, effect=Effect.WRITE) == []


def test_sweep_a_user_begins_anew() -> None:
    """What was read before was read for something else."""
    steps = [page(100 * (n % 10) + 50 * (n // 10)) for n in range(18)]
    assert actions(alone("sweep", *steps)) == ["hint"]
    assert alone("sweep", *steps[:10], USER, *steps[10:]) == []


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        ({"tuning": {"calls": {"sweep_threshold": 3}}}, 12),
        ({"tuning": {"calls": {"sweep_threshold": 9}}}, 18),
        ({"sensitivity": 2}, 13),
    ],
    ids=["fewer", "more", "more sensitive"],
)
def test_sweep_the_settings_say_when(settings: dict[str, Any], first: int) -> None:
    """`tuning.calls.sweep_threshold` places, divided by `sensitivity`."""
    steps = [page(100 * (n % 10) + 50 * (n // 10)) for n in range(30)]
    assert alone("sweep", *steps, **settings)[0].step == first


def test_memory_is_bounded() -> None:
    """Of a thousand ranges sixteen are remembered, of one range 256 places."""
    sweep = Sweep(Settings())
    for n in range(1000):
        sweep.observe(evidence(n, place=(n, float(n))))
    assert len(sweep._ranges) == 16  # pyright: ignore[reportPrivateUsage]
    for n in range(1000):
        sweep.observe(evidence(n, place=(1, float(n))))
    assert len(sweep._ranges[1].places) == 256  # pyright: ignore[reportPrivateUsage]


TEXT = "The kettle boils {} of water and keeps it warm. " + "Nobody knows how long it does. " * 8
DRAFTS = "a litre,one litre,a liter,some water,a pint,two pints,a quart,one quart,a cup".split(",")


def revised(count: int, error: str | None = None) -> list[Step]:
    """A draft goes in and comes out, two words changed."""
    return [
        call(
            "revise",
            {"draft": TEXT.format(DRAFTS[n])},
            TEXT.format(DRAFTS[n + 1]),
            error=error,
        )
        for n in range(count)
    ]


def test_six_revisions_in_a_row_give_a_hint() -> None:
    """That is with the seventh call; what other tools do in between does not matter."""
    steps = [step for one in revised(8) for step in (one, call("look", {"n": id(one)}, "ok"))]
    decisions = alone("revised_in_vain", *steps)
    assert decisions[0].step == 12
    assert set(actions(decisions)) == {"hint"}
    assert decisions[0].message == (
        "'revise' revised a text 6 times in a row, with hardly anything changed in what it got and "
        "what it gave"
    )


TOLD = {
    "all": [
        # Counted in a window, not in a row.
        case("other answers in between do not hide it", "same_answer: 4 hint",
             *[step for number in range(3) for step in (call("grep", {"pattern": number}, LONG),
             call("read", {"path": number}, f"text {number}"))]),
    ],
    "stagnation": [
        # To ask the same of many things, and to hear "no" each time, is work.
        case("a short answer to other items is a list that is checked", "", *[call("check_stock",
             {"item": f"article-{n}"}, "not in stock now") for n in range(20)]),
        # A tool that answers some of the questions is not stuck.
        case("another answer takes three tenths", "", *[call("grep", {"pattern": f"p{n}"},
             f"a.py:{n}: match number {n} in this file" if n % 3 else LONG) for n in range(60)]),
        # After a change the same answer may mean something else.
        case("a change in between takes two thirds", "",
             *[step for n in range(10) for step in (call("grep", {"pattern": f"p{n}"}, LONG),
             call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"))]),
        # `repeat_threshold` equal answers.
        case("the threshold is a setting", "same_answer: 5 hint",
             *[call("grep", {"pattern": f"p{n}"}, LONG) for n in range(8)], repeat_threshold=6),
        # Whether the question moved is not known.
        case("without arguments nothing counts", "",
             *[call("grep", None, LONG) for _ in range(20)]),
    ],
    "found_nothing": [
        # Short answers, news, changes, failures and fan-outs are no echo.
        case("short texts", "", *[printed(text[:30]) for text in TEXTS]),
        case("with news beside it", "", *[printed(text, f"{n} rows\n{n * 31} columns\n{text}") for
             n, text in enumerate(TEXTS)]),
        case("what changes something", "",
             *[call("write_note", {"text": text}, text) for text in TEXTS]),
        case("failures", "", *[call("python", {"code": f"raise Odd('{text}')"},
             error=f"Odd: {text}") for text in TEXTS]),
        case("arguments not captured", "", *[call("python", None, text) for text in TEXTS]),
        case("one parallel round", "", *[call("python", {"code": f"print('{text}')"}, text,
             at=0.01 * n, took=1) for n, text in enumerate(TEXTS)]),
        # With two real answers between them echoes do not add up.
        case("calls that are no echo take a fifth", "",
             *[step for n, text in enumerate(TEXTS * 4) for step in (printed(text), call("read",
             {"page": n}, f"page {n} is about subject {n * 7919:x}"), call("read", {"part": n},
             f"part {n} is about matter {n * 104729:x}"))]),
        # Repeats, failures, fan-outs, changes and searches that find something do not add up.
        case("the same search again", "", *[searched("parser") for _ in range(12)]),
        case("something is found", "", *[searched(word, "3 results") for word in WORDS]),
        case("answers not captured", "", *[searched(word, None) for word in WORDS]),
        case("arguments not captured", "",
             *[call("search", None, "No results found.") for _ in WORDS]),
        case("failures", "", *[searched(word, None, error="no such table") for word in WORDS]),
        case("long answers", "", *[searched(word,
             f"No results found in part one. {'But much in part two. ' * 30}") for word in WORDS]),
        case("one parallel round", "",
             *[searched(word, at=0.01 * n, took=1) for n, word in enumerate(WORDS)]),
        case("a change in between", "",
             *[step for n, word in enumerate(WORDS) for step in (searched(word), call("edit",
             {"path": "a.py", "new": f"v{n}"}, "the file was changed"))]),
        case("every second one finds something", "", *[searched(word, "No results found." if n % 2
             else f"a.py:{n}: {word} is here") for n, word in enumerate(WORDS * 3)]),
    ],
    "nothing_new": [
        # News, changes, waits, and what is not known begin a stretch anew.
        case("too few calls", "", *[looked(n) for n in range(24)]),
        case("it always says the same", "", *[looked(3 * n) for n in range(60)]),
        case("it says nothing", "", *[call("look", {"at": n}, "") for n in range(60)]),
        case("every fifth answer is new", "", *[looked(n, f"room {n} has {n * 7919:x} in it" if
             n % 5 == 0 else None) for n in range(60)]),
        case("a change now and then", "", *[step for n in range(60) for step in ([looked(n)] if
             n % 8 else [looked(n), call("edit", {"path": "a.py", "new": f"v{n}"}, "ok")])]),
        case("waits", "",
             *[step for n in range(60) for step in ([looked(n), call("wait", {}, "ok")])]),
        case("an answer now and then that was not captured", "",
             *[call("look", {"at": n}, None if n % 8 == 0 else ROOMS[n % 3]) for n in range(60)]),
    ],
    "idle_command": [
        # Less than half of the calls in between do nothing.
        case("notes beside real work lead to a hint at most", "does_nothing: 12 hint", *[step
             for n in range(12) for step in (ran(f"echo 'step {n} is done'", f"step {n} is done"),
             ran(f"cat a{n}.py", f"text {n}"), ran(f"sed -i 's/{n}/x/' a{n}.py"))]),
        # The agent can react between rounds only.
        case("a parallel round counts once", "",
             *[call("bash", {"command": ":"}, "", at=0.01 * n, took=1) for n in range(8)]),
        # What was done before was done for something else.
        case("a user turn begins anew", "", *NOTHING[:3], USER, *NOTHING[:3]),
    ],
    "no_better_score": [
        # A map is looked at like a text.
        case("a field of an answer is a number as well", "no_better_score: 7 allow",
             *[call("train", {"rate": n}, {"score": x, "took": n}) for n, x in enumerate(FLAT)]),
        # Not at every try.
        case("it is noted again after six more", "no_better_score: 7 allow, 13 allow",
             *trained(*FLAT, *FLAT[1:])),
        # And so is a try that is none.
        case("five times no better", "", *trained(*FLAT[:7])),
        case("up", "", *trained(*(n / 20 for n in range(20)))),
        case("down", "", *trained(*(1 - n / 20 for n in range(20)))),
        case("better once", "", *trained(*FLAT[:6], 0.9, *FLAT[:5])),
        case("no measure", "", *trained(*FLAT, said="size: {}")),
        case("codes", "", *trained(*range(3), *range(9), said="error: {}")),
        case("a user turn", "", *[*trained(*FLAT[:5]), USER, *trained(*FLAT[:5])]),
        case("the same try", "", *[call("train", {"rate": 1}, "loss: 0.5")] * 20),
        case("no answer", "", *[call("train", {"rate": n}) for n in range(20)]),
    ],
    "repeated_edit": [
        # What moves, or is no try, is work.
        case("eleven edits", "", *[*tried(11), failing(11)]),
        case("nothing fails", "", *[edit(n) for n in range(40)]),
        case("one failure", "", *[failing(0), *(edit(n) for n in range(40))]),
        case("many files", "",
             *[s for n in range(40) for s in (edit(n, f"/app/{n}.py"), failing(n))]),
        case("green", "", *[*tried(11), call("bash", TEST, "12 passed"), *tried(11)]),
        case("green in other words", "", *[*tried(11), call("bash",
             {"command": "cd /app && pytest -q tests -x"}, "12 passed"), *tried(11)]),
        case("no such command", "", *[s for n in range(40) for s in (edit(n), call("bash",
             {"command": f"frob{n}"}, error=f"bash: frob{n}: command not found"))]),
        case("transient", "", *[s for n in range(40) for s in (edit(n), call("bash",
             {"command": f"curl {n}"}, error="503 Service Unavailable"))]),
        case("only viewed", "", *[s for n in range(40) for s in (call("str_replace_editor",
             {"command": "view", "path": "a.py"}, f"line {n}"), failing(n))]),
        case("fewer failures", "", *[s for n in range(20) for s in (edit(n), call("bash", TEST,
             error=f"Exit code 1\n{40 - n} failed, 8 passed"))]),
        case("a user turn", "", *[*tried(8), USER, *tried(8)]),
    ],
    "same_verdict": [
        # With an edit before each it is the sixth.
        case("changes in between do not matter", "same_verdict: 11 hint", *guesses(20)),
        # A test that fails for a while is work.
        case("five times", "", *guesses(5)),
        case("short verdicts", "", *guesses(12, "wrong")),
        case("nothing is turned down", "", *guesses(12, "all of the tests have passed")),
        case("failures of the call", "",
             *[call("run_tests", {"at": n}, error=VERDICT) for n in range(12)]),
        case("one tool each", "", *[call(f"check_{n}", {"at": n}, VERDICT) for n in range(12)]),
        case("one parallel round", "",
             *[call("run_tests", {"at": n}, VERDICT, at=0.01 * n, took=1) for n in range(12)]),
        case("not captured", "", *[call("run_tests", {"at": n}) for n in range(12)]),
        # Forty edits that did not mend the test are told once.
        case("tries after changes do not climb", "same_verdict: 11 hint", *guesses(40)),
        # A hint in between changes nothing, and below twenty nothing climbs.
        case("nineteen hints of a riddle are no guessing without end", "same_verdict: 5 hint",
             *[call("unlock", {"password": f"secret{n}"}, "Wrong password?") for n in range(19)]),
        # Nobody knows whether they are guesses.
        case("guesses without arguments are not stopped", "same_verdict: 10 hint",
             *[call("unlock", None, "Wrong password?") for _ in range(40)]),
    ],
    "sweep": [
        # Reading on, other things, a few places and changes are no sweep.
        case("onward only", "", *[page(100 * n) for n in range(60)]),
        case("backward only", "", *[page(6000 - 100 * n) for n in range(60)]),
        case("other arguments", "", *[page(100 * (n % 10), chapter=n // 10) for n in range(60)]),
        case("few places", "", *[page(100 * (n % 4)) for n in range(40)]),
        case("to and fro in parts that were not read", "",
             *[page(place) for n in range(5) for place in (100 * n, 2000 - 100 * n)]),
        case("two arguments that page", "",
             *[call("read", {"offset": n % 10, "page": n % 10}, f"t {n}") for n in range(40)]),
        case("a cursor of letters", "", *[page(f"c{n % 10}", "cursor") for n in range(40)]),
        case("true and false", "", *[page(bool(n % 2), "page") for n in range(40)]),
        case("a change in between", "", *[step for n in range(40) for step in (page(n % 10),
             call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"))]),
        case("pages are written", "", *[page(n % 10, tool="write_page") for n in range(40)]),
    ],
    "revised_in_vain": [
        # What moves, is short, or is for another detector.
        case("six calls", "", *revised(6)),
        case("a user turn", "", *[*revised(5), USER, *revised(5)]),
        case("failed", "", *revised(8, error="Error: no such draft")),
        case("short", "", *[call("revise", {"draft": DRAFTS[n]}, DRAFTS[n + 1]) for n in range(8)]),
        case("short answers", "",
             *[call("write", {"text": TEXT.format(DRAFTS[n])}, "ok") for n in range(8)]),
        case("longer each time", "",
             *[call("revise", {"draft": TEXT * (n + 1)}, TEXT * (n + 2)) for n in range(3)]),
        case("to somebody else", "", *[call("send", {"to": DRAFTS[n],
             "text": TEXT.format(DRAFTS[n])}, TEXT.format(DRAFTS[n])) for n in range(8)]),
        case("nothing changed at all", "", *[call("read", {"text": TEXT}, TEXT)] * 8),
    ],
}  # fmt: skip
"""What one detector tells by itself, of so many steps; nothing of honest work."""


@pytest.mark.parametrize(STEPS, cases(TOLD))
def test_what_is_told(
    detector: str, told: str, steps: list[Step], settings: dict[str, Any]
) -> None:
    """Reason, step and action of each decision."""
    assert told_of(alone(detector, *steps, **settings)) == told
