"""Span to step: the dialect that claims a span reads it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.dialects.genai import NAME as GENAI
from otel_loopguard.spans.dialects.registry import registered
from otel_loopguard.spans.errors import failed
from otel_loopguard.spans.keys import (
    AGENT_KEYS,
    PLAN_KEYS,
    RUNS,
    SESSION_KEYS,
    TASK_KEYS,
    agent_of,
    as_handoff,
    hands_off,
    is_other,
    plan_of,
    run_by_name,
    session_of,
    task_of,
)
from otel_loopguard.spans.values import begin, cost_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from otel_loopguard.spans.dialects.registry import Dialect
    from otel_loopguard.spans.views import SpanView


class ScopeKind(Enum):
    """What is known of an instrumentation scope."""

    AGENT = "agent"
    NONE = "none"
    UNKNOWN = "unknown"


_AGENTS: Final = (
    "openinference.",
    "@arizeai/openinference",
    "opentelemetry.instrumentation.genai",
    "langsmith",
    "langfuse",
    "logfire.openai",
    "pydantic-ai",
    "pydantic_ai",
    "strands.",
    "gcp.vertex.agent",
    "google.adk",
    "autogen",
    "agent_framework",
    "agent-framework",
    "semantic_kernel",
    "mcp-python-sdk",
    "fastmcp",
    "traceloop",
    "crewai",
    "smolagents",
)
_AGENT_SCOPES: Final = frozenset(("ai", "mcp"))
_CONTRIB: Final = "opentelemetry.instrumentation."
# fmt: off
_AGENT_LIBRARIES: Final = frozenset(
    (
        "agno", "anthropic", "bedrock", "cohere", "crewai", "google_generativeai", "groq",
        "haystack", "langchain", "llamaindex", "mcp", "mistralai", "ollama", "openai",
        "openai_agents", "openai_v2", "replicate", "sagemaker", "together", "transformers",
        "vertexai", "watsonx", "writer",
    )
)
# fmt: on
# fmt: off
_OTHER_LIBRARIES: Final = frozenset(
    (
        "aio_pika", "aiohttp_client", "aiohttp_server", "aiokafka", "aiopg", "asgi", "asyncclick",
        "asyncio", "asyncpg", "aws_lambda", "boto", "boto3sqs", "cassandra", "celery", "click",
        "confluent_kafka", "dbapi", "django", "elasticsearch", "falcon", "fastapi", "flask",
        "grpc", "httpx", "jinja2", "kafka", "logging", "mysql", "mysqlclient", "pika", "psycopg",
        "psycopg2", "pymemcache", "pymongo", "pymssql", "pymysql", "pyramid", "redis",
        "remoulade", "requests", "sqlalchemy", "sqlite3", "starlette", "system_metrics",
        "threading", "tornado", "tortoiseorm", "urllib", "urllib3", "wsgi",
    )
)
# fmt: on
OWN_SCOPE: Final = "otel_loopguard"
"""Of spans that say what was decided, which are no steps of an agent."""
_OTHERS: Final = (
    "@opentelemetry/instrumentation-",
    "go.opentelemetry.io/contrib/instrumentation/",
    "io.opentelemetry.",
    "azure.core",
)


def scope_kind(scope: str) -> ScopeKind:
    """What is known of a scope by its name: prefixes of agent instrumentations come first."""
    if scope in _AGENT_SCOPES or scope.startswith(_AGENTS):
        return ScopeKind.AGENT
    if scope.startswith(_CONTRIB):
        library = scope.removeprefix(_CONTRIB).partition(".")[0]
        if library in _AGENT_LIBRARIES:
            return ScopeKind.AGENT
        return ScopeKind.NONE if library in _OTHER_LIBRARIES else ScopeKind.UNKNOWN
    return ScopeKind.NONE if scope == OWN_SCOPE or scope.startswith(_OTHERS) else ScopeKind.UNKNOWN


_SCOPES = 4096
_PLANS = 4096
_NAMED = "execute_tool "
# They have read the GenAI names themselves, and unwrapped what stands there.
_BUILT_ON_GENAI = frozenset(
    ("mcp", "openllmetry", "langsmith", "logfire", "adk", "strands", "autogen")
)


class _Plan(NamedTuple):
    """What to ask of spans that have the same keys of those that matter."""

    dialects: tuple[Dialect, ...]
    sessions: tuple[str, ...]
    agents: tuple[str, ...]
    tasks: tuple[str, ...]
    planned: bool
    named: bool


class Reader:
    """Reads spans, live or recorded, in all dialects.

    Which dialects are on a span follows from which of their marks it has. That is worked out once
    per combination of keys, so that the cost of a span does not grow with the dialects there are.
    Not thread-safe by itself: what it caches may be computed twice, and is never wrong.

    Args:
        dialects: Dialects in order of precedence; None: all that are registered now.
    """

    def __init__(self, dialects: Sequence[Dialect] | None = None) -> None:
        self._dialects = registered() if dialects is None else tuple(dialects)
        marks = (dialect.marks for dialect in self._dialects)
        self._marks = frozenset[str]().union(*marks)
        self._keys = self._marks.union(SESSION_KEYS, AGENT_KEYS, TASK_KEYS, PLAN_KEYS)
        self._plans: dict[frozenset[str], _Plan] = {}
        self._scopes: dict[str, ScopeKind] = {}

    def interest(self, scope: str) -> ScopeKind:
        """Whether the scope is one of agents, surely none, or not known yet."""
        found = self._scopes.get(scope)
        return self._judge(scope) if found is None else found

    def _judge(self, scope: str) -> ScopeKind:
        if len(self._scopes) >= _SCOPES:
            self._scopes.clear()
        found = self._scopes[scope] = scope_kind(str(scope))
        return found

    def marked(self, attributes: Mapping[str, object]) -> bool:
        """Whether any mark of a dialect is among the attributes."""
        return not self._marks.isdisjoint(attributes)

    def run(self, span: SpanView) -> Step | None:
        """The run of an agent or a workflow that a span is, as far as it tells by now.

        Cheap for every other span: a word says of most that they are a call of a tool or a model.

        Args:
            span: A span that started.

        Returns:
            A step of kind AGENT or WORKFLOW; None if it is none, or does not say so yet.
        """
        attributes = span.attributes
        if self._marks.isdisjoint(attributes):
            return run_by_name(span)
        if is_other(attributes):
            return None
        step = self.read(span)
        if step is None or step.kind is Kind.OTHER:
            return run_by_name(span)
        return step if step.kind in RUNS else None

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None if no dialect knows it.

        Args:
            span: A span that started (`end` None) or ended.

        Returns:
            The step, with session and agent as the span itself has them. Its scope is learned.
        """
        if span.scope == OWN_SCOPE:
            return None
        found = self._keys.intersection(span.attributes)
        plan = self._plans.get(found) or self._plan(found)
        step = None
        for dialect in plan.dialects:
            step = dialect.read(span)
            if step is not None:
                break
        step = step or _by_name(span)
        if step is None:
            return None
        if plan.named:
            _name(step, span, plan)
        if len(plan.dialects) > 1:
            _fill(step, span, plan.dialects)
        if step.kind is Kind.TOOL and step.name is not None and hands_off(step.name):
            as_handoff(step)
        elif step.kind is Kind.MODEL:
            step.cost = cost_of(span.attributes)
        if self._scopes.get(step.scope) is not ScopeKind.AGENT:
            self._learn(step.scope)
        return step

    def _learn(self, scope: str) -> None:
        """A scope of which a step was read is one of agents from then on."""
        self._judge(scope)
        self._scopes[scope] = ScopeKind.AGENT

    def _plan(self, found: frozenset[str]) -> _Plan:
        """What to do with spans that have these keys; remembered, within bounds."""
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        plan = self._plans[found] = _Plan(
            tuple(one for one in self._dialects if not one.marks.isdisjoint(found)),
            tuple(key for key in SESSION_KEYS if key in found),
            tuple(key for key in AGENT_KEYS if key in found),
            tuple(key for key in TASK_KEYS if key in found),
            not found.isdisjoint(PLAN_KEYS),
            not found.isdisjoint((*SESSION_KEYS, *AGENT_KEYS, *TASK_KEYS, *PLAN_KEYS)),
        )
        return plan


