"""A looping agent, from its process to whoever is told: every program is real."""

import json
import re
import signal
import time
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from stack.programs import wait_for
from stack.stack import Stack
from stack.views import Seen, events, total, traces
from stack.web import Webhook, get, read

from tests.e2e.running import Agents, Decisions, decisions_of, start_agent
from tests.operations import boards
from tests.operations.programs import RULES

ALERT, STALLED = "LoopGuardAgentAborted", "LoopGuardStallInFlight"
ABORT = {"loopguard.decision.action": "abort"}


@dataclass(frozen=True)
class Run:
    """One agent that looped until it was stopped, when it ended, and what was decided about it.

    `job` is its service as Prometheus has it.
    """

    service: str
    job: str
    decisions: Decisions
    ended: float


@pytest.fixture(scope="module", params=["grpc", "http"])
def run(request: pytest.FixtureRequest, stack: Stack, webhook: Webhook) -> Run:
    protocol = str(request.param)
    port = stack.ports.gateway_grpc if protocol == "grpc" else stack.ports.gateway_http
    service = f"looping-{protocol}"
    words = ("loop", "--protocol", protocol, "--service", service)
    space = "" if protocol == "grpc" else "retail"
    more = {"OTEL_RESOURCE_ATTRIBUTES": f"service.namespace={space}"} if space else {}
    agent = start_agent(port, *words, LOOPGUARD_SPAN_EVENTS="true", **more)
    return Run(service, f"{space}/{service}".strip("/"), decisions_of(agent), time.time())


@pytest.fixture
def spans(run: Run, stack: Stack) -> list[Seen]:
    """The spans of the agent's trace, as Jaeger's search gives them for the tag of an abort."""
    where = (stack.ports.jaeger_query, run.service, ABORT)
    wait_for(lambda: [len(one) for one in traces(*where)] == [8], "the trace is in Jaeger, whole")
    (found,) = traces(*where)
    return found


def test_jaeger_finds_the_trace_by_the_decision(run: Run, spans: list[Seen]) -> None:
    """A search for the tag gives the one trace, whole, with each decision on its span.

    The third call carries the hint, the next three the denial, the last one and the agent the
    abort; what was stopped is red, and each decision is a warning that says which. Where span
    events are asked for, the agent's span has one for each change.
    """
    hint, deny, abort = (each["id"] for each in run.decisions)
    assert [each["action"] for each in run.decisions] == ["hint", "deny", "abort"]
    assert {span.trace for span in spans} == {run.decisions[-1]["trace"]}
    names = ["invoke_agent researcher", *["execute_tool search"] * 7]
    assert [span.name for span in spans] == names
    ids = [span.tags.get("loopguard.decision.id") for span in spans]
    assert ids == [abort, None, None, hint, deny, deny, deny, abort]
    assert [span.red for span in spans] == [True, *[False] * 3, *[True] * 4]
    said = {each["id"]: f"loopguard {each['action']} (exact_repeat)" for each in run.decisions}
    warned = [[one.partition(":")[0] for one in span.warnings] for span in spans]
    assert warned == [[said[one]] if one else [] for one in ids]
    assert spans[0].events == ("loopguard.decision",) * 3
    # The mark by which the Collector sorts spans is taken off before they leave.
    assert [name for span in spans for name in span.tags if name.startswith("collector.")] == []


def test_prometheus_has_the_counters(run: Run, stack: Stack) -> None:
    """One of the guard's for each decision; the Collector counts the six spans with a decision."""
    port, job = stack.ports.prometheus, f'job="{run.job}"'
    named = f"loopguard_decisions_total{{{job}, loopguard_decision_action="
    counts = {f'{named}"{action}"}}': 1 for action in ("hint", "deny", "abort")}
    for query, count in {**counts, f"loopguard_span_decisions_total{{{job}}}": 6}.items():
        wait_for(lambda query=query: total(port, f"sum({query})") > 0, f"{query} is counted")
        assert total(port, f"sum({query})") == count, query


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


