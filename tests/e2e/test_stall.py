"""A tool that hangs is told of while it hangs."""

import signal

from stack.programs import wait_for
from stack.stack import Stack
from stack.views import traces
from stack.web import Webhook

from tests.e2e.running import Agents, decisions_of

ALERT = "LoopGuardStallInFlight"


def test_the_alert_fires_while_the_tool_hangs(
    stack: Stack, webhook: Webhook, agents: Agents
) -> None:
    """The call is still open, no span of it has ended, and the webhook knows; then it is over."""
    words = ("hang", "--service", "hanging", "--seconds", "120")
    agent = agents(stack.ports.gateway_grpc, *words, "--settings", '{"step_timeout_s": 1}')

    def told(status: str) -> list[object]:
        return [e for e in webhook.named(ALERT, status) if e["labels"]["job"] == "hanging"]

    wait_for(lambda: told("firing"), f"{ALERT} fires")
    assert agent.poll() is None, "the tool had ended"
    assert traces(stack.ports.jaeger_query, "hanging") == [], "a span had ended"
    agent.send_signal(signal.SIGINT)  # the tool ends
    assert [each["action"] for each in decisions_of(agent)] != []
    wait_for(lambda: told("resolved"), f"{ALERT} is over")
