"""From a span to a step: what every span has, what failed, what it cost, and where it belongs.

Costs are in USD: `llm.cost.total` (OpenInference), `operation.cost` (logfire and pydantic-ai),
`gen_ai.usage.cost` (OpenLIT and others), `gen_ai.cost.total_cost` and `litellm.cost.total`
(LiteLLM), and `total` in the JSON of `langfuse.observation.cost_details`.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv
from otel_loopguard.core import Kind, Step
from otel_loopguard.errors import REFUSALS
from otel_loopguard.semconv import DECISION_ACTION, DECISION_MESSAGE, decided
from otel_loopguard.spans.values import (
    count,
    hidden,
    identifier,
    known,
    listing,
    mapping,
    parsed,
    text,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from otel_loopguard.spans.values import Outcome
    from otel_loopguard.spans.views import SpanView


_TRACEBACK: Final = "Traceback (most recent call last)"
_REPR: Final = re.compile(r"\A\s*([A-Za-z_][\w.]*)\(")
_LINE: Final = re.compile(r"\A\s*([A-Za-z_][\w.]*(?:Error|Exception|Timeout|Interrupt)): ")
_TYPE_CHARS: Final = 200
"""Characters at the start of an error's text that may name its type: a path of modules and a class
is shorter, and the patterns never walk through a text of megabytes."""
_OURS: Final = REFUSALS | {semconv.ERROR_ABORT, semconv.ERROR_DENY}
"""What a text says is never evidence, also not that a call was refused."""
_VAGUE: Final = frozenset(("_OTHER", "TOOL_ERROR", "tool_error", "Exception", "Error", "unknown"))
PUT_OFF: Final = frozenset(
    "ApprovalRequired CallDeferred GraphInterrupt InterruptException NodeInterrupt"
    " ToolInterruptError UserInputRequiredException WaitingForEvent".split()
)
"""Exceptions by which pydantic-ai, LangGraph, Strands, Genkit, Microsoft Agent Framework and
LlamaIndex put a call off until somebody answers."""
_DEFERRAL: Final = "pydantic_ai.tool.deferral.name"
_COST_DETAILS: Final = "langfuse.observation.cost_details"
_COSTS: Final = frozenset(
    "llm.cost.total operation.cost gen_ai.usage.cost gen_ai.cost.total_cost"
    " litellm.cost.total".split()
)
_PRICED: Final = _COSTS | {_COST_DETAILS}
_MOST_COST: Final = 1e9
"""No call of a model has cost more: a larger amount is a mistake, as of tokens."""
_CACHE_READS: Final = frozenset(
    "gen_ai.usage.cache_read.input_tokens gen_ai.usage.cache_read_input_tokens"
    " gen_ai.usage.details.cache_read_tokens llm.token_count.prompt_details.cache_read"
    " ai.usage.cachedInputTokens ai.usage.inputTokenDetails.cacheReadTokens"
    " cache_read_tokens cached_content_token_count cached_token_count".split()
)
_CACHE_WRITES: Final = frozenset(
    "gen_ai.usage.cache_write.input_tokens gen_ai.usage.cache_creation.input_tokens"
    " gen_ai.usage.cache_creation_input_tokens gen_ai.usage.cache_write_input_tokens"
    " gen_ai.usage.details.cache_write_tokens llm.token_count.prompt_details.cache_write"
    " ai.usage.inputTokenDetails.cacheWriteTokens cache_creation_tokens".split()
)


def begin(span: SpanView, kind: Kind, name: str | None) -> Step:
    """A step with what every span has: ids, scope and times. The reader adds the dialect."""
    start, end = span.start, span.end
    if start < 0:  # noqa: PLR1730  # a tenth of the price of max()
        start = 0
    if end is not None and end < start:
        end = start
    return Step(kind, name, "", span.scope, span.trace_id, span.span_id, span.parent_id, start, end)


def captured(span: SpanView, *keys: str) -> object:
    """The value of the first key that is there; None if there is none, or if it is hidden.

    A hidden value is looked up among the attributes that another processor has not changed yet.
    """
    attributes = span.attributes
    for key in keys:
        value = attributes.get(key)
        if value is not None:
            return _unscrubbed(span, key) if hidden(value) else value
    return None


def _unscrubbed(span: SpanView, key: str) -> object:
    earlier = span.start_attributes
    return None if earlier is None else known(earlier.get(key))


def first_identifier(
    span: SpanView, keys: tuple[str, ...], *, but: str | None = None, reveal: bool = False
) -> str | None:
    """The first id under these keys; `reveal` asks for what a hidden one was before."""
    attributes = span.attributes
    for key in keys:
        value = attributes.get(key)
        found = identifier(value)
        if found is None and reveal and hidden(value):
            found = identifier(_unscrubbed(span, key))
        if found not in (None, but):
            return found
    return None


def failed(step: Step, span: SpanView) -> Step:
    """Puts on the step what the span says of a failure, and returns the step.

    The text of an exception event comes before the description of the status: instrumentations put
    whole tracebacks there (OpenInference LangChain). An exception event on a span whose status is
    OK was handled and is no failure.
    """
    attributes, status = span.attributes, span.status
    kind, decision = text(attributes.get("error.type")), attributes.get(DECISION_MESSAGE)
    thrown = next((found for name, found in span.events if name == "exception"), None)
    raised = text(attributes.get(_DEFERRAL) if thrown is None else thrown.get("exception.type"))
    if (raised or kind or "").rpartition(".")[2] in PUT_OFF:
        return put_off(step)
    if status != "error":
        if kind is None and (thrown is None or status == "ok"):
            return step
    elif decision is not None and span.description == decided(
        attributes.get(DECISION_ACTION), decision
    ):
        return step  # an exporter's mark of a decision about a call that went well
    message = text((thrown or {}).get("exception.message")) or text(span.description)
    if kind is None or (kind in _VAGUE and raised):
        kind = raised
    step.error = True
    # A code in place of a text (ADK) is the same for every failure: the text is unknown.
    step.error_text = None if message in _VAGUE else headline(message)
    if kind is None or kind in _VAGUE:
        kind = _type_in(step.error_text) or kind
    step.error_type = kind
    return step


def put_off(step: Step) -> Step:
    """Returns the step of work that waits for somebody's answer: no failure, and no call yet.

    A call that is made after all has a span of its own then, and counts once. One that is refused
    may be told by messages alone, which are read where no span has arguments.
    """
    if step.kind is Kind.TOOL:
        step.kind, step.args = Kind.OTHER, None
    return step


def fail(step: Step, reason: object, kind: str | None = None) -> Step:
    """Marks the step as failed; keeps a text and a type that are already known."""
    step.error = True
    if step.error_text is None:
        step.error_text = headline(text(reason))
    if step.error_type is None:
        step.error_type = kind
    return step


def set_outcome(step: Step, outcome: Outcome) -> None:
    """Puts an unwrapped result on the step, with the call id and the failure that it names."""
    step.outcome = outcome.value
    step.call_id = step.call_id or outcome.call_id
    if outcome.failed:
        fail(step, outcome.error)


def headline(message: str | None) -> str | None:
    """The text of an error up to its traceback; None if it is hidden."""
    if message is None or hidden(message):
        return None
    at = message.find(_TRACEBACK)
    if at < 0:
        return message
    # A text that is a traceback from its start on names the error in its last line.
    lines = message[:at].strip() or message.rstrip().rpartition("\n")[2].strip()
    return lines or message


def _type_in(message: str | None) -> str | None:
    """The type that the text of an error begins with, unless the guard itself speaks by it."""
    if message is None:
        return None
    found = _LINE.match(message, 0, _TYPE_CHARS) or _REPR.match(message, 0, _TYPE_CHARS)
    return found[1] if found and found[1].rpartition(".")[2] not in _OURS else None


def set_cost(step: Step, attributes: Mapping[str, object]) -> None:
    """Puts on a model's step what it cost, and which of its tokens a cache changes the price of.

    Where several conventions say it, the highest counts: they tell of the same call.
    """
    if step.cost is None and not _PRICED.isdisjoint(attributes):
        found = [_amount(attributes.get(key)) for key in _COSTS]
        found.append(_amount(within(attributes.get(_COST_DETAILS), "total")))
        step.cost = max((cost for cost in found if cost is not None), default=None)
    if step.tokens_in is not None:
        if step.cache_read is None:
            step.cache_read = _highest(attributes, _CACHE_READS)
        step.cache_write = _highest(attributes, _CACHE_WRITES)


def _highest(attributes: Mapping[str, object], keys: frozenset[str]) -> int | None:
    if keys.isdisjoint(attributes):
        return None
    found = (count(attributes.get(key)) for key in keys)
    return max((each for each in found if each is not None), default=None)


def _amount(value: object) -> float | None:
    """A number from 0 to 10^9, also one written as text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        # Nobody writes a number with more characters.
        amount = float(value) if not isinstance(value, str) or len(value) <= 40 else math.nan
    except (ValueError, OverflowError):
        return None
    return amount if 0 <= amount <= _MOST_COST else None


