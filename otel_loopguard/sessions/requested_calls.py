"""Tool calls that models of one session requested, until their results appear."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from otel_loopguard import semconv
from otel_loopguard._control.flag import Flag, recognise
from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.dedup import compared, contradict
from otel_loopguard.spans.messages import Answered, Message, Request, RequestedCall
from otel_loopguard.spans.steps import as_handoff, hands_off

DIALECT: Final = "messages"
"""Value of `Step.dialect` of a call that messages tell of."""

_ROUNDS: Final = 32
"""Answers of a model that wait for the results of their calls: agents side by side have few."""
_PASSED: Final = 8
"""Requests without its results after which an answer waits no more: the agent went another way."""
_HINTS: Final = 4
"""Newest hints that are taken out of results, where a runtime quoted them."""
_COUNTED: Final = 64
"""Newest calls from messages that a late span is compared with."""
_SLACK: Final = 5_000_000
"""Nanoseconds that two spans' clocks may differ by: JavaScript cuts starts to milliseconds."""


class WaitingRound(NamedTuple):
    """The calls of one response, as another process needs them: without arguments.

    Attributes:
        agent: Agent of the model's span.
        scope: Its scope.
        end: When it ended, nanoseconds since the epoch.
        calls: Id and tool of each call.
    """

    agent: str | None
    scope: str
    end: int
    calls: Sequence[tuple[str | None, str]]


@dataclass(slots=True)
class _Round:
    """The calls that one response requests.

    Attributes:
        calls: The calls, in order.
        requested_by: Agent and scope of the model's span.
        end: When that ended, nanoseconds since the epoch.
        head: Stands for the first message of its request.
        passed: Requests since then that do not mention them.
        resumed: Whether another process read it, so that only requests have the arguments.
        spans: The spans of calls, by their place, that know neither arguments nor results.
    """

    calls: list[RequestedCall]
    requested_by: tuple[str | None, str]
    end: int
    head: int | None
    passed: int = 0
    resumed: bool = False
    spans: dict[int, Step] = field(default_factory=dict[int, Step])


