"""The session, agent and task that a span belongs to, by its attributes and its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv
from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.steps import begin, captured, first_identifier
from otel_loopguard.spans.values import listing, mapping, parsed, text, within

if TYPE_CHECKING:
    from collections.abc import Iterable

    from otel_loopguard.spans.views import SpanView

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


def library(scope: str, prefix: str) -> str:
    """`langchain` of `openinference.instrumentation.langchain`; another scope as it is."""
    return scope.removeprefix(prefix).partition(".")[0] if scope.startswith(prefix) else scope


def after(span_name: str, prefix: str) -> str:
    """The span name without a prefix, if it has it."""
    return span_name.removeprefix(prefix) or span_name


RUNS: Final = frozenset({Kind.AGENT, Kind.WORKFLOW})
"""The kinds of steps that are a run of an agent, or of several."""

INVOKES: Final = "invoke_agent "
_LATE: Final = (
    "openinference.instrumentation.langchain",
    "openinference.instrumentation.llama_index",
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
    if not span.name.startswith(INVOKES):
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
_NAMED = frozenset(
    (
        "delegate_work_to_coworker", "Delegate work to coworker", "transfer_to_agent",
        "handoff_to_agent",
    )
)  # fmt: skip
"""Tools that name the agent in an argument."""
_TARGETS = ("agent_name", "coworker", "agent")


def hands_off(name: str, scope: str) -> bool:
    """True if a tool of this name, in a span of this scope, hands the work to another agent.

    The names are those of ADK (`transfer_to_agent`), AutoGen Swarm and LangGraph
    (`transfer_to_<agent>`), Strands (`handoff_to_agent`), CrewAI (`delegate_work_to_coworker`) and
    Microsoft Agent Framework (`handoff_to_<agent>`; Strands' `handoff_to_user` asks a person).
    """
    if name.startswith(_HANDOFF) and "agent_framework" in scope:
        return True
    return name.startswith(_TRANSFER) or name in _NAMED


def as_handoff(step: Step, span: SpanView | None = None) -> Step:
    """Turns a tool call into a handoff: `name` becomes the agent it goes to, if that is known."""
    if span is not None and not TRANSFER_KEYS.isdisjoint(span.attributes):
        return as_transfer(step, span)
    name = step.name or ""
    if name in _NAMED:
        targets = (text(within(step.args, key)) for key in _TARGETS)
        step.name = next((target for target in targets if target), None)
    else:
        step.name = name.removeprefix(_TRANSFER).removeprefix(_HANDOFF) or None
    step.kind = Kind.HANDOFF
    return step
