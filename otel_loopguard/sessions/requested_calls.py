"""Calls that the models of one session asked for, until their results are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from otel_loopguard import semconv
from otel_loopguard._util.values import NamedTuple, dataclass
from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.dedup import contradict
from otel_loopguard.spans.keys import as_handoff, hands_off
from otel_loopguard.spans.messages import Asked

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_loopguard.spans.messages import Answered, Message, Request

DIALECT: Final = "messages"
"""Value of `Step.dialect` of a call that messages tell of."""

_ROUNDS: Final = 32
_PASSED: Final = 8
_HINTS: Final = 4
_TOLD: Final = 64
_SLACK: Final = 5_000_000


class WaitingRound(NamedTuple):
    """What one answer asked for, as another process needs it: without arguments.

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
    """What one answer asked for.

    Attributes:
        calls: The calls, in order.
        asked_by: Agent and scope of the model's span.
        end: When that ended, nanoseconds since the epoch.
        head: Stands for the first message of its request.
        passed: Requests since then that say nothing of it.
        resumed: Whether another process read it: only requests say its arguments.
    """

    calls: list[Asked]
    asked_by: tuple[str | None, str]
    end: int
    head: int | None
    passed: int = 0
    resumed: bool = False


class RequestedCalls:
    """Reads the tool calls of one session out of what its models are sent and answer.

    A call counts once its result is shown in a request that started after the model had asked; by
    then the span of a tool would have ended, and from the first such span on nothing is read here.
    A call that a request knows of, or should know of, without its result counts with an unknown
    outcome. One that is asked for in an answer to which no request goes back does not count: that
    is how structured answers are written.

    Of a conversation nothing is kept but the calls without a result, 32 rounds of them. The guard's
    lock is held.

    Attributes:
        blind: Answers that asked for tools and did not say for which.
        told: The newest calls that were counted out of messages, and that no span told of.
        traced: Whether a span told of a tool call: the messages do not count.
    """

    __slots__ = ("_hints", "_rounds", "blind", "told", "traced")

    def __init__(self) -> None:
        self._rounds: list[_Round] = []
        self.told: list[Step] = []
        self._hints: list[str] = []
        self.blind = 0
        self.traced = False

    @property
    def waits(self) -> bool:
        """Whether a call waits for its result."""
        return bool(self._rounds)

    def waiting(self) -> list[WaitingRound]:
        """What waits for its results, for `resume` in another process."""
        return [
            WaitingRound(*one.asked_by, one.end, [(call.call_id, call.name) for call in one.calls])
            for one in self._rounds
        ]

    def resume(self, rounds: Iterable[WaitingRound]) -> None:
        """Goes on waiting for what another process saw asked for."""
        self._rounds = [
            _Round(
                [Asked(call_id, name, None) for call_id, name in one.calls],
                (one.agent, one.scope), one.end, None, resumed=True,
            )
            for one in rounds
        ]  # fmt: skip

    def ask(self, calls: Sequence[Asked], model: Step, request: Request | None) -> None:
        """Takes the calls that an answer asks for."""
        end = model.end or model.start
        for known in self._rounds:
            # Another span of the same answer: one instrumentation inside or beside another.
            if known.end >= model.start and _same_calls(known.calls, calls):
                return
        head = None if request is None else request.head
        self._rounds.append(_Round(list(calls), (model.agent, model.scope), end, head))
        if len(self._rounds) > _ROUNDS:
            del self._rounds[0]

    def answer(self, model: Step, request: Request | None) -> list[Step]:
        """The calls that a request shows the results of, as steps in the order of the request."""
        steps: list[Step] = []
        for known in tuple(self._rounds):
            if known.end > model.start:
                continue
            results = self._results(known, model, request)
            if results is not None:
                self._rounds.remove(known)
                if known.resumed and request is not None:
                    known.calls = _repeated(known.calls, request.newest)
                steps += [
                    self._step(call, known, model, result)
                    for call, result in zip(known.calls, results, strict=True)
                ]
            elif known.passed >= _PASSED:
                self._rounds.remove(known)
            else:
                known.passed += 1
        self.told = [*self.told, *steps][-_TOLD:]
        return steps

    def trace(self) -> None:
        """A span told of a tool call: from now on the messages do not count."""
        self.traced = True
        self._rounds.clear()

    def counted(self, span: Step) -> bool:
        """Whether a call of which a span tells was counted already, out of the messages."""
        for told in self.told:
            if told.name != span.name or told.kind is not span.kind:
                continue
            if told.call_id is not None and span.call_id is not None:
                same = told.call_id == span.call_id
            else:
                during = told.start - _SLACK <= span.start <= (told.end or 0) + _SLACK
                same = during and not contradict(told.args, span.args)
            if same:
                self.told.remove(told)
                return True
        return False

    def said(self, hint: str | None) -> None:
        """Notes what the guard has the application tell the model: that is no result of a tool."""
        if hint and hint not in self._hints:
            self._hints = [*self._hints, hint][-_HINTS:]

    def _results(
        self, known: _Round, model: Step, request: Request | None
    ) -> Sequence[Answered | None] | None:
        """What came of the calls of a round, in their order; None if this does not tell."""
        if request is None:
            return (
                [None] * len(known.calls) if known.asked_by == (model.agent, model.scope) else None
            )
        found = _shown(known.calls, request.newest)
        if found is not None:
            return found
        goes_on = any(message.asking or message.results for message in request.newest)
        if known.head is None or request.head is None:
            same = known.asked_by == (model.agent, model.scope)
        else:
            same = known.head == request.head
        return [None] * len(known.calls) if goes_on and same else None

    def _step(self, call: Asked, known: _Round, model: Step, result: Answered | None) -> Step:
        step = Step(
            Kind.TOOL, call.name, DIALECT, model.scope, model.trace_id, model.span_id,
            model.parent_id, known.end, max(model.start, known.end + 1), session=model.session,
            agent=known.asked_by[0], node=model.node, call_id=call.call_id, args=call.args,
        )  # fmt: skip
        if result is not None:
            self._put(step, result)
        if hands_off(call.name):
            as_handoff(step)
        return step

    def _put(self, step: Step, result: Answered) -> None:
        value = result.value
        step.error = result.failed
        if isinstance(value, str):
            for hint in self._hints:
                if value.strip() == hint:
                    # The application put the guard's word in place of a result: it did not run.
                    step.error, step.error_type, step.error_text = True, semconv.ERROR_DENY, value
                    return
                value = value.replace(hint, "").rstrip() if hint in value else value
            if step.error:
                step.error_text = value
        step.outcome = value


