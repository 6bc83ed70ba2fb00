"""One call that several spans describe is one step."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.values import mapping, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from otel_loopguard.spans.views import SpanView

_LIMIT = 512


class Told:
    """The sides that have told of each step; each tells of a call once. The newest 512 are kept.

    A side is the scope of a span and whether it is the serving one: the two sides of a protocol may
    be written by one scope.
    """

    def __init__(self) -> None:
        self._sides: OrderedDict[int, set[tuple[str, bool]]] = OrderedDict()

    def by(self, step: Step, of: Step) -> bool:
        """Whether the side of `step` has told `of` the other one."""
        side = step.scope, step.server
        sides = self._sides.get(of.span_id)
        return side == (of.scope, of.server) if sides is None else side in sides

    def note(self, step: Step, of: Step) -> None:
        """Notes that `step` tells `of` the other one too."""
        sides = self._sides.setdefault(of.span_id, {(of.scope, of.server)})
        sides.add((step.scope, step.server))
        if len(self._sides) > _LIMIT:
            self._sides.popitem(last=False)

    def move(self, old: Step, new: Step) -> None:
        """From now on `new` stands for the call that `old` stood for."""
        if old is not new:
            self._sides[new.span_id] = self._sides.pop(old.span_id)


_MAX_TRACES = 4096


class Runs:
    """Which traces belong together, because one call was seen in both. Bounded in number."""

    def __init__(self, joined: Callable[[int, int], None] | None) -> None:
        self._joined = joined
        self._first: dict[int, int] = {}
        self._tied: dict[tuple[int, str], int] = {}

    def first(self, trace: int) -> int:
        """The trace that stands for the run of a trace."""
        return self._first.get(trace, trace)

    def may_join(self, trace: int, scope: str, other: int, other_scope: str) -> bool:
        """Whether two traces may be one run: no scope writes two of the traces of a run."""
        return all(
            self._tied.get((run, name), own) == own
            for run in (self.first(trace), self.first(other))
            for name, own in ((scope, trace), (other_scope, other))
        )

    def join(self, trace: int, scope: str, other: int, other_scope: str) -> None:
        """Puts two traces into one run."""
        if len(self._first) >= _MAX_TRACES:
            self._first.clear()
            self._tied.clear()
        run, merged = self.first(trace), self.first(other)
        for one, into in tuple(self._first.items()):
            if into == merged:
                self._first[one] = run
        self._first[trace] = self._first[merged] = self._first[other] = run
        for (at, name), own in tuple(self._tied.items()):
            if at == merged:
                self._tied[run, name] = own
        self._tied[run, scope] = trace
        self._tied[run, other_scope] = other
        if self._joined is not None:
            self._joined(trace, other)


_COMPARED = 20_000
_PROTOCOL = "mcp"
_JOINTS = "_-./:"
_NAME_KEYS = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name")
_NOT_TOOLS = ("invoke_agent ", "create_agent ", "invoke_workflow ", "chat ", "agent_run ")


def contradict(one: object, other: object) -> bool:
    """Whether two forms of arguments cannot be those of one call.

    What is unknown contradicts nothing. JSON text equals its map; a plain text equals a map with
    that one value (OpenInference LangChain); maps agree if they agree in the keys that both have
    (defaults filled in by one side).
    """
    if one is None or other is None or one is other:
        return False
    if isinstance(one, str) and isinstance(other, str) and one == other:
        return False
    if _too_long(one) or _too_long(other):
        return False
    try:
        return not _agree(parsed(one), parsed(other))
    except (RecursionError, TypeError, ValueError):
        return False


def _too_long(value: object) -> bool:
    return isinstance(value, str) and len(value) > _COMPARED


def _agree(one: object, other: object) -> bool:
    first, second = mapping(one), mapping(other)
    if first is not None and second is not None:
        shared = [key for key in first if key in second]
        if not shared:
            return not first or not second
        return all(_alike(first[key], second[key]) for key in shared)
    if first is not None:
        return _says(first, other)
    if second is not None:
        return _says(second, one)
    return _alike(one, other)


def _says(whole: Mapping[str, object], plain: object) -> bool:
    """Whether a map and something that is no map can be the same arguments."""
    if isinstance(plain, str) and plain[:1] == "{":
        return True  # cut JSON: it cannot be told
    if isinstance(plain, (list, tuple)):
        return True  # positions against names: it cannot be told
    return len(whole) == 1 and _alike(next(iter(whole.values())), plain)


def _alike(one: object, other: object) -> bool:
    if isinstance(one, (list, tuple, Mapping)) or isinstance(other, (list, tuple, Mapping)):
        return one == other
    return one == other or str(one) == str(other)


def tells_of(span: SpanView, step: Step) -> bool:
    """Whether an open span may be another one of a tool call, by what is known of it so far."""
    name = step.name
    if not name or span.name.startswith(_NOT_TOOLS):
        return False
    if step.dialect == _PROTOCOL and name in span.name:
        return True
    attributes = span.attributes
    return _names(span.name, name) or any(attributes.get(key) == name for key in _NAME_KEYS)


def _names(span_name: str, name: str) -> bool:
    """Whether a span's name has a tool's name as a word of it."""
    at = span_name.find(name)
    if at < 0:
        return False
    end = at + len(name)
    return not (
        (at > 0 and _inside_word(span_name[at - 1]))
        or (end < len(span_name) and _inside_word(span_name[end]))
    )


def _inside_word(char: str) -> bool:
    return char == "_" or char.isalnum()


def same_name(one: Step, other: Step) -> bool:
    """Whether kind and name of two steps fit one unit of work."""
    if one.kind is not other.kind:
        return False
    if one.name == other.name:
        return True
    if one.kind is Kind.TOOL:
        return _prefixed(one, other) or _prefixed(other, one)
    if one.kind is Kind.HANDOFF:
        return one.name is None or other.name is None
    if one.kind is Kind.MODEL:
        # `gpt-4o` is asked for, `gpt-4o-2024-08-06` answers; some do not name it at all.
        first, second = one.model, other.model
        return not first or not second or first.startswith(second) or second.startswith(first)
    return False


def _prefixed(served: Step, called: Step) -> bool:
    """Whether a protocol's tool is called under a name with the server's name before it."""
    if not (served.dialect == _PROTOCOL or ".mcp." in served.scope):
        return False
    name, longer = served.name, called.name
    if not name or not longer or not longer.endswith(name):
        return False
    return longer[-len(name) - 1] in _JOINTS


def absorb(step: Step, other: Step) -> None:
    """Fills in the step what only the other knows, and takes over its failure."""
    if step.args is None:
        step.args = other.args
    if step.outcome is None:
        step.outcome = other.outcome
    step.error = step.error or other.error
    step.error_text = step.error_text or other.error_text
    step.error_type = step.error_type or other.error_type
    if step.trace_id == other.trace_id:
        step.session = step.session or other.session
    step.agent = step.agent or other.agent
    step.node = step.node or other.node
    step.call_id = step.call_id or other.call_id
    if step.kind is Kind.HANDOFF:
        step.name = step.name or other.name
    elif step.kind is Kind.MODEL:
        step.model = step.model or other.model
        step.text = other.text if step.text is None else step.text
        step.tokens_in = other.tokens_in if step.tokens_in is None else step.tokens_in
        step.tokens_out = other.tokens_out if step.tokens_out is None else step.tokens_out
        step.cost = other.cost if step.cost is None else step.cost


def together(one: Step, other: Step) -> Step:
    """One step of two that were not counted yet: the more complete, with the rest filled in."""
    base, rest = (one, other) if len(one.lacks) <= len(other.lacks) else (other, one)
    absorb(base, rest)
    return base


def related(one: Step, other: Step) -> bool:
    """Whether one is the direct parent of the other."""
    return one.trace_id == other.trace_id and (
        one.parent_id == other.span_id or other.parent_id == one.span_id
    )


def encloses(one: Step, other: Step, tolerance: int) -> bool:
    """Whether the times of one lie within those of the other, either way."""
    first, second = one.end, other.end
    if first is None or second is None:
        return False
    return (one.start - tolerance <= other.start and second <= first + tolerance) or (
        other.start - tolerance <= one.start and first <= second + tolerance
    )


def overlaps(one: Step, other: Step, tolerance: int) -> bool:
    """Whether there was a time at which both ran, give or take the tolerance."""
    if one.end is None or other.end is None:
        return False
    return one.start <= other.end + tolerance and other.start <= one.end + tolerance


def same_tokens(one: Step, other: Step) -> bool:
    """Whether two model calls are known to have used the same tokens."""
    return one.tokens is not None and (one.tokens_in, one.tokens_out) == (
        other.tokens_in,
        other.tokens_out,
    )


def starts_near(one: Step, other: Step, tolerance: int) -> bool:
    """Whether both started at the same time, give or take the tolerance."""
    return -tolerance <= one.start - other.start <= tolerance


def ends_near(one: Step, other: Step, tolerance: int) -> bool:
    """Whether both ended at the same time, give or take the tolerance."""
    if one.end is None or other.end is None:
        return False
    return -tolerance <= one.end - other.end <= tolerance


def distance(other: Step, step: Step) -> tuple[bool, int]:
    """How far two steps are from being surely one call: equal ids first, then starts."""
    same_id = other.call_id is not None and other.call_id == step.call_id
    return (not same_id, abs(other.start - step.start))


_RECENT = 256
_HELD = 128
_OPEN = 10_000
_LOOKED_AT = 64
_DEPTH = 32
_SECOND = 1_000_000_000
_NEVER = 2**63 - 1
# Tuples, because an enum member hashes in Python and compares by identity first.
_CALLS = (Kind.TOOL, Kind.HANDOFF)
_COUNTED_ONCE = (Kind.TOOL, Kind.MODEL, Kind.NODE, Kind.AGENT, Kind.HANDOFF)


class _Held:
    """A step that waits, from `since`, for spans which may say more of it."""

    def __init__(self, step: Step, waits: set[int], since: int) -> None:
        self.step = step
        self.waits = waits
        self.since = since


class SpanDeduplicator:
    """Counts each call once, in the order in which spans end.

    A step that has arguments and result is counted at once; what other spans say of it later is
    dropped, but for a failure and what was unknown, which are put on the counted step. A tool call
    that lacks one of them is held while a span is open that may have more of it.

    Two steps are one call if kind and name are equal, arguments and call ids do not contradict,
    and: one is the direct parent of the other; or their scopes differ (or one is the serving side
    of the other), there was a time at which both ran, and within one run they start together or one
    encloses the other; or, in two traces, they start and end together. Two steps of one scope are
    parallel or successive calls.

    Not thread-safe by itself.
    """

    def __init__(
        self, *, joined: Callable[[int, int], None] | None = None, tolerance_ms: float = 5.0
    ) -> None:
        self._tolerance = int(tolerance_ms * 1_000_000)
        self._runs = Runs(joined)
        self._open: dict[int, SpanView] = {}
        self._recent: deque[Step] = deque(maxlen=_RECENT)
        self._told = Told()
        self._inner: dict[int, Step] = {}
        self._held: list[_Held] = []
        self._scope: str | None = None
        self._several = False

    def opened(self, span: SpanView) -> None:
        """Notes a span that starts. Only its name, ids, scope and start are looked at."""
        if len(self._open) >= _OPEN:
            for span_id in tuple(islice(self._open, _OPEN // 4)):
                del self._open[span_id]
                self._inner.pop(span_id, None)
        self._open[span.span_id] = span

    def closed(self, span: SpanView, step: Step | None, now: int | None = None) -> tuple[Step, ...]:
        """Steps to count now that a span ended."""
        span_id = span.span_id
        self._open.pop(span_id, None)
        inner = self._inner.pop(span_id, None) if self._inner else None
        if step is None:
            return self._released(span_id) if self._held else ()
        if step.kind not in _COUNTED_ONCE:
            return (*self._released(span_id), step) if self._held else (step,)
        if inner is None and step.scope == self._scope and not self._several and not self._held:
            parent = self._open.get(step.parent_id) if step.parent_id is not None else None
            if parent is None or self._stands_alone(step, parent):
                self._recent.append(step)
                return (step,)
        return self._settled(span_id, step, inner, (span.end or 0) if now is None else now)

    @staticmethod
    def _stands_alone(step: Step, parent: SpanView) -> bool:
        """Whether the span around a step surely does not tell of it, by its name."""
        return not step.server and step.name is not None and step.name not in parent.name

    def overdue(self, now: int) -> tuple[Step, ...]:
        """Steps that have waited for a second, to be counted after all."""
        if not self._held:
            return ()
        late = [held for held in self._held if now - held.since > _SECOND]
        for held in late:
            self._held.remove(held)
        return tuple(self._counted(held.step) for held in late)

    @property
    def due(self) -> int:
        """When a step that waits will be overdue, nanoseconds since the epoch; else 2**63 - 1."""
        ends = (held.since + _SECOND + 1 for held in tuple(self._held))
        return min(ends, default=_NEVER)

    def _settled(self, span_id: int, step: Step, inner: Step | None, now: int) -> tuple[Step, ...]:
        """What to count for a step of which others may have spoken."""
        if self._scope is None:
            self._scope = step.scope
        elif step.scope != self._scope:
            self._several = True
        if inner is not None and same_name(inner, step) and not self._differ(inner, step):
            self._told.note(step, inner)
            absorb(inner, step)
            return self._released(span_id)
        held = self._waiting_twin(step)
        if held is not None:
            return self._merged(held, span_id, step)
        twin = self._twin(step, reversed(self._recent))
        if twin is not None:
            self._told.note(step, twin)
            absorb(twin, step)
            return self._released(span_id)
        before = self._released(span_id)
        waits = self._may_say_more(step) if step.lacks else None
        if not waits:
            return (*before, self._counted(step))
        self._held.append(_Held(step, waits, now))
        if len(self._held) > _HELD:
            return (*before, self._counted(self._held.pop(0).step))
        return before

    def _merged(self, held: _Held, span_id: int, step: Step) -> tuple[Step, ...]:
        """Puts a held step and one that ended into one, and counts it if it is complete."""
        first = held.step
        self._told.note(step, first)
        held.step = together(first, step)
        self._told.move(first, held.step)
        held.waits |= self._may_say_more(step)
        if not held.step.lacks:
            held.waits.clear()
        held.waits.add(span_id)
        return self._released(span_id)

    def _released(self, span_id: int) -> tuple[Step, ...]:
        """Held steps that waited only for this span; counted now."""
        if not self._held:
            return ()
        free: list[Step] = []
        for held in tuple(self._held):
            held.waits.discard(span_id)
            if not held.waits:
                self._held.remove(held)
                free.append(self._counted(held.step))
        return tuple(free)

    def _counted(self, step: Step) -> Step:
        self._recent.append(step)
        parent = self._open.get(step.parent_id) if step.parent_id is not None else None
        if parent is not None and step.name is not None and step.name in parent.name:
            self._inner[parent.span_id] = step
        return step

    def _waiting_twin(self, step: Step) -> _Held | None:
        twin = self._twin(step, (held.step for held in self._held)) if self._held else None
        return next((held for held in self._held if held.step is twin), None)

    def _twin(self, step: Step, earlier: Iterable[Step]) -> Step | None:
        """The step among earlier ones that tells of the same call; the closest if several do.

        Two traces are one run only if no third one fits: calls of sessions that run at the same
        time may look alike, and are then counted once each without joining their sessions.
        """
        fitting = self._fitting(step, earlier)
        if not fitting:
            return None
        run = self._runs.first(step.trace_id)
        inside = [other for other in fitting if self._runs.first(other.trace_id) == run]
        best = min(inside or fitting, key=lambda other: distance(other, step))
        if not inside and len({self._runs.first(other.trace_id) for other in fitting}) == 1:
            self._runs.join(best.trace_id, best.scope, step.trace_id, step.scope)
        return best

    def _fitting(self, step: Step, earlier: Iterable[Step]) -> list[Step]:
        earliest = step.start - self._tolerance
        latest = (step.end or step.start) + self._tolerance
        fitting: list[Step] = []
        for other in earlier:
            ended = other.end or other.start
            if ended < step.start - _SECOND:
                break
            # Times first: they cost least, and leave little to compare.
            near = ended >= earliest and other.start <= latest
            if near and same_name(other, step) and self._same(other, step):
                fitting.append(other)
        return fitting

    def _same(self, other: Step, step: Step) -> bool:
        """Whether two steps of equal kind and name are one."""
        if self._differ(other, step):
            return False
        if related(other, step):
            return True
        if self._told.by(step, other):
            return False
        # Only the clock of another process may be off; calls in a row can be quick, and equal.
        if not overlaps(other, step, self._tolerance if other.server or step.server else 0):
            return False
        if self._runs.first(other.trace_id) == self._runs.first(step.trace_id):
            return self._at_once(other, step)
        return (
            (step.kind in _CALLS or (step.kind is Kind.MODEL and same_tokens(other, step)))
            and starts_near(other, step, self._tolerance)
            and ends_near(other, step, self._tolerance)
            and (other.session is None or step.session is None or other.session == step.session)
            and self._runs.may_join(other.trace_id, other.scope, step.trace_id, step.scope)
        )

    def _at_once(self, other: Step, step: Step) -> bool:
        """Whether two steps of one run fall together in time.

        A busy machine puts more than the tolerance between two instrumentations: where both know
        the same of a call, it is enough that they overlap.
        """
        if starts_near(other, step, self._tolerance):
            return True
        if step.kind is Kind.MODEL:
            known = same_tokens(other, step)
        elif step.kind in _CALLS:
            known = step.args is not None and other.args is not None
            known = known or (step.call_id is not None and step.call_id == other.call_id)
        else:
            # An agent or a node inside another of its name is another one.
            return False
        within = overlaps if known else encloses
        return within(other, step, self._tolerance)

    @staticmethod
    def _differ(other: Step, step: Step) -> bool:
        if other.call_id is not None and step.call_id is not None and other.call_id != step.call_id:
            return True
        # The state of a node is written by each instrumentation in its own way.
        return step.kind is not Kind.NODE and contradict(other.args, step.args)

    def _may_say_more(self, step: Step) -> set[int]:
        """Open spans that may tell of the same call: around it, or started together with it."""
        found: set[int] = set()
        parent_id, direct = step.parent_id, True
        for _ in range(_DEPTH):
            parent = self._open.get(parent_id) if parent_id is not None else None
            if parent is None:
                break
            if (direct or parent.scope != step.scope or step.server) and tells_of(parent, step):
                found.add(parent.span_id)
            parent_id, direct = parent.parent_id, False
        for span in islice(reversed(self._open.values()), _LOOKED_AT):
            if span.start < step.start - self._tolerance and not step.server:
                break
            if self._beside(span, step) and tells_of(span, step):
                found.add(span.span_id)
        return found

    def _beside(self, span: SpanView, step: Step) -> bool:
        if step.server and span.trace_id == step.trace_id:
            return span.kind != "SERVER" and span.start <= step.start
        return span.scope != step.scope and abs(span.start - step.start) <= self._tolerance
