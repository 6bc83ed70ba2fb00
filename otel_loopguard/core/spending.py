"""What a session has spent: the evidence that budgets are held against."""

from __future__ import annotations

from dataclasses import dataclass


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
