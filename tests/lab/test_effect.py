"""`lab.effect` against a scripted model: what it asks, how it pairs, and what it says of it."""

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.effect import installed
from lab.effect.__main__ import main, read
from lab.effect.agent import Run, run
from lab.effect.model import Model
from lab.effect.report import pairs, report
from lab.effect.tasks import Task, tasks
from lab.effect.tools import SCHEMAS, Desk
from otel_loopguard import LoopGuard
from tests.e2e.running import lacking
from tests.server.serving import listening

Row = dict[str, Any]
Script = Callable[[list[Row]], str | tuple[str, Row] | int]
"""What the model does after some messages: a text, a call, or a status of HTTP."""

CODE = Task(
    "file-1", "Which colour does the gate have?", "green",
    files={"gate.txt": "The gate is green."}, jobs={"build-1": (9, "finished, result code 4711")},
)  # fmt: skip


@pytest.fixture(autouse=True)
def newest() -> LoopGuard:
    """A run without a guard asks the breakers and checks of the newest one in this process."""
    return LoopGuard()


@contextmanager
def served(script: Script) -> Generator[tuple[str, list[Row]]]:
    """A server with a scripted model: its address, and the requests that came."""
    asked: list[Row] = []

    def answer(to: BaseHTTPRequestHandler, raw: bytes) -> None:
        body = json.loads(raw)
        asked.append({**body, "key": to.headers["Authorization"], "path": to.path})
        status, said = completion(script(body["messages"]))
        text = json.dumps(said).encode()
        to.send_response(status)
        to.send_header("Content-Length", str(len(text)))
        to.end_headers()
        to.wfile.write(text)

    with listening(answer) as url:
        yield f"{url}/v1", asked


def completion(what: str | tuple[str, Row] | int) -> tuple[int, Row]:
    """What a server answers."""
    if isinstance(what, int):
        return what, {"error": {"message": "not now"}}
    message: Row = {"role": "assistant", "content": what if isinstance(what, str) else None}
    if not isinstance(what, str):
        function = {"name": what[0], "arguments": json.dumps(what[1])}
        message["tool_calls"] = [{"id": "c", "type": "function", "function": function}]
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    return 200, {"choices": [{"message": message}], "usage": usage}


def results(messages: list[Row]) -> list[str]:
    """What the tools have answered."""
    return [one["content"] for one in messages if one["role"] == "tool"]


def stuck(messages: list[Row]) -> tuple[str, Row]:
    """A model that asks for the same, whatever it is told."""
    return "search", {"query": "gate"}


def solves(messages: list[Row]) -> str | tuple[str, Row]:
    """A model that reads the file and says what is in it."""
    return results(messages)[-1] if results(messages) else ("read_file", {"path": "gate.txt"})


def heeds(messages: list[Row]) -> str | tuple[str, Row]:
    """A model that repeats itself until somebody speaks to it."""
    spoken = sum(one["role"] == "user" for one in messages)
    return stuck(messages) if spoken == 1 else "Then it is green."


def both(script: Script, **more: Any) -> tuple[Run, Run]:
    """A run without the guard, and one with it."""
    with served(script) as (url, _):
        one, two = (run(CODE, 1, Model(url, "m"), guarded=on, **more) for on in (False, True))
    return one, two


def test_a_stuck_run_is_ended_by_the_guard_and_else_by_the_limit() -> None:
    """The outcome is the guard's word; refused calls are counted."""
    without, guarded = both(stuck)
    assert (without.ended, without.tool_calls, without.hints, without.refused) == (
        "step limit", 12, 0, 0,
    )  # fmt: skip
    assert guarded.ended == "loop"
    assert guarded.tool_calls < 12
    assert guarded.hints >= 1
    assert guarded.refused >= 1
    assert not guarded.solved
    assert guarded.tokens_in + guarded.tokens_out == 110 * guarded.model_calls


def test_a_run_that_solves_its_task_is_the_same_in_both_arms() -> None:
    """One call, one answer; nothing is said to the model that the tools did not say."""
    without, guarded = both(solves)
    assert without.solved
    assert without.ended == "answered"
    same = {"guarded": False, "seconds": without.seconds}
    assert replace(guarded, **same) == without


