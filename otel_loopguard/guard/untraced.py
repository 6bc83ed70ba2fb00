"""Facts that no span states: tool calls, read from messages of models, and costs of model calls.

The guard warns where they stay invisible.
"""

from __future__ import annotations

from collections import deque
from difflib import get_close_matches
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.errors import warn_blind
from otel_loopguard.core import Kind, Step
from otel_loopguard.sessions.profiler import AGENT
from otel_loopguard.sessions.requested_calls import RequestedCalls
from otel_loopguard.spans.dedup import compared
from otel_loopguard.spans.messages import asks_for_tools, calls_on, request_on

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from otel_loopguard.sessions import Session
    from otel_loopguard.sessions.observation import Observation
    from otel_loopguard.settings import Settings
    from otel_loopguard.spans.messages import Request, RequestedCall
    from otel_loopguard.spans.views import SpanView

_TRACES: Final = 4096
"""Traces that are known to have spans of tools, the newest: a trace that is forgotten shows its
calls twice at worst, and only where messages tell of them too."""
_BLIND: Final = 5
"""Calls that cannot be seen before it is said: a run of one or two has no loop."""
_UNCOUNTED: Final = 30
"""Calls of tools without one of a model before it is said that limits of tokens do nothing: most
agents have asked theirs before the first."""
_MUTE: Final = 64
"""Model calls whose first span had no content, the newest: their second one follows at once."""
_TOOL: Final = Kind.TOOL
_MODEL: Final = Kind.MODEL
_CALLS: Final = (Kind.TOOL, Kind.HANDOFF)
_TRACED: Final = RequestedCalls()
"""Shared by all sessions whose calls come from spans; never changes."""
_TRACED.trace()

_ALIKE: Final = 0.8
"""Share of two names that is common where one is meant: a letter in five, as in `serach`."""


def warn_of_misnamed(settings: Settings, profiles: Collection[str]) -> None:
    """Warns, once per process, of names of tools and agents that settings may have misspelt.

    Profiles of agents have a prefix.
    """
    agents = {name.removeprefix(AGENT) for name in profiles if name.startswith(AGENT)}
    _compare("misnamed_tool", settings.declared_tools, set(profiles))
    _compare("misnamed_agent", settings.agent_limits, agents)


def _compare(reason: str, declared: Mapping[str, object], known: set[str]) -> None:
    strangers = [name for name in known if name not in declared]
    for name in sorted(declared.keys() - known):
        for meant in get_close_matches(name, strangers, 1, _ALIKE):
            warn_blind(reason, name, meant)


def warn_of_let_through(seen: Observation) -> None:
    """Warns if a denied loop went on because it was asked about otherwise. No lock is held."""
    let_through, made = seen.session.flag.let_through, seen.evidence
    # A call that is made for the first time was not denied, whatever it was asked about.
    if let_through is None or made is None or made.call is None or made.fresh:
        return
    denied, asked = let_through
    if denied == made.tool and seen.session.state.policy.overruns(made.call):
        warn_blind("let_through", denied, asked)


def _is_traced_call(step: Step) -> bool:
    """True if a step shows that tools have spans: a call, or an answer given by one."""
    return step.kind in _CALLS or (step.kind is Kind.OTHER and step.args is not None)


def _is_alone(step: Step, session: Session) -> bool:
    """True if a call is a whole trace, in no session: no other can be compared with it."""
    return step.parent_id is None and not session.named


def _asks_unseen(span: SpanView, step: Step) -> bool:
    """True if a model asks for calls that its span lacks: it says so, or only gets a result."""
    if asks_for_tools(span):
        return True
    request = None if step.text else request_on(span)
    return request is not None and bool(next(request.newest).results)


def _is_bare(step: Step) -> bool:
    return step.kind is _TOOL and step.args is None and step.outcome is None


class Messages(NamedTuple):
    """The messages on the span of a model.

    Attributes:
        calls: The calls that its response requests.
        request: The request; None if it was not captured or not read.
    """

    calls: list[RequestedCall]
    request: Request | None


