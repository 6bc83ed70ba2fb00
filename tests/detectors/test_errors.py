"""Calls that fail again and again."""

from __future__ import annotations

from typing import Any

import pytest

from otel_loopguard import LoopGuard, Settings, control
from otel_loopguard.core import Kind, Step
from tests.calls import EPOCH, SECOND, Run, call
from tests.detectors.alone import STEPS, actions, alone, case, cases, told_of

DENIED = "Permission denied (publickey)"
USER = Step(Kind.OTHER, "user", text="try it again, please")


def failing(number: int, error: str = DENIED, **given: Any) -> Step:
    """A call with arguments of its own that fails."""
    return call("ssh", {"flags": f"-o opt{number}"}, error=error, **given)


def working(number: int) -> Step:
    """A call of the same tool that goes well."""
    return call("ssh", {"host": number}, f"welcome to host {number}, all is well here")


def test_the_same_error_with_other_arguments_is_noticed() -> None:
    """Three equal errors of one tool are a loop, whatever was asked."""
    run = Run()
    for number in range(3):
        run.calls(call("ssh", {"flags": f"-o opt{number}"}, error="Permission denied (publickey)"))
    assert run.actions == ["hint"]
    assert run.decisions[0].detector == "error_repeat"


def test_transient_errors_have_time() -> None:
    """Three 429 within a minute are retries; past the budget they are a loop."""
    early = Run()
    early.calls(
        *[call("s", {"q": "x"}, error="429 Too Many Requests", at=12 * n) for n in range(4)]
    )
    assert early.actions == []
    late = Run(Settings(transient_budget_s=20))
    late.calls(*[call("s", {"q": "x"}, error="429 Too Many Requests", at=12 * n) for n in range(8)])
    assert late.actions[:1] == ["hint"]


def test_failures_without_text_are_not_equal() -> None:
    """A failure that says nothing is equal to nothing."""
    steps = [call("s", {"q": n}) for n in range(20)]
    for step in steps:
        step.error = True
    assert alone("error_repeat", *steps) == []


def test_the_same_failing_call_climbs_the_ladder() -> None:
    """The very same call with the same deterministic error counts from its second time on."""
    decisions = alone("error_repeat", *[failing(0) for _ in range(6)])
    assert actions(decisions) == ["hint", "deny", "abort"]
    assert [decision.step for decision in decisions] == [1, 2, 5]
    assert decisions[0].message == "'ssh' failed 2 times with an equal deterministic error"


def test_a_wrong_call_climbs_though_its_arguments_move() -> None:
    """What is wrong is the call itself, whatever it asks for."""
    said = "search() got an unexpected keyword argument 'year'"
    steps = [call("search", {"q": f"city {n}", "year": 1}, error=said) for n in range(6)]
    decisions = alone("error_repeat", *steps)
    assert {decision.reason for decision in decisions} == {"call_error"}
    assert actions(decisions) == ["hint", "deny", "abort"]


def test_an_error_of_unknown_kind_has_to_come_three_times() -> None:
    """Twice the same call may be chance where nobody knows what the error means."""
    decisions = alone("error_repeat", *[failing(0, "it went wrong somehow") for _ in range(3)])
    assert [(one.step, one.count) for one in decisions] == [(2, 3)]


def test_what_an_error_quotes_does_not_tell_it_apart() -> None:
    """Equal but for what it repeats from the arguments: each counts four fifths."""
    steps = [
        call("read", {"path": name}, error=f"FileNotFoundError: no such file: '{name}'")
        for name in ("alpha.py", "beta.py", "gamma.py", "delta.py")
    ]
    decisions = alone("error_repeat", *steps)
    assert [(one.step, one.count) for one in decisions] == [(3, 3.4)]


def test_other_errors_are_other_errors() -> None:
    """Each failure that says something else is news."""
    words = "permission quota syntax network encoding memory signal".split()
    steps = [failing(n, f"the {word} is not what was expected") for n, word in enumerate(words)]
    assert alone("error_repeat", *steps) == []


