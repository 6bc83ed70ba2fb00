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


@needs_chromium
def test_phoenix_draws_the_trace_of_a_stopped_agent(
    phoenix: tuple[Stack, int], agents: Agents
) -> None:
    """A query by the attribute gives agent and deciding call; opened in its page, they say why."""
    stack, port = phoenix
    decisions = decisions_of(agents(stack.ports.gateway_grpc, "loop"))
    trace = decisions[-1]["trace"]
    wait_for(lambda: len(stopped(port, trace)) == 2, "Phoenix has both spans")
    spans = {span["name"]: span for span in stopped(port, trace)}
    agent = spans["invoke_agent researcher"]
    assert {span["status_code"] for span in spans.values()} == {"ERROR"}
    assert agent["attributes"]["error.type"] == "loopguard_abort"
    told = [event["attributes"]["loopguard.decision.action"] for event in agent["events"]]
    assert told == [each["action"] for each in decisions]
    (message,) = {span["attributes"]["loopguard.decision.message"] for span in spans.values()}
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