def test_a_model_that_heeds_a_hint_solves_its_task_with_the_guard_alone() -> None:
    """The hint is a message of its own in the next request."""
    without, guarded = both(heeds)
    assert (without.ended, without.solved) == ("step limit", False)
    assert (guarded.ended, guarded.solved, guarded.hints) == ("answered", True, 1)


def test_an_overload_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request is made again; a server that goes on failing, or refuses it, ends the run."""
    waits: list[float] = []
    monkeypatch.setattr("lab.effect.model.time", SimpleNamespace(sleep=waits.append))
    statuses = iter([429, 503])
    without, _ = both(lambda messages: next(statuses, None) or solves(messages))
    assert (without.ended, without.solved, without.model_calls) == ("answered", True, 2)
    assert waits == [2, 4]
    without, guarded = both(lambda messages: 503 if results(messages) else solves(messages))
    assert (without.ended, guarded.ended) == ("error", "error")
    # As a conversation that is too long.
    without, guarded = both(lambda messages: stuck(messages) if len(results(messages)) < 2 else 400)
    assert (without.ended, guarded.ended) == ("rejected", "rejected")


def test_a_request_is_as_openai_has_it() -> None:
    """Key, model, tools and seed; the temperature where it is given."""
    with served(solves) as (url, asked):
        run(CODE, 7, Model(url, "m", "secret", temperature=0.5), guarded=True)
        run(CODE, 7, Model(url, "m"), guarded=False)
    first, second, third = asked[:3]
    assert first["path"] == "/v1/chat/completions"
    assert first["key"] == "Bearer secret"
    assert first["tools"] == SCHEMAS
    assert (first["model"], first["temperature"]) == ("m", 0.5)
    assert [one["role"] for one in second["messages"]] == ["system", "user", "assistant", "tool"]
    assert second["messages"][2]["tool_calls"][0]["id"] == second["messages"][3]["tool_call_id"]
    assert first["seed"] != second["seed"]
    assert first["seed"] == third["seed"], "both arms have the same"
    assert third["key"] is None
    assert "temperature" not in third


def test_the_command_writes_results_and_says_what_came_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every task and seed in both arms; the log has the calls, the results have not."""
    monkeypatch.setenv("MY_KEY", "secret")
    files = ["--out", str(tmp_path / "results.json"), "--log", str(tmp_path / "log.txt")]
    with served(stuck) as (url, asked):
        words = ["--url", url, "--model", "m", "--key", "MY_KEY", "--tasks", "2", "--seeds", "2"]
        assert main([*words, *files]) == 0
    assert {one["key"] for one in asked} == {"Bearer secret"}
    about, runs = read(tmp_path / "results.json")
    assert (about["model"], about["tasks"], about["seeds"]) == ("m", 2, 2)
    assert len(runs) == 8
    assert len(pairs(runs)) == 4
    assert report(runs) in capsys.readouterr().out
    assert "| step limit | 4 | 0 |" in report(runs)
    assert "| loop | 0 | 4 |" in report(runs)
    assert "gate" in (tmp_path / "log.txt").read_text()
    assert "gate" not in (tmp_path / "results.json").read_text()


