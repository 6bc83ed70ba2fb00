"""Claude Code: whose turn it is, who refused, which lines are of whom."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from otel_loopguard.core import Kind
from tests.replay.transcripts.reading import Told, lines, one, read

Line = dict[str, Any]
REFUSED = "The user doesn't want to proceed with this tool use. The tool use was rejected."


def said(content: object, **more: object) -> Line:
    message = {"role": "user", "content": content}
    return {"type": "user", "message": message, "sessionId": "s", "uuid": "u"} | more


def asked(key: str, name: str = "Bash", *, message: str = "m1", **more: object) -> Line:
    use = {"type": "tool_use", "id": key, "name": name, "input": {"command": "ls"}}
    usage = {"input_tokens": 10, "output_tokens": 5}
    content = {"role": "assistant", "id": message, "model": "m", "content": [use], "usage": usage}
    return {"type": "assistant", "message": content, "sessionId": "s", "uuid": key} | more


def answered(key: str, content: object = "ok", *, error: bool = False, **more: object) -> Line:
    result = {"type": "tool_result", "tool_use_id": key, "content": content, "is_error": error}
    return said([result], **more)


def test_a_person_begins_a_turn_and_what_the_program_writes_does_not(tmp_path: Path) -> None:
    written = [
        said("first"),
        asked("1"),
        answered("1"),
        said("<local-command-stdout>on</local-command-stdout>"),
        said("Continue from where you left off.", isMeta=True),
        said("This session is being continued", isCompactSummary=True),
        asked("2", message="m2"),
        answered("2"),
        said([{"type": "text", "text": "second"}]),
        asked("3", message="m3"),
        answered("3"),
    ]
    run = one(lines(tmp_path / "s.jsonl", written))
    kinds = [step.kind for step in run.steps]
    turn = [Kind.OTHER, Kind.MODEL, Kind.TOOL]
    assert kinds == [*turn, Kind.MODEL, Kind.TOOL, *turn]
    assert len(run.endings) == 2


@pytest.mark.parametrize(
    "result",
    [
        answered("1", REFUSED, error=True),
        answered("1", "half", toolUseResult={"stdout": "half", "stderr": "", "interrupted": True}),
        answered(
            "1",
            "no",
            error=True,
            permissionDecision={"decision": "reject", "source": "user_reject"},
        ),
    ],
)
def test_what_a_person_refused_did_not_fail(result: Line, tmp_path: Path) -> None:
    call = one(lines(tmp_path / "s.jsonl", [said("go"), asked("1"), result])).steps[-1]
    assert (call.kind, call.error, call.outcome) == (Kind.TOOL, False, None)


def test_a_session_that_a_person_interrupted_did_not_finish(tmp_path: Path) -> None:
    stop = said([{"type": "text", "text": "[Request interrupted by user]"}])
    run = one(lines(tmp_path / "s.jsonl", [said("go"), asked("1"), answered("1"), stop]))
    assert run.endings == ("interrupted",)


def test_side_chains_of_old_versions_are_told_apart_by_their_lines(tmp_path: Path) -> None:
    def side(line: Line, own: str, above: str | None) -> Line:
        return line | {"isSidechain": True, "uuid": own, "parentUuid": above}

    written = [
        said("go"),
        side(said("look"), "a1", None),
        side(said("search"), "b1", None),
        side(asked("1"), "a2", "a1"),
        side(asked("2", message="m2"), "b2", "b1"),
        side(answered("2"), "b3", "b2"),
        side(answered("1"), "a3", "a2"),
        # Nobody writes circles; they must not hang.
        side(asked("3", message="m3"), "c1", "c2"),
        side(asked("4", message="m4"), "c2", "c1"),
    ]
    run = one(lines(tmp_path / "s.jsonl", written))
    assert [(call.agent, call.call_id) for call in run.steps if call.kind is Kind.TOOL] == [
        ("side-b1", "2"),
        ("side-a1", "1"),
    ]
    assert sum(step.kind is Kind.OTHER for step in run.steps) == 1


def test_usage_on_every_line_of_an_answer_counts_once(tmp_path: Path) -> None:
    written = [said("go"), asked("1"), asked("2"), answered("1"), answered("2"), asked("1")]
    run = one(lines(tmp_path / "s.jsonl", written))
    assert [step.tokens for step in run.steps if step.kind is Kind.MODEL] == [15]
    assert sum(step.kind is Kind.TOOL for step in run.steps) == 2


def test_an_error_of_the_service_is_no_answer_of_a_model(tmp_path: Path) -> None:
    broken = {"role": "assistant", "id": "x", "model": "<synthetic>", "content": "API Error: 529"}
    written = [said("go"), {"type": "assistant", "message": broken, "sessionId": "s"}]
    run = one(lines(tmp_path / "s.jsonl", written))
    assert [step.kind for step in run.steps] == [Kind.OTHER]


def test_pictures_are_told_apart_without_their_bytes(tmp_path: Path) -> None:
    def picture(data: str) -> list[Line]:
        return [{"type": "image", "source": {"type": "base64", "data": data * 1_000}}]

    written = [
        said("go"),
        *(
            line
            for key in "abc"
            for line in (asked(key), answered(key, picture(key.replace("c", "a"))))
        ),
    ]
    outcomes = [
        step.outcome
        for step in one(lines(tmp_path / "s.jsonl", written)).steps
        if step.kind is Kind.TOOL
    ]
    assert outcomes[0] == outcomes[2] != outcomes[1]
    assert len(str(outcomes)) < 500


@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.gz"])
def test_a_file_that_is_being_written_is_read_as_far_as_it_goes(name: str, tmp_path: Path) -> None:
    written = [said("go"), asked("1"), answered("1"), '{"type":"assistant","mess']
    run = one(lines(tmp_path / name, written, end=""))
    assert len(run.steps) == 3


def test_a_broken_line_inside_is_told_with_its_number(tmp_path: Path) -> None:
    told: Told = []
    written = [said("go"), '{"type": "user", "mess', asked("1"), answered("1"), answered("9")]
    run = one(lines(tmp_path / "s.jsonl", written), told)
    assert len(run.steps) == 3
    assert told[0][0] == 2
    assert told[0][1].startswith("no valid JSON")
    assert told[1] == (5, "a result belongs to no call before it")


def test_sessions_one_after_the_other_in_a_pipe_stay_apart(tmp_path: Path) -> None:
    def session(key: str) -> list[Line]:
        return [line | {"sessionId": key} for line in (said("go"), asked("1"), answered("1"))]

    found = read(lines(tmp_path / "all.jsonl", session("one") + session("two")))
    assert [(run.id, len(run.steps)) for run in found] == [("one", 3), ("two", 3)]