NO_AGENT: Final = "OpenAI Agent"
"""opentelemetry-instrumentation-openai-agents-v2 writes it on every span, whichever the agent."""

_BEFORE = ("execute_tool ", "MCP send tools/call ", "tools/call ")
_AFTER = (".tool", ".run", ".__call__", ".acall")


def tool_in(span_name: str) -> str | None:
    """Name of the tool in the name of a tool's span; None if the span name has none.

    `execute_tool X`, `MCP send tools/call X`, `tools/call X`, `X.tool`, `X.run`, and `X.__call__`
    or `X.acall` (DSPy); others are the name of the tool itself (LangChain, Langfuse).
    """
    for prefix in _BEFORE:
        if span_name.startswith(prefix):
            return span_name.removeprefix(prefix) or None
    for suffix in _AFTER:
        if span_name.endswith(suffix):
            return span_name.removesuffix(suffix) or None
    return span_name or None


def library(scope: str, *prefixes: str) -> str:
    """`langchain` of `openinference.instrumentation.langchain`; another scope as it is.

    `openai_agents` of `@arizeai/openinference-instrumentation-openai-agents`, as in Python.
    """
    for prefix in prefixes:
        if scope.startswith(prefix):
            return scope.removeprefix(prefix).partition(".")[0].replace("-", "_")
    return scope


