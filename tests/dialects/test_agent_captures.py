"""What agents in Java, Go and TypeScript and coding agents really export is read as what ran.

The captures below this folder were written by `tests/dialects/agents.py` with Spring AI 2.0.1, ADK
for Go 2.2.0, Copilot CLI 1.0.102, opencode 1.18.33, Claude Code 2.1.330 and LangGraph.js 1.7.3 with
OpenInference 4.1.1, by `tests/typescript/capture.mjs` with AI SDK 7.0.173 and Mastra 1.71.0, and by
Claude Code 2.1.330, Codex 0.169.0, gemini-cli 0.61.0 and OpenAI's client for Java 4.105.0 under
OpenTelemetry's agent 2.33.1 (`openai-java`) against model servers with a script;
without what is of the machine, and without prompts of the system. `sub_agent_captures/` has a
manager under OpenInference whose sub-agent is asked the same in every turn, and one whose sub-agent
gets another task each time; `approval_captures/` has calls that wait for a person, and
`handoff_captures/` agents that hand over to each other.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.server.otlp import JSON, decode, log_views
from tests.dialects import captures, loops
from tests.dialects.agents import AGENTS, GO, JAVA, NODE, STUCK
from tests.dialects.approval_captures.record import PEOPLE
from tests.dialects.sub_agent_captures.record import ANSWERS, TASKS
from tests.dialects.sub_agent_captures.record import STUCK as SAME
from tests.dialects.told import sections, told
from tests.test_untraced import Seen

TABLE = sections("captures.txt")
FILES = {
    path.name.removesuffix(".jsonl"): path for at in (JAVA, GO, NODE) for path in at.glob("*.jsonl")
}
TOLD = {name: path for name, path in FILES.items() if "-stuck" not in name}


def run_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> captures.Run:
    monkeypatch.setattr(captures, "SPANS", path.parent)
    return captures.recorded.__wrapped__(path.name.removesuffix(".otlp.jsonl"))


def steps_of(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """The steps that its spans, by start, or its log records, in their order, tell of."""
    if path.name.endswith(".otlp.jsonl"):
        return sorted(run_of(path, monkeypatch).steps, key=lambda step: step.start)
    reader, lines = captures.Reader(), path.read_bytes().splitlines()
    requests = (decode(ExportLogsServiceRequest, line, JSON) for line in lines)
    views = (view for request in requests for view in log_views(request))
    return [step for step in map(reader.read, views) if step is not None]


def lines_of(steps: list[Step]) -> list[str]:
    kinds = (Kind.TOOL, Kind.MODEL, Kind.AGENT)
    sessions = ", ".join(sorted({str(step.session) for step in steps}))
    return [f"session {sessions}", *(told(step, "session") for step in steps if step.kind in kinds)]


@pytest.mark.parametrize("name", sorted(TOLD))
def test_what_ran_comes_back(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls with arguments, outcomes and failures, answers with texts and tokens, and agents."""
    assert lines_of(steps_of(TOLD[name], monkeypatch)) == TABLE[name]


@pytest.mark.parametrize("name", sorted(AGENTS))
def test_a_stuck_agent_makes_the_same_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read of its calls has nothing in it that differs between them."""
    calls = run_of(FILES[f"{name}-stuck.otlp"], monkeypatch).of(Kind.TOOL)
    assert len(calls) >= STUCK - 1  # opencode loses its last batch
    assert len({(call.name, json.dumps(captures.loaded(call.args))) for call in calls}) == 1
    assert len({call.outcome for call in calls}) == 1


@pytest.mark.parametrize("path", FILES.values(), ids=FILES)
def test_captures_have_nothing_of_the_machine(path: Path) -> None:
    text = path.read_text()
    assert json.loads(text.splitlines()[0])
    for word in ("/tmp", "/work", "user.id", "host.name", "installation.id"):
        assert word not in text


SUB_AGENTS = Path(__file__).parent / "sub_agent_captures"
FRAMEWORKS = pytest.mark.parametrize("framework", ["smolagents", "langgraph"])


@FRAMEWORKS
@pytest.mark.parametrize(
    ("name", "script", "actions"),
    [("stuck", SAME, [Action.HINT, Action.DENY]), ("fine", (TASKS, ANSWERS), [])],
)
def test_a_sub_agent_that_is_asked_the_same_again_is_stopped(
    framework: str, name: str, script: tuple[Sequence[str], Sequence[str]], actions: list[Action]
) -> None:
    """One that is asked for something else is left alone, though its manager says the same."""
    seen = Seen().replay(loops.spans(f"{framework}-{name}", SUB_AGENTS))
    runs = [step for step in seen.steps if step.kind is Kind.AGENT and step.parent_id]
    assert [(step.args, step.outcome) for step in runs] == [*zip(*script, strict=True)]
    told = [(one.action, one.reason) for one in seen.decisions if one.action.rank]
    assert told[:2] == [(action, "same_instruction") for action in actions]


APPROVALS = Path(__file__).parent / "approval_captures"


@pytest.mark.parametrize("name", [path.stem for path in APPROVALS.glob("*.json")])
def test_calls_that_wait_for_a_person_are_one_call_each_and_no_failures(name: str) -> None:
    """Eight mails are asked about at once, and sent when somebody has approved them."""
    seen = Seen().replay(loops.spans(name, APPROVALS))
    calls = [step for step in seen.steps if step.kind is Kind.TOOL]
    assert sorted(f"The mail to {one} was sent." for one in PEOPLE) == sorted(
        str(one.outcome) for one in calls
    )
    assert not any(one.error for one in calls)
    assert seen.decisions == []


HANDOFFS = Path(__file__).parent / "handoff_captures"


def test_agents_that_hand_over_in_a_ring_are_told_and_others_are_left_alone() -> None:
    """Of Microsoft Agent Framework, whose hand-offs are in messages alone."""
    fine, stuck = (
        Seen().replay(loops.spans(f"agent_framework-{name}", HANDOFFS))
        for name in ("fine", "stuck")
    )
    assert {one.action for one in fine.decisions} <= {Action.ALLOW}
    assert [one.reason for one in stuck.decisions if one.action is Action.HINT] == ["topic_cycle"]
