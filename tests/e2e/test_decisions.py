"""A looping agent, from its process to whoever is told: every program is real."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from stack.programs import wait_for
from stack.views import Seen, events, total, traces
from stack.web import get

from tests.e2e.running import Decisions, decisions_of, start_agent

if TYPE_CHECKING:
    from stack.stack import Stack
    from stack.web import Webhook

ALERT = "LoopGuardAgentAborted"
ABORT = {"loopguard.decision.action": "abort"}


@dataclass(frozen=True)
class Run:
    """One agent that looped until it was stopped, when it ended, and what was decided about it."""

    service: str
    decisions: Decisions
    ended: float

    @property
    def actions(self) -> list[str]:
        return [each["action"] for each in self.decisions]


@pytest.fixture(scope="module", params=["grpc", "http"])
def run(request: pytest.FixtureRequest, stack: Stack, webhook: Webhook) -> Iterator[Run]:
    """An agent in a process of its own, sending OTLP by gRPC or HTTP."""
    protocol = str(request.param)
    port = stack.ports.gateway_grpc if protocol == "grpc" else stack.ports.gateway_http
    service = f"looping-{protocol}"
    words = ("loop", "--protocol", protocol, "--service", service)
    agent = start_agent(port, *words, LOOPGUARD_SPAN_EVENTS="true")
    return Run(service, decisions_of(agent), time.time())


@pytest.fixture
def spans(run: Run, stack: Stack) -> list[Seen]:
    """The spans of the agent's trace, as Jaeger's search gives them for the tag of an abort."""
    query = stack.ports.jaeger_query
    wait_for(
        lambda: [len(one) for one in traces(query, run.service, ABORT)] == [8],
        "the trace is in Jaeger, whole",
    )
    (found,) = traces(query, run.service, ABORT)
    return found


def test_the_agent_was_stopped(run: Run) -> None:
    """The run went the whole way: hint, deny, abort."""
    assert run.actions == ["hint", "deny", "abort"]


def test_jaeger_finds_the_trace_by_the_decision(run: Run, spans: list[Seen]) -> None:
    """A search for the tag gives the one trace, whole: the agent and its seven calls."""
    assert {span.trace for span in spans} == {run.decisions[-1]["trace"]}
    assert [span.name for span in spans] == [
        "invoke_agent researcher",
        *["execute_tool search"] * 7,
    ]


def test_each_decision_is_on_its_span(run: Run, spans: list[Seen]) -> None:
    """The third call carries the hint, the next three the denial, the last one and the agent the
    abort.
    """
    ids = [span.tags.get("loopguard.decision.id") for span in spans]
    hint, deny, abort = (each["id"] for each in run.decisions)
    assert ids == [abort, None, None, hint, deny, deny, deny, abort]


def test_what_was_stopped_is_red(spans: list[Seen]) -> None:
    """Denied and aborted calls and the agent are red; the calls before, and the hint, are not."""
    assert [span.red for span in spans] == [True, *[False] * 3, *[True] * 4]


def test_jaeger_shows_the_decision_as_a_warning(spans: list[Seen]) -> None:
    """Spans with a decision have one warning that says which; the others have none."""
    warned = [span.warnings[0].partition(":")[0] if span.warnings else None for span in spans]
    hint, deny, abort = (f"loopguard {each} (exact_repeat)" for each in ("hint", "deny", "abort"))
    assert warned == [abort, None, None, hint, deny, deny, deny, abort]
    assert all(len(span.warnings) <= 1 for span in spans)


def test_the_agents_span_tells_the_story(spans: list[Seen]) -> None:
    """Where span events are asked for, the agent's span has one for each change of the decision."""
    assert spans[0].events == ("loopguard.decision",) * 3


def test_nothing_of_the_collectors_own_is_left_on_spans(spans: list[Seen]) -> None:
    """The mark that sorts spans is taken off before they leave."""
    assert [name for span in spans for name in span.tags if name.startswith("collector.")] == []


def test_prometheus_has_the_counters(run: Run, stack: Stack) -> None:
    """The guard's counters arrive under the service's name, one for each decision."""
    port, job = stack.ports.prometheus, f'job="{run.service}"'
    query = f"sum(loopguard_decisions_total{{{job}}})"
    wait_for(lambda: total(port, query) >= 3, "Prometheus has three decisions")
    for action in ("hint", "deny", "abort"):
        one = f'sum(loopguard_decisions_total{{{job}, loopguard_decision_action="{action}"}})'
        assert total(port, one) == 1, action


def test_spans_alone_are_counted_too(run: Run, stack: Stack) -> None:
    """The Collector counts spans with a decision, for those who have no metrics: six of eight."""
    query = f'sum(loopguard_span_decisions_total{{job="{run.service}"}})'
    wait_for(lambda: total(stack.ports.prometheus, query) > 0, "the spans are counted")
    assert total(stack.ports.prometheus, query) == 6


def test_the_decision_log_has_each_decision_once(run: Run, stack: Stack) -> None:
    """Every decision is a log event in the file, with its trace and without any content."""
    ids = [each["id"] for each in run.decisions]

    def logged() -> list[dict[str, object]]:
        found = [each for each in events(stack.decisions) if each["name"] == "loopguard.decision"]
        return [each for each in found if each["loopguard.decision.id"] in ids]

    wait_for(lambda: len(logged()) >= 3, "three events are in the file")
    assert [each["loopguard.decision.id"] for each in logged()] == ids
    assert {each["trace"] for each in logged()} == {run.decisions[0]["trace"]}
    assert "weather in Paris" not in json.dumps(logged())
    assert "No results" not in json.dumps(logged())


def test_the_alert_is_told_and_taken_back(run: Run, webhook: Webhook) -> None:
    """The webhook hears of the abort within 30 s, and later that it is over."""

    def told(status: str) -> list[dict[str, object]]:
        return [e for e in webhook.named(ALERT, status) if e["labels"]["job"] == run.service]

    wait_for(lambda: told("firing"), f"{ALERT} fires")
    first = told("firing")[0]
    assert float(str(first["at"])) - run.ended < 30
    labels = dict(first["labels"])  # type: ignore[call-overload]
    assert labels["gen_ai_agent_name"] == "researcher"
    assert labels["loopguard_detector_name"] == "exact_repeat"
    wait_for(lambda: told("resolved"), f"{ALERT} is over")


def test_the_alert_leads_to_the_trace(
    run: Run, spans: list[Seen], stack: Stack, webhook: Webhook
) -> None:
    """What its link searches for in Jaeger is the run that was stopped, and no label is a link."""
    wait_for(
        lambda: [e for e in webhook.named(ALERT, "firing") if e["labels"]["job"] == run.service],
        f"{ALERT} fires",
    )
    (told, *_) = (e for e in webhook.named(ALERT, "firing") if e["labels"]["job"] == run.service)
    page, _, query = told["annotations"]["traces"].partition("/search?")
    assert page == f"http://127.0.0.1:{stack.ports.jaeger_query}"
    found = get(stack.ports.jaeger_query, f"/api/traces?{query}")["data"]
    assert [each["traceID"] for each in found] == [spans[0].trace]
    assert told["annotations"]["summary"].startswith(f"{run.service}: agent researcher ")
    assert not {"jaeger_url", "loopguard_docs"} & set(told["labels"])
