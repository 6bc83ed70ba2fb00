"""What the adapters of all frameworks ask the guard."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

from opentelemetry import trace

from otel_loopguard.blind_spots import warn_blind
from otel_loopguard.control import Choice, admit, named_session
from otel_loopguard.control.context import flag_at, keepers, naming
from otel_loopguard.control.gate import gate_at
from otel_loopguard.control.refusing import flag_refuses, objected, spellings
from otel_loopguard.guard import LoopGuard
from otel_loopguard.integrations.alone import alone, tracer_alone, warn_if_off
from otel_loopguard.integrations.answers import Answer, Asked
from otel_loopguard.integrations.limits import Limit, Limits
from otel_loopguard.integrations.made import Made
from otel_loopguard.integrations.runs import Given
from otel_loopguard.integrations.spans import OwnSpan, captured, is_span_of, refuse_on
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, TracerProvider

    from otel_loopguard.control import Control, Flag
    from otel_loopguard.core import Admission

OnChoice = Callable[["Admission"], "str | None"]
"""Does what an execution choice asks for; a text that it gives is told in place of the result."""


class Options(TypedDict, total=False):
    """What every adapter takes; each as of `Guarding`."""

    spans: bool | None
    on_choice: OnChoice | None
    limit_s: float | None
    tracer_provider: TracerProvider | None
    content: bool | None


class Guarding:
    """What the adapter of one framework asks the guard, and the spans that it writes itself.

    Args:
        framework: Name of the framework, as in `otel_loopguard.integrations`.
        instrumented: Says whether something else writes spans of the framework's tool calls; asked
            at each call.
        spans: Whether the adapter writes a span for each tool call; by default where nothing else
            does.
        on_choice: Called with the answer of `control.admit` before each call, where that is not to
            execute it now (A4): it may wait, ask, or hand the call to a queue. A text that it
            gives is told in place of the result. By default a call that is to be denied is
            refused, and all others are made.
        limit_s: Seconds that a gate waits at most; by default the setting `pause_limit_s`.
        tracer_provider: Where own spans are made; the global one by default.
        content: Whether own spans carry arguments and results; by default what the variable
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` says. The guard knows them anyway.
    """

    def __init__(  # noqa: PLR0913
        self,
        framework: str,
        *,
        instrumented: Callable[[], bool],
        spans: bool | None = None,
        on_choice: OnChoice | None = None,
        limit_s: float | None = None,
        tracer_provider: TracerProvider | None = None,
        content: bool | None = None,
    ) -> None:
        self.framework = framework
        self._instrumented = instrumented
        self._spans = spans
        self._on_choice = on_choice
        self.refuses = on_choice is None
        self.limit_s = limit_s
        self._provider = tracer_provider
        self._given = Given()
        self._content = captured() if content is None else content
        self._asked = Asked()
        self._limits = Limits()

    def flag(self, session: str | None = None, span: Span | None = None) -> Flag | None:
        """The flag of a run, by the first of these that a guard knows.

        The session that the context names, the key that the framework has, the span that the
        framework has, the span that is current.

        Args:
            session: Key that the framework has: a thread, a conversation, a run.
            span: Span of the run, where it is not the current one.
        """
        places = (named_session(), session, _trace_of(span), _trace_of(trace.get_current_span()))
        found = next((flag for place in places if (flag := flag_at(place)) is not None), None)
        if found is None or named_session() is not None:
            return found
        # Two runs in one trace, each of which has a key of its own.
        return None if self._given.others(found.control.session, session) else found

    def begin(self, session: str | None, span: Span | None = None) -> None:
        """A run begins: a user's turn. What the policy stopped in the run before it may go on.

        Args:
            session: Key of a conversation of many runs, where the context names no session; None:
                that of the trace.
            span: Span of the run, where it is not the current one.
        """
        tracer_alone(self.framework)
        warn_if_off(self.framework)
        found = (span or trace.get_current_span()).get_span_context()
        # Where nothing is traced the run is a span that nobody sees.
        span_id = found.span_id if found.is_valid else uuid.uuid4().int >> 64
        key = named_session() or session
        for keeper in keepers():
            keeper.next_run(key, found.trace_id, span_id)

    def before_model(
        self,
        session: str | None = None,
        span: Span | None = None,
        *,
        limit: Limit | None = None,
    ) -> str | None:
        """Before a call of the model: waits while the session is paused.

        Args:
            session: As of `flag`.
            span: Likewise.
            limit: How much of the framework's own limit is used, where the adapter can tell.

        Returns:
            What to tell the model, once per decision and once per limit; None for nothing.

        Raises:
            LoopGuardAbort: The session is aborted.
            LoopGuardPaused: It was not let go on within the limit.
        """
        flag = self.flag(session, span)
        if flag is not None:
            gate_at(flag, self.limit_s, block=True)
        return self._told(flag, _place(session, span), limit)

    async def before_model_async(
        self,
        session: str | None = None,
        span: Span | None = None,
        *,
        limit: Limit | None = None,
    ) -> str | None:
        """As `before_model`, without blocking the event loop."""
        flag = self.flag(session, span)
        if flag is not None:
            await gate_at(flag, self.limit_s)
        return self._told(flag, _place(session, span), limit)

    def after_model(
        self,
        answer: Answer,
        session: str | None = None,
        span: Span | None = None,
        *,
        timed: bool = True,
    ) -> None:
        """After a call of the model: where no processor feeds a guard, the default one is told.

        Args:
            answer: What the model answered.
            session: As of `flag`.
            span: Likewise.
            timed: Whether it comes right after the answer; else the call has no duration.
        """
        began = self._asked.end(_place(session, span))
        tracer = tracer_alone(self.framework)
        if tracer is not None:
            self._named_after(session, span)
            answer.write(tracer, _context(session, span), began if timed else None)

    def handed_off(
        self,
        target: str,
        source: str | None,
        said: object = None,
        *,
        session: str | None = None,
    ) -> None:
        """An agent handed the work to another, in a way that is no call of a tool.

        On the trace it is the call of a tool `transfer_to_<agent>`, where nothing else writes it.

        Args:
            target: Name of the agent that it goes to.
            source: Name of the agent that it comes from.
            said: What was said to that agent; None if nothing was.
            session: As of `flag`.
        """
        args = {} if said is None else {"message": said}
        with self.call(f"transfer_to_{target}", args, session=session, agent=source).span():
            pass

    def call(  # noqa: PLR0913
        self,
        tool: str,
        args: object = None,
        *,
        call_id: str | None = None,
        session: str | None = None,
        span: Span | None = None,
        agent: str | None = None,
    ) -> GuardedCall:
        """A tool call that is about to be made.

        Args:
            tool: Name of the tool.
            args: Its arguments, a JSON value or text; None if they are not known.
            call_id: Id that the model gave the call.
            session: As of `flag`; an own span that stands alone is named after it.
            span: As of `flag`; an own span is put below it.
            agent: Name of the agent that makes the call, for an own span.
        """
        return GuardedCall(self, OwnSpan(tool, args, call_id, agent), session, span)

    def open_span(self, own: OwnSpan, session: str | None, above: Span | None) -> Span:
        """Starts a span of a tool call."""
        tracer = trace.get_tracer(
            f"otel_loopguard.integrations.{self.framework}", __version__, self._provider
        )
        self._named_after(session, above)
        span = own.start(tracer, _context(session, above), content=self._content)
        if not alone():
            self._warn_if_unseen(span)
        return span

    def open_alone(self, own: OwnSpan, session: str | None, above: Span | None) -> Span | None:
        """Starts the span of a tool call that only the default guard sees.

        Returns:
            The span; None where a processor feeds a guard, or none is to be fed.
        """
        tracer = tracer_alone(self.framework)
        if tracer is None:
            return None
        self._named_after(session, above)
        return own.start(tracer, _context(session, above), content=False)

    def writes(self, tool: str, span: Span | None) -> bool:
        """Whether the adapter writes the span of a call itself.

        Args:
            tool: Name of the tool.
            span: The span around the call.
        """
        if self._spans is not None:
            return self._spans
        return not is_span_of(tool, span or trace.get_current_span()) and not self._instrumented()

    def chosen(self, tool: str, args: object, flag: Flag | None) -> str | None:
        """What is told in place of a call that is not to be made now; None to make it (A4)."""
        if self._on_choice is None:
            return None
        admission = admit(tool, args, session=None if flag is None else flag.control.session)
        return None if admission.choice is Choice.EXECUTE_SYNC else self._on_choice(admission)

    def _told(self, flag: Flag | None, place: str | int | None, limit: Limit | None) -> str | None:
        """What the model is told; the call of it begins."""
        self._asked.begin(place)
        said = (None if flag is None else flag.take_hint(), self._limits.near(place, limit))
        return "\n".join(text for text in said if text is not None) or None

    def _named_after(self, session: str | None, above: Span | None) -> None:
        """Remembers the key that a span of ours without one above is named after."""
        if above is None and session is not None and named_session() is None:
            self._given.add(session)

    def _warn_if_unseen(self, span: Span) -> None:
        span_id = span.get_span_context().span_id
        guards = LoopGuard.all_attached()
        if guards and not any(guard.follows(span_id) for guard in guards):
            warn_blind(
                "adapter-unseen",
                "the adapter of %s writes spans that no LoopGuardSpanProcessor sees: they go to "
                "another tracer provider, or are not sampled; give the adapter the provider that "
                "has the processor (tracer_provider=...), or sample with LoopGuardSampler",
                self.framework,
            )


class GuardedCall:
    """One tool call: `refusal()` before it, `with call.span() as made:` around it."""

    def __init__(
        self, guarding: Guarding, own: OwnSpan, session: str | None, above: Span | None
    ) -> None:
        self._guarding = guarding
        self._own = own
        self._session = session
        self._above = above
        self._flag = guarding.flag(session, above)

    def refusal(self) -> str | None:
        """Before the call: waits while the session is paused, and asks whether it may be made.

        Returns:
            What the model is told in place of the result; None to make the call. A refused call is
            on the trace as a failed one.

        Raises:
            LoopGuardAbort: The session is aborted.
            LoopGuardPaused: It was not let go on within the limit.
        """
        if self._flag is not None:
            gate_at(self._flag, self._guarding.limit_s, block=True)
        return self._refused()

    async def refusal_async(self) -> str | None:
        """As `refusal`, without blocking the event loop."""
        if self._flag is not None:
            await gate_at(self._flag, self._guarding.limit_s)
        return self._refused()

    def span(self, passing: tuple[type[BaseException], ...] = ()) -> Made:
        """The block in which the call is made; `result` on what it gives takes the result.

        Args:
            passing: Exceptions by which the framework puts a call off: they are no failure of it.
        """
        alone = self._guarding.open_alone(self._own, self._session, self._above)
        if self._guarding.writes(self._own.tool, self._above):
            span = self._guarding.open_span(self._own, self._session, self._above)
            return Made(self._own, span, self._flag_now, passing=passing, alone=alone)
        there = self._above or trace.get_current_span()
        known = there if is_span_of(self._own.tool, there) else None
        return Made(self._own, known, self._flag_now, ours=False, passing=passing, alone=alone)

    def _flag_now(self) -> Flag | None:
        """The flag; the first call of a session makes it."""
        return self._flag or self._guarding.flag(self._session, self._above)

    def _refused(self) -> str | None:
        flag = self._flag
        control = self._denied(flag)
        if control is None:
            return self._guarding.chosen(self._own.tool, self._own.args, flag)
        said = control.hint or f"refused: {control.reason}"
        self._leave_failed(said)
        return said

    def _denied(self, flag: Flag | None) -> Control | None:
        for args in spellings(self._own.args):
            control = flag_refuses(flag, self._own.tool, args)
            if control is not None:
                # The span of the refusal has to be one of the same call.
                self._own = replace(self._own, args=args)
                return control
        # Where the application chooses (A4), it hears of breakers and checks by `on_choice`.
        refuses = self._guarding.refuses
        return objected(flag, self._own.tool, self._own.args) if refuses else None

    def _leave_failed(self, said: str) -> None:
        """A refusal is a failed call: on the span that is there, or on one of our own."""
        alone = self._guarding.open_alone(self._own, self._session, self._above)
        if alone is not None:
            refuse_on(alone)
            alone.end()
        current = self._above or trace.get_current_span()
        if is_span_of(self._own.tool, current):
            # What the framework writes as its result, if it writes results.
            self._own.tell(current, said)
            refuse_on(current)
            return
        span = self._guarding.open_span(self._own, self._session, self._above)
        self._own.tell(span, None)
        refuse_on(span)
        span.end()


def _place(session: str | None, span: Span | None) -> str | int | None:
    """What a model call is told by, from its begin to its end."""
    return named_session() or session or _trace_of(span) or _trace_of(trace.get_current_span())


def _trace_of(span: Span | None) -> int | None:
    context = None if span is None else span.get_span_context()
    return context.trace_id if context is not None and context.is_valid else None


def _context(session: str | None, above: Span | None) -> Context | None:
    context = None if above is None else trace.set_span_in_context(above)
    # Below a span of the run the session is that span's.
    key = named_session() or (session if above is None else None)
    return context if key is None else naming(key, context)