class RequestedCalls:
    """Reads the tool calls of one session from the requests and responses of its models.

    A call counts once a later request shows its result; by then the span of a tool would have
    ended, and once there is such a span, messages are no longer read. A span without content is
    held until they tell what it lacks. A call that a request mentions, or should mention, without
    its result counts with an unknown outcome. A call that no request refers to does not count:
    structured output is requested that way.

    Only calls without a result are kept, at most 32 rounds of them. The guard's lock is held.

    Attributes:
        blind: Responses that requested tools without naming them.
        counted_calls: The newest calls that were counted out of messages, and no span told of.
        traced: Whether a span told of a tool call: the messages do not count.
    """

    __slots__ = ("_flag", "_hints", "_rounds", "blind", "counted_calls", "traced")

    def __init__(self) -> None:
        self._rounds: list[_Round] = []
        self._flag: Flag | None = None
        self.counted_calls: list[Step] = []
        self._hints: list[str] = []
        self.blind = 0
        self.traced = False

    @property
    def waits(self) -> bool:
        """True if a call waits for its result."""
        return bool(self._rounds)

    def waiting(self) -> list[WaitingRound]:
        """Returns the rounds without results, for `resume` in another process."""
        return [
            WaitingRound(
                *one.requested_by, one.end, [(call.call_id, call.name) for call in one.calls]
            )
            for one in self._rounds
        ]

    def resume(self, rounds: Iterable[WaitingRound]) -> None:
        """Continues waiting for rounds that another process saw."""
        self._rounds = [
            _Round(
                [RequestedCall(call_id, name, None) for call_id, name in one.calls],
                (one.agent, one.scope), one.end, None, resumed=True,
            )
            for one in rounds
        ]  # fmt: skip

    def ask(self, calls: Sequence[RequestedCall], model: Step, request: Request | None) -> None:
        """Adds the calls that a response requests."""
        end, fetched = model.end or model.start, model.kind is not Kind.MODEL
        if fetched:
            made = {(one.call_id, one.name) for one in self.counted_calls if one.start >= end}
            if made.issuperset((call.call_id, call.name) for call in calls):
                return  # a span told of this answer before, and of what came of it
        for known in self._rounds:
            # Another span of the same answer: one instrumentation inside or beside another, or it
            # was fetched once more.
            if (fetched or known.end >= model.start) and _same_calls(known.calls, calls):
                return
        head = None if request is None else request.head
        self._rounds.append(_Round(list(calls), (model.agent, model.scope), end, head))
        if len(self._rounds) > _ROUNDS:
            del self._rounds[0]

    def answer(self, model: Step, request: Request | None) -> list[Step]:
        """Returns the calls whose results a request shows, as steps in its order."""
        steps: list[Step] = []
        if request is None and model.error:
            return steps  # what was asked in vain is asked again, with the results
        for known in tuple(self._rounds):
            if known.end > model.start + _SLACK:
                continue
            results = self._results(known, model, request)
            if results is not None:
                self._rounds.remove(known)
                if known.resumed and request is not None:
                    known.calls = _repeated(known.calls, request.newest)
                steps += [
                    self._step(call, known, model, result, known.spans.get(place))
                    for place, (call, result) in enumerate(zip(known.calls, results, strict=True))
                ]
            elif known.passed >= _PASSED:
                self._rounds.remove(known)
                steps += known.spans.values()
            else:
                known.passed += 1
        counted = [compared(replace(step, outcome=None, error_text=None)) for step in steps]
        self.counted_calls = [*self.counted_calls, *counted][-_COUNTED:]
        return steps

    def hold(self, span: Step) -> bool:
        """True if later messages will have the content of a span's call."""
        for known in self._rounds:
            if known.end > span.start + _SLACK:
                continue
            for place, call in enumerate(known.calls):
                named = call.call_id is not None and span.call_id is not None
                same = call.call_id == span.call_id if named else call.name == span.name
                if same and place not in known.spans:
                    known.spans[place] = span
                    return True
        return False

    def trace(self) -> list[Step]:
        """Stops counting messages, since spans report tool calls; returns those that waited."""
        self.traced = True
        held = [step for known in self._rounds for step in known.spans.values()]
        self._rounds.clear()
        return held

    def counted(self, span: Step) -> bool:
        """True if a span's call was already counted from messages."""
        for call in self.counted_calls:
            if call.name != span.name or call.kind is not span.kind:
                continue
            if call.call_id is not None and span.call_id is not None:
                same = call.call_id == span.call_id
            else:
                during = call.start - _SLACK <= span.start <= (call.end or 0) + _SLACK
                same = during and not contradict(call.args, span.args)
            if same:
                self.counted_calls.remove(call)
                return True
        return False

    def hear(self, flag: Flag) -> None:
        """Remembers hints of the guard, which are not the result of a tool.

        Args:
            flag: The session's, which also knows what was said in place of results.
        """
        self._flag = flag
        for hint in (flag.quoting_hint, flag.control.hint):
            if hint and hint not in self._hints:
                self._hints = [*self._hints, hint][-_HINTS:]

    def _results(
        self, known: _Round, model: Step, request: Request | None
    ) -> Sequence[Answered | None] | None:
        """Returns the results of a round in the order of its calls; None if not shown."""
        if request is None:
            return (
                [None] * len(known.calls)
                if known.requested_by == (model.agent, model.scope)
                else None
            )
        waiting = [one for one in self._rounds if one.end <= model.start + _SLACK]
        found = _shown(known.calls, request.newest, alone=waiting == [known])
        if found is not None:
            return found
        goes_on = any(message.asking or message.results for message in request.newest)
        if known.head is None or request.head is None:
            same = known.requested_by == (model.agent, model.scope)
        else:
            same = known.head == request.head
        return [None] * len(known.calls) if goes_on and same else None

    def _step(
        self, call: RequestedCall, known: _Round, model: Step, result: Answered | None,
        span: Step | None,
    ) -> Step:  # fmt: skip
        step = replace(span, args=call.args, reading=None) if span is not None else Step(
            Kind.TOOL, call.name, DIALECT, model.scope, model.trace_id, model.span_id,
            model.parent_id, known.end, max(model.start, known.end + 1), session=model.session,
            agent=known.requested_by[0], node=model.node, call_id=call.call_id, args=call.args,
        )  # fmt: skip
        if result is not None:
            self._put(step, result)
        if hands_off(call.name, step.scope):
            as_handoff(step)
        return step

    def _put(self, step: Step, result: Answered) -> None:
        step.error = step.error or result.failed
        value = step.outcome = result.value
        if not isinstance(value, str):
            return
        step.error_text = value if step.error else step.error_text
        # Before hints are taken out: a refusal may have one in it.
        if self._flag is not None:
            recognise(step, self._flag)
        if value.strip() in self._hints:
            # The application returned the hint in place of a result: it did not run.
            step.error, step.error_type = True, semconv.ERROR_DENY
        if step.refused:
            step.outcome, step.error_text = None, value
            return
        for hint in self._hints:
            value = value.replace(hint, "").rstrip() if hint in value else value
        step.outcome = value
        step.error_text = value if step.error else step.error_text


