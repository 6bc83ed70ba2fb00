"""Loops that shipped detectors are known to miss, N1 to N12: each of them is noticed.

The numbers are those of the collection of user reports; each test names the pattern. What is not
caught stands in `tests/adversarial`.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable

import pytest

import otel_loopguard
from otel_loopguard.core import Action, Kind, Step
from tests.calls import EPOCH, SECOND, call
from tests.documented.acting import Run
from tests.documented.traced import Traced

STOPS = {action.value for action in Action if action.stops}
NOTHING = "No results found."
NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi".split()
)


def digits(number: int, count: int = 8) -> str:
    """Random hexadecimal digits, the same in every run."""
    return f"{random.Random(number).getrandbits(4 * count):0{count}x}"


# N1: volatile fields in arguments


VOLATILE_ARGUMENTS: dict[str, Callable[[int], dict[str, object]]] = {
    "request_id": lambda n: {"request_id": f"r-{n:04d}"},
    "timestamp": lambda n: {"timestamp": f"2024-05-01T10:00:{n:02d}Z"},
    "trace id": lambda n: {"trace_id": digits(n, 32)},
    "description": lambda n: {"description": f"Try number {n}: now with {NAMES[n]}"},
    "task_progress": lambda n: {"task_progress": f"- [x] {NAMES[n]}\n- [ ] {n + 1} to go"},
    "reason": lambda n: {"reason": f"because of {NAMES[n]}"},
    "order of keys": lambda n: {"limit": 5, "after": 1.0} if n % 2 else {"after": 1, "limit": 5},
}


@pytest.mark.parametrize("extra", VOLATILE_ARGUMENTS.values(), ids=VOLATILE_ARGUMENTS.keys())
def test_n01_volatile_fields_in_arguments(extra: Callable[[int], dict[str, object]]) -> None:
    """The same question, with something fresh in it: it is stopped like the plain one."""
    run = Run()
    for number in range(12):
        args = {"user": "u1", **extra(number)}
        run.calls(call("lookup", args, "the user was not found", at=number))
    assert run.decisions[0].step <= 3
    assert STOPS.intersection(run.actions)


LOOKS_VOLATILE: dict[str, Callable[[int], dict[str, object]]] = {
    "uuid": lambda n: {"id": str(uuid.UUID(int=random.Random(n).getrandbits(128)))},
    "time": lambda n: {"at": f"2024-05-01T10:00:{n:02d}Z"},
    "epoch": lambda n: {"now": 1_714_557_600 + n * 3},
    "temporary path": lambda n: {"out": f"/tmp/run_{digits(n)}/out.json"},
    "long hex": lambda n: {"etag": digits(n, 32)},
}


@pytest.mark.parametrize("extra", LOOKS_VOLATILE.values(), ids=LOOKS_VOLATILE.keys())
def test_n01_values_that_look_volatile(extra: Callable[[int], dict[str, object]]) -> None:
    """They may be what is asked for, under a name that nobody knows: noticed at least."""
    run = Run()
    for number in range(12):
        args = {"user": "u1", **extra(number)}
        run.calls(call("lookup", args, "the user u1 was not found anywhere", at=number))
    assert run.decisions[0].step <= 7


def test_n01_a_nonce_that_has_to_be_learned() -> None:
    """A mixed id under a name that nobody knows: noticed, and not stopped, for it is a guess."""
    run = Run()
    for number in range(14):
        args = {"user": "u1", "rid": f"k{number:02d}x{digits(number)}z"}
        run.calls(call("lookup", args, "the user u1 was not found anywhere", at=number))
    assert run.actions[0] == "hint"
    assert not STOPS.intersection(run.actions)


# N2: volatile fields in outputs


VOLATILE_OUTPUTS: dict[str, Callable[[int], str]] = {
    "durationMs": lambda n: f'{{"status": "failed", "durationMs": {100 + 13 * n}}}',
    "took": lambda n: f"command failed (took {n * 7 + 1} ms)",
    "clock before": lambda n: f"10:{n:02d}:07 no such container",
    "request id": lambda n: (
        f"not found (request {uuid.UUID(int=random.Random(n).getrandbits(128))})"
    ),
}
UNCLEAR_OUTPUTS: dict[str, Callable[[int], str]] = {
    "pid": lambda n: f"exited with code 1, pid={4000 + n}",
    "message id": lambda n: f'{{"delivered": false, "messageId": "{digits(n, 22).upper()}"}}',
    "date glued on": lambda n: f"0\nWed May  1 10:00:{n:02d} UTC 2024",
    "ISO time": lambda n: f'{{"rows": [], "at": "2024-05-01T10:00:{n:02d}.123Z"}}',
    "artifact path": lambda n: f"output truncated, see /tmp/out-{digits(n)}.log for the rest",
    "pointer": lambda n: f"<Session object at 0x7f{digits(n, 10)}> is closed",
}
"""The same, in which nothing says that the call came to nothing."""


@pytest.mark.parametrize("make", VOLATILE_OUTPUTS.values(), ids=VOLATILE_OUTPUTS.keys())
def test_n02_volatile_fields_in_outputs(make: Callable[[int], str]) -> None:
    """The same call; the answer says the same, but for what changes by itself: it is stopped."""
    run = Run()
    run.calls(*(call("check", {"of": "api"}, make(n), at=n) for n in range(14)))
    assert run.decisions[0].step <= 4
    assert STOPS.intersection(run.actions)


@pytest.mark.parametrize("make", UNCLEAR_OUTPUTS.values(), ids=UNCLEAR_OUTPUTS.keys())
def test_n02_volatile_fields_in_unclear_outputs(make: Callable[[int], str]) -> None:
    """It may be news that is masked: noticed."""
    run = Run()
    run.calls(*(call("check", {"of": "api"}, make(n), at=n) for n in range(14)))
    assert run.decisions[0].step <= 6


# N3: other calls in between


@pytest.mark.parametrize("between", [1, 2, 3])
def test_n03_other_calls_in_between(between: int) -> None:
    """A failing test, and after each run of it other files are read: late, as each is news."""
    run = Run()
    for number in range(16):
        run.calls(call("bash", {"command": "pytest -x"}, "1 failed: test_login"))
        for place in range(between):
            name = f"{NAMES[place]}{number}.py"
            run.calls(call("bash", {"command": f"cat {name}"}, f"text of {name}"))
    assert run.actions


def test_n03_a_known_call_in_between() -> None:
    """Two repeats, each between the other's."""
    run = Run()
    for number in range(16):
        asked = "alpha" if number % 3 else "beta"
        run.calls(call("search", {"q": asked}, f"No results for {asked}."))
    assert STOPS.intersection(run.actions)