LATER = re.compile(r"otelcol_exporter_(sent|send_failed|enqueue_failed)_")
"""Counters that are not there before something was sent or lost."""


def test_the_collector_says_what_rules_and_dashboards_ask_for(run: Run, stack: Stack) -> None:
    """Its own metrics have the names and labels, with the spelling that they have in this build."""
    drawn = (found for name in boards.NAMES for found in boards.queries(boards.board(name)))
    exprs = [target["expr"] for _, target in drawn]
    for path in RULES:
        groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        exprs += [rule["expr"] for group in groups for rule in group["rules"]]
    asked = {name for expr in exprs for name in re.findall(r"\botelcol_[a-z_]+", expr)}
    assert len(asked) > 10

    def names() -> set[str]:
        found = re.findall(r"(?m)^(otelcol_\w+)", read(stack.ports.gateway_self, "/metrics"))
        return {name.removesuffix("_total") for name in found}

    wait_for(lambda: {name for name in asked if not LATER.match(name)} <= names(), "it says all")
    for line in read(stack.ports.gateway_self, "/metrics").splitlines():
        if line.startswith("otelcol_exporter_queue_"):
            assert 'exporter="' in line
        if line.startswith("otelcol_receiver_accepted_"):
            assert 'receiver="otlp' in line


def told(run: Run, webhook: Webhook, status: str) -> dict[str, Any]:
    """The alert about the run, once the webhook was told that it fires or is over."""

    def found() -> list[dict[str, Any]]:
        return [e for e in webhook.named(ALERT, status) if e["labels"]["job"] == run.job]

    wait_for(found, f"{ALERT} is {status}")
    return found()[0]


def test_the_alert_is_told_and_taken_back(run: Run, webhook: Webhook) -> None:
    """The webhook hears of the abort within 30 s, once, and later that it is over."""
    first = told(run, webhook, "firing")
    assert float(first["at"]) - run.ended < 30
    known = {"gen_ai_agent_name": "researcher", "loopguard_detector_name": "exact_repeat"}
    assert known.items() <= first["labels"].items()
    told(run, webhook, "resolved")
    again = [each["labels"]["job"] for each in webhook.named("LoopGuardAbortOnSpan", "firing")]
    assert [job for job in again if job.endswith(run.service)] == []


def test_the_alert_leads_to_the_trace(
    run: Run, spans: list[Seen], stack: Stack, webhook: Webhook
) -> None:
    """What its link searches for in Jaeger is the run that was stopped, and no label is a link."""
    first = told(run, webhook, "firing")
    page, _, query = first["annotations"]["traces"].partition("/search?")
    assert page == f"http://127.0.0.1:{stack.ports.jaeger_query}"
    found = get(stack.ports.jaeger_query, f"/api/traces?{query}")["data"]
    assert [each["traceID"] for each in found] == [spans[0].trace]
    assert first["annotations"]["summary"].startswith(f"{run.job}: agent researcher ")
    assert not {"jaeger_url", "loopguard_docs"} & set(first["labels"])


def test_the_alert_fires_while_the_tool_hangs(
    stack: Stack, webhook: Webhook, agents: Agents
) -> None:
    """The call is still open, no span of it has ended, and the webhook knows; then it is over."""
    words = ("hang", "--service", "hanging", "--seconds", "120")
    agent = agents(stack.ports.gateway_grpc, *words, "--settings", '{"step_timeout_s": 1}')

    def told(status: str) -> list[object]:
        return [e for e in webhook.named(STALLED, status) if e["labels"]["job"] == "hanging"]

    wait_for(lambda: told("firing"), f"{STALLED} fires")
    assert agent.poll() is None, "the tool had ended"
    assert traces(stack.ports.jaeger_query, "hanging") == [], "a span had ended"
    agent.send_signal(signal.SIGINT)  # the tool ends
    assert [each["action"] for each in decisions_of(agent)] != []
    wait_for(lambda: told("resolved"), f"{STALLED} is over")
