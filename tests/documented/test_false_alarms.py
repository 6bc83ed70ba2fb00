"""Productive work that shipped detectors are known to stop, F1 to F12: none of it is touched.

The numbers are those of the collection of user reports; each test names the pattern.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from otel_loopguard.core import Action, Kind, Step
from tests.calls import call
from tests.documented.acting import Run
from tests.documented.traced import Traced

STOPS = {action.value for action in Action if action.stops}
LINES = [
    f"line {n}: {n * n} apples, {n * 7} pears, {n % 13} plums of the orchard" for n in range(3000)
]


def page(number: int, size: int = 40) -> str:
    """Some lines of a text in which each is another one."""
    return "\n".join(LINES[number * size : number * size + size])


# F1: polling and waiting on a long job with the same call


@pytest.mark.parametrize("thinking", [False, True], ids=["silent", "with model calls"])
@pytest.mark.parametrize(
    ("tool", "args", "pending", "done", "gap", "times"),
    [
        ("get_job", '{"id": 4}', '{"status": "running"}', '{"status": "done"}', 300, 5),
        ("bash", '{"command": "gh run view 9"}', "in_progress", "completed", 30, 20),
        ("check_build", '{"n": 12}', "compiling", "passed", 20, 25),
        ("read_terminal", '{"id": 1}', "$ ", "$ exit 0", 25, 10),
        ("task_list", "{}", "peer-1: working, peer-2: working", "peer-1: done", 45, 12),
    ],
    ids=["poll every 5 minutes", "10-minute build", "compiler", "idle terminal", "task board"],
)
def test_f01_polling_with_patience(  # noqa: PLR0917
    tool: str, args: str, pending: str, done: str, gap: float, times: int, thinking: bool
) -> None:
    """An unchanged answer is asked for again after a pause, until it changes."""
    agent = Traced()
    with agent.running():
        agent.call("start", '{"job": 4}', "started")
        for _ in range(times):
            if thinking:
                agent.model("I will wait a little longer.")
            agent.call(tool, args, pending, idle=gap)
        agent.call(tool, args, done, idle=gap)
    assert agent.actions == []


@pytest.mark.parametrize(
    ("tool", "args", "answer", "took"),
    [
        (
            "execute_bash",
            '{"command": "", "is_input": true}',
            "[no new output after 120 s]",
            120,
        ),
        ("bash", '{"command": "sleep 60 && tail -n 1 build.log"}', "[ 40%] Building core", 61),
        ("wait_for_deployment", '{"name": "api"}', "0 of 3 replicas ready", 60),
    ],
    ids=["command outlasts the tool", "sleep in the command", "tool that blocks"],
)
def test_f01_waiting_inside_of_the_call(tool: str, args: str, answer: str, took: float) -> None:
    """The call itself takes the time that a poll would wait in between."""
    agent = Traced()
    with agent.running():
        for _ in range(8):
            agent.model()
            agent.call(tool, args, answer, took=took)
    assert agent.actions == []


def test_f01_a_launch_between_polls_does_not_end_the_waiting() -> None:
    """Another job is started while the first is waited for."""
    agent = Traced()
    with agent.running():
        for number in range(8):
            if number % 3 == 0:
                agent.call("start_job", json.dumps({"n": number}), f"job {number} queued")
            agent.call("get_job_status", '{"id": 0}', '{"state": "queued"}', idle=20)
    assert agent.actions == []


# F2: the same call, new data each time


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("read_output", {"session": 1}),
        ("next_page", {}),
        ("read_queue", {"max": 10}),
        ("tail", None),
    ],
    ids=str,
)
def test_f02_paging_without_a_cursor(tool: str, args: object) -> None:
    """Fifty equal calls, eight kilobytes of news each."""
    run = Run()
    run.calls(*(call(tool, args, page(number), at=number * 2) for number in range(50)))
    assert run.actions == []


def test_f02_numbers_that_move() -> None:
    """An answer that differs in a number is another answer."""
    run = Run()
    run.calls(*(call("get_queue", {}, f"{40 - n} jobs left", at=n) for n in range(40)))
    assert run.actions == []


# F3: tests and builds run again after edits


def edited(number: int) -> Step:
    return call("edit", {"path": "a.py", "old": f"x = {number}", "new": f"x = {number + 1}"}, "ok")


def patched(number: int) -> Step:
    return call("bash", {"command": f"sed -i 's/x = {number}/x = {number + 1}/' a.py"}, "")


def rewritten(number: int) -> Step:
    return call("write_file", {"path": "a.py", "content": f"x = {number}"}, "written 5 bytes")


@pytest.mark.parametrize("edit", [edited, patched, rewritten], ids=lambda edit: edit.__name__)
@pytest.mark.parametrize(
    ("answer", "times"),
    [
        (lambda n: f"{20 - n} failed, {n} passed", 15),
        (lambda _: "1 failed, 19 passed in 2.31s", 5),
        (lambda _: "All checks passed!", 15),
    ],
    ids=["failures shrink", "same failure five times", "always well"],
)
def test_f03_tests_run_again_after_edits(
    edit: Callable[[int], Step], answer: Callable[[int], str], times: int
) -> None:
    """A change opens a new epoch: what is asked after it is no repeat."""
    run = Run()
    for number in range(times):
        run.calls(edit(number), call("bash", {"command": "pytest -q"}, answer(number)))
    assert run.actions == []


def test_f03_the_fix_that_a_hint_asked_for_may_be_verified() -> None:
    """After the hint the agent edits and runs the test again: that is no second strike."""
    run = Run()
    test = call("bash", {"command": "pytest -q"}, "1 failed, 19 passed")
    run.calls(test, test, test)
    assert run.actions == ["hint"]
    for number in range(4):
        run.calls(edited(number), test)
    assert run.actions == ["hint"]


# F4: a file read in chunks, several files at the start


@pytest.mark.parametrize("size", [40, 100, 200])
def test_f04_a_file_in_chunks(size: int) -> None:
    """Page after page of one file."""
    run = Run()
    for number in range(12):
        args = {"path": "big.py", "offset": number * size, "limit": size}
        run.calls(call("read_file", args, page(number, size)))
    assert run.actions == []


def test_f04_files_side_by_side_at_the_start() -> None:
    """A cold start: eight reads in one round, then two more rounds."""
    agent = Traced()
    with agent.running():
        for first in (0, 8, 16):
            agent.round(
                [
                    ("read_file", json.dumps({"path": f"{n}.py"}), page(n))
                    for n in range(first, first + 8)
                ]
            )
    assert agent.actions == []


def test_f04_a_file_again_with_a_larger_limit() -> None:
    """The same file, more of it each time."""
    run = Run()
    for limit in (20, 50, 100, 200, 400, 800):
        run.calls(call("read_file", {"path": "a.py", "limit": limit}, page(0, limit)))
    assert run.actions == []


# F5: batch work


BATCHES: dict[str, Callable[[int], Step]] = {
    "edits": lambda n: call("edit", {"path": f"m{n}.py", "old": "a", "new": "b"}, "ok"),
    "samples": lambda n: call(
        "bash", {"command": f"salmon quant -i idx -1 s{n}.fq -o out/s{n}"}, f"mapped {n * 17} reads"
    ),
    "downloads": lambda n: call(
        "download", {"url": f"https://a.example/{n}.csv"}, f"{n * 311} bytes"
    ),
    "mails": lambda n: call("send_email", {"to": f"u{n}@a.example", "text": "hello"}, "sent"),
    "moves": lambda n: call("bash", {"command": f"mv in/{n}.txt done/{n}.txt"}, ""),
    "records": lambda n: call("get_record", {"id": 1000 + n}, page(n, 3)),
    "inserts": lambda n: call(
        "run_sql", {"query": f"INSERT INTO t VALUES ({n})"}, "1 row affected"
    ),
}


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES.keys())
def test_f05_one_tool_many_targets(make: Callable[[int], Step]) -> None:
    """Sixty targets, one after the other."""
    run = Run()
    run.calls(*(make(number) for number in range(60)))
    assert run.actions == []


# F6: counters for life


def test_f06_one_tool_all_through_a_long_run() -> None:
    """Two hundred calls of one tool on two hundred things."""
    run = Run()
    run.calls(*(call("bash", {"command": f"cat {n}.py"}, page(n, 12)) for n in range(200)))
    assert run.actions == []


@pytest.mark.parametrize("between", [30, 60, 90])
def test_f06_twenty_times_in_a_long_run_is_not_twenty_in_a_row(between: int) -> None:
    """One and the same question now and then, with much else in between, is not stopped."""
    run = Run()
    for number in range(20 * between):
        if number % between == 0:
            run.calls(call("bash", {"command": "git status"}, "nothing to commit"))
        run.calls(call("bash", {"command": f"cat {number}.py"}, f"{number}: {LINES[number]}"))
    assert not STOPS.intersection(run.actions)
    assert between < 60 or run.actions == []


# F7: transient errors of the infrastructure


TRANSIENT = [
    "429 Too Many Requests",
    "503 Service Unavailable",
    "HTTPError: 502 Bad Gateway",
    "Read timed out. (read timeout=30)",
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "overloaded_error: Overloaded",
]


@pytest.mark.parametrize("error", TRANSIENT)
@pytest.mark.parametrize(
    "pauses",
    [
        [10, 10, 10],
        [1, 2, 4, 8, 16],
        [30, 30],
    ],
    ids=str,
)
def test_f07_transient_errors_that_are_retried_with_pauses(error: str, pauses: list[int]) -> None:
    """A rate limit or a hiccup, then it works: a hint once `transient_budget_s` is over."""
    agent = Traced()
    with agent.running():
        for pause in [0, *pauses]:
            agent.call("search", '{"q": "x"}', error=error, idle=pause)
        agent.call("search", '{"q": "x"}', page(0), idle=pauses[-1])
        agent.call("search", '{"q": "y"}', page(1))
    assert agent.actions == (["hint"] if sum(pauses) >= 60 else [])


def test_f07_a_crawl_in_which_some_pages_time_out() -> None:
    """Every fifth of the pages has to be fetched twice."""
    agent = Traced()
    with agent.running():
        for number in range(40):
            args = json.dumps({"url": f"https://a.example/{number}"})
            if number % 5 == 0:
                agent.call("fetch", args, error="TimeoutError: no answer in 10 s", took=10)
            agent.call("fetch", args, page(number))
    assert agent.actions == []


# F8: repetition that a screen asks for


MONTHS = "January February March April May June July August September October".split()


@pytest.mark.parametrize(
    ("tool", "args", "answers"),
    [
        ("click", {"element": "Next month"}, [f"{month} 2026: 1 2 3 4 5" for month in MONTHS]),
        ("click", {"element": "Load more"}, [f"{20 * n} of 200 rows shown" for n in range(1, 11)]),
        ("scroll_down", {"by": 600}, [page(n, 10) for n in range(10)]),
        ("press_key", {"key": "ArrowRight"}, [f"cursor at column {n}" for n in range(10)]),
        ("go_back", {}, [f"page {10 - n}" for n in range(10)]),
    ],
    ids=["date picker", "load more", "scroll", "arrow", "back"],
)
def test_f08_the_same_gesture_moves_on(tool: str, args: object, answers: list[str]) -> None:
    """Ten equal gestures, each with another page."""
    run = Run()
    run.calls(*(call(tool, args, answer, at=n) for n, answer in enumerate(answers)))
    assert run.actions == []


def test_f08_gestures_that_were_queued_and_not_done() -> None:
    """Five presses in one round, of which the page took one: a round is one."""
    agent = Traced()
    with agent.running():
        for number in range(2):
            agent.round([("click", '{"element": "Next"}', f"queued, page {number}")] * 5)
    assert agent.actions == []


# F9: arguments that were lost on the way


@pytest.mark.parametrize("args", [None, "{}", "{"], ids=["none", "empty", "cut off"])
def test_f09_reads_whose_arguments_were_lost(args: str | None) -> None:
    """Twelve files, all of which look like one call; what came back differs."""
    agent = Traced()
    with agent.running():
        for number in range(12):
            agent.call("read_file", args, page(number))
    assert agent.actions == []


@pytest.mark.parametrize("result", [None, "", "1 file written"], ids=["none", "empty", "equal"])
def test_f09_without_arguments_nothing_is_stopped(result: str | None) -> None:
    """Equal or missing answers to calls whose arguments nobody knows."""
    agent = Traced()
    with agent.running():
        for _ in range(20):
            agent.call("read_file", None, result)
    assert not STOPS.intersection(agent.actions)


def test_f09_errors_of_calls_whose_arguments_were_lost() -> None:
    """Eight names that are not found, and nobody sees which: nothing is stopped."""
    agent = Traced()
    with agent.running():
        for _ in range(8):
            agent.call("find_user", None, error="Error: user not found")
    assert not STOPS.intersection(agent.actions)


# F10: reads that a compacted context makes necessary


@pytest.mark.parametrize("files", [3, 6, 10])
def test_f10_files_read_again_after_compaction(files: int) -> None:
    """All files are read once more when the context was cut."""
    run = Run()
    for turn in range(2):
        run.calls(*(call("read_file", {"path": f"{n}.py"}, page(n)) for n in range(files)))
        run.calls(
            *(call("grep", {"q": f"w{turn}{n}"}, page(50 + 9 * turn + n, 5)) for n in range(6))
        )
    assert run.actions == []


# F11: structured output of a model


def rows(number: int) -> str:
    items = [{"key": f"app.{number}.{n}", "de": LINES[n], "fr": LINES[n + 9]} for n in range(40)]
    return json.dumps(items, indent=1)


STRUCTURED: dict[str, Callable[[int], str]] = {
    "translation": rows,
    "table": lambda n: "\n".join(f"| {k} | {k * n} | {k % 3} |" for k in range(60)),
    "list": lambda n: "\n".join(f"- [ ] check item {k} of part {n}" for k in range(60)),
    "code": lambda n: (
        "```python\n" + "\n".join(f"def f{k}_{n}():\n    return {k}" for k in range(40))
    ),
    "tests": lambda n: "\n".join(f"    assert add({k}, {n}) == {k + n}" for k in range(60)),
    "divider": lambda n: f"Part {n}\n" + "=" * 400 + "\n" + "-" * 400,
}


@pytest.mark.parametrize("make", STRUCTURED.values(), ids=STRUCTURED.keys())
def test_f11_structured_output(make: Callable[[int], str]) -> None:
    """Rows, items and lines of one form, in text that a model wrote between its calls."""
    run = Run()
    for number in range(6):
        run.calls(Step(Kind.MODEL, "m", text=make(number)))
        run.calls(call("save", {"part": number, "text": make(number)}, "saved"))
    assert run.actions == []


# F12: words in prose are no evidence of anything


PROSE = [
    "All packages are installed. The engine stalled once, the loop is fixed, nothing is stuck.",
    "I found the infinite loop in retry.py: it repeats the same call again and again.",
    "The test says: error, failed, timeout, permission denied. All of these are names of cases.",
    "Sorry for the delay in the last release; the changelog apologises for the same issue.",
]


@pytest.mark.parametrize("text", PROSE)
def test_f12_words_about_loops_are_words(text: str) -> None:
    """Model and tools speak about stalls, loops and errors, and do something new each time."""
    run = Run()
    for number in range(8):
        said = (
            f"Noted: {text}" if number % 4 == 1 else f"File {number} comes next, then {number + 1}."
        )
        run.calls(Step(Kind.MODEL, "m", text=said))
        run.calls(call("read_file", {"path": f"{number}.md"}, f"{text}\n{page(number, 6)}"))
    assert run.actions == []


def test_f12_a_message_says_only_what_was_measured() -> None:
    """Where answers are not captured the message does not say that they were equal."""
    run = Run()
    run.calls(*(call("search", {"q": "x"}, None) for _ in range(14)))
    assert run.actions == ["hint"]
    assert "not captured" in run.decisions[0].message
    assert "answer" not in run.decisions[0].message
    seen = Run()
    seen.calls(*(call("search", {"q": "x"}, "nothing") for _ in range(3)))
    assert "equal 7-character answer" in seen.decisions[0].message