# N4: cycles longer than a window


@pytest.mark.parametrize("thinking", [False, True], ids=["silent", "with model calls"])
@pytest.mark.parametrize("gap", [0.2, 3.0], ids=["fast", "slow"])
@pytest.mark.parametrize("period", range(2, 17))
def test_n04_cycles_of_every_period(period: int, gap: float, thinking: bool) -> None:
    """Within two and a half more turns they are noticed; later where a rest may be a wait."""
    run, turns = Run(), 3 if thinking or gap < 1 else 6
    for number in range(period * (turns + 1)):
        name, at = NAMES[number % period], number * (gap + 0.5)
        if thinking:
            began, ended = (EPOCH + round((at - rest) * SECOND) for rest in (gap, 0))
            run.calls(Step(Kind.MODEL, "m", text=f"thought {number}", start=began, end=ended))
        run.calls(call("read", {"of": name}, f"text of {name}, in full", at=at))
    assert run.actions
    assert run.decisions[0].step <= (period * turns + 1) * (1 + thinking)


def test_n04_a_cycle_through_several_tools_with_errors() -> None:
    """Read, edit that fails, test that fails, and round again."""
    run = Run()
    for _ in range(8):
        run.calls(
            call("read", {"path": "a.py"}, "def f(): pass"),
            call("edit", {"path": "a.py", "old": "x"}, error="old text not found in a.py"),
            call("run_tests", {}, "1 failed"),
        )
    assert STOPS.intersection(run.actions)
    assert run.decisions[0].step <= 9


# N5: the arguments vary, the result does not


