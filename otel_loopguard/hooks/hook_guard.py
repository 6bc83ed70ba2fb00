"""Judges the events of coding agents: calls become steps, decisions become answers.

A refused call is not a step; a refused call that is made again shows that the refusal was not
heeded. A call without a result is closed, its outcome unknown, when its agent ends its turn. A hint
is heard with the answer that has it, a deny with a refusal; what was not delivered was not heard.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace
from shlex import quote
from threading import Lock
from typing import TYPE_CHECKING, Final

import orjson

from otel_loopguard import semconv
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.clock import now
from otel_loopguard.engine import Action, Engine, Kind, Step
from otel_loopguard.errors import StoreError
from otel_loopguard.hooks.agents import EventKind, HookAnswer, HookEvent, Reply
from otel_loopguard.hooks.state import HookState, KnownCall
from otel_loopguard.spans import coding_tools

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_loopguard.engine import Control, Decision, DecisionRecord, Flag, Settings
    from otel_loopguard.hooks.telemetry import CallSpans

NOTHING: Final = HookAnswer()
# Open calls of all sessions of a user; what they say is some kilobytes each.
_OPEN: Final = 2048
# Sessions of a user whose newest compaction is known: far more than work at once.
_COMPACTED: Final = 1024
_SAME_NS: Final = 1_000_000_000
"""Calls that are refused within this time were asked for together: they share one refusal. Equal
ones without ids are one, from several hooks."""
_HEARD: Final = "heard"
_HELD: Final = (Action.PAUSE, Action.ABORT)
_WAYS_OUT: Final = {
    "allow": "If this is a false alarm, a person can allow it with: {}",
    "resume": "A person can resume it with: {}",
}
"""Mentions of the command that ends a stop, by the policy or by a person."""


class HookGuard:
    """Answers the events of coding agents. May be called from any thread.

    Args:
        settings: Settings of the guard; in mode `shadow` nothing is answered, and nothing is judged
            where it is not `enabled`.
        state: What outlives the process.
        lock: Held while the state is used; that of guards that share one.
        command: Returns the command line for what is to be done, and the quoted key of a session.
        spans: Writes the spans of calls; by default there are none.
        on_decision: Called with every decision.

    Attributes:
        guard: The guard that judges.
    """

    def __init__(  # noqa: PLR0913  # optional parts
        self,
        settings: Settings,
        state: HookState,
        *,
        lock: Lock | None = None,
        command: Callable[[str, str], str] = "otel-loopguard {} {}".format,
        spans: CallSpans | None = None,
        on_decision: Callable[[DecisionRecord], object] | None = None,
    ) -> None:
        # A store is read and written behind: an event would not see what the last one left.
        own = {"store_url": type(settings.store_url)("")}
        if not settings.digest_key:
            own["digest_key"] = type(settings.digest_key)(state.key)
        settings = settings.model_copy(update=own)
        # Journals are read before a step, and written before an answer.
        self.guard = Engine(
            settings, local=False, journal_store=state, manual_journals=True,
            logger_provider=None if spans is None else spans.logs,
        )  # fmt: skip
        self.guard.subscribe("hooks", on_decision=self._decided)
        self.guard.subscribe("on_decision", on_decision=on_decision)
        self._state = state
        self._spans = spans
        self._command = command
        self._mode = settings.mode
        self._on = settings.enabled
        self._lock = lock or Lock()
        self._known: BoundedDict[str, None] = BoundedDict(settings.max_sessions)
        # Calls that have begun in this process, for one whose answer never comes. What they say
        # is nowhere else.
        self._open: BoundedDict[tuple[str, str], Step] = BoundedDict(_OPEN)
        self._compacted: BoundedDict[str, int] = BoundedDict(_COMPACTED)

    def handle(
        self, event: HookEvent, at: int | None = None, *, answered: bool = True
    ) -> HookAnswer:
        """Returns the answer to an event.

        Args:
            event: The event.
            at: When it was, nanoseconds since the epoch; now by default.
            answered: False if the agent went on without an answer, and was told nothing.

        Raises:
            StoreError: The state can be neither read nor written.
        """
        if not self._on or event.kind is EventKind.OTHER:
            return NOTHING
        if not answered:
            event = replace(event, accepts_hint=False)
        with self._lock:
            try:
                with self._state.together():
                    if self._mode == "shadow" and self._state.is_enforced(event.session):
                        return NOTHING
                    self._recall(event.session)
                    answer = self._handle(event, at or now(), answered=answered)
                    self.guard.write_journals()
            except BaseException:
                # What cannot be stored is not said: the next event begins with the stored state.
                self.guard.forget(event.session)
                raise
        return NOTHING if self._mode == "shadow" else answer

    def undelivered(self, event: HookEvent, answer: HookAnswer) -> None:
        """An answer was not delivered: nobody has heard it, and the next one repeats it.

        Args:
            event: What was answered.
            answer: What it was.
        """
        if answer.reply is Reply.NOTHING:
            return
        with self._lock, suppress(StoreError), self._state.together():
            session = event.session
            if event.kind is EventKind.CALL:
                call_id = event.call_id or self._new_call_id(event, now())
                call = self._state.call(session, call_id)
                if call is not None and call.state == "refused":  # the agent makes it
                    self._state.put_call(session, call_id, call._replace(state="open", said=""))
                    self._open[session, call_id] = _step(event, call.begun)
            denial = self._denial(session) if answer.reply is Reply.DENY else None
            self._tell_again(session, denial or self._flag(session).control, heard=False)

    def ask(self, request: dict[str, object]) -> dict[str, object]:
        """Does what a person asks, as `Engine.reply`; what is allowed outlives the process."""
        session = request.get("session")
        if not isinstance(session, str):
            return self.guard.reply(request)
        with self._lock, self._state.together():
            if self._state.mode(session) == self._mode:
                self._recall(session)
            reply = self.guard.reply(request)
            if reply.get("ok") and request.get("op") in ("allow", "resume"):
                found = self.guard.find(session)
                if request["op"] == "allow" and found is not None:
                    self._state.allow(session, found.allowed)
                # A step takes it in, so that the journal says that its loops are new ones.
                self.guard.observe(Step(Kind.OTHER, "allowed"), session)
                self.guard.write_journals()
        return reply

    def close(self) -> None:
        """Shuts the guard down."""
        self.guard.shutdown()

    def _recall(self, session: str) -> None:
        """Restores a session that another process left."""
        if self._state.mode(session) != self._mode:
            self.guard.forget(session)
        if session not in self._known or self.guard.flag_of(session) is None:
            self.guard.recall(session, 0)
            found = self.guard.find(session)
            if found is not None:
                found.allowed = self._state.allowed(session)
            self._known[session] = None
            flag = self._flag(session)
            flag.asked = True
            for decision_id, what in self._state.decisions(session, _HEARD).items():
                at = what.partition(_HEARD)[2].partition(" ")[0]
                flag.hear(decision_id, int(at) if at.isdecimal() else 0)
        self._state.use(session, self._mode)

    def _handle(self, event: HookEvent, at: int, *, answered: bool) -> HookAnswer:
        kind, session = event.kind, event.session
        if kind is EventKind.CALL:
            return self._call(event, at, answered=answered)
        if kind is EventKind.RESULT:
            return self._result(event, at)
        if kind is EventKind.BATCH:
            return self._batch(event, at, answered=answered)
        if kind is EventKind.COMPACTION:
            self._compact(session)
        elif kind is EventKind.RESPONSE:
            self._on_text(event, at)
        elif kind in (EventKind.PROMPT, EventKind.STOP, EventKind.SESSION_END):
            self._turn(event, at)
        return self._hint(event, at)

    def _call(self, event: HookEvent, at: int, *, answered: bool) -> HookAnswer:
        session, step = event.session, _step(event, at)
        call_id = event.call_id or self._new_call_id(event, at)
        known = self._state.call(session, call_id)
        if known is not None and known.state != "refused":
            return NOTHING  # the same event again, by another hook of the same agent
        if known is not None and (event.call_id or abs(at - known.begun) < _SAME_NS):
            return HookAnswer(Reply.DENY, known.said)
        answer = self._refusal(event, step) if answered else NOTHING
        who = event.sub_agent or ""
        if answer.reply is Reply.DENY and self._insists(session, at):
            self._observe(_refused(step, answer.reason), event, call_id)
            answer = self._refusal(event, step)
        elif answer.reply in (Reply.DENY, Reply.STOP) and self._spans is not None:
            step = _refused(step, answer.reason)
            self._spans.end(self._spans.start(event, step), step, None)
        if answer.reply in (Reply.DENY, Reply.STOP):
            self._state.put_call(session, call_id, KnownCall("refused", at, who, answer.reason))
            denial = self._denial(session)
            if denial is not None and denial.decision is not None:
                self._hear(session, denial.decision, at)
            control = self._flag(session).control
            if control.decision is not None and self._about(session, control) == who:
                self._is_first_time("hint", session, control.decision)  # the refusal told it
            return answer
        self._state.put_call(session, call_id, KnownCall("open", at, who))
        self._open[session, call_id] = step
        return self._hint(event, at) if answer.reply is Reply.NOTHING else answer

    def _result(self, event: HookEvent, at: int) -> HookAnswer:
        session = event.session
        call_id = event.call_id or self._open_call_id(event, at)
        known = None if call_id is None else self._state.call(session, call_id)
        if known is not None and known.state in ("done", "closed"):
            return NOTHING
        step = _step(event, at)
        if event.duration_ns is not None and 0 <= event.duration_ns <= at:
            step.start = at - event.duration_ns
        if known is not None:
            # No call began before its hook was asked, whatever the agent counts as its duration:
            # two would look as if they had been made side by side.
            begun_at = min(known.begun, at)
            step.start = begun_at if event.duration_ns is None else max(step.start, begun_at)
        begun = None if call_id is None else self._open.pop((session, call_id), None)
        if begun is not None:
            step.name, step.agent = step.name or begun.name, begun.agent
            step.args = begun.args if step.args is None else step.args
        call_id = call_id or self._new_call_id(event, at)
        self._observe(step, event, call_id)
        self._state.put_call(session, call_id, KnownCall("done", at, event.sub_agent or ""))
        return self._after_calls(event, at)

    def _batch(self, event: HookEvent, at: int, *, answered: bool) -> HookAnswer:
        """Handles calls that were rejected: of these no other event has told a result."""
        refusal = NOTHING
        for call in event.calls:
            quiet = replace(call, accepts_hint=False)
            known = self._state.call(event.session, call.call_id or "")
            asked = self._call(quiet, at, answered=answered) if known is None else NOTHING
            if asked.reply in (Reply.DENY, Reply.STOP):
                refusal = asked  # too late for this call: the model hears it beside the others
            elif known is None or known.state == "open":
                self._result(quiet, at)
        answer = self._after_calls(event, at)
        return refusal if answer.reply is Reply.NOTHING else answer

    def _after_calls(self, event: HookEvent, at: int) -> HookAnswer:
        """Returns the end of the turn, or a hint, after calls."""
        control = self._flag(event.session).control
        answer = self._answer_to_stop(event, control) if control.action in _HELD else NOTHING
        return self._hint(event, at) if answer.reply is Reply.NOTHING else answer

    def _denial(self, session: str) -> Control | None:
        """The deny that calls of denied loops are refused with, also once it was lowered."""
        return self._flag(session).denial

    def _insists(self, session: str, at: int) -> bool:
        """True if a refusal was heard before this call was asked for."""
        denial = self._denial(session)
        if denial is None or denial.decision is None:
            return False
        heard = self._flag(session).heard_by(at).get(denial.decision.id)
        return heard is not None and at - heard >= _SAME_NS

    def _hear(self, session: str, decision: Decision, at: int) -> None:
        """Notes that the agent has heard a decision, with the answer to an event."""
        self._flag(session).hear(decision.id, at)
        who, done = self._state.replies(session, decision.id)
        if _HEARD not in done:
            self._state.remember_replies(session, decision.id, who, f"{done} {_HEARD}{at}")

    def _refusal(self, event: HookEvent, step: Step) -> HookAnswer:
        """Returns the refusal of a call, or nothing."""
        control = self._flag(event.session).control
        if control.action in _HELD:
            return self._answer_to_stop(event, control)
        denial, found = self._denial(event.session), self.guard.find(event.session)
        if denial is not None and found is not None:
            tool = step.name or ""
            by = found.denied_by(tool, step.args, agent=step.agent)
            if by is not None:
                said = str(self._flag(event.session).denial_of(tool, by) or denial)
                return HookAnswer(Reply.DENY, self._with_way_out(said, "allow", event.session))
        if control.action is Action.ASK and control.decision is not None:
            return self._question(event, step, control.decision)
        return NOTHING

    def _answer_to_stop(self, event: HookEvent, control: Control) -> HookAnswer:
        """Returns the answer to a stop; that of a sub-agent refuses only its own calls."""
        who = self._about(event.session, control)
        if who and who != event.sub_agent:
            return NOTHING
        said = control.hint or control.reason or f"the session is at {control.action}"
        way_out = "allow" if control.decision is not None else "resume"
        reason = self._with_way_out(said, way_out, event.session)
        if event.sub_agent is None:
            return HookAnswer(Reply.STOP, reason)
        return HookAnswer(Reply.DENY, reason) if event.kind is EventKind.CALL else NOTHING

    def _question(self, event: HookEvent, step: Step, decision: Decision) -> HookAnswer:
        """Asks the user once about a call of the tool that a decision is about."""
        if decision.tool != step.name or not self._is_first_time("ask", event.session, decision):
            return NOTHING
        return HookAnswer(Reply.ASK, decision.question or decision.message)

    def _hint(self, event: HookEvent, at: int) -> HookAnswer:
        """Returns the hint for the model, once per decision, at an event that can carry it."""
        session, control = event.session, self._flag(event.session).control
        who = self._about(session, control)
        if not (event.accepts_hint and control.hint) or (who and who != event.sub_agent):
            return NOTHING
        if control.decision is None:  # a person's words
            is_new = self._flag(session).take_hint() is not None
        else:
            is_new = self._is_first_time("hint", session, control.decision)
            if is_new and control.action is not Action.DENY:
                self._hear(session, control.decision, at)
        return HookAnswer(Reply.HINT, hint=control.hint) if is_new else NOTHING

    def _is_first_time(self, what: str, session: str, decision: Decision) -> bool:
        """True the first time that something is done about a decision."""
        who, done = self._state.replies(session, decision.id)
        if what in done:
            return False
        self._state.remember_replies(session, decision.id, who, f"{done} {what}")
        return True

    def _flag(self, session: str) -> Flag:
        return self.guard.flag_named(session)

    def _about(self, session: str, control: Control) -> str:
        """Returns the sub-agent that a decision is about; empty for the main agent or unknown."""
        if control.decision is None:
            return ""
        return self._state.replies(session, control.decision.id)[0]

    def _decided(self, made: DecisionRecord) -> None:
        if made.decision.action is not Action.ALLOW:
            who = "" if made.agent in (None, coding_tools.MAIN) else str(made.agent)
            self._state.remember_replies(made.session.key, made.decision.id, who, "")

    def _compact(self, session: str) -> None:
        """Halves the counts after a compaction, which may have dropped a hint."""
        steps = self._steps(session)
        if self._compacted.get(session) == steps:
            return  # its beginning and its end are two events
        self._compacted[session] = steps
        found = self.guard.find(session)
        if found is not None:
            found.compacted()
        self._tell_again(session, self._flag(session).control, heard=True)

    def _tell_again(self, session: str, control: Control, *, heard: bool) -> None:
        """Has the next answer repeat what was said, as the agent may not have heard it."""
        if control.decision is None:
            return
        decision_id = control.decision.id
        who, what = self._state.replies(session, decision_id)
        if not heard:
            self._flag(session).unhear(decision_id)
        what = what.replace("hint", "") if heard else ""
        self._state.remember_replies(session, decision_id, who, what)

    def _on_text(self, event: HookEvent, at: int) -> None:
        """Handles text of the model."""
        if event.text:
            step = coding_tools.answer_step(
                event.agent, event.model, event.text,
                sub_agent=event.sub_agent, start=at, end=at,
            )  # fmt: skip
            self._observe(step, event, f"text {at}")

    def _turn(self, event: HookEvent, at: int) -> None:
        """Ends a turn, at its end or the start of the next one: its open calls get no answer."""
        session, who = event.session, event.sub_agent or ""
        ended = event.kind is EventKind.SESSION_END
        for call_id, call in self._state.calls(session, "open").items():
            if ended or call.agent == who:
                self._state.put_call(session, call_id, call._replace(state="closed"))
                step = self._open.pop((session, call_id), None)
                if step is not None:
                    step.end = at
                    self._observe(step, event, call_id)
        if event.kind is EventKind.PROMPT:
            step = coding_tools.prompt_step(event.agent, start=at)
            self._observe(step, event, f"prompt {at}")
        elif event.kind is EventKind.STOP:
            self._on_text(event, at)
            # A sub-agent that has ended takes its stop along.
            about = self._about(session, self._flag(session).control)
            if who and about == who and self.guard.lift(session):
                self.guard.observe(Step(Kind.OTHER, "sub-agent ended"), session)

    def _new_call_id(self, event: HookEvent, at: int) -> str:
        """Returns an id for a call without one; the next equal call gets another."""
        lately = self._equal_just_now(event, at, "open", "refused")
        return lately or f"{_digest(event)} {self._steps(event.session)}"

    def _open_call_id(self, event: HookEvent, at: int) -> str | None:
        """The id of the oldest open call that an answer without one may belong to.

        Where there is none: of the call whose answer another hook has just reported.
        """
        begun = next(iter(self._equal(event, "open")), None)
        return begun or self._equal_just_now(event, at, "done")

    def _equal_just_now(self, event: HookEvent, at: int, *states: str) -> str | None:
        """The id of the newest call equal to that of an event, if it became so just now."""
        newest = list(self._equal(event, *states).items())[-1:]
        return next((name for name, call in newest if abs(at - call.begun) < _SAME_NS), None)

    def _equal(self, event: HookEvent, *states: str) -> dict[str, KnownCall]:
        """The calls without an id that are equal to that of an event, oldest first."""
        found, digest = self._state.calls(event.session, *states), f"{_digest(event)} "
        return {name: call for name, call in found.items() if name.startswith(digest)}

    def _steps(self, session: str) -> int:
        report = self.guard.report(session)
        return 0 if report is None else report.steps

    def _observe(self, step: Step, event: HookEvent, call_id: str) -> None:
        session = event.session
        if self._spans is not None and step.kind is Kind.TOOL:
            span = self._spans.start(event, step)
            self.guard.observe(step, session)
            self._spans.end(span, step, self.guard.annotation(step.trace_id, step.span_id))
            return
        # A trace of its own would look like another turn, and those begin with prompts.
        step.trace_id, step.span_id = _number(session, 16), _number(call_id, 8)
        self.guard.observe(step, session)

    def _with_way_out(self, said: str, way_out: str, session: str) -> str:
        end = "" if said.endswith((".", "!", "?")) else "."  # a person's reason may have none
        command = self._command(way_out, quote(session))
        return f"{said}{end} {_WAYS_OUT[way_out].format(command)}"


def _step(event: HookEvent, at: int) -> Step:
    error = event.error
    # The words are a stranger's, and the fields of the event said whether a person stopped it.
    own = event.agent == "codex" or event.kind is EventKind.BATCH
    of_server = not own and (event.tool or "").startswith("mcp__")
    return coding_tools.tool_step(
        event.agent, event.tool, event.args, event.outcome,
        error=True if error == "" else error, stopped=False if of_server else None,
        call_id=event.call_id, sub_agent=event.sub_agent, start=at, end=at,
    )  # fmt: skip


def _number(name: str, size: int) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=size).digest(), "big")


def _refused(step: Step, said: str) -> Step:
    """A refused call as a step, which shows the guard that its refusal was not heeded."""
    return replace(step, error=True, error_type=semconv.ERROR_DENY, error_text=said, reading=None)


def _digest(event: HookEvent) -> str:
    step = _step(event, 0)
    told = [event.sub_agent, step.name, step.args]
    try:
        option = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS
        data = orjson.dumps(told, default=str, option=option)
    except TypeError:  # it reads deeper nesting than it writes
        data = str(told).encode("utf-8", "backslashreplace")
    return hashlib.blake2b(data, digest_size=8).hexdigest()
