"""What a session has spent: the evidence that budgets are held against."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class AgentSpent:
    """What one agent used in a session; counted on, never kept.

    Attributes:
        actions: Its finished tool calls.
        errors: Those of them that failed, in a row.
        tokens: Tokens of its model calls.
        cost: Their cost, in USD.
    """

    actions: int = 0
    errors: int = 0
    tokens: int = 0
    cost: float = 0.0


@dataclass(slots=True)
class Spending:
    """Running totals of what one session spent. One object per session, counted on: never keep it.

    What was not captured is not counted: a model call without tokens adds none, so that every
    total reads "at least".

    Attributes:
        task: Number of the task at hand, from 0. The user's word and the end of a run begin one.
        steps: Canonical steps of any kind.
        calls: Finished tool calls.
        actions: Finished tool calls of the task at hand.
        models: Model calls.
        tokens_in: Input tokens.
        tokens_out: Output tokens; also where a source has one number for both.
        tokens: Both together.
        step_tokens: Tokens of this step; None if it is no model call, or they are not known.
        cost: Cost of the model calls, in USD, as far as spans say it.
        elapsed_s: Seconds from the start of the task's first step to the newest end.
        phases: Stretches of work of one agent, one after the other, within the task at hand.
        errors: Failed tool calls in a row within the task at hand.
        agent: Agent that did this step, if that is known.
        own: What that agent used; None where it has no limits of its own.
        task_type: Type of the session's task, as its application says; None if it does not.
    """

    task: int = 0
    steps: int = 0
    calls: int = 0
    actions: int = 0
    models: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    tokens: int = 0
    step_tokens: int | None = None
    cost: float = 0.0
    elapsed_s: float = 0.0
    phases: int = 0
    errors: int = 0
    agent: str | None = None
    own: AgentSpent | None = None
    task_type: str | None = None