@pytest.mark.parametrize("threshold", [2, 3, 5])
def test_the_threshold_is_a_setting(threshold: int) -> None:
    """`error_threshold` equal errors, whatever the arguments."""
    steps = [failing(n) for n in range(8)]
    decisions = alone("error_repeat", *steps, error_threshold=threshold)
    assert [decision.step for decision in decisions] == [threshold - 1]


ABSENT = [
    ("get_customer", "id", "KeyError: '{}'"),
    ("fetch_order", "order", "HTTP 404 Not Found: {}"),
    ("find_user", "email", "NotFoundError: no user with e-mail {}"),
]


@pytest.mark.parametrize(("tool", "name", "error"), ABSENT)
def test_items_that_are_not_there_are_looked_up(tool: str, name: str, error: str) -> None:
    """One item after the other, each another one: a hint no earlier than after ten."""
    run = Run()
    for number in range(50):
        run.calls(call(tool, {name: f"K{number + 1000}"}, error=error.format(f"K{number + 1000}")))
    assert run.actions[:1] == ["hint"]
    assert run.decisions[0].step >= 9
    assert set(run.actions) == {"hint"}


@pytest.mark.parametrize("what", ["the same", "a path", "a change", "another tool"])
def test_what_is_not_there_counts_in_full(what: str) -> None:
    """The same asked again, guessed paths, a change, and a tool that does not exist."""
    tool, name, error = {
        "the same": ("get_customer", "id", "KeyError: 'K7'"),
        "a path": ("read_file", "path", "FileNotFoundError: no such file: not found"),
        "a change": ("update_customer", "id", "404 not found"),
        "another tool": ("get_customer", "id", "tool get_customer not found"),
    }[what]
    run = Run()
    for number in range(8):
        value = "K7" if what == "the same" else f"src/part{number + 1000}"
        run.calls(call(tool, {name: value}, error=error))
    assert run.actions
    assert run.decisions[0].step <= 3


WORDS = "hinge bolt spring wheel lever crank valve screw panel cable motor plate".split()


def broken(number: int, **given: Any) -> Step:
    """A call that fails in its own way."""
    word = WORDS[number % len(WORDS)]
    return call(f"tool_{number % 3}", {"part": number}, error=f"the {word} is odd", **given)


def fine(number: int) -> Step:
    """A call that works."""
    return call("tool_0", {"good": number}, f"part {number} is fine")


def test_six_failures_in_a_row_are_too_many() -> None:
    """Whatever fails, and however: a hint, then another way, and no more."""
    decisions = alone("error_rate", *[broken(n) for n in range(12)])
    assert actions(decisions) == ["hint", "steer"]
    assert [decision.step for decision in decisions] == [5, 7]
    assert decisions[0].reason == "error_streak"
    assert decisions[0].message.startswith("the last 6 rounds of calls failed")


def test_three_failures_of_four_are_too_many() -> None:
    """Eight of the newest ten, although some went well."""
    steps = [fine(n) if n % 4 == 0 else broken(n) for n in range(12)]
    (decision,) = alone("error_rate", *steps)
    assert (decision.step, decision.reason, decision.count) == (10, "error_rate", 8)
    assert decision.threshold == 7.5


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([broken(n) for n in range(5)], id="five in a row"),
        pytest.param(
            [fine(n) if n % 3 == 0 else broken(n) for n in range(40)], id="two of three fail"
        ),
        pytest.param([broken(n, at=0.001 * n, took=1) for n in range(12)], id="one parallel round"),
        pytest.param(
            [
                step
                for n in range(12)
                for step in (
                    broken(2 * n, at=10 * n, took=5),
                    call("read", {"n": n}, f"text {n}", at=10 * n + 1, took=1),
                )
            ],
            id="one of each round goes well",
        ),
        pytest.param(
            [call("s", {"q": 1}, error="429 Too Many Requests", at=12 * n) for n in range(8)],
            id="patient retries",
        ),
        pytest.param([call("job", {"id": 9}, "pending", at=30 * n) for n in range(12)], id="waits"),
    ],
)
def test_honest_work_is_left_alone(steps: list[Step]) -> None:
    """Some failures, fan-outs, retries with patience and waits are normal."""
    decisions = alone("error_rate", *steps)
    # The first of the patient retries are failures like others.
    assert actions(decisions) == []