def test_a_key_that_is_not_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Is told at once, with nothing written; what was measured before is kept, for it cost."""
    files = ["--out", str(tmp_path / "results.json"), "--log", str(tmp_path / "log.txt")]
    with served(lambda _: 401) as (url, asked):
        assert main(["--url", url, "--model", "m", *files]) == 1
    assert len(asked) == 1
    assert "401" in capsys.readouterr().err
    assert not (tmp_path / "results.json").exists()
    count = iter(range(100))
    with served(lambda messages: "42" if next(count) < 3 else 401) as (url, _):
        assert main(["--url", url, "--model", "m", *files]) == 1
    assert [run.ended for run in read(tmp_path / "results.json")[1]] == ["answered"] * 3


@pytest.mark.rare
def test_the_small_model_runs_as_the_command_does_it(tmp_path: Path) -> None:
    """And answers equal requests equally: where the guard is silent, both runs are the same."""
    if not installed.installed():
        lacking(f"{installed.NAME} is not there: make smollm")
    files = ["--out", str(tmp_path / "results.json"), "--log", str(tmp_path / "log.txt")]
    assert main(["--tasks", "8", "--seeds", "1", "--steps", "4", *files]) == 0
    about, runs = read(tmp_path / "results.json")
    assert about["model"] == installed.NAME
    assert {run.ended for run in runs} <= {"answered", "step limit"}
    assert any(run.tool_calls for run in runs)
    silent = [pair for pair in pairs(runs) if not pair.spoke]
    assert silent
    for pair in silent:
        assert replace(pair.guarded, guarded=False, seconds=pair.without.seconds) == pair.without


def made(task: str, seed: int, guarded: bool, **more: Any) -> Run:
    """A run that answered after four calls."""
    usual: Row = {"ended": "answered", "model_calls": 5, "tool_calls": 4, "tokens_in": 100}
    return Run(task, seed, guarded, **{**usual, "seconds": 1, **more})


def test_figures_of_runs_that_are_known() -> None:
    """A table worked out by hand: 8 tasks, the guard ends the two that never solve theirs."""
    runs = [
        made(f"task-{number}", seed, guarded, solved=number > 2)
        for number, seed, guarded in product(range(1, 9), (1, 2), (False, True))
    ]
    for one in runs:
        if one.task in ("task-1", "task-2"):
            one.ended = "loop" if one.guarded else "step limit"
            one.tool_calls = 8 if one.guarded else 20
            one.refused = 2 * one.guarded
    text = report(runs)
    assert "| tasks solved | 12 of 16 " in text
    assert "| +0.0 points (+0.0 to +0.0) |" in text
    assert f"| tool calls | 128 | 80 | {80 / 128:.2f} times (" in text
    assert "| answered | 12 | 12 |" in text
    assert "| the guard was silent | 12 | 12 | 0 | 0 |" in text
    assert "| it refused calls or ended the run | 4 | 0 | 0 | 0 |" in text
    # A healthy run that was stopped is solved without the guard only, and costs points.
    runs = [
        made(f"task-{number}", 1, on, solved=True) for number in range(4) for on in (False, True)
    ]
    runs[-1].ended, runs[-1].solved = "loop", False
    assert "| -25.0 points (" in report(runs)
    assert "| it refused calls or ended the run | 1 | 0 | 0 | 1 |" in report(runs)


def test_a_pair_without_one_of_its_runs_is_left_out() -> None:
    """As after an interruption, or where the model's server failed."""
    runs = [made("a", 1, False), made("a", 1, True), made("b", 1, False)]
    runs += [made("c", 1, False), made("c", 1, True, ended="error")]
    assert [(one.without.task, one.guarded.task) for one in pairs(runs)] == [("a", "a")]
    assert "Left out with their pairs: 1 runs" in report(runs)
    assert report([]) == "No pair of runs is complete.\n"


def test_intervals_draw_tasks_and_not_runs() -> None:
    """Ten seeds of one task are no ten tasks: the interval is that of two."""
    every = product(("a", "b"), range(10), (False, True))
    runs = [made(task, seed, on, solved=on and task == "a") for task, seed, on in every]
    assert "| +50.0 points (+0.0 to +100.0) |" in report(runs)


@pytest.mark.parametrize("task", tasks(), ids=lambda task: task.id)
def test_a_task_can_be_solved_with_its_tools(task: Task) -> None:
    """By whoever calls the right ones; and its answer is nowhere in the question."""
    desk = Desk(task)
    names = desk.call("list_files", {}).splitlines() if task.files else []
    found = [desk.call("read_file", {"path": name}) for name in names]
    found += [desk.call("look_up", {"name": name}) for name in task.people]
    found += [desk.call("search", {"query": task.question})]
    for job, (looks, _) in task.jobs.items():
        found += [desk.call("job_status", {"job": job}) for _ in range(looks + 1)]
    if task.id.startswith("sum"):
        found.append(desk.call("calculate", {"expression": task.question[8:-1]}))
    if task.id.startswith("total"):
        parts = [text.split()[-1] for text in found if text.startswith("Visitors")]
        found.append(desk.call("calculate", {"expression": " + ".join(parts)}))
    assert any(task.solved(one) for one in found)
    assert not task.solved(task.question)
    assert not task.solved(None)
