"""Span to step: the dialect that claims a span reads it, in order of precedence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, cast

from otel_loopguard._util.locks import new_lock
from otel_loopguard.core import Kind, Step
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.spans import steps
from otel_loopguard.spans.dedup import absorb
from otel_loopguard.spans.dialects import (
    coding_agents,
    frameworks,
    javascript,
    openllmetry,
    platforms,
)
from otel_loopguard.spans.dialects.frameworks import Vercel
from otel_loopguard.spans.dialects.genai import NAME as GENAI
from otel_loopguard.spans.dialects.genai import GenAI
from otel_loopguard.spans.dialects.openinference import OpenInference
from otel_loopguard.spans.steps import begin, failed, first_identifier, set_cost
from otel_loopguard.spans.values import LONGEST_ID

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from otel_loopguard.spans.views import SpanView


class Dialect(Protocol):
    """Reads the spans of one convention.

    `name`, `marks` and `read` are required. A class may also have any of these attributes; what it
    leaves out is empty:

    * `scopes`: names of instrumentation scopes that write it; `*` at the end stands for any rest.
      Spans of these scopes are followed from their start.
    * `session_keys`, `agent_keys`: attribute keys of a session id and of an agent's name, which
      are read on the spans of all dialects; `fallback_session_keys` and `fallback_agent_keys`:
      keys that stand in for them where no dialect's own key is there.
    * `key_order`: whose keys are asked first, a number; 0 for conventions that appear on the spans
      of others, 1 by default.
    * `builds_on`: name of a dialect that its `read` already uses.
    * `key_prefixes`: how its attribute keys begin, for the sampler; its `marks` by default.
    * `call_words`: for an attribute key the values that mark a span as a call, not as a run of an
      agent; such spans are not read at their start.
    """

    @property
    def name(self) -> str:
        """Name, unique among all dialects; the reader puts it on each step as `dialect`."""
        ...

    @property
    def marks(self) -> frozenset[str]:
        """Attribute keys, any of which says that a span may be of this dialect."""
        ...

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None if it is not of this dialect.

        Called for spans that have just started (few attributes, `end` None) and for ended ones.
        It must not throw for values of any type, and must not change the span.
        """
        ...


# Dialects that wrap values under the names of another come before that other.
_dialects: list[Dialect] = [
    Vercel(),
    frameworks.SpringAI(),
    coding_agents.ClaudeCode(),
    coding_agents.Codex(),
    coding_agents.GeminiCli(),
    coding_agents.Copilot(),
    frameworks.Anthropic(),
    frameworks.Mcp(),
    openllmetry.OpenLLMetry(),
    platforms.LangSmith(),
    platforms.Logfire(),
    platforms.Laminar(),
    platforms.MLflow(),
    platforms.OpenLit(),
    frameworks.Adk(),
    frameworks.Strands(),
    frameworks.AutoGen(),
    frameworks.AgentFramework(),
    frameworks.Haystack(),
    javascript.Genkit(),
    javascript.VoltAgent(),
    GenAI(),
    OpenInference(),
    platforms.Langfuse(),
    openllmetry.OpenLLMetryModel(),
]
_lock = new_lock()
_OPTIONAL: Final = (
    "scopes", "session_keys", "fallback_session_keys", "agent_keys", "fallback_agent_keys",
    "key_prefixes",
)  # fmt: skip


class DialectError(LoopGuardError, ValueError):
    """A dialect cannot be registered; the message has its name and what was expected."""


def registered() -> tuple[Dialect, ...]:
    """All dialects, in order of precedence."""
    with _lock:
        return tuple(_dialects)


def register(dialect: Dialect, *, before: str | None = None) -> None:
    """Adds a dialect for all readers that are made afterwards.

    Args:
        dialect: The dialect.
        before: Name of the dialect that it comes before. None: before all others, so that it is
            asked first about spans that carry its marks.

    Raises:
        DialectError: A name that is no text or is taken, marks that are no non-empty set of text,
            an optional attribute of another type, a dialect that cannot read, or no dialect of the
            name `before`.
    """
    _check(dialect)
    with _lock:
        names = [other.name for other in _dialects]
        if dialect.name in names:
            msg = f"dialect {dialect.name!r}: expected a new name, taken are {sorted(names)}"
            raise DialectError(msg)
        if before is not None and before not in names:
            msg = f"dialect {dialect.name!r}: no dialect {before!r} to come before, only {names}"
            raise DialectError(msg)
        _dialects.insert(0 if before is None else names.index(before), dialect)
    key_prefixes.cache_clear()


