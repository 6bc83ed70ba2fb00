"""A step: one unit of agent work, read off a span."""

from __future__ import annotations

from dataclasses import dataclass, field

from otel_loopguard._util.text import StrEnum
from otel_loopguard.semconv import ERROR_DENY


class Kind(StrEnum):
    """The kind of a step.

    `MCP_CLIENT` and `MCP_SERVER` are protocol exchanges other than tool calls (listing, discovery);
    an MCP `tools/call` is a `TOOL` step.
    """

    TOOL = "tool"
    MODEL = "model"
    AGENT = "agent"
    NODE = "node"
    HANDOFF = "handoff"
    WORKFLOW = "workflow"
    MCP_CLIENT = "mcp_client"
    MCP_SERVER = "mcp_server"
    OTHER = "other"

    __hash__ = str.__hash__  # `Enum` has one in Python, and steps are told apart by their kind


@dataclass(slots=True)
class Step:
    """One unit of agent work: a tool call, a model call, a graph node, an agent run, a handoff.

    `None` always means *not captured*, never *empty*: a value the instrumentation left out, cut
    away or scrubbed is unknown and equal to nothing.

    Attributes:
        kind: What it is.
        name: Name of the tool, model, agent, node or workflow; for a handoff the agent it goes to.
        dialect: Name of the dialect that read it.
        scope: Name of the instrumentation scope.
        trace_id: Trace id, as the integer that OpenTelemetry uses.
        span_id: Span id, as an integer.
        parent_id: Span id of the parent, or None for a root.
        start: Start, nanoseconds since the epoch.
        end: End, nanoseconds since the epoch; None while the step is open.
        session: Session id that the span itself carries (never a trace id).
        agent: Name of the agent that does it; for a handoff the agent it comes from.
        node: Name of the graph node that it belongs to.
        call_id: Id of the tool call. Says which spans are one call; never part of its identity.
        args: Arguments of a tool call, unwrapped: a JSON value or text.
        outcome: Result, unwrapped: a JSON value or text.
        error: Whether it failed.
        error_text: What the error said, if that was captured.
        error_type: Its type (`error.type` or the class of the exception).
        model: Name of the model, for model steps.
        text: What the model wrote.
        tokens_in: Input tokens, for model steps only (agent spans repeat the totals).
        tokens_out: Output tokens, for model steps only.
        cache_read: Of the input tokens, those that came out of a cache.
        cache_write: Of the input tokens, those that were put into one.
        server: Whether the span is the serving side of a call (its client may be elsewhere).
        cost: Cost in USD, for model steps only (agent spans repeat the totals).
        task: Id of the task of a plan that it is the work of, if its span names one.
        tasks: Plan that its span declares: tasks as maps.
        reading: What `evidence.prepare` found in arguments and outcome; never part of it.
        lane: Which of several runs at the same time made it; 0 for one that has no other beside it.
        opened: When it was seen to begin, nanoseconds since the epoch by the guard's clock; 0 where
            its start was not seen. A span may be given any time of its own.
        within: Name of the agent whose run its span was in; None where that is not known.
    """

    kind: Kind
    name: str | None = None
    dialect: str = ""
    scope: str = ""
    trace_id: int = 0
    span_id: int = 0
    parent_id: int | None = None
    start: int = 0
    end: int | None = None
    session: str | None = None
    agent: str | None = None
    node: str | None = None
    call_id: str | None = None
    args: object = None
    outcome: object = None
    error: bool = False
    error_text: str | None = None
    error_type: str | None = None
    model: str | None = None
    text: str | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    server: bool = False
    cost: float | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    task: str | None = None
    tasks: tuple[object, ...] | None = None
    reading: object = field(default=None, repr=False, compare=False)
    lane: int = field(default=0, repr=False, compare=False)
    opened: int = field(default=0, repr=False, compare=False)
    within: str | None = field(default=None, repr=False, compare=False)

    @property
    def refused(self) -> bool:
        """True if the guard refused it: it was not made, and its error is the guard's own word.

        Evidence of nothing, except that a denied loop goes on.
        """
        return self.error_type == ERROR_DENY and self.error

    @property
    def lacks(self) -> tuple[str, ...]:
        """Fields of a complete tool call that this step lacks, of `args` and `outcome`.

        A failed call has an outcome if it has an error text.
        """
        if self.kind is not Kind.TOOL:
            return ()
        outcome = self.outcome is not None or (self.error and self.error_text is not None)
        have = (("args", self.args is not None), ("outcome", outcome))
        return tuple(name for name, there in have if not there)

    @property
    def tokens(self) -> int | None:
        """Input and output tokens together; None if neither is known."""
        if self.tokens_in is None and self.tokens_out is None:
            return None
        return (self.tokens_in or 0) + (self.tokens_out or 0)