def _shown(calls: Sequence[Asked], newest: Iterable[Message]) -> Sequence[Answered | None] | None:
    """What the newest messages say of the calls of one answer; None if they do not know of it.

    Results are found by their ids; where they have none, or others than the calls have, by their
    place: those after the message that asks for just these calls. Beyond that message nothing is
    looked at, as ids may come again.
    """
    wanted = {call.call_id: call for call in calls if call.call_id is not None}
    by_id: dict[str, Answered] = {}
    after: list[Answered] = []
    repeated: list[Asked] = []
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
    if not _same_calls(calls, repeated):
        return None
    after.reverse()
    alike = len(after) == len(calls) and all(one.call_id not in wanted for one in after)
    return list(after) if alike else [None] * len(calls)


def _repeated(calls: list[Asked], newest: Iterable[Message]) -> list[Asked]:
    """Calls as a request repeats them, with their arguments; as they are where it does not."""
    repeated: list[Asked] = []
    for message in newest:
        repeated[:0] = message.calls
        if len(repeated) >= len(calls):
            break
    return repeated if _same_calls(calls, repeated) else calls


def _same_calls(some: Sequence[Asked], others: Sequence[Asked]) -> bool:
    """Whether two messages ask for the same: by ids where both have them, else by what is asked."""
    if len(some) != len(others):
        return False
    for one, other in zip(some, others, strict=True):
        if one.call_id is not None and other.call_id is not None:
            if one.call_id != other.call_id:
                return False
        elif one.name != other.name or contradict(one.args, other.args):
            return False
    return True


def _is_call(one: Asked, wanted: Asked | None) -> bool:
    """Whether a call may be the wanted one of its id; there may be none."""
    if wanted is None:
        return True
    return one.name == wanted.name and not contradict(one.args, wanted.args)