def unregister(name: str) -> None:
    """Takes a dialect out again.

    Raises:
        DialectError: No dialect of this name is registered.
    """
    with _lock:
        left = [dialect for dialect in _dialects if dialect.name != name]
        if len(left) == len(_dialects):
            msg = f"dialect {name!r}: there is none, there are {[one.name for one in left]}"
            raise DialectError(msg)
        _dialects[:] = left
    key_prefixes.cache_clear()


def declared(dialect: Dialect, name: str) -> tuple[str, ...]:
    """An optional attribute of a dialect that is a list of text; empty where it is left out."""
    return tuple(cast("Iterable[str]", getattr(dialect, name, ())))


def collect_keys(
    name: Literal["session_keys", "agent_keys"], dialects: Iterable[Dialect] | None = None
) -> tuple[str, ...]:
    """The keys of dialects in the order in which they are asked; fallbacks come last."""
    ordered = sorted(
        registered() if dialects is None else dialects,
        key=lambda dialect: cast("int", getattr(dialect, "key_order", 1)),
    )
    return tuple(
        dict.fromkeys(
            key
            for attribute in (name, f"fallback_{name}")
            for dialect in ordered
            for key in declared(dialect, attribute)
        )
    )


@cache
def key_prefixes() -> tuple[str, ...]:
    """Prefixes of the attribute keys that a dialect reads."""
    return tuple(
        dict.fromkeys(
            prefix
            for dialect in registered()
            for prefix in getattr(dialect, "key_prefixes", dialect.marks)
        )
    )


def _check(dialect: Dialect) -> None:
    """Refuses what a reader could not use."""
    found = cast("Any", dialect)
    name, marks = getattr(found, "name", None), getattr(found, "marks", None)
    order, words = getattr(found, "key_order", 1), getattr(found, "call_words", {})
    lists = {attribute: getattr(found, attribute, ()) for attribute in _OPTIONAL}
    is_set, has_words = isinstance(marks, (set, frozenset)), isinstance(words, Mapping)
    for expected, value, is_right in (
        ("a name", name, isinstance(name, str) and name),
        ("marks, a non-empty set of attribute keys", marks, is_set and marks),
        ("attribute keys as marks", marks, _all_text(marks)),
        ("a method read(span)", type(dialect), callable(getattr(found, "read", None))),
        ("a number as key_order", order, isinstance(order, (int, float))),
        (
            "tuples of text by attribute key as call_words",
            words,
            has_words and all(map(_all_text, cast("Mapping[str, object]", words).values())),
        ),
        *((f"a tuple of text as {each}", lists[each], _all_text(lists[each])) for each in lists),
    ):
        if not is_right:
            raise DialectError(f"dialect {name!r}: expected {expected}, got {value!r}")


def _all_text(values: object) -> bool:
    return isinstance(values, (tuple, list, set, frozenset)) and all(
        isinstance(one, str) and one for one in cast("Iterable[object]", values)
    )


class ScopeKind(Enum):
    """The kind of an instrumentation scope.

    * `AGENT`: its name says that it is one of agents.
    * `MIXED`: a step was read of it, but its name does not say so. It is the application's own,
      where other spans are as likely, and a span's start says what it is.
    * `NONE`: a library that is no agent's.
    * `UNKNOWN`: nothing so far.
    """

    AGENT = "agent"
    MIXED = "mixed"
    NONE = "none"
    UNKNOWN = "unknown"


OWN_SCOPE: Final = "otel_loopguard"
"""Scope of spans that report decisions, which are not steps of an agent."""
_CONTRIB: Final = "opentelemetry.instrumentation."
_CONTRIB_OTHERS: Final = frozenset(
    "aio_pika aiohttp_client aiohttp_server aiokafka aiopg asgi asyncclick asyncio asyncpg"
    " aws_lambda boto boto3sqs cassandra celery click confluent_kafka dbapi django elasticsearch"
    " falcon fastapi flask grpc httpx jinja2 kafka logging mysql mysqlclient pika psycopg psycopg2"
    " pymemcache pymongo pymssql pymysql pyramid redis remoulade requests sqlalchemy sqlite3"
    " starlette system_metrics threading tornado tortoiseorm urllib urllib3 wsgi".split()
)
"""Libraries of `_CONTRIB` that are no agent's; the instrumentations of agents share its prefix."""
_OTHERS: Final = (
    "@opentelemetry/instrumentation-",
    "go.opentelemetry.io/contrib/instrumentation/",
    "io.opentelemetry.",
    "azure.core",
)
TOOL_SPAN: Final = "execute_tool "
_FOLLOWED: Final = (ScopeKind.AGENT, ScopeKind.MIXED)
_TOOL, _MODEL = Kind.TOOL, Kind.MODEL  # a look at an enum's member costs a call
_MOST_KNOWN: Final = 4_096
"""Scopes, and combinations of keys, that are remembered (1 MB); a process has some dozens. Where
names are made up without end, all are forgotten, and worked out anew."""