class Untraced:
    """Finds calls that only messages report. The guard's lock is held.

    Messages do not count in traces and sessions that have a span of a tool; the newest 4096 such
    traces are remembered. Of several spans of one model call the first is read; another one only
    if the first has no content.

    Attributes:
        warns: Whether the next step has it warn; beside that only of calls without a parent.
    """

    def __init__(self) -> None:
        self._traced: BoundedDict[int, None] = BoundedDict(_TRACES)
        self._separate = 0
        self._mute: deque[tuple[str, Step]] = deque(maxlen=_MUTE)
        self._bare = 0
        self._has_content = False
        self._blind = 0
        self.warns = False

    def read(self, span: SpanView, step: Step, session: Session | None) -> Messages | None:
        """Reads the messages on a model's span, if they may matter. The lock is not held."""
        if step.trace_id in self._traced:
            return None
        requested = None if session is None else session.requested
        if requested is not None and requested.traced:
            return None
        calls = calls_on(span)
        if not calls and requested is None:
            return Messages(calls, None)
        request = request_on(span)
        if request is not None:
            for _ in request.newest:
                pass  # read now, and kept
        return Messages(calls, request)

    def answered(  # noqa: PLR0913
        self, span: SpanView, step: Step, counted: list[tuple[Session, Step]], *,
        session: Session | None, agent: str | None, read: Messages | None = None,
    ) -> list[tuple[Session, Step]]:  # fmt: skip
        """Returns the steps to judge after a model's span has ended."""
        kept = self.counted(counted)
        own = None
        for known, one in counted:
            # A span inside, without what the model wrote, may have waited for this one.
            if one is step or one.kind is step.kind is _MODEL:
                own = known
                break
        found = own or session
        if found is None:
            return kept
        results = self._requested_on(span, step, found, agent, read, first=own is not None)
        return [*((found, one) for one in results), *kept] if results else kept

    def late(self, session: Session, step: Step) -> list[tuple[Session, Step]]:
        """Returns the steps to judge for one that waited for other spans in vain."""
        if step.kind is _MODEL:
            self._mute.append((session.key, compared(step)))
        return self.counted([(session, step)])

    def counted(
        self, counted: list[tuple[Session, Step]], ended: Step | None = None
    ) -> list[tuple[Session, Step]]:
        """Drops calls that were already counted from messages.

        The ended span marks its trace as one with tool spans, even if its call was counted before.
        """
        if self._has_content and len(counted) == 1:
            session, step = counted[0]
            if session.requested is _TRACED and ended is step and step.trace_id in self._traced:
                return counted  # spans report every call so far and this one: nearly always
        kept: list[tuple[Session, Step]] = []
        for session, step in counted:
            if not _is_traced_call(step):
                kept.append((session, step))
                continue
            if self._is_told(session, step):
                continue
            self._note(step)
            requested = session.requested
            if requested is None:
                requested = session.requested = _TRACED
            if not requested.traced:
                kept += [(session, held) for held in requested.trace()]
            if not requested.counted_calls or not requested.counted(step):
                kept.append((session, step))
        # A second span of a call that waits for its messages may be without content, too.
        if ended is not None and not _is_bare(ended):
            self._note(ended)
        return kept

    def _is_told(self, session: Session, step: Step) -> bool:
        """True if later messages of its model will have the content of a call."""
        if step.kind is not _TOOL:
            return False
        requested, bare = session.requested, _is_bare(step)
        told = (
            bare
            and requested is not None
            and step.trace_id not in self._traced
            and requested.hold(step)
        )
        if not told:
            self._tally(step)
        return told

    def _tally(self, call: Step) -> None:
        """Counts a call without content, unless others have some."""
        bare = _is_bare(call)
        self._bare, self._has_content = self._bare + bare, self._has_content or not bare
        self.warns |= self._bare >= _BLIND and not self._has_content

    def _note(self, step: Step) -> None:
        if _is_traced_call(step) and step.trace_id not in self._traced:
            self._traced[step.trace_id] = None

    def _requested_on(  # noqa: PLR0913
        self, span: SpanView, step: Step, session: Session, agent: str | None,
        read: Messages | None, *, first: bool,
    ) -> list[Step]:  # fmt: skip
        """Returns the calls whose results are on the span of a model, as steps."""
        requested = session.requested
        if (requested is not None and requested.traced) or step.trace_id in self._traced:
            return []
        if not first and not self._is_mute(step, session.key):
            return []
        calls = calls_on(span) if read is None else read.calls
        alone = requested is None and _is_alone(step, session)
        unseen = first and not calls and _asks_unseen(span, step)
        self._separate += alone and unseen
        if first and not calls and not step.text:
            self._mute.append((session.key, compared(step)))
        if requested is None:
            if not calls and not unseen:
                return []
            requested = session.requested = RequestedCalls()
        # Who asks this process hears what it quotes, and who asks another one does not.
        requested.hear(session.flag)
        request = None
        if requested.waits or calls:
            request = request_on(span) if read is None or read.request is None else read.request
        # A fetched answer has no request, as a rule: results of calls are in the next one.
        sent = requested.waits and (step.kind is _MODEL or request is not None)
        steps = requested.answer(step, request) if sent else []
        for call in steps:
            call.agent = call.agent or agent
            self._tally(call)
        if calls:
            # It is told a result of a call that was asked for elsewhere, and asks for the next one.
            told = alone and request is not None and next(request.newest).results
            self._separate += bool(told)
            self.warns |= self._separate >= _BLIND
            requested.ask(calls, step, request)
            requested.blind = 0
        elif unseen:
            requested.blind += 1
            self._blind = max(self._blind, requested.blind)
            self.warns |= self._blind >= _BLIND
        return steps

    def _is_mute(self, step: Step, session: str) -> bool:
        """True if the first span of this model call had no content."""
        end = step.end or step.start
        # Outside of any span each of its spans is a trace.
        return any(
            (mute.trace_id == step.trace_id or key == session)
            and mute.start <= end
            and step.start <= (mute.end or end)
            for key, mute in self._mute
        )

    def on_step(self, seen: Observation) -> None:
        """Warns of calls that cannot be seen. No lock is held."""
        self.warns = False
        step, session = seen.step, seen.session
        if step.kind is _TOOL and not step.server and session.state.progress.steps <= 1:
            self._separate += _is_alone(step, session)
        if self._separate >= _BLIND:
            self._separate = -_TRACES
            warn_blind("calls_alone", _BLIND)
        if self._blind >= _BLIND:
            self._blind = -_TRACES
            warn_blind("no_tool_spans", _BLIND)
        if self._bare >= _BLIND and not self._has_content:
            self._has_content = True
            warn_blind("no_arguments", _BLIND)


