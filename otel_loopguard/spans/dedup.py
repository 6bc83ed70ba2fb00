"""One call that several spans describe is one step."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.values import is_long, mapping, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from otel_loopguard.spans.views import SpanView

_MOST_HELD: Final = 128
"""Steps that wait at once: parallel calls of a run are fewer, and each end looks at all of them."""
_MOST_RECENT: Final = 256
"""Counted steps in which a twin is looked for, from the newest on: those of a second, as a rule."""
_MOST_SIDES: Final = 512
"""Counted steps whose describers are remembered: twice those in which a twin is looked for."""
_MOST_TRACES: Final = 4_096
"""Traces that are known to be of a run of several; then all are forgotten (1 MB)."""
_MOST_BEGUN: Final = 8_192
"""Traces of which it is known that calls were counted; then the older half is forgotten (1 MB)."""
_LOOKED_AT: Final = 64
"""Newest open spans that are looked at for one that started together with a call."""
_DEPTH: Final = 32
"""Spans above a call that may describe it: decorators and wrappers, not a whole recursion."""
_COMPARED_CHARS: Final = 20_000
"""Characters of arguments that are parsed to compare them (0.1 ms); longer ones agree, and no
longer value is kept."""
_LONG: Final = " " * (_COMPARED_CHARS + 1)
_SECOND: Final = 1_000_000_000
"""How long a step waits for spans that may know more of it, and how long ago its twin may have
ended, in nanoseconds. Instrumentations of one call end within milliseconds of each other, and a
loop that is noticed a second late is noticed in time."""
_TOLERANCE: Final = 5_000_000
"""Nanoseconds by which two instrumentations may differ about one moment."""
_NEVER: Final = 2**63 - 1  # the largest time that a span can have
# Tuples, because an enum member hashes in Python and compares by identity first.
_CALLS: Final = (Kind.TOOL, Kind.HANDOFF)
_COUNTED_ONCE: Final = (Kind.TOOL, Kind.MODEL, Kind.NODE, Kind.AGENT, Kind.HANDOFF)
_SEVERAL: Final = object()
_PROTOCOL: Final = "mcp"
_JOINTS: Final = "_-./:"
_NAME_KEYS: Final = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name")
_NOT_TOOLS: Final = ("invoke_agent ", "create_agent ", "invoke_workflow ", "chat ", "agent_run ")


class _Open(Protocol):
    """An open span."""

    view: SpanView


@dataclass(slots=True)
class _Held:
    """A step that waits, from `since`, for the end of open spans that may know more of it."""

    step: Step
    waits: set[int]
    since: int


class _Run(NamedTuple):
    """A run of several traces; `first` stands for it, and each scope writes one of them."""

    first: int
    traces: set[int]
    by_scope: dict[str, int]


class SpanDeduplicator:
    """Counts each call once, in the order in which spans end.

    A step that has arguments and result is counted at once; what other spans say of it later is
    dropped, but for a failure and what was unknown, which are put on the counted step. A tool call
    that lacks one of them is held while a span is open that may have more of it, and so is a model
    call without a text where models have spans of several scopes.

    Two steps are one call if kind and name are equal, arguments and call ids do not contradict,
    and: one is the direct parent of the other; or their scopes differ (or one is the serving side
    of the other), there was a time at which both ran, and within one run or session they start
    together or one encloses the other; or, in two traces, they start and end together, and are the
    first of both: sessions that run at the same time call one tool at the same moment now and then.
    Two steps of one scope are parallel or successive calls.

    Not thread-safe by itself.

    Args:
        opened: The open spans by id, in the order in which they started; those that ended are none.
        joined: Called with two traces that turn out to be of one run.
        apart: Asked whether two traces are known to be of two sessions.
        asks: Asked whether an open span is known to be of a model.
    """

    def __init__(
        self, opened: Mapping[int | None, _Open], *,
        joined: Callable[[int, int], None] | None = None,
        apart: Callable[[int, int], bool] | None = None,
        asks: Callable[[SpanView], bool] | None = None,
    ) -> None:  # fmt: skip
        self._joined = joined
        self._apart = apart
        self._asks = asks
        self._open = cast("dict[int | None, _Open]", opened)
        self._recent: deque[Step] = deque(maxlen=_MOST_RECENT)
        self.held: list[_Held] = []
        # The counted step of a call by the id of the open span right around it.
        self._inner: dict[int, Step] = {}
        # Scope and side (a protocol has two, which may be of one scope) of the spans that
        # described a counted step, by its span id: each describes a call once.
        self._sides: OrderedDict[int, set[tuple[str, bool]]] = OrderedDict()
        self._runs: dict[int, _Run] = {}
        # By the trace: whether more than one call of it was counted. Model calls have an own entry.
        self._begun: dict[int, bool] = {}
        # The only scope so far: None before the first, `_SEVERAL` once there are two.
        self._scope: object = None
        # The same of models.
        self._model_scope: object = None

    def closed(self, span: SpanView, step: Step | None, now: int | None = None) -> tuple[Step, ...]:
        """Steps to count now that a span ended."""
        span_id = span.span_id
        inner = self._inner.pop(span_id, None) if self._inner else None
        if step is None or step.kind not in _COUNTED_ONCE:
            free = self._release(span_id) if self.held else ()
            return free if step is None else (*free, step)
        parent = self._open.get(step.parent_id)
        if (
            inner is None
            and not self.held
            and step.scope == self._scope
            # A framework and its client may share a scope, as under MLflow: one ends in the other.
            and not (
                step.kind is Kind.MODEL
                and self._recent
                and (self._recent[-1].end or 0) > step.start
            )
            # The span around it may describe it too, by its name.
            and (
                parent is None
                or not (step.server or step.name is None or step.name in parent.view.name)
            )
        ):
            self._recent.append(compared(step))
            self._begins(step)
            return (step,)
        return self._settle(span_id, step, inner, (span.end or 0) if now is None else now)

    def lost(self, span_id: int) -> None:
        """Forgets an open span whose end will never be told."""
        self._inner.pop(span_id, None)

    def overdue(self, now: int) -> tuple[Step, ...]:
        """Steps that have waited for a second, to be counted after all."""
        late = [held for held in self.held if now - held.since > _SECOND]
        for held in late:
            self.held.remove(held)
        return tuple(self._count(held.step) for held in late)

    def silent(self, step: Step) -> bool:
        """True if a model call lacks what the model wrote, and other spans of models may have it.

        An SDK's own span ends inside that of its instrumentation, as a rule without content.
        """
        several = self._model_scope is _SEVERAL
        return several and step.kind is Kind.MODEL and step.text is None and not step.error

    @property
    def due(self) -> int:
        """When a step that waits will be overdue, nanoseconds since the epoch; else 2**63 - 1."""
        if not self.held:
            return _NEVER
        return min((held.since + _SECOND + 1 for held in tuple(self.held)), default=_NEVER)

    def _settle(self, span_id: int, step: Step, inner: Step | None, now: int) -> tuple[Step, ...]:
        """Steps to count now that a step ended that other spans may describe, too."""
        if step.scope != self._scope:
            self._scope = step.scope if self._scope is None else _SEVERAL
        if step.kind is Kind.MODEL and step.scope != self._model_scope:
            self._model_scope = step.scope if self._model_scope is None else _SEVERAL
        if inner is None or not _same_name(inner, step) or _contradicts(inner, step):
            held = self._held_twin(step)
            if held is not None:
                return self._merge(held, span_id, step)
            inner = self._twin(step, reversed(self._recent))
        if inner is not None:
            self._note_side(step, inner)
            absorb(inner, compared(step, None))
            return self._release(span_id)
        before = self._release(span_id)
        waits = self._may_know_more(step) if step.lacks or self.silent(step) else None
        if not waits:
            return (*before, self._count(step))
        self.held.append(_Held(step, waits, now))
        if len(self.held) > _MOST_HELD:
            return (*before, self._count(self.held.pop(0).step))
        return before

    def _merge(self, held: _Held, span_id: int, step: Step) -> tuple[Step, ...]:
        """Puts a held step and one that ended into the more complete one of them."""
        first = held.step
        self._note_side(step, first)
        base, rest = (first, step) if len(first.lacks) <= len(step.lacks) else (step, first)
        absorb(base, rest)
        if base is step:
            held.step = step
            self._sides[step.span_id] = self._sides.pop(first.span_id)
        held.waits |= self._may_know_more(step)
        if not base.lacks:
            held.waits.clear()
        held.waits.add(span_id)
        return self._release(span_id)

    def _release(self, span_id: int) -> tuple[Step, ...]:
        """Counts the held steps that waited only for this span."""
        free: list[Step] = []
        for held in tuple(self.held):
            held.waits.discard(span_id)
            if not held.waits:
                self.held.remove(held)
                free.append(self._count(held.step))
        return tuple(free)

    def _begins(self, step: Step) -> None:
        """Notes that a call of a trace was counted."""
        begun, key = self._begun, _begun_key(step)
        begun[key] = key in begun
        if len(begun) > _MOST_BEGUN:
            for old in tuple(islice(begun, _MOST_BEGUN // 2)):
                del begun[old]

    def _is_first(self, other: Step, step: Step) -> bool:
        """True if nothing was counted in the traces of two steps before them."""
        held = any(one.step is other for one in self.held)
        known = self._begun.get(_begun_key(other))
        return _begun_key(step) not in self._begun and known is (None if held else False)

    def _count(self, step: Step) -> Step:
        kept = compared(step)
        self._recent.append(kept)
        self._begins(step)
        parent = self._open.get(step.parent_id)
        if parent is not None and step.name is not None and step.name in parent.view.name:
            self._inner[parent.view.span_id] = kept
        return step

    def _held_twin(self, step: Step) -> _Held | None:
        twin = self._twin(step, (held.step for held in self.held)) if self.held else None
        return next((held for held in self.held if held.step is twin), None)

    def _twin(self, step: Step, earlier: Iterable[Step]) -> Step | None:
        """The step among earlier ones that describes the same call; the closest of several.

        Two traces are one run only if no third one fits: calls of sessions that run at the same
        time may look alike, and are then counted once each without joining their sessions.
        """
        earliest = step.start - _TOLERANCE
        latest = (step.end or step.start) + _TOLERANCE
        fitting: list[Step] = []
        for other in earlier:
            ended = other.end or other.start
            if ended < step.start - _SECOND:
                break
            # Times first: they cost least, and leave little to compare.
            near = ended >= earliest and other.start <= latest
            if near and _same_name(other, step) and self._is_same(other, step):
                fitting.append(other)
        if not fitting:
            return None
        run = self._run(step)
        inside = [other for other in fitting if self._run(other) == run]
        best = min(inside or fitting, key=lambda other: _distance(other, step))
        if not inside and len({self._run(other) for other in fitting}) == 1:
            self._join(best, step)
        return best

    def _is_same(self, other: Step, step: Step) -> bool:  # noqa: PLR0911  # one rule each
        """True if two steps of equal kind and name are one."""
        if _contradicts(other, step):
            return False
        if other.trace_id == step.trace_id and (
            other.parent_id == step.span_id or step.parent_id == other.span_id
        ):
            return True
        # A side describes each call once: what looks like it again is another call.
        sides = self._sides.get(other.span_id, {(other.scope, other.server)})
        if (step.scope, step.server) in sides:
            return False
        # Only the clock of another process may be off; calls in a row can be quick, and equal.
        if not _overlap(other, step, _TOLERANCE if other.server or step.server else 0):
            return False
        near = _near(other.start, step.start)
        if self._run(other) == self._run(step):
            return near or self._is_same_in_run(other, step)
        # Log records that name no trace, as those of gemini-cli, are of the session's traces.
        in_session = step.session is not None and step.session == other.session
        if in_session and self._is_same_in_run(other, step):
            return True
        return (
            near
            and _near(other.end, step.end)
            and (step.kind in _CALLS or (step.kind is Kind.MODEL and _same_tokens(other, step)))
            and (in_session or other.session is None or step.session is None)
            and self._is_first(other, step)
            and self._may_join(other, step)
        )

    def _is_same_in_run(self, other: Step, step: Step) -> bool:
        """True if two steps of one run that start apart are one.

        A busy machine puts more than the tolerance between two instrumentations: where both know
        the same of a call, it is enough that they overlap.
        """
        if step.kind is Kind.MODEL:
            known = _same_tokens(other, step)
        elif step.kind in _CALLS:
            known = (step.args is not None and other.args is not None) or (
                step.call_id is not None and step.call_id == other.call_id
            )
        else:
            # An agent or a node inside another of its name is another one.
            return False
        return _overlap(other, step, _TOLERANCE) if known else _enclose(other, step)

    def _note_side(self, step: Step, counted: Step) -> None:
        sides = self._sides.setdefault(counted.span_id, {(counted.scope, counted.server)})
        sides.add((step.scope, step.server))
        if len(self._sides) > _MOST_SIDES:
            self._sides.popitem(last=False)

    def _run(self, step: Step) -> int:
        """The trace that stands for the run of a step."""
        run = self._runs.get(step.trace_id)
        return step.trace_id if run is None else run.first

    def _may_join(self, other: Step, step: Step) -> bool:
        """True if two traces may be one run: no scope writes two of the traces of a run."""
        if self._apart is not None and self._apart(other.trace_id, step.trace_id):
            return False
        runs = (self._runs.get(other.trace_id), self._runs.get(step.trace_id))
        return all(
            run is None or run.by_scope.get(one.scope, one.trace_id) == one.trace_id
            for run in runs
            for one in (other, step)
        )

    def _join(self, other: Step, step: Step) -> None:
        """Puts two traces, in both of which one call was seen, into one run."""
        if len(self._runs) >= _MOST_TRACES:
            self._runs.clear()
        joined = _Run(self._run(other), set(), {})
        for one in (other, step):
            run = self._runs.get(one.trace_id) or _Run(one.trace_id, {one.trace_id}, {})
            joined.traces.update(run.traces)
            joined.by_scope.update(run.by_scope)
        joined.by_scope.update({other.scope: other.trace_id, step.scope: step.trace_id})
        self._runs.update(dict.fromkeys(joined.traces, joined))
        if self._joined is not None:
            self._joined(other.trace_id, step.trace_id)

    def _may_know_more(self, step: Step) -> set[int]:
        """Open spans that may describe the same call: around it, or started together with it."""
        found: set[int] = set()
        parent_id, direct = step.parent_id, True
        for _ in range(_DEPTH):
            opened = self._open.get(parent_id)
            if opened is None:
                break
            parent = opened.view
            if (direct or parent.scope != step.scope or step.server) and self._may_be(parent, step):
                found.add(parent.span_id)
            parent_id, direct = parent.parent_id, False
        for opened in islice(reversed(self._open.values()), _LOOKED_AT):
            span = opened.view
            encloses = step.server or step.kind is Kind.MODEL
            if span.start < step.start - _TOLERANCE and not encloses:
                continue
            if encloses and span.trace_id == step.trace_id:
                other = span.kind != "SERVER" if step.server else span.scope != step.scope
                beside = other and span.start <= step.start
            else:
                beside = span.scope != step.scope and _near(span.start, step.start)
            if beside and self._may_be(span, step):
                found.add(span.span_id)
        return found

    def _may_be(self, span: SpanView, step: Step) -> bool:
        """True if an open span may describe a call, by what is known of it so far."""
        if step.kind is not Kind.MODEL:
            return _may_name(span, step)
        return self._asks is not None and self._asks(span)


_COPIED: Final = ("args", "outcome")
_COPIED_OF_MODELS: Final = (
    "text", "tokens_in", "tokens_out", "cost", "cache_read", "cache_write",
)  # fmt: skip


def absorb(step: Step, other: Step) -> None:
    """Fills in the step what only the other knows, and takes over its failure."""
    fields = _COPIED if step.kind is not Kind.MODEL else _COPIED + _COPIED_OF_MODELS
    for name in fields:
        if getattr(step, name) is None:
            setattr(step, name, getattr(other, name))
    step.error = step.error or other.error
    step.error_text = step.error_text or other.error_text
    step.error_type = other.error_type if other.refused else step.error_type or other.error_type
    if step.trace_id == other.trace_id:
        step.session = step.session or other.session
    step.agent = step.agent or other.agent
    step.node = step.node or other.node
    step.call_id = step.call_id or other.call_id
    if step.kind is Kind.HANDOFF:
        step.name = step.name or other.name
    elif step.kind is Kind.MODEL:
        step.model = step.model or other.model


def compared(step: Step, long: str | None = _LONG) -> Step:
    """A step as later ones are compared with it: itself, or a copy without long values.

    Args:
        step: The step.
        long: Stands for long arguments.
    """
    args = step.args
    values = args, step.outcome, step.error_text, step.text, step.tasks
    # As `is_long`, without a call for each value.
    if not any(
        len(value) > _COMPARED_CHARS if type(value) is str else is_long(value, _COMPARED_CHARS)
        for value in values
        if value is not None
    ):
        return step
    return replace(
        step, args=long if is_long(args, _COMPARED_CHARS) else args,
        outcome=None, error_text=None, text=None, tasks=None, reading=None,
    )  # fmt: skip


def contradict(one: object, other: object) -> bool:
    """True if two forms of arguments cannot be those of one call.

    What is unknown contradicts nothing. JSON text equals its map; a plain text equals a map with
    that one value (OpenInference LangChain); maps agree if they agree in the keys that both have
    (defaults filled in by one side).
    """
    if one is None or other is None or one is other:
        return False
    texts = [value for value in (one, other) if isinstance(value, str)]
    if (len(texts) == 2 and one == other) or any(len(value) > _COMPARED_CHARS for value in texts):
        return False
    try:
        return not _agree(parsed(one), parsed(other))
    except (RecursionError, TypeError, ValueError):
        return False


def _agree(one: object, other: object) -> bool:
    first, second = mapping(one), mapping(other)
    if first is not None and second is not None:
        shared = first.keys() & second.keys()
        if not shared:
            return not first or not second
        return all(_alike(first[key], second[key]) for key in shared)
    if first is None and second is None:
        return _alike(one, other)
    whole, plain = (first, other) if first is not None else (second or {}, one)
    if isinstance(plain, (list, tuple)) or (isinstance(plain, str) and plain[:1] == "{"):
        return True  # positions against names, or JSON that was cut: nothing can be said
    return len(whole) == 1 and _alike(next(iter(whole.values())), plain)


def _alike(one: object, other: object) -> bool:
    if isinstance(one, (list, tuple, Mapping)) or isinstance(other, (list, tuple, Mapping)):
        return one == other
    return one == other or str(one) == str(other)


def _begun_key(step: Step) -> int:
    return ~step.trace_id if step.kind is Kind.MODEL else step.trace_id


def _contradicts(other: Step, step: Step) -> bool:
    """True if two steps are known to be of two calls."""
    if other.call_id is not None and step.call_id is not None and other.call_id != step.call_id:
        return True
    # The state of a node is written by each instrumentation in its own way.
    return step.kind is not Kind.NODE and contradict(other.args, step.args)


def _may_name(span: SpanView, step: Step) -> bool:
    """True if an open span may describe a tool call, by what is known of it so far."""
    name, title = step.name, span.name
    if not name or title.startswith(_NOT_TOOLS):
        return False
    at = title.find(name)
    if at >= 0:
        around = title[max(at - 1, 0) : at] + title[at + len(name) :][:1]
        if step.dialect == _PROTOCOL or not any(one == "_" or one.isalnum() for one in around):
            return True
    attributes = span.attributes
    return any(attributes.get(key) == name for key in _NAME_KEYS)


def _same_name(one: Step, other: Step) -> bool:
    """True if kind and name of two steps fit one unit of work."""
    if one.kind is not other.kind:
        return False
    if one.name == other.name:
        return True
    if one.kind is Kind.TOOL:
        return _prefixed(one, other) or _prefixed(other, one)
    if one.kind is Kind.HANDOFF:
        return one.name is None or other.name is None
    if one.kind is Kind.MODEL:
        # `openai/gpt-4o` is asked for, `gpt-4o-2024-08-06` answers; some do not name it at all.
        first, second = ((each.model or "").rpartition("/")[2] for each in (one, other))
        return not first or not second or first.startswith(second) or second.startswith(first)
    return False


def _prefixed(served: Step, called: Step) -> bool:
    """True if a protocol's tool is called by its name with the server's name before it."""
    name, longer = served.name, called.name
    if not name or not longer or not longer.endswith(name):
        return False
    protocol = served.dialect == _PROTOCOL or ".mcp." in served.scope
    return protocol and longer[-len(name) - 1] in _JOINTS


def _same_tokens(one: Step, other: Step) -> bool:
    """True if two model calls are known to have used the same tokens."""
    tokens = one.tokens_in, one.tokens_out
    return one.tokens is not None and tokens == (other.tokens_in, other.tokens_out)


def _distance(other: Step, step: Step) -> tuple[bool, int]:
    """Distance of two steps from being surely one call: equal ids first, then starts."""
    same_id = other.call_id is not None and other.call_id == step.call_id
    return (not same_id, abs(other.start - step.start))


def _near(one: int | None, other: int | None) -> bool:
    return one is not None and other is not None and abs(one - other) <= _TOLERANCE


def _enclose(one: Step, other: Step) -> bool:
    """True if the times of one lie within those of the other, either way."""
    first, second = one.end, other.end
    if first is None or second is None:
        return False
    return (one.start - _TOLERANCE <= other.start and second <= first + _TOLERANCE) or (
        other.start - _TOLERANCE <= one.start and first <= second + _TOLERANCE
    )


def _overlap(one: Step, other: Step, tolerance: int) -> bool:
    """True if there was a time at which both ran, give or take the tolerance."""
    if one.end is None or other.end is None:
        return False
    return one.start <= other.end + tolerance and other.start <= one.end + tolerance
