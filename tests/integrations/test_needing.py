"""An adapter without its framework says what to install."""

from __future__ import annotations

import importlib
import sys

import pytest

ADAPTERS = {
    "agent_framework": "agent_framework",
    "autogen": "autogen_agentchat",
    "crewai": "crewai",
    "google_adk": "google.adk",
    "langchain": "langchain",
    "llama_index": "llama_index",
    "mcp": "mcp_types",
    "openai_agents": "agents",
    "pydantic_ai": "pydantic_ai",
    "smolagents": "smolagents",
    "strands": "strands",
}


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_missing_framework_names_its_extra(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one of a module that is not there, and has the command that installs it."""
    name, hidden = f"otel_loopguard.integrations.{adapter}", ADAPTERS[adapter]
    for module in [*sys.modules]:
        if module in {name, hidden} or module.startswith(f"{hidden}."):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [_Hides(hidden), *sys.meta_path])
    extra = adapter.replace("_", "-")
    with pytest.raises(ModuleNotFoundError, match=rf"pip install 'otel-loopguard\[{extra}\]'"):
        importlib.import_module(name)


class _Hides:
    """Finds no module of a framework, although it is installed."""

    def __init__(self, hidden: str) -> None:
        self._hidden = hidden

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """As of `importlib.abc.MetaPathFinder`."""
        del path, target
        if name == self._hidden or name.startswith(f"{self._hidden}."):
            msg = f"No module named {name!r}"
            raise ModuleNotFoundError(msg, name=name)