class _Layout(NamedTuple):
    """The dialects and keys to read of spans with the same combination of keys."""

    dialects: tuple[Dialect, ...]
    session_keys: tuple[str, ...]
    agent_keys: tuple[str, ...]
    task_keys: tuple[str, ...]
    has_plan: bool
    has_target: bool


class Reader:
    """Reads spans, live or recorded, in all dialects.

    Which dialects are on a span follows from which of their marks it has. That is worked out once
    per combination of keys, so that the cost of a span does not grow with the dialects there are.
    Not thread-safe by itself: what it caches may be computed twice, and is never wrong.

    Attributes:
        scopes: What is known of the scopes that were asked about.
        marks: The attributes of which one is on each span of a dialect.

    Args:
        dialects: Dialects in order of precedence; None: all that are registered now.
    """

    def __init__(self, dialects: Sequence[Dialect] | None = None) -> None:
        self._dialects = registered() if dialects is None else tuple(dialects)
        self._session_keys = collect_keys("session_keys", self._dialects)
        self._agent_keys = collect_keys("agent_keys", self._dialects)
        self.marks = frozenset[str]().union(*(dialect.marks for dialect in self._dialects))
        of_all = steps.TASK_KEYS, steps.PLAN_KEYS, steps.TRANSFER_KEYS
        self._keys = self.marks.union(self._session_keys, self._agent_keys, *of_all)
        scopes = [scope for dialect in self._dialects for scope in declared(dialect, "scopes")]
        self._agent_scopes = frozenset(scopes)
        self._agent_scope_prefixes = tuple(one[:-1] for one in scopes if one.endswith("*"))
        self._call_words: dict[str, Container[str]] = {}
        for dialect in self._dialects:
            words = getattr(dialect, "call_words", {})
            self._call_words.update(cast("Mapping[str, Container[str]]", words))
        self._layouts: dict[frozenset[str], _Layout] = {}
        self.scopes: dict[str, ScopeKind] = {}

    def interest(self, scope: str) -> ScopeKind:
        """The kind of a scope, by its name or by the steps that were read of it."""
        return self.scopes.get(scope) or self._learn(scope, self._scope_kind(str(scope)))

    def _scope_kind(self, scope: str) -> ScopeKind:
        """The kind of a scope by its name; instrumentations of agents come first."""
        if scope in self._agent_scopes or scope.startswith(self._agent_scope_prefixes):
            return ScopeKind.AGENT
        if scope.startswith(_CONTRIB):
            library = scope.removeprefix(_CONTRIB).partition(".")[0]
            return ScopeKind.NONE if library in _CONTRIB_OTHERS else ScopeKind.UNKNOWN
        known = scope == OWN_SCOPE or scope.startswith(_OTHERS)
        return ScopeKind.NONE if known else ScopeKind.UNKNOWN

    def _learn(self, scope: str, kind: ScopeKind) -> ScopeKind:
        if len(self.scopes) >= _MOST_KNOWN:
            self.scopes.clear()
        if len(str(scope)) <= LONGEST_ID:
            self.scopes[scope] = kind
        return kind

    def run(self, span: SpanView, attributes: Mapping[str, object] | None = None) -> Step | None:
        """The run of an agent or a workflow that an open span is; None if it does not say so yet.

        Cheap for every other span: a word says of most that they are a call of a tool or a model.
        """
        if attributes is None:
            attributes = span.attributes
        # First: such a word settles it.
        if self.is_call(attributes):
            return None
        if self.marks.isdisjoint(attributes):
            return steps.run_by_name(span)
        step = self.read(span)
        if step is None or step.kind is Kind.OTHER:
            return steps.run_by_name(span)
        return step if step.kind in steps.RUNS else None

    def is_call(self, attributes: Mapping[str, object]) -> bool:
        """True if a word says that the span is a call of a tool or a model, and so no run."""
        for key in self._call_words.keys() & attributes.keys():
            word = attributes[key]
            if isinstance(word, str) and word in self._call_words[key]:
                return True
        return False

    def asks(self, span: SpanView) -> bool:
        """True if an open span says that it is a call of a model."""
        if not self.is_call(span.attributes):
            return False
        step = self.read(span)
        return step is not None and step.kind is Kind.MODEL

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None if no dialect knows it.

        Args:
            span: A span that started (`end` None) or ended.

        Returns:
            The step, with session and agent as the span itself has them. Its scope is learned.
        """
        if span.scope == OWN_SCOPE:
            return None
        if span.end is None:
            # An open span of the SDK copies its attributes at each look.
            snapshot = getattr(span, "snapshot", None)
            span = span if snapshot is None else cast("SpanView", snapshot())
        found = self._keys.intersection(span.attributes)
        layout = self._layouts.get(found) or self._layout(found)
        for dialect in layout.dialects:
            step = dialect.read(span)
            if step is not None:
                step.dialect = dialect.name
                break
        else:
            dialect, step = None, _tool_by_name(span)
            if step is None:
                return None
        _set_owner(step, span, layout)
        if len(layout.dialects) > 1:
            _fill(step, span, dialect, layout.dialects)
        if step.kind is _TOOL and (
            layout.has_target or steps.hands_off(step.name or "", step.scope)
        ):
            steps.as_handoff(step, span)
        elif step.kind is _MODEL:
            set_cost(step, span.attributes)
        _shorten(step)
        if self.scopes.get(step.scope) not in _FOLLOWED:
            kind = self._scope_kind(step.scope)
            self._learn(step.scope, kind if kind is ScopeKind.AGENT else ScopeKind.MIXED)
        return step

    def _layout(self, found: frozenset[str]) -> _Layout:
        if len(self._layouts) >= _MOST_KNOWN:
            self._layouts.clear()
        layout = self._layouts[found] = _Layout(
            tuple(one for one in self._dialects if not one.marks.isdisjoint(found)),
            tuple(key for key in self._session_keys if key in found),
            tuple(key for key in self._agent_keys if key in found),
            tuple(key for key in steps.TASK_KEYS if key in found),
            not found.isdisjoint(steps.PLAN_KEYS),
            not found.isdisjoint(steps.TRANSFER_KEYS),
        )
        return layout


def _set_owner(step: Step, span: SpanView, layout: _Layout) -> None:
    """Whose step it is: session, agent and task."""
    if layout.session_keys and step.session is None:
        step.session = first_identifier(span, layout.session_keys, reveal=True)
    if layout.agent_keys and step.agent is None:
        step.agent = first_identifier(span, layout.agent_keys, but=steps.NO_AGENT)
    if layout.task_keys:
        step.task = first_identifier(span, layout.task_keys)
    if layout.has_plan:
        step.tasks = steps.plan_of(span)


def _shorten(step: Step) -> None:
    """Cuts what sessions keep, and tables of what is known of a name."""
    step.scope = step.scope[:LONGEST_ID]
    if step.name is not None:
        step.name = step.name[:LONGEST_ID]
    if step.model is not None:
        step.model = step.model[:LONGEST_ID]
    if step.error_type is not None:
        step.error_type = step.error_type[:LONGEST_ID]


def _tool_by_name(span: SpanView) -> Step | None:
    """A tool call known by the span's name alone: ADK and Strands set attributes only later."""
    if not span.name.startswith(TOOL_SPAN):
        return None
    name = span.name.removeprefix(TOOL_SPAN)
    if not name:
        return None
    step = failed(begin(span, _TOOL, name), span)
    step.dialect = GENAI
    return step


def _fill(
    step: Step, span: SpanView, claiming: Dialect | None, dialects: tuple[Dialect, ...]
) -> None:
    """Fills what the claiming dialect left open from the others that are on the span."""
    if step.kind is _TOOL:
        if not step.lacks and step.call_id is not None and step.session is not None:
            return
    elif step.kind is not _MODEL or (step.text is not None and step.tokens is not None):
        return
    base = getattr(claiming, "builds_on", None)
    for dialect in dialects:
        if dialect is claiming or dialect.name == base:
            continue
        other = dialect.read(span)
        if other is not None and other.kind is step.kind:
            absorb(step, other)