def test_n05_many_patterns_one_answer() -> None:
    """38 greps with ever other patterns, the same 906 bytes."""
    run, answer = Run(), "x" * 450 + "\n" + "y" * 455
    for number in range(38):
        pattern = "|".join(NAMES[(number + k) % 16] for k in range(3)) + str(number)
        run.calls(call("grep", {"pattern": pattern}, answer))
    assert run.decisions[0].reason == "same_answer"
    assert run.decisions[0].step <= 4


def test_n05_five_long_equal_answers() -> None:
    """Five different reads, one answer of 9105 bytes."""
    run = Run()
    run.calls(*(call("read_url", {"url": f"https://a.example/{n}"}, "z" * 9105) for n in range(5)))
    assert run.actions[0] == "hint"


@pytest.mark.parametrize("failed", [True, False], ids=["as an error", "as an answer"])
def test_n05_many_flags_permission_denied(failed: bool) -> None:
    """49 variants of a command, and each is refused in the same words."""
    run, text = Run(), "user@host: Permission denied (publickey,password)."
    for number in range(49):
        args = {"command": f"ssh -o Option{number}=yes user@host"}
        answer = None if failed else text
        run.calls(call("bash", args, answer, error=text if failed else None))
    assert run.actions[0] == "hint"
    assert run.decisions[0].step <= 4


# N6: the same error, other arguments


@pytest.mark.parametrize(
    "error",
    [
        "ToolError: the old text was not found in {}",
        "KeyError: '{}'",
        "HTTP 404 Not Found for {}",
        'Traceback (most recent call last):\n  File "a.py", line {}\nValueError: no rows',
    ],
    ids=["edit", "key", "HTTP", "traceback"],
)
def test_n06_one_error_whatever_is_asked(error: str) -> None:
    """The error is the same, but for what it quotes."""
    run = Run()
    for number in range(8):
        run.calls(call("apply", {"of": number}, error=error.format(number)))
    assert run.actions
    assert run.decisions[0].step <= 3


# N7: everything differs, nothing is achieved


def test_n07_a_file_is_paged_twice() -> None:
    """One file is read from its start to its end again and again, in other windows."""
    run = Run()
    for number in range(176):
        sweep, place = divmod(number, 22)
        args = {"path": "big.py", "offset": place * 100 + sweep * 20, "limit": 100}
        run.calls(call("read_file", args, f"window {number}: {digits(number, 200)}"))
    assert run.actions


def test_n07_commands_that_all_fail_in_their_own_way() -> None:
    """62 commands, 62 outputs, and not one of them worked."""
    run = Run()
    for number in range(62):
        answer = {"exit_code": 1, "stdout": f"Traceback #{number}: no luck"}
        run.calls(call("bash", {"command": f"python try_{number}.py"}, answer))
    assert run.actions


def test_n07_errors_that_all_differ() -> None:
    """Thirty calls, thirty errors, no two alike."""
    run = Run()
    for number in range(30):
        error = f"{NAMES[number % 16]}: {digits(number, 5)} {NAMES[(number * 7) % 16]} failed"
        run.calls(call(NAMES[number % 5], {"n": number}, error=error))
    assert run.actions


# N8: one loop, many messages, runs and traces


def test_n08_one_call_per_message() -> None:
    """Each repeat stands in a message of its own."""
    agent = Traced()
    with agent.running():
        for _ in range(8):
            agent.model("Let me look.")
            agent.call("search", '{"q": "x"}', NOTHING)
    assert agent.actions[:2] == ["hint", "deny"]


def test_n08_one_call_per_trace() -> None:
    """Each repeat in a trace of its own, within one session."""
    agent = Traced()
    with otel_loopguard.session("n8"):
        for _ in range(8):
            agent.call("search", '{"q": "x"}', NOTHING)
    assert agent.actions[:2] == ["hint", "deny"]


def test_n08_one_call_per_sub_agent_run() -> None:
    """A parent starts the same sub-agent again and again, which asks the same."""
    agent = Traced()
    with agent.running(name="parent"):
        for _ in range(8):
            with agent.running(name="child"):
                agent.call("search", '{"q": "x"}', NOTHING)
    assert agent.actions[:2] == ["hint", "deny"]


