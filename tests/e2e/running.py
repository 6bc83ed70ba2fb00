"""What the tests of this folder run: the agent of the stack, and programs that have to be there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from stack.demo import agent_env

if TYPE_CHECKING:
    from stack.builds import Build
    from stack.environments import Environment

Decisions = list[dict[str, Any]]
REPORT: list[str] = []
Agents = Callable[..., subprocess.Popen[str]]


def lacking(message: str) -> None:
    """Skips a test that cannot run here; fails it under CI, which has to have everything."""
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def need(*builds: Build | Environment) -> None:
    """Needs programs that are built by make."""
    for build in builds:
        if build.built() is None:
            make = "make collector balancer jaeger phoenix mlflow"
            lacking(f"{build.name} is not there: {make}")


def start_agent(port: int, *words: str, **env: str) -> subprocess.Popen[str]:
    """Starts the agent of `stack.agent` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "stack.agent", *words],
        env=agent_env(port) | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines_of(agent: subprocess.Popen[str], limit_s: float = 120) -> list[dict[str, Any]]:
    """Waits for an agent that must end well; what it wrote."""
    out, err = agent.communicate(timeout=limit_s)
    assert agent.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def decisions_of(agent: subprocess.Popen[str], limit_s: float = 120) -> Decisions:
    """Waits for an agent that must end well; what was decided about it."""
    return [line for line in lines_of(agent, limit_s) if "id" in line]
