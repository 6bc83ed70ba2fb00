"""Arize Phoenix reads decisions too: its real server, by the Collector and without one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect
from stack.builds import COLLECTOR, HERE, JAEGER
from stack.environments import PHOENIX
from stack.ports import Ports, free_ports
from stack.programs import wait_for
from stack.stack import Pace, Stack
from stack.web import get

from tests.browser import browser, needs_chromium
from tests.e2e.running import Agents, decisions_of, need

ABORT = "loopguard.decision.action:abort"


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, int]]:
    """A Phoenix, and a gateway that sends to it as well as to Jaeger; Phoenix's port."""
    need(COLLECTOR, JAEGER, PHOENIX)
    port, grpc_port = free_ports(2)
    with Stack(tmp_path_factory.mktemp("phoenix"), Ports.free(), Pace()) as stack:
        stack.phoenix(port, grpc_port)
        stack.jaeger()
        overlay = HERE / "backends" / "otlp.yaml"
        stack.gateway(overlay, ALSO_ENDPOINT=f"http://127.0.0.1:{port}")
        yield stack, port
        stack.stop(1)


def stopped(port: int, trace: str) -> list[dict[str, Any]]:
    """The spans of a trace that carry an abort, as Phoenix finds them by the attribute."""
    path = "/v1/projects/default/spans"
    found: list[dict[str, Any]] = get(port, path, attribute=ABORT, trace_id=trace)["data"]
    return found


@pytest.mark.parametrize("way", ["collector", "direct"])
def test_phoenix_finds_the_decision(way: str, phoenix: tuple[Stack, int], agents: Agents) -> None:
    """A query by the attribute gives the agent and the call that were stopped, both failed."""
    stack, port = phoenix
    direct = {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"http://127.0.0.1:{port}/v1/traces"}
    env = direct if way == "direct" else {}
    agent = agents(stack.ports.gateway_http, "loop", "--protocol", "http", **env)
    decisions = decisions_of(agent)
    trace = decisions[-1]["trace"]
    wait_for(lambda: len(stopped(port, trace)) == 2, "Phoenix has both spans")
    spans = {span["name"]: span for span in stopped(port, trace)}
    assert set(spans) == {"invoke_agent researcher", "execute_tool search"}
    for span in spans.values():
        assert span["status_code"] == "ERROR"
        assert span["attributes"]["loopguard.decision.id"] == decisions[-1]["id"]
    agent_span = spans["invoke_agent researcher"]
    assert agent_span["status_message"].startswith("loopguard abort")
    assert agent_span["attributes"]["error.type"] == "loopguard_abort"
    told = [event["attributes"]["loopguard.decision.action"] for event in agent_span["events"]]
    assert told == [each["action"] for each in decisions]


@needs_chromium
def test_phoenix_draws_the_trace_of_a_stopped_agent(
    phoenix: tuple[Stack, int], agents: Agents
) -> None:
    """Its page has a row for each span; agent and deciding call, opened, say why."""
    stack, port = phoenix
    trace = decisions_of(agents(stack.ports.gateway_grpc, "loop"))[-1]["trace"]
    wait_for(lambda: len(stopped(port, trace)) == 2, "Phoenix has both spans")
    (message,) = {span["attributes"]["loopguard.decision.message"] for span in stopped(port, trace)}
    with browser() as opened:
        page = opened.new_page()
        page.goto(f"http://127.0.0.1:{port}/redirects/traces/{trace}")
        shown = page.get_by_role("dialog")
        calls = shown.get_by_text("execute_tool search")
        expect(calls).to_have_count(7)
        expect(shown.get_by_text(f"loopguard abort: {message}")).to_be_visible()
        calls.last.click()
        expect(shown.get_by_role("row").filter(has_text="decision.action")).to_contain_text("abort")
        expect(shown.get_by_text(message, exact=True)).to_be_visible()
