"""Nothing is lost on the way: Collectors and Jaeger are killed in mid-stream, decisions arrive."""

import json
import time
from collections import Counter
from collections.abc import Callable

import pytest
from stack.programs import wait_for
from stack.stack import Stack
from stack.views import events, traces

from tests.e2e.running import Agents, Decisions, decisions_of

pytestmark = pytest.mark.rare

MANY = ("many", "--service", "busy", "--pause", "0.1")
CALLS = {"hint": 1, "deny": 3, "abort": 1}
"""How many of the seven calls of a session carry its decisions."""


def logged(stack: Stack) -> Counter[str]:
    found = (each for each in events(stack.decisions) if each["name"] == "loopguard.decision")
    return Counter(str(each["loopguard.decision.id"]) for each in found)


def seen(stack: Stack) -> Counter[str]:
    return Counter(
        str(span.tags["loopguard.decision.id"])
        for trace in traces(stack.ports.jaeger_query, "busy")
        for span in trace
        if "loopguard.decision.id" in span.tags and span.name.startswith("execute_tool")
    )


def arrived(stack: Stack, decisions: Decisions) -> None:
    """Waits until every decision is in the log and in Jaeger; there once on each call it is of."""
    made = {each["id"] for each in decisions}
    assert len(made) == len(decisions) > 30
    wait_for(lambda: made <= set(logged(stack)), "every decision is in the log", 90)
    calls = Counter({each["id"]: CALLS[each["action"]] for each in decisions})
    wait_for(lambda: calls <= seen(stack), "every decision is in Jaeger", 90)
    assert set(logged(stack)) == made
    assert seen(stack) == calls


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_collectors_that_are_killed_lose_nothing(
    stacks: Callable[[], Stack], agents: Agents, protocol: str
) -> None:
    """Gateway and sidecar are killed, each is away for a while, and every decision arrives."""
    stack = stacks()
    stack.jaeger()
    gateway, sidecar = stack.gateway(), stack.sidecar()
    port = getattr(stack.ports, f"agent_{protocol}")
    agent = agents(port, *MANY, "--protocol", protocol, "--seconds", "12")
    for program in (gateway, sidecar, gateway):
        time.sleep(2)
        program.kill()
        time.sleep(1)
        program.start()
    decisions = decisions_of(agent)
    arrived(stack, decisions)
    # What was written but not acknowledged is sent again: a line may stand there twice.
    assert sum(logged(stack).values()) - len(decisions) <= 3 * 512


def test_jaeger_may_be_away(stacks: Callable[[], Stack], agents: Agents) -> None:
    """Jaeger is killed, and the gateway while it waits for it; all is on disk and arrives."""
    stack = stacks()
    jaeger, gateway = stack.jaeger(), stack.gateway()
    agent = agents(stack.ports.gateway_grpc, *MANY, "--seconds", "12")
    time.sleep(2)
    jaeger.kill()
    time.sleep(4)
    gateway.kill()
    gateway.start()
    decisions = decisions_of(agent)
    time.sleep(5)
    jaeger.start()
    arrived(stack, decisions)


def test_a_killed_agent_loses_what_it_had_not_sent(
    stacks: Callable[[], Stack], agents: Agents
) -> None:
    """What the SDK still holds dies with the process: here what was made in the last second."""
    stack = stacks()
    stack.jaeger()
    stack.gateway()
    agent = agents(stack.ports.gateway_grpc, *MANY, "--seconds", "60")
    assert agent.stdout is not None
    decisions = [json.loads(agent.stdout.readline()) for _ in range(60)]
    time.sleep(1.5)
    agent.kill()
    agent.communicate()
    made = {each["id"] for each in decisions}
    wait_for(lambda: made <= set(logged(stack)), "what was made before is in the log")
    wait_for(lambda: made <= set(seen(stack)), "what was made before is in Jaeger")