def test_retries_at_once_count() -> None:
    """Without a pause a transient error is a failure like another."""
    steps = [call("s", {"q": n}, error="429 Too Many Requests", at=n) for n in range(8)]
    assert actions(alone("error_rate", *steps))[:1] == ["hint"]


@pytest.mark.parametrize(
    "said",
    [
        pytest.param({"exit_code": 1, "output": "odd"}, id="exit code"),
        pytest.param({"status": "failed", "why": "odd"}, id="status"),
        pytest.param({"success": False, "why": "odd"}, id="success"),
        pytest.param("Error: it is odd", id="first word"),
        pytest.param('{"error": "it is odd"}', id="JSON text"),
        pytest.param('Traceback (most recent call last):\n  File "a.py"\nOdd: 1', id="traceback"),
    ],
)
def test_an_answer_that_reports_a_failure_is_one(said: object) -> None:
    """Tools report failures in their answers too."""
    steps = [call("bash", {"command": f"./run {n}"}, said) for n in range(6)]
    assert actions(alone("error_rate", *steps)) == ["hint"]


def test_a_user_begins_anew() -> None:
    """What failed before was asked for something else."""
    steps = [broken(n) for n in range(10)]
    assert alone("error_rate", *steps[:5], USER, *steps[5:]) == []


@pytest.mark.parametrize(
    ("settings", "first"),
    [
        pytest.param({"tuning": {"calls": {"error_streak": 4}}}, 3, id="shorter streak"),
        pytest.param({"tuning": {"calls": {"error_streak": 100}}}, 9, id="rate only"),
        pytest.param({"sensitivity": 2}, 2, id="twice as sensitive"),
        pytest.param({"sensitivity": 0.5}, 11, id="half as sensitive"),
    ],
)
def test_the_settings_say_when(settings: dict[str, Any], first: int) -> None:
    """`tuning.calls.error_streak` and `sensitivity`."""
    steps = [broken(n) for n in range(24)]
    assert (
        alone(
            "error_rate",
            *steps,
            **settings,
        )[0].step
        == first
    )


def test_the_rate_is_a_setting() -> None:
    """`error_rate` of the newest rounds."""
    steps = [fine(n) if n % 2 == 0 else broken(n) for n in range(20)]
    assert alone("error_rate", *steps) == []
    assert actions(alone("error_rate", *steps, tuning={"calls": {"error_rate": 0.5}}))[:1] == [
        "hint"
    ]


DOWN = "Temporary data inconsistency detected, please retry the exact same query"


def said(run: Run) -> list[str]:
    """What this detector led to; others look at failures too."""
    return [found.action.value for found in run.decisions if found.detector == "outage"]


def test_one_error_from_several_tools_is_an_outage() -> None:
    """Three equal errors of three tools are noticed, then people are asked; nothing is aborted."""
    run = Run()
    run.calls(*[call(f"tool_{n % 3}", {"n": n}, error=DOWN, at=n) for n in range(9)])
    assert said(run) == ["hint", "pause"]
    assert run.decisions[0].reason == "same_from_several_tools"
    assert "abort" not in run.actions


def test_short_answers_of_several_tools_coincide() -> None:
    """Two tools may both say "none"."""
    run = Run()
    run.calls(*[call(f"lookup_{n}", {"city": n}, "none") for n in range(9)])
    assert said(run) == []


def test_retries_at_once_are_noticed_and_then_held() -> None:
    """A transient error deserves a pause before the next try; the agent is not aborted for it."""
    run = Run()
    said = "503 Service Unavailable"
    run.calls(*[call("search", {"q": 1}, error=said, at=0.6 * n) for n in range(4)])
    assert run.actions == ["hint", "pause"]
    assert run.decisions[0].reason == "retry_without_pause"


def test_patience_is_that_of_one_tool() -> None:
    """One that is tried again after a pause is let; what several say is an outage all the same."""
    for tools, noticed in ((1, False), (2, True)):
        steps = [call(f"t{n % tools}", {"n": n % tools}, error=DOWN, at=20 * n) for n in range(9)]
        assert bool(alone("outage", *steps)) is noticed


