"""The door between the guard and what is built on it: `server`, `hooks` and `backtest`.

They know this module, `replay`, and names that users have, and nothing else inside the guard;
import-linter holds it. What one of them has to know of the inside, it asks here, by one method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from otel_loopguard._control.flag import APPLICATION, OBSERVERS, POLICY, Control, Flag
from otel_loopguard._control.gate import flag_refuses, spellings
from otel_loopguard._util.text import encoded
from otel_loopguard.core import Action, Decision, Kind, Step
from otel_loopguard.core.decision import Annotation
from otel_loopguard.core.report import decision_row
from otel_loopguard.errors import StoreError
from otel_loopguard.escalation.protocol import MOST_REQUEST, UNREACHED, is_unknown, joined, refusal
from otel_loopguard.escalation.protocol import answer as answer_people
from otel_loopguard.guard.guard import LoopGuard
from otel_loopguard.sessions.journal import Written
from otel_loopguard.sessions.observation import DecisionRecord, Observation
from otel_loopguard.sessions.requested_calls import WaitingRound
from otel_loopguard.settings import Settings
from otel_loopguard.settings._sources import read_file as read_table
from otel_loopguard.spans.messages import calls_on
from otel_loopguard.spans.reader import Reader, collect_keys
from otel_loopguard.spans.values import LONGEST_ID
from otel_loopguard.spans.views import RecordedSpan, SpanView, Status
from otel_loopguard.stores import open_store
from otel_loopguard.telemetry import events
from otel_loopguard.telemetry.events import Event
from otel_loopguard.telemetry.metrics import metric_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from otel_loopguard.stores.redis import RedisStore

__all__ = [
    "LONGEST_ID", "MOST_REQUEST", "OBSERVERS", "UNREACHED", "Action", "Annotation", "Control",
    "Decision", "DecisionRecord", "Engine", "Event", "Flag", "Kind", "Observation", "Reader",
    "RecordedSpan", "Settings", "SpanView", "Status", "Step", "Written", "answer_people",
    "append_script", "decision_row", "encoded", "is_unknown", "joined", "metric_of", "read_table",
    "refusal", "requested_tools", "session_keys", "shared_store",
]  # fmt: skip


ASK_S: Final = 2.0
"""For other processes to reply to what a person asks: one that died is asked for some seconds."""


class Engine(LoopGuard):
    """A guard that is fed by its owner: with spans, steps, and calls that have not returned.

    Everything that a `LoopGuard` takes and does, it does too.
    """

    def cost_of(self, step: Step) -> float | None:
        """Returns the cost of a step in USD: as reported, or by the tokens of a model call."""
        if step.cost is not None or step.kind is not Kind.MODEL:
            return step.cost
        from otel_loopguard.settings.prices import cost_of  # noqa: PLC0415  # few ask for money

        return cost_of(step, self.settings.prices_file)

    def subscribe(
        self,
        name: str,
        *,
        on_step: Callable[[Observation], object] | None = None,
        on_decision: Callable[[DecisionRecord], object] | None = None,
        on_event: Callable[[Event], object] | None = None,
    ) -> None:
        """Has callbacks hear of steps, decisions and events, in order, outside of all locks.

        Args:
            name: What their faults are counted under.
            on_step: Called with every step that was judged.
            on_decision: Called with every decision.
            on_event: Called with each log event that is no decision, on any thread: what people
                did here, escalations, cycles of agents. It must be quick.
        """
        if on_step is not None:
            self.subscribers.steps.append((name, on_step))
        if on_decision is not None:
            self.subscribers.decisions.append((name, on_decision))
        if on_event is not None:
            self.telemetry.on_events.append(on_event)

    def judge(self, span: SpanView, step: Step | None, read_ns: int) -> None:
        """Judges a span that has ended, and records what that cost.

        Args:
            span: The span.
            step: Its step, which its owner has read.
            read_ns: Nanoseconds that reading took.
        """
        numbers = self.telemetry.numbers
        began = numbers.began()
        self.on_end(span, step=step)
        if began:
            numbers.ended(began - read_ns, span.trace_id, span.span_id)

    def session_of(self, trace_id: int) -> str:
        """Returns the session of a trace; as long as nobody named one, the trace id in hex."""
        flag = self.flag_of(trace_id)
        return (None if flag is None else flag.control.session) or f"{trace_id:032x}"

    def refusal(self, session: str, tool: str, args: object) -> Control:
        """Returns the control that refuses a call, as `control.refused`, or one that allows it.

        Where another process denied a loop that no journal has shown yet, all calls are refused.
        """
        control, found = self.read(session, shown=False), self.find(session)
        known = found is not None and found.stops_a_loop
        if control.action is Action.DENY and control.decision is None and not known:
            return control
        asked = (flag_refuses(found, tool, variant) for variant in spellings(args))
        return next(filter(None, asked), Control(control.session))

    def lift(self, session: str) -> bool:
        """Lifts what the policy stopped; False where a person did, or nothing is stopped."""
        flag = self.flag_of(session)
        if flag is None or flag.control.by != POLICY:
            return False
        flag.clear(by=APPLICATION)
        return True

    def watch(self, span: SpanView, said: Iterable[str] = ()) -> None:
        """Follows a call that has not returned, until `let_go`.

        Args:
            span: Stands for the call; it begins when the span starts.
            said: Codes of the limits that were told of, here or in another process.
        """
        self.on_start(span)
        opened = self.active.by_id.get(span.span_id)
        if opened is not None:
            opened.said = set(said)

    def said(self, span_id: int) -> frozenset[str] | None:
        """Returns codes of the limits that were told of an open call; None if it is not open."""
        opened = self.active.by_id.get(span_id)
        return None if opened is None else frozenset(opened.said or ())

    def is_due(self, span_id: int, at: int) -> bool:
        """True if an open call is past a limit at a time, nanoseconds since the epoch."""
        opened = self.active.by_id.get(span_id)
        return opened is not None and opened.ticket is not None and opened.ticket[0] <= at

    def waiting_rounds(self, session: str) -> list[Sequence[Any]]:
        """Returns rounds of calls that messages asked for and whose results are pending, as JSON.

        Args:
            session: Key of the session.
        """
        found = self.find(session)
        return [] if found is None else list(found.requested())

    def resume_rounds(self, session: str, rounds: Iterable[Sequence[Any]]) -> None:
        """Goes on waiting for the results of calls that another process saw asked for.

        Args:
            session: Key of the session.
            rounds: What `waiting_rounds` returned there.
        """
        found = self.find(session)
        if found is not None:
            found.resume_requested([WaitingRound(*fields) for fields in rounds])

    def look_up(self, session: str, then: Callable[[], None]) -> None:
        """Asks the store what other processes decided of a session.

        Args:
            session: Its key.
            then: Called once the store has answered, on another thread; at once without a store.
        """
        self.flag_named(session)
        self.when_looked_up(then)

    def count_store_call(self, operation: str, seconds: float, trouble: str) -> None:
        """Counts a call of a store that its owner made.

        Args:
            operation: Its name.
            seconds: How long it took.
            trouble: The reason of its `StoreError`; empty without one.
        """
        self.telemetry.numbers.store_answered(operation, seconds, trouble)
        if self._writer is not None and trouble:
            self._writer.saw(trouble)

    def ask_others(self, request: dict[str, object]) -> tuple[list[dict[str, Any]], str]:
        """Asks the other processes on the store what a person asks; they may have the session.

        Blocks, for `ASK_S` at most, and for as long as the store may take.

        Returns:
            Their replies, with the stopped sessions that only the store knows, and who did not
            reply; empty if all did.
        """
        from otel_loopguard.escalation.mailbox import Mailboxes  # noqa: PLC0415  # an extra

        mailboxes, replies, silent = Mailboxes(self.settings), list[dict[str, Any]](), ""
        try:
            own = self.escalation().admin.process
            replies, silent = mailboxes.ask(request, ASK_S, but=own)
            if request.get("op") == "sessions":
                replies.append(mailboxes.stopped(replies, self.flag_of))
        except StoreError:
            # Its errors have its address, which is for the log.
            silent = "the store does not answer"
        finally:
            mailboxes.close()
        return replies, silent

    def listen(self) -> None:
        """Lets people reach it, also before its first step: by the store, or by a socket."""
        self.escalation().listen()

    def reply(self, request: dict[str, object]) -> dict[str, object]:
        """Does what a person asks of its sessions; see `otel_loopguard.escalation.protocol`."""
        return self.escalation().admin.reply(request)

    @staticmethod
    def log_event(record: DecisionRecord) -> Event:
        """Returns the log event of a decision, as a guard with a logger provider emits it."""
        decision = record.decision
        place = events.span_context(decision.trace_id, decision.span_id)
        return events.decided(decision, record.agent, {}, place)


def session_keys() -> tuple[str, ...]:
    """Returns the span attributes by which conventions name the session, surest first."""
    return tuple(collect_keys("session_keys"))


def requested_tools(span: SpanView) -> list[str]:
    """Returns the tools that a model's answer asks for, one for each call, in its order."""
    return [call.name for call in calls_on(span)]


def shared_store(settings: Settings) -> RedisStore:
    """Opens the Redis that `store_url` names, for scripts that write in one step.

    Raises:
        LoopGuardSettingsError: The address cannot be used, or the extra `redis` is missing.
    """
    return open_store(settings)


def append_script() -> str:
    """Returns the Lua of `RedisStore.append`, to stand in a larger script."""
    from otel_loopguard.stores.redis import SCRIPTS  # noqa: PLC0415  # an extra

    return SCRIPTS["append"]