def test_n08_traces_of_one_conversation_that_no_user_asked_for() -> None:
    """Calls that only carry the conversation's id, a trace each: they are one session."""
    run = Run()
    for number in range(8):
        step = call("search", {"q": "x"}, NOTHING, at=number)
        step.trace_id, step.session = 1000 + number, "chat"
        run.calls(step)
    assert run.actions[:2] == ["hint", "deny"]


# N9: parallel calls


@pytest.mark.parametrize("width", [2, 3, 8])
def test_n09_rounds_of_parallel_calls(width: int) -> None:
    """Eight equal rounds: a round counts once, and the rounds are a loop."""
    agent = Traced()
    calls = [
        ("fetch", json.dumps({"of": NAMES[k]}), f"No results for {NAMES[k]}.") for k in range(width)
    ]
    with agent.running():
        for _ in range(8):
            agent.round(calls)
    assert agent.actions
    assert STOPS.intersection(agent.actions)


def test_n09_many_equal_calls_in_one_turn() -> None:
    """One message with twelve equal calls that run one after the other."""
    agent = Traced()
    with agent.running():
        agent.model()
        for _ in range(12):
            agent.call("search", '{"q": "x"}', NOTHING, idle=0.01)
    assert agent.actions[:2] == ["hint", "deny"]


# N10: calls that are refused or unknown


@pytest.mark.parametrize(
    "error",
    [
        "Error: unknown tool 'web'",
        "Tool web not found",
        "web is not a valid tool, try one of [a, b]",
    ],
)
def test_n10_a_tool_that_does_not_exist(error: str) -> None:
    """Ever other arguments for a tool that is not there: noticed at the second, and stopped."""
    run = Run()
    run.calls(*(call("web", {"q": NAMES[n]}, error=error) for n in range(8)))
    assert run.decisions[0].step == 1
    assert run.actions[-1] == "abort"


@pytest.mark.parametrize(
    "error",
    ["blocked by policy: this command is not allowed", "the user denied this tool call"],
)
def test_n10_calls_that_somebody_refuses(error: str) -> None:
    """A refusal is an outcome: the same call refused again and again is a loop."""
    agent = Traced()
    with agent.running():
        for _ in range(6):
            agent.call("bash", '{"command": "rm -rf build"}', error=error)
    assert agent.actions[-1] == "abort"


def test_n10_our_own_refusals_are_counted() -> None:
    """After our deny the call comes again and is refused by the runtime: that ends in an abort."""
    run = Run()
    while "deny" not in run.actions:
        run.calls(call("search", {"q": "x"}, NOTHING))
    for _ in range(4):
        run.calls(call("search", {"q": "x"}, error="refused by otel-loopguard"))
    assert run.actions[-1] == "abort"


# N11: another thought each time


def test_n11_a_thought_in_the_text() -> None:
    """The model words it differently each time; the call is the same."""
    run = Run()
    for number in range(8):
        run.calls(Step(Kind.MODEL, "m", text=f"Perhaps {NAMES[number]} helps; I try once more."))
        run.calls(call("search", {"q": "x"}, NOTHING))
    assert run.actions[0] == "hint"
    assert STOPS.intersection(run.actions)


@pytest.mark.parametrize("name", ["thought", "reasoning", "explanation", "rationale"])
def test_n11_a_thought_in_the_arguments(name: str) -> None:
    """The thought is one of the arguments."""
    run = Run()
    for number in range(8):
        run.calls(call("search", {"q": "x", name: f"try {NAMES[number]}"}, NOTHING))
    assert STOPS.intersection(run.actions)


# N12: agents that spin look alive


def test_n12_every_repeat_is_a_heartbeat() -> None:
    """An agent that emits a span every second for minutes is alive, and stuck all the same."""
    agent = Traced()
    with agent.running():
        for _ in range(60):
            agent.model(took=0.3)
            agent.call("search", '{"q": "x"}', NOTHING, idle=0.2)
    assert agent.actions[0] == "hint"
    assert agent.actions[-1] == "abort"


def test_n12_a_heartbeat_call_in_between_hides_nothing() -> None:
    """A tool that says "I am alive" is called after each repeat."""
    run = Run()
    for _ in range(10):
        run.calls(call("search", {"q": "x"}, NOTHING), call("heartbeat", {}, "ok"))
    assert STOPS.intersection(run.actions)
