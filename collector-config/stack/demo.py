"""A looping agent goes through the stack; where it can be seen is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.parse
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from stack.builds import HERE
from stack.programs import wait_for
from stack.ui import WITHOUT, has_page
from stack.views import Seen, events, total, trace, traces

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
    show_trace(at.jaeger_query, decisions[-1]["trace"])
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


def show_trace(port: int, trace_id: str) -> None:
    """Says where a trace is seen; shows it here, as `replay --tree` does, if Jaeger has no page.

    Args:
        port: Where Jaeger answers queries.
        trace_id: Its id, 32 hex digits.
    """
    jaeger = f"http://127.0.0.1:{port}"
    if has_page(port):
        search = urllib.parse.urlencode({"service": _SERVICE, "tags": json.dumps(_TAG)})
        print(f"its trace     {jaeger}/trace/{trace_id}")
        print(f"all such      {jaeger}/search?{search}", flush=True)
        return
    print(f"its trace     {jaeger}/api/traces/{trace_id} (JSON)")
    print(f"as it has it ({WITHOUT}):")
    Console().print(_tree(trace(port, trace_id)))


def _tree(spans: list[Seen]) -> Tree:
    """Spans below their parents, which have begun before them, with what was decided."""
    top = Tree("", hide_root=True)
    branches: dict[str, Tree] = {}
    for span in spans:
        parents = (branches.get(other) for kind, other in span.references if kind == "CHILD_OF")
        branches[span.id] = next(filter(None, parents), top).add(_label(span))
    return top


def _label(span: Seen) -> Text:
    label = Text(span.name)
    action = str(span.tags.get("loopguard.decision.action", ""))
    if action:
        label.append(f"\n◆ {action}", style="red" if span.red else "yellow")
        label.append(f"  {span.tags['loopguard.decision.message']}")
    return label


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
