"""A looping agent goes through the stack; where it can be seen is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.parse
from typing import TYPE_CHECKING

from stack.builds import HERE
from stack.programs import wait_for
from stack.views import events, total, trace, traces

if TYPE_CHECKING:
    from stack.stack import Stack
    from stack.web import Webhook

_SERVICE = "loopguard-demo"
_TAG = {"loopguard.decision.action": "abort"}
_COUNT = 'sum(loopguard_decisions_total{loopguard_decision_action="abort"})'
_ALERT = "LoopGuardAgentAborted"


def show(stack: Stack, hook: Webhook) -> None:
    """Sends an agent through that repeats one call until it is stopped, and says where to look.

    Args:
        stack: Running.
        hook: What its Alertmanager tells.

    Raises:
        TimeoutError: Something did not arrive within a minute.
    """
    at = stack.ports
    wait_for(lambda: total(at.prometheus, 'up{job="loopguard"}') == 1, "Prometheus scrapes")
    decisions = [each for each in send(stack, "loop") if each["action"] != "allow"]
    print(f"an agent ran, and was stopped: {', '.join(each['action'] for each in decisions)}\n")
    wait_for(lambda: traces(at.jaeger_query, _SERVICE, _TAG), "the trace is in Jaeger")
    jaeger = f"http://127.0.0.1:{at.jaeger_query}"
    found = f"{jaeger}/trace/{decisions[-1]['trace']}"
    search = urllib.parse.urlencode({"service": _SERVICE, "tags": json.dumps(_TAG)})
    print(f"its trace     {found}")
    print(f"              {jaeger}/api/traces/{decisions[-1]['trace']} (JSON)")
    print(f"all such      {jaeger}/search?{search}")
    print("as Jaeger has it:")
    for span in trace(at.jaeger_query, decisions[-1]["trace"]):
        print(f"    {'red' if span.red else '   '} {span.name:24} {' '.join(span.warnings)}")
    wait_for(lambda: total(at.prometheus, _COUNT), "Prometheus has counted it")
    graph = urllib.parse.urlencode({"g0.expr": _COUNT, "g0.tab": 1})
    print(f"counted       http://127.0.0.1:{at.prometheus}/graph?{graph}")
    told = [each["loopguard.decision.action"] for each in events(stack.decisions) if _decided(each)]
    print(f"logged        {stack.decisions}: {', '.join(told)}")
    wait_for(lambda: hook.named(_ALERT, "firing"), f"{_ALERT} fires")
    print(
        f"alert         http://127.0.0.1:{at.alertmanager}/#/alerts ({_ALERT}, told to the webhook)"
    )
    wait_for(lambda: hook.named(_ALERT, "resolved"), f"{_ALERT} is over")


def send(stack: Stack, *words: str) -> list[dict[str, str]]:
    """Runs the agent of `agent.py` against a stack; its decisions.

    Args:
        stack: Running.
        words: What to do, and options.

    Raises:
        subprocess.CalledProcessError: The agent failed.
    """
    command = [sys.executable, "-m", "stack.agent", *words]
    done = subprocess.run(
        command, env=agent_env(stack.ports.gateway_grpc), check=True, text=True,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def agent_env(port: int) -> dict[str, str]:
    """The environment of an agent that sends to a Collector on loopback."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    paths = [str(HERE), *filter(None, [env.get("PYTHONPATH")])]
    endpoint = f"http://127.0.0.1:{port}"
    return env | {"PYTHONPATH": os.pathsep.join(paths), "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}


def _decided(event: dict[str, str]) -> bool:
    return event["name"] == "loopguard.decision"