@pytest.mark.parametrize(("threshold", "step"), [(2, 1), (5, 4)])
def test_outage_the_threshold_is_a_setting(threshold: int, step: int) -> None:
    """`error_threshold` equal answers of two tools."""
    steps = [call(f"oracle_{n % 2}", {"city": n}, DOWN) for n in range(8)]
    assert alone("outage", *steps, error_threshold=threshold)[0].step == step


def live(*steps: Step, **settings: Any) -> list[str]:
    """What the detector leads to in a live guard."""
    found: list[str] = []
    guard = LoopGuard(
        Settings(**settings),
        on_decision=lambda _, one: (
            found.append(one.action.value) if one.detector == "outage" else None
        ),
    )
    for step in steps:
        guard.observe(step, "live")
    guard.shutdown()
    return found


def test_nobody_is_waited_for_where_nobody_can_answer() -> None:
    """Without a webhook, store, socket or callback an outage leads to a hint in a live guard."""
    steps = [call(f"tool_{n % 3}", {"n": n}, error=DOWN, at=n) for n in range(9)]
    assert live(*steps) == ["hint"]
    forget = control.on_escalation(lambda escalation: None)
    try:
        assert live(*steps) == ["hint", "pause"]
    finally:
        forget()


def test_a_success_of_the_tool_ends_the_outage() -> None:
    """Two failures and a success for each item, at once after one another, are no outage."""
    run = Run()
    for number in range(20):
        at, args = 3.0 * number, {"item": number}
        for n in range(2):
            run.calls(call("fetch", args, error="503 Service Unavailable", at=at + n))
        run.calls(call("fetch", args, f"all about item {number} and {number * 7919:x}", at=at + 2))
    assert run.actions == []


def test_a_paused_run_says_how_to_answer(caplog: pytest.LogCaptureFixture) -> None:
    """The warning of a pause names the command and the call that let the session go on."""
    run = Run()
    with caplog.at_level("WARNING", "otel_loopguard"):
        run.calls(*[call(f"tool_{n % 3}", {"n": n}, error=DOWN, at=n) for n in range(9)])
    assert "otel-loopguard resume run" in caplog.text
    assert "control.resume('run')" in caplog.text


def test_short_pauses_before_each_try_are_no_hurry() -> None:
    """Three tries for each item, four seconds apart and more, are not noticed."""
    run = Run()
    now = 0.0
    for item in range(8):
        for pause in (4.0, 5.0, 6.0):
            now += pause + 0.5
            run.calls(call("geocode", {"of": f"city {item}"}, error="429 Too Many", at=now))
        now += 3
        run.calls(call("geocode", {"of": f"city {item}"}, f"lies at {item}.5, 7.1", at=now))
    assert run.actions == []


USAGE = "Usage: edit <start>:<end> <text>"
SYNTAX = "/bin/bash: eval: line {}: syntax error near unexpected token `<'"


def edited(number: int, said: str = USAGE) -> Step:
    """An edit, each in other words."""
    return call("edit", f"edit {number} the text of line {number * 7}", said)


def test_equal_refusals_in_other_words_climb() -> None:
    """Though every call is another one and none has an error flag."""
    decisions = alone("error_repeat", *[edited(n) for n in range(8)])
    assert [(decision.step, decision.action) for decision in decisions] == [
        (2, "hint"), (3, "deny"), (6, "abort"),
    ]  # fmt: skip
    assert decisions[0].reason == "same_refusal"


def test_what_succeeds_in_between_does_not_matter() -> None:
    """A refused call came to nothing, whatever the others did."""
    steps = [
        step
        for n in range(6)
        for step in (
            edited(n),
            call("bash", {"command": f"echo {n} > a{n}.txt && cat b{n}"}, f"new text {n}"),
            call("read", {"path": f"c{n}.py"}, f"other text of file {n}"),
        )
    ]
    assert actions(alone("error_repeat", *steps))[:1] == ["hint"]


def test_a_refused_command_opens_no_epoch() -> None:
    """A redirection in a command with a syntax error changed nothing."""
    run = Run()
    for number in range(8):
        command = f'> <parameter name="c{number}"> ls -la /etc/{number} > /tmp/x && cat /tmp/x'
        run.calls(call("bash", {"command": command}, error=SYNTAX.format(number)))
    assert run.actions[-1:] == ["abort"]