def _name(step: Step, span: SpanView, plan: _Plan) -> None:
    """Whose step it is: session, agent and task."""
    if plan.sessions and step.session is None:
        step.session = session_of(span, plan.sessions)
    if plan.agents and step.agent is None:
        step.agent = agent_of(span, plan.agents)
    if plan.tasks:
        step.task = task_of(span, plan.tasks)
    if plan.planned:
        step.tasks = plan_of(span)


def _by_name(span: SpanView) -> Step | None:
    """A tool call known by the span's name alone: ADK and Strands set attributes only later."""
    if not span.name.startswith(_NAMED):
        return None
    name = span.name.removeprefix(_NAMED)
    return failed(begin(span, Kind.TOOL, name, GENAI), span) if name else None


def _fill(step: Step, span: SpanView, dialects: tuple[Dialect, ...]) -> None:
    """Fills what the claiming dialect left open from the others that are on the span."""
    if step.kind is Kind.TOOL:
        if not step.lacks and step.call_id is not None and step.session is not None:
            return
    elif step.kind is not Kind.MODEL or (step.text is not None and step.tokens is not None):
        return
    for dialect in dialects:
        if dialect.name == step.dialect or (
            dialect.name == GENAI and step.dialect in _BUILT_ON_GENAI
        ):
            continue
        other = dialect.read(span)
        if other is not None and other.kind is step.kind:
            _merge(step, other)


def _merge(step: Step, other: Step) -> None:
    if step.kind is Kind.TOOL:
        lacking = step.lacks
        if "args" in lacking:
            step.args = other.args
        if "outcome" in lacking:
            step.outcome = other.outcome
        step.error = step.error or other.error
        step.error_text = step.error_text or other.error_text
        step.error_type = step.error_type or other.error_type
    elif step.kind is Kind.MODEL:
        step.text = other.text if step.text is None else step.text
        step.model = step.model or other.model
        step.tokens_in = other.tokens_in if step.tokens_in is None else step.tokens_in
        step.tokens_out = other.tokens_out if step.tokens_out is None else step.tokens_out
    step.session = step.session or other.session
    step.agent = step.agent or other.agent
    step.node = step.node or other.node
    step.call_id = step.call_id or other.call_id
