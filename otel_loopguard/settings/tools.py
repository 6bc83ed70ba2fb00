"""Settings of single tools: what they are, and thresholds of their own (C5)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Count, Names, Seconds, names_of


class ToolSettings(BaseModel):
    """What is declared of one tool; what is not named stays as it is for all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    exempt: bool = Field(False, description="Never judged.")
    polls: bool = Field(False, description="An unchanged answer after a pause is waiting.")
    effect: Literal["read", "write", "wait"] | None = Field(
        None, description="Whether it changes something; by default its name or command says so."
    )
    key: tuple[str, ...] | None = Field(
        None,
        description="Arguments that make two calls the same; by default all but volatile ones.",
    )
    repeat_threshold: Count | None = Field(None, description="Its own `repeat_threshold`.")
    similar_threshold: Count | None = Field(None, description="Its own `similar_threshold`.")
    error_threshold: Count | None = Field(None, description="Its own `error_threshold`.")
    transient_budget_s: Seconds | None = Field(None, description="Its own `transient_budget_s`.")
    wait_budget_s: Seconds | None = Field(None, description="Its own `wait_budget_s`.")
    step_timeout_s: Seconds | None = Field(None, description="Its own `step_timeout_s`.")

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings of calls that this tool has its own value of."""
        own = self.model_dump(exclude_none=True)
        return {name: value for name, value in own.items() if name not in _TRAITS}


_TRAITS = frozenset({"exempt", "polls", "effect", "key"})


class DeclaredTools(BaseSettings):
    """What is declared of tools."""

    poll_tools: Names = Field(
        frozenset(), description="Tools that poll: an unchanged answer is waiting (C5)."
    )
    exempt_tools: Names = Field(frozenset(), description="Tools that are never judged (C5).")
    read_tools: Names = Field(
        frozenset(), description="Tools that change nothing; others are judged by their name (C5)."
    )
    write_tools: Names = Field(
        frozenset(), description="Tools that change something, so that progress is possible (C5)."
    )
    tools: Mapping[str, ToolSettings] = Field(
        {},
        description="Single tools by name (JSON in the variable): `exempt`, `polls`, `effect`, "
        "`key` and thresholds of their own (C5).",
    )

    _split_tools = field_validator(
        "poll_tools", "exempt_tools", "read_tools", "write_tools", mode="before"
    )(names_of)

    @cached_property
    def polling(self) -> frozenset[str]:
        """Tools that are declared to poll."""
        return self.poll_tools | {name for name, tool in self.tools.items() if tool.polls}

    @cached_property
    def exempt(self) -> frozenset[str]:
        """Tools that are never judged."""
        return self.exempt_tools | {name for name, tool in self.tools.items() if tool.exempt}

    @cached_property
    def effects(self) -> Mapping[str, str]:
        """Effects that are declared, by the name of the tool."""
        return {
            **dict.fromkeys(self.poll_tools, "read"),
            **dict.fromkeys(self.read_tools, "read"),
            **dict.fromkeys(self.write_tools, "write"),
            **{name: tool.effect for name, tool in self.tools.items() if tool.effect},
        }