@pytest.mark.parametrize(
    ("tool", "args", "said"),
    [
        ("bash", {"command": "> pip install {}"}, "/bin/bash: line 1: pip{0}: command not found"),
        ("bash", {"command": "frob {}"}, {"exit_code": 2, "stderr": "usage: frob [-x] FILE"}),
        ("Bash", {"command": "tar {}"}, "tar: unrecognized option '--frob'"),
        ("Edit", {"old": "{}"}, "<tool_use_error>File has not been read yet.</tool_use_error>"),
        ("cmd", {"command": "x {}"}, "'x' is not recognized as an internal or external command,"),
    ],
    ids=["command not found", "usage in a map", "option", "tool", "windows"],
)
def test_refusals_are_failures_also_without_an_error_flag(
    tool: str, args: dict[str, str], said: object
) -> None:
    """The tool says so in its own words."""
    outcome = said.replace("{0}", "") if isinstance(said, str) else said
    steps = [
        call(tool, {name: text.format(n) for name, text in args.items()}, outcome) for n in range(5)
    ]
    assert actions(alone("error_repeat", *steps)) == ["hint", "deny"]


def test_a_user_turn_begins_anew() -> None:
    """What was refused before was tried for something else."""
    steps = [edited(n) for n in range(3)]
    assert alone("error_repeat", *steps[:2], USER, steps[2]) == []


FAILED = "Collecting frob\n  Building wheel: started\nERROR: Failed to build frob"


def built(times: int, said: str = FAILED, tool: str = "bash") -> list[Step]:
    """A build that fails, and beside it other packages are installed."""
    return [
        step
        for n in range(times)
        for step in (
            call(tool, {"command": f"pip install frob==1.{n}"}, error=said),
            call(tool, {"command": f"pip install lib{n}"}, f"Successfully installed lib{n}"),
        )
    ]


def test_six_failures_with_one_line_give_a_hint_and_eight_another_way() -> None:
    """Though every success in between changed the world."""
    decisions = alone("same_verdict", *built(14))
    assert [(decision.step, decision.action) for decision in decisions] == [
        (10, "hint"), (14, "steer"),
    ]  # fmt: skip
    assert decisions[0].message == (
        "'bash' failed 6 times with the same line, whatever was changed in between"
    )


def test_same_failure_a_user_turn_halves_it() -> None:
    """What failed before was tried for something else."""
    steps = built(7)
    assert alone("same_verdict", *steps[:8], USER, *steps[8:]) == []


RATE = "Error code: 429 - Rate limit reached for requests. Try again in 2.1s."
LENGTH = "Error code: 400 - This model's maximum context length is 128000 tokens, not 131072."


def unanswered(gaps: list[float], error: str = LENGTH, agent: str = "writer") -> list[Step]:
    """Failing model calls of half a second, `gaps` seconds after each other."""
    steps: list[Step] = []
    at = 0.0
    for gap in gaps:
        start = EPOCH + round((at + gap) * SECOND)
        steps.append(
            Step(
                Kind.MODEL, "m", agent=agent, error=True, error_text=error,
                start=start, end=start + SECOND // 2,
            )
        )  # fmt: skip
        at += gap + 0.5
    return steps


def where(run: Run) -> list[str]:
    """Step and action of its decisions."""
    return [f"{found.step} {found.action}" for found in run.decisions]