_LONGEST: Final = 100
"""Characters of a model's name in a warning: one line."""


def uncounted() -> Callable[[Observation], None]:
    """Returns a subscriber that warns once if tools are called and no call of a model is seen."""
    calls = 0.0

    def warn(seen: Observation) -> None:
        nonlocal calls
        step = seen.step
        if step.kind is _MODEL or step.tokens is not None:
            calls = -inf
        calls += step.kind is _TOOL
        if calls == _UNCOUNTED:
            warn_blind("no_models", _UNCOUNTED)

    return warn


def unpriced(settings: Settings) -> Callable[[Observation], None]:
    """Returns a subscriber that warns once of calls without tokens, and of models without a price.

    Reads the prices: a broken file fails at start.
    """
    from otel_loopguard.settings.prices import PriceTable, cost_of  # noqa: PLC0415  # pydantic

    prices_file = settings.prices_file
    PriceTable.load(prices_file)

    def warn(seen: Observation) -> None:
        step = seen.step
        if step.kind is not _MODEL or cost_of(step, prices_file) is not None:
            return
        if step.tokens is None:
            warn_blind("no_tokens")
        else:
            model = (step.model or step.name or "")[:_LONGEST]
            warn_blind("no_price", model, PriceTable.load(prices_file).date)

    return warn
