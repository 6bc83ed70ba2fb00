"""Families of runs that get somewhere: they wait, poll, retry."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.scenarios.tape import Tape


def poll_that_advances(tape: Tape) -> None:
    """Every answer is another one: per cent, a count, a step."""
    kind = tape.dice.randrange(3)
    for number in range(tape.dice.randrange(8, 30)):
        answer = (f"{number * 4} %", f"{number} of 40 rows", f"step {number}: {tape.word()}")[kind]
        tape.call("get_progress", {"job": 9}, answer, idle=tape.dice.choice([1, 5, 30]))


def poll_that_waits(tape: Tape) -> None:
    """A pending answer for minutes, asked for with patience, then the result."""
    tool, args, pending, done = tape.dice.choice(
        [
            ("bash", {"command": "gh run view 9"}, "in_progress", "success"),
            ("get_job_status", {"job": "j1"}, '{"state": "PENDING"}', '{"state": "DONE"}'),
            ("check_deployment", {"name": "api"}, "still rolling out", "rollout complete"),
            ("get_export", {"id": 3}, {"status": "processing"}, {"status": "ready", "url": "u"}),
            ("query_state", {"q": "77"}, "RUNNING", "FINISHED"),
        ]
    )
    for _ in range(tape.dice.randrange(5, 14)):
        tape.call(tool, args, pending, idle=tape.dice.uniform(10, 60))
    tape.call(tool, args, done, idle=20)


def pods_that_start(tape: Tape) -> None:
    """A table of pods, looked at every half minute, the same but for its ages."""
    for number in range(10):
        table = f"NAME READY STATUS RESTARTS AGE\napi-1 0/1 ContainerCreating 0 {30 * number}s"
        tape.call("kubectl", {"args": "get pods -n shop"}, table, idle=25)
    tape.call("kubectl", {"args": "get pods -n shop"}, "NAME READY STATUS\napi-1 1/1 Running 0 6m")


def waits_between_checks(tape: Tape) -> None:
    """A wait, a check, a wait, a check."""
    tool, args, answer = tape.dice.choice(
        [
            ("wait", {"seconds": 30}, "ok"),
            ("sleep", {"s": 20}, None),
            ("bash", {"command": "sleep 30"}, ""),
        ]
    )
    for _ in range(8):
        tape.call(tool, args, answer, took=30)
        tape.call("get_status", {"of": "build"}, '{"state": "running"}')
    tape.call("get_status", {"of": "build"}, '{"state": "passed"}')


def sleep_inside_of_the_command(tape: Tape) -> None:
    """The shell sleeps and then looks: the wait is inside of the call."""
    command = tape.dice.choice(
        ["sleep 30 && tail -1 build.log", "sleep 60; cat out.txt", "sleep 45 && docker ps"]
    )
    for _ in range(7):
        tape.call(
            "bash", {"command": command}, "Compiling core v0.3.1", took=tape.dice.uniform(30, 61)
        )
    tape.call("bash", {"command": command}, "Finished release target", took=31)


def tool_that_waits_inside(tape: Tape) -> None:
    """A tool that itself blocks for a minute before it says that it is not there yet."""
    for _ in range(7):
        tape.call("wait_for_deployment", {"name": "api"}, "not ready after 60 s", took=60)
    tape.call("wait_for_deployment", {"name": "api"}, "ready", took=12)


def terminal_that_is_asked_again(tape: Tape) -> None:
    """A build that outlasts the tool's two minutes; an empty command asks for what came since."""
    tape.call("execute_bash", {"command": "make all"}, "[still running after 120 s]", took=120)
    for _ in range(6):
        tape.call("execute_bash", {"command": "", "is_input": True}, "[still running after 120 s]",
                  took=120)  # fmt: skip
    tape.call("execute_bash", {"command": "", "is_input": True}, "build done", took=40)


def log_that_stands_still_for_a_while(tape: Tape) -> None:
    """A log that has the same last line for some looks, and then goes on."""
    for _ in range(5):
        line = f"[{tape.word()}] compiling {tape.word()}"
        for _ in range(tape.dice.randrange(2, 5)):
            tape.call(
                "bash", {"command": "tail -n 1 build.log"}, line, idle=tape.dice.uniform(8, 30)
            )


def retries_with_patience(tape: Tape) -> None:
    """Some transient errors with pauses in between, then it works."""
    error = tape.dice.choice(
        ["429 Too Many Requests", "503 Service Unavailable", "Read timed out. (read timeout=30)",
         "ConnectionResetError: [Errno 104] Connection reset by peer"]
    )  # fmt: skip
    for _ in range(tape.dice.randrange(2, 5)):
        tape.call("search", {"q": "x"}, error=error, idle=tape.dice.uniform(6, 14))
    tape.call("search", {"q": "x"}, tape.prose(30), idle=10)


def retries_that_back_off(tape: Tape) -> None:
    """1 s, 2 s, 4 s, 8 s, 16 s, and it works."""
    for number in range(5):
        tape.call("get_rates", {"of": "EUR"}, error="429 Too Many Requests", idle=2.0**number)
    tape.call("get_rates", {"of": "EUR"}, "1.0842", idle=32)


def transient_errors_among_work(tape: Tape) -> None:
    """A crawl in which every fifth page times out once."""
    for number in range(30):
        args = {"url": f"https://a.example/{number}"}
        if number % 5 == 0:
            tape.call("fetch", args, error="TimeoutError: page took more than 30 s", took=30)
        tape.call("fetch", args, tape.prose(50))


def flaky_test(tape: Tape) -> None:
    """A test is run twice more to see whether it is flaky."""
    tape.call("bash", {"command": "pytest -q t.py"}, {"exit_code": 1, "stdout": "1 failed in 3.1s"})
    tape.call("bash", {"command": "pytest -q t.py"}, {"exit_code": 1, "stdout": "1 failed in 3.4s"})
    tape.call("bash", {"command": "pytest -q t.py"}, {"exit_code": 0, "stdout": "3 passed in 3.2s"})


def watcher(tape: Tape) -> None:
    """Somebody's monitor: every minute for twenty minutes all is well."""
    for _ in range(20):
        tape.call("get_health", {"service": "api"}, '{"health": "ok"}', idle=60)