def after(span_name: str, prefix: str) -> str:
    """The span name without a prefix, if it has it."""
    return span_name.removeprefix(prefix) or span_name


RUNS: Final = frozenset({Kind.AGENT, Kind.WORKFLOW})
"""The kinds of steps that are a run of an agent, or of several."""

INVOKES: Final = "invoke_agent "
_LATE: Final = (
    "openinference.instrumentation.langchain",
    "openinference.instrumentation.llama_index",
    "openlit.instrumentation.smolagents",
)
"""Instrumentations that say what a span is only when it ends."""
_SDK_TRACES: Final = (
    "openinference.instrumentation.openai_agents",
    "opentelemetry.instrumentation.openai_agents",
    "opentelemetry.instrumentation.genai.openai_agents",
    "logfire.openai_agents",
)
"""Instrumentations of the OpenAI Agents SDK: its trace is a span around any number of runs."""


def run_by_name(span: SpanView) -> Step | None:
    """A run known by the span's name alone: ADK, Strands and others set attributes only later."""
    if not span.name.startswith(INVOKES) or tells_late(span.scope):
        return None
    step = begin(span, Kind.AGENT, span.name.removeprefix(INVOKES) or None)
    step.dialect, step.agent = "genai", step.name
    return step


def tells_late(scope: str) -> bool:
    """True if spans of this scope may say only at their end that they are runs."""
    return scope.startswith(_LATE)


def is_message(scope: str) -> bool:
    """True if agents of this scope run once for each message that they get, as AutoGen's do."""
    return scope.startswith("autogen")


def holds_runs(span: SpanView) -> bool:
    """True if a topmost span may be a trace of the OpenAI Agents SDK, around several runs."""
    return span.scope.startswith(_SDK_TRACES)


def is_nested(span: SpanView) -> bool:
    """True if a run says that it is part of another one, which may be in another trace."""
    return span.attributes.get("gen_ai.invocation.is_nested") is True


def is_task(span: SpanView) -> bool:
    """True if a span right below a trace of the OpenAI Agents SDK is one `Runner.run`."""
    attributes = span.attributes
    if attributes.get("openinference.span.kind") == "CHAIN":
        return True
    template = attributes.get("logfire.msg_template")
    return isinstance(template, str) and template.startswith("Task: ")


_OPENINFERENCE_CREW: Final = "crew_tasks"
PLAN_KEYS: Final = (semconv.PLAN, _OPENINFERENCE_CREW, "crewai.crew.tasks")
"""Keys of a list of tasks: our own, CrewAI under OpenInference, CrewAI under OpenLLMetry."""

TASK_KEYS: Final = (semconv.TASK, "crewai.task.id", "task_id")
"""Keys of the id of the task that a span is the work of."""

_PLAN_CHARS: Final = 200_000
"""Characters of the longest plan that is parsed (1 ms): 500 tasks of 400 characters."""
_PLAN_TASKS: Final = 500
"""Tasks of the largest plan: nobody plans more, and each is compared with the one before it."""
_PLAN_DEPTH: Final = 32
"""Levels of a plan, which is compared and read level by level, down to where Python ends it."""


