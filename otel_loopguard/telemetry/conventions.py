"""Log events of GenAI conventions that are still proposed, for those who ask for them.

`OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental` is how instrumentations are asked for the
newest conventions. Proposed are what was decided about a call before it runs, in
open-telemetry/semantic-conventions-genai#535, and the pause of an agent, in #445.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard import semconv
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard.core import Action
from otel_loopguard.telemetry import events
from otel_loopguard.telemetry.events import INFO, Event, SpanRef, Value

if TYPE_CHECKING:
    from otel_loopguard.sessions.observation import DecisionRecord, Observation

EVENT_CALL: Final = "gen_ai.tool.call.decision"
"""A call was refused (`deny`), or waits for a person (`require_approval`)."""
CALL_OUTCOME: Final = "gen_ai.tool.call.decision.outcome"
CALL_ID: Final = "gen_ai.tool.call.id"
EVENT_PAUSED: Final = "gen_ai.agent.paused"
EVENT_RESUMED: Final = "gen_ai.agent.resumed"
EXECUTION_ID: Final = "gen_ai.agent.execution.id"
"""The session: it outlives the pause, in whichever process it goes on."""
PAUSE_ID: Final = "gen_ai.agent.pause.id"
PAUSE_REASON: Final = "gen_ai.agent.pause.reason"
RESUMED_TYPE: Final = "gen_ai.agent.resumed_from.type"
RESUMED_ID: Final = "gen_ai.agent.resumed_from.id"

_PAUSED: Final = 4096
"""Paused sessions that are remembered, as many as sessions by default: more are not kept."""


class _Pause(NamedTuple):
    """A pause that was reported.

    Attributes:
        id: Its id: that of the decision, else one of its own.
        agent: Name of the agent.
    """

    id: str
    agent: str | None


class ConventionEvents:
    """Reports refused calls, pauses and their ends by the conventions.

    Args:
        put: Has an event emitted.
    """

    def __init__(self, put: Callable[[Event], None]) -> None:
        self._put = put
        self._paused: BoundedDict[str, _Pause] = BoundedDict(_PAUSED)

    def on_step(self, seen: Observation) -> None:
        """Reports a call that was refused."""
        step, flag = seen.step, seen.session.flag
        if not step.refused:
            return
        attributes: dict[str, Value] = {CALL_OUTCOME: "deny", semconv.SESSION_ID: seen.session.key}
        if step.call_id is not None:
            attributes[CALL_ID] = step.call_id
        if flag.stops and flag.standing:
            attributes[semconv.DECISION_ID] = flag.standing
        events.add_names(attributes, seen.agent, step.name or "")
        place = SpanRef(step.trace_id, step.span_id)
        said = f"a call of {step.name or 'a tool'} was refused"
        self._put(Event(EVENT_CALL, INFO, said, attributes, step.end or 0, place))

    def on_decision(self, made: DecisionRecord, place: SpanRef) -> None:
        """Reports a pause that was decided; whatever calls come wait for a person."""
        decision = made.decision
        if decision.shadow:
            return
        if decision.action is Action.ABORT:
            self._paused.pop(decision.session, None)
        elif decision.action is Action.PAUSE and decision.session not in self._paused:
            attributes: dict[str, Value] = {
                CALL_OUTCOME: "require_approval",
                semconv.SESSION_ID: decision.session,
                semconv.DECISION_ID: decision.id,
            }
            events.add_names(attributes, made.agent, decision.tool)
            said = decision.message
            self._put(Event(EVENT_CALL, INFO, said, attributes, decision.time, place))
            pause = _Pause(decision.id, made.agent)
            self._pauses(decision.session, pause, said, decision.time, place)

    def on_change(self, fields: Mapping[str, str], text: str, place: SpanRef) -> None:
        """Reports what a person, a time limit or the application did to a session."""
        session, action = fields[semconv.SESSION_ID], fields[semconv.DECISION_ACTION]
        if action == Action.PAUSE.value:
            if session not in self._paused:
                self._pauses(session, _Pause(secrets.token_hex(8), None), text, 0, place)
            return
        pause = self._paused.pop(session, None)
        if pause is None or action == Action.ABORT.value:
            return
        attributes: dict[str, Value] = {
            EXECUTION_ID: session, RESUMED_TYPE: "pause", RESUMED_ID: pause.id,
        }  # fmt: skip
        events.add_names(attributes, pause.agent, "")
        self._put(Event(EVENT_RESUMED, INFO, text, attributes, 0, place))

    def _pauses(self, session: str, pause: _Pause, text: str, time: int, place: SpanRef) -> None:
        self._paused[session] = pause
        attributes: dict[str, Value] = {
            EXECUTION_ID: session, PAUSE_ID: pause.id, PAUSE_REASON: "human_input",
        }  # fmt: skip
        events.add_names(attributes, pause.agent, "")
        self._put(Event(EVENT_PAUSED, INFO, text, attributes, time, place))