def _shown(
    calls: Sequence[RequestedCall], newest: Iterable[Message], *, alone: bool
) -> Sequence[Answered | None] | None:
    """Finds the results of one response in the newest messages; None if not mentioned.

    Results are found by their ids; where they have none, or others than the calls have, by their
    place: those after the message that asks for just these calls. Beyond that message nothing is
    looked at, as ids may come again. A request that repeats no calls, since the provider keeps the
    conversation, has the results of the response that waits `alone`.
    """
    wanted = {call.call_id: call for call in calls if call.call_id is not None}
    by_id: dict[str, Answered] = {}
    after: list[Answered] = []
    repeated: list[RequestedCall] = []
    for message in newest:
        for result in reversed(message.results):
            after.append(result)
            if result.call_id is not None and result.call_id in wanted:
                by_id.setdefault(result.call_id, result)
        repeated[:0] = message.calls
        if len(repeated) >= len(calls):
            break
    if by_id:
        # Some providers count ids from 0 in each conversation: another one's call is another call.
        others = (one for one in repeated if not _is_call(one, wanted.get(one.call_id or "")))
        if any(others):
            return None
        return [None if call.call_id is None else by_id.get(call.call_id) for call in calls]
    after.reverse()
    alike = len(after) == len(calls) and all(one.call_id not in wanted for one in after)
    if alike and ((alone and not repeated) or _same_calls(calls, repeated)):
        return after
    return [None] * len(calls) if _same_calls(calls, repeated) else None


def _repeated(calls: list[RequestedCall], newest: Iterable[Message]) -> list[RequestedCall]:
    """Returns calls as a request repeats them, with arguments, or unchanged."""
    repeated: list[RequestedCall] = []
    for message in newest:
        repeated[:0] = message.calls
        if len(repeated) >= len(calls):
            break
    return repeated if _same_calls(calls, repeated) else calls


def _same_calls(some: Sequence[RequestedCall], others: Sequence[RequestedCall]) -> bool:
    """True if two messages request the same calls: by id, else by name and arguments."""
    if len(some) != len(others):
        return False
    for one, other in zip(some, others, strict=True):
        if one.call_id is not None and other.call_id is not None:
            if one.call_id != other.call_id:
                return False
        elif one.name != other.name or contradict(one.args, other.args):
            return False
    return True


def _is_call(one: RequestedCall, wanted: RequestedCall | None) -> bool:
    """True if a call may be the wanted one with its id."""
    if wanted is None:
        return True
    return one.name == wanted.name and not contradict(one.args, wanted.args)