@pytest.mark.parametrize(
    ("steps", "expected", "reason"),
    [
        pytest.param(unanswered([0.1] * 12), ["5 hint", "9 deny"], "model_error", id="lasting"),
        pytest.param(unanswered([30.0] * 12), ["5 hint", "9 deny"], "model_error", id="spaced"),
        pytest.param(
            unanswered([1.0] * 12, RATE), ["5 hint", "9 deny"], "model_retry", id="hurried"
        ),
        pytest.param(
            unanswered([60.0] * 50, RATE), ["34 hint"], "model_retry", id="past the budget"
        ),
    ],
)
def test_model_calls_that_fail_alike_are_noticed_and_denied(
    steps: list[Step], expected: list[str], reason: str
) -> None:
    """At the sixth in a row a hint, at the tenth a deny; what may pass is waited for at most."""
    run = Run()
    run.calls(*steps)
    assert where(run)[:2] == expected
    assert run.decisions[0].reason == reason
    calls = run.decisions[0].step + 1
    assert run.decisions[0].message == (
        f"{calls} model calls of 'writer' in a row failed with an equal error"
    )


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(unanswered([0, 1, 2, 4, 8, 16, 32, 60, 60, 60], RATE), id="growing pauses"),
        pytest.param(unanswered([5.0] * 20, RATE), id="pauses"),
        pytest.param(unanswered([-0.5] * 20, RATE), id="side by side"),
        pytest.param(
            [step for error in [LENGTH, RATE] * 10 for step in unanswered([0], error)],
            id="different",
        ),
        pytest.param(
            [step for name in "abcd" for step in unanswered([0.1] * 5, LENGTH, name)], id="agents"
        ),
        pytest.param(
            [Step(Kind.MODEL, "m", error=True, error_type="loopguard_abort")] * 20, id="our own"
        ),
        pytest.param([Step(Kind.MODEL, "m", error=True)] * 20, id="unknown"),
    ],
)
def test_model_calls_that_wait_or_fail_otherwise_are_let_be(steps: list[Step]) -> None:
    """Back-off, parallel calls, and errors that are not equal."""
    run = Run()
    run.calls(*steps)
    assert where(run) == []


def test_a_model_that_works_again_ends_what_its_failures_led_to() -> None:
    """The flag is lowered, and the next failure is the first one."""
    run = Run()
    run.calls(*unanswered([0.1] * 10))
    flag = run.guard.flag_of("run")
    assert flag is not None
    assert flag.control.action == "deny"
    run.calls(Step(Kind.MODEL, "m", agent="writer", text="Now it fits."))
    assert flag.control.action == "allow"
    run.calls(*unanswered([0.1] * 5))
    assert where(run) == ["5 hint", "9 deny"]