def plan_of(span: SpanView) -> tuple[object, ...] | None:
    """The tasks that a span declares, as maps; None without any, for more than 500, or deep ones.

    CrewAI names what a task needs by the descriptions of the other tasks; they are written as ids.
    """
    for key in PLAN_KEYS:
        written = captured(span, key) if key in span.attributes else None
        if written is None or (isinstance(written, str) and len(written) > _PLAN_CHARS):
            continue
        plan = parsed(written)
        named = mapping(plan)
        found = listing(plan if named is None else named.get("tasks"))
        if found and len(found) <= _PLAN_TASKS and not _is_deeper(found, _PLAN_DEPTH):
            return _crew(found) if key == _OPENINFERENCE_CREW else tuple(found)
    return None


def _is_deeper(value: object, levels: int) -> bool:
    named = mapping(value)
    parts = listing(value) if named is None else named.values()
    return parts is not None and (not levels or any(_is_deeper(one, levels - 1) for one in parts))


def plan_above(spans: Iterable[SpanView]) -> tuple[object, ...] | None:
    """The plan of the nearest of these spans that declares one."""
    return next((plan for span in spans if (plan := plan_of(span)) is not None), None)


def _crew(found: Iterable[object]) -> tuple[object, ...]:
    tasks = [task for each in found if (task := mapping(each)) is not None]
    ids = {text(task.get("description")): task.get("id") for task in tasks}
    needs = (listing(parsed(task.get("context"))) or () for task in tasks)
    return tuple(
        {**task, "agent": task.get("agent_role"), "depends_on": [ids.get(text(n), n) for n in need]}
        for task, need in zip(tasks, needs, strict=True)
    )


_FROM: Final = ("gen_ai.agent.handoff.source.name", "gen_ai.handoff.from_agent")
_TO: Final = (
    "gen_ai.agent.handoff.target.name", "gen_ai.transfer.target.name", "gen_ai.handoff.to_agent",
)  # fmt: skip
TRANSFER_KEYS: Final = frozenset(_TO[:2])
"""Keys that make a tool's call a handoff, however the tool is named."""


def as_transfer(step: Step, span: SpanView) -> Step:
    """Turns a step into the handoff that its span says it is: from which agent, to which.

    An agent that comes back with a result is a tool, and asking it a call like any other.
    """
    if span.attributes.get("gen_ai.transfer.mode") != "return_to_caller":
        step.kind = Kind.HANDOFF
        step.name = first_identifier(span, _TO, but="unknown")
        step.agent = first_identifier(span, _FROM) or step.agent
    return step


_TRANSFER, _HANDOFF = "transfer_to_", "handoff_to_"
_NAMED = frozenset(("transfer_to_agent", "handoff_to_agent", "handoff"))
"""Tools that name the agent in an argument."""
_TARGETS = ("agent_name", "agent", "to_agent")


def hands_off(name: str, scope: str) -> bool:
    """True if a tool of this name, in a span of this scope, hands the work to another agent.

    The names are those of ADK (`transfer_to_agent`), AutoGen Swarm and LangGraph
    (`transfer_to_<agent>`), Strands (`handoff_to_agent`), LlamaIndex (`handoff`) and Microsoft
    Agent Framework (`handoff_to_<agent>`; Strands' `handoff_to_user` asks a person). A coworker of
    CrewAI comes back with an answer: to ask it is a call like any other.
    """
    if name == "handoff":
        return "llama" in scope
    if name.startswith(_HANDOFF) and "agent_framework" in scope:
        return True
    return name.startswith(_TRANSFER) or name in _NAMED


def handed_to(args: object) -> str | None:
    """The agent that the arguments of a handoff name."""
    targets = (text(within(args, key)) for key in _TARGETS)
    return next((target for target in targets if target), None)


def as_handoff(step: Step, span: SpanView | None = None) -> Step:
    """Turns a tool call into a handoff: `name` becomes the agent it goes to, if that is known."""
    if span is not None and not TRANSFER_KEYS.isdisjoint(span.attributes):
        return as_transfer(step, span)
    name = step.name or ""
    if name in _NAMED:
        step.name = handed_to(step.args)
    else:
        step.name = name.removeprefix(_TRANSFER).removeprefix(_HANDOFF) or None
    step.kind = Kind.HANDOFF
    return step