TOLD = {
    "all": [
        # An error about the call itself will not go away by itself.
        case("a wrong call is noticed at its second error", "call_error: 1 hint",
             *[call("page_down", {"": value}, error="got an unexpected keyword argument ''")
             for value in ("", " ")]),
        # After each edit the same failing test counts a third of before.
        case("a change in between takes weight", "", *[step for number in range(6)
             for step in (call("edit", {"path": "a.py", "new": f"v{number}"}, "ok"),
             call("run_tests", {"x": number}, error="AssertionError: 1 test failed"))]),
        # A tool that works in between is not stuck on its error.
        case("success takes weight", "", *[step for number in range(8) for step in (call("read",
             {"path": f"a{number}"}, error="no such file or directory"), call("read",
             {"path": f"b{number}"}, f"content {number}"))]),
        # An answer that does not depend on what was asked, nor on whom, is none.
        case("one long answer from several tools is an outage", "same_from_several_tools: 2 hint",
             *[call(f"lookup_{n % 2}", {"city": n}, DOWN) for n in range(3)]),
        # With seconds in between a transient error has its budget of time.
        case("patient retries are left alone", "",
             *[call("s", {"q": 1}, error="429 Too Many Requests", at=12 * n) for n in range(4)]),
    ],
    "error_repeat": [
        # A hint at the third; an audit or a link checker gets many of them on purpose.
        case("an error for other things each time is told and stops nothing", "equal_error: 2 hint",
             *[failing(n) for n in range(40)]),
        # One tool's errors; several tools have another detector.
        case("two tools do not share an error", "",
             *[call(f"tool_{n % 3}", {"n": n}, error=DENIED) for n in range(6)]),
        # A fan-out that fails is one failure.
        case("parallel failures count once", "",
             *[failing(0, at=0.001 * n, took=1) for n in range(6)]),
        # What failed before a user spoke counts half.
        case("a user turn halves it 1", "equal_error: 2 hint", *[failing(n) for n in range(3)]),
        case("a user turn halves it 2", "", failing(0), failing(1), USER, failing(2)),
        # An error that comes back after more than fifty calls begins anew.
        case("a failure is forgotten", "", failing(0), failing(1), *[call("read", {"page": n},
             f"page {n} is about subject {n}") for n in range(51)], failing(2)),
        # Where it is not known what was asked, nothing is stopped on an equal error.
        case("without arguments it hints at most", "equal_error: 2 hint",
             *[call("ssh", error=DENIED) for _ in range(12)]),
        # Two failures, a success and another failure are not three.
        case("a success in between takes two fifths", "",
             failing(0), failing(1), working(0), failing(2)),
        # Who mends a call the next time, or looks for help, is not stuck.
        case("twice", "", *[edited(n) for n in range(2)]),
        case("other tools each time", "", *[call("bash", {"command": f"{name} --version"},
             error=f"sh: {name}: command not found")
             for name in "vim nano emacs ed pico micro joe vi".split()]),
        case("help that was asked for", "", *[call("bash", {"command": f"frob sub{n} --help"},
             "usage: frob [-x] FILE") for n in range(8)]),
        case("text that quotes one", "", *[call("read_file", {"path": f"docs/{n}.md"},
             "# Tool\n\nsome words on it\n\nmore\n\n"
             "If it says\n\nbash: frob: command not found") for n in range(8)]),
        case("one parallel round", "",
             *[call("edit", f"edit {n}", USAGE, at=0.01 * n, took=1) for n in range(8)]),
    ],
    "error_rate": [
        # Five failures, a success, five failures: half a dozen were not in a row.
        case("a success ends a streak", "", *[*(broken(n) for n in range(5)), fine(0), fine(1),
             fine(2)], *(broken(n) for n in range(5))),
    ],
    "outage": [
        # Where it is not known what was asked, nothing is held on an equal answer.
        case("outage without arguments it hints at most", "same_from_several_tools: 2 hint",
             *[call(f"lookup_{n % 2}", None, DOWN) for n in range(12)]),
        # A tool that answers is not down.
        case("a real answer takes two fifths", "",
             *[step for n in range(8) for step in (call(f"lookup_{n % 2}", {"city": n}, DOWN),
             call(f"lookup_{n % 2}", {"town": n}, f"it is {n} degrees in this town, and windy"))]),
        # One tool that fails in the same way is no outage.
        case("an error that is not transient is one tools own", "",
             *[call("ssh", {"n": n}, error="Permission denied (publickey)") for n in range(9)]),
    ],
    "same_verdict": [
        # Not every tool raises.
        case("an exit code in the answer is a failure", "same_failure: 5 hint, 7 steer",
             *[call("bash", {"command": f"make -j{n}"},
             "Exit code 2\ncc: a.c\nerror: no rule for frob.o") for n in range(8)]),
        # A build tool without arguments, between edits.
        case("the same call of another tool counts", "same_failure: 13 hint, 17 steer", *[step
             for n in range(9) for step in (call("edit", {"path": "a.py", "new": f"v{n}"}, "ok"),
             call("build", {"target": "all"}, error="error: linking with cc failed at frob"))]),
        # What moves, or is asked for something else, is work.
        case("five times", "", *built(5)),
        case("fewer each time", "", *[step for n in range(12) for step in (call("edit",
             {"path": "a.py", "new": f"v{n}"}, "ok"), call("bash", {"command": "ruff check"},
             error=f"error: Found {20 - n} errors."))]),
        case("many items that are not there", "", *[call("lookup", {"id": n},
             error="Error: the item was not found in the list") for n in range(50)]),
        case("transient", "", *built(12, "503 Service Unavailable: try again later")),
        case("says too little", "", *built(12, "error: failed")),
        case("no line names the error", "", *built(12, "a long answer " * 60)),
    ],
}  # fmt: skip
"""What one detector tells by itself, of so many steps; nothing of honest work."""


@pytest.mark.parametrize(STEPS, cases(TOLD))
def test_what_is_told(
    detector: str, told: str, steps: list[Step], settings: dict[str, Any]
) -> None:
    """Reason, step and action of each decision."""
    assert told_of(alone(detector, *steps, **settings)) == told
