"""Turns the tool calls of one session into evidence, once per call."""

from __future__ import annotations

import re
from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard.core import Effect, ErrorClass, Evidence, Handoff, Step
from otel_loopguard.identity.canonical import bounded, canonical, key_of, parsed, text_bytes
from otel_loopguard.identity.effects import effect_of, is_compound
from otel_loopguard.identity.errors import error_class, error_shape, error_text, is_call_error
from otel_loopguard.identity.masks import masked_call, masked_outcome, without_volatile
from otel_loopguard.identity.novelty import Novelty, words_of
from otel_loopguard.identity.volatile import VolatileArguments

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_REMEMBERED: Final = 128
_NAMED: Final = 200
_LONG_GAP: Final = 20_000_000_000
_HOUR: Final = 3_600_000_000_000
_PENDING: Final = re.compile(
    rb"(?i)\b(?:pending|in[ _-]?progress|queued|running|waiting|processing|not (?:yet )?(?:ready|"
    rb"finished|done|complete)|still|starting|scheduled|provisioning|initiali[sz]ing)\b"
)
_POLLS: Final = re.compile(r"(?i)poll|status|wait|check|progress|watch|monitor|tail")


@lru_cache(maxsize=4096)
def _seed(tool: str, agent: str = "") -> int:
    """What keeps equal arguments of two tools apart, and equal calls of two agents."""
    return key_of(text_bytes(f"{agent}\0{tool}"))


class Observer:
    """Evidence of one session. Not thread-safe: the session's lock is held.

    Attributes:
        calls: How many calls it was shown.

    Cost per call: O(length of arguments and outcome), bounded; memory is bounded by the number of
    calls remembered, not by the length of the session.
    """

    __slots__ = (
        "_answers", "_calls", "_epoch", "_limit", "_model_time", "_news", "_novelty", "_round",
        "_round_end", "_settings", "_unseen", "_volatile", "_writes", "calls",
    )  # fmt: skip

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._limit = settings.max_value_chars
        self._volatile = VolatileArguments()
        self._calls: OrderedDict[int, tuple[int | None, int, int]] = OrderedDict()
        self._writes: OrderedDict[int, None] = OrderedDict()
        self.calls = 0
        self._epoch = 0
        self._round = 0
        self._round_end = 0
        self._model_time = -1
        self._novelty: Novelty | None = None
        self._answers = 0
        self._unseen = 0
        self._news = 0.0

    def model_step(self, step: Step) -> None:
        """Notes the time a model call took, so that thinking is not taken for waiting."""
        took = (step.end or 0) - step.start
        self._model_time = max(self._model_time, 0) + max(took, 0)

    def handoff(self, step: Step) -> Handoff | None:
        """What one hand-off says; None without an agent or the text of its instruction.

        From the first one on the session's tool outcomes are looked at for what is new in them.
        """
        if self._novelty is None:
            self._novelty = Novelty()
        if step.name is None or not step.args:
            return None
        text = step.args if isinstance(step.args, str) else canonical(step.args).decode()
        return Handoff(
            step.name[:_NAMED], _seed(step.name[:_NAMED]), words_of(text), len(text),
            self._answers, self._unseen, self._news,
        )  # fmt: skip

    def evidence(self, step: Step) -> Evidence:
        """Evidence of one finished tool call; counts it."""
        tool = step.name or ""
        arguments = self._parsed(step.args)
        outcome_exact, outcome, size, raw = self._outcome_keys(step)
        call_exact, call, guessed = self._call_keys(step, arguments, outcome)
        effect = self._effect(tool, arguments)
        failure = error_class(step) if step.error else ErrorClass.UNKNOWN
        end = step.end or 0
        fresh = call is not None and call not in self._calls
        gap, waiting = self._waiting(step, call, outcome, raw)
        found = Evidence(
            number=self.calls,
            tool=tool[:_NAMED],
            call=call,
            call_exact=call_exact,
            guessed=guessed,
            fresh=fresh,
            outcome=outcome,
            outcome_exact=outcome_exact,
            outcome_size=size,
            error=step.error,
            error_class=failure,
            error_shape=error_shape(step) if step.error else None,
            call_error=step.error and is_call_error(step),
            effect=effect,
            epoch=self._epoch,
            gap=gap,
            waiting=waiting or effect is Effect.WAIT,
            time=end,
            round=self._next_round(step.start, end),
        )
        self.calls += 1
        if effect is Effect.WRITE:
            self._written(found, arguments)
        if self._novelty is not None:
            self._answered(raw, known=outcome is not None)
        return found

    def call_of(self, step: Step) -> int | None:
        """Key of a call before it has an outcome; None if its arguments are not known yet."""
        arguments = self._parsed(step.args)
        return self._call_keys(step, arguments, None)[1]

    def _parsed(self, arguments: object) -> object:
        """The JSON value of arguments; of text that is too long to parse, head and tail."""
        if isinstance(arguments, str) and len(arguments) > self._limit:
            return bounded(text_bytes(arguments), self._limit).decode("utf-8", "replace")
        return parsed(arguments)

    def _answered(self, raw: bytes, *, known: bool) -> None:
        if self._novelty is None or not known:
            self._unseen += 1
            return
        self._answers += 1
        self._news += self._novelty.of(raw.decode("utf-8", "replace"))

    def _outcome_keys(self, step: Step) -> tuple[int | None, int | None, int, bytes]:
        value = step.outcome
        if step.error and (value is None or step.error_text):
            value = error_text(step)
        if value is None:
            return None, None, 0, b""
        raw = text_bytes(value) if isinstance(value, str) else canonical(value)
        if len(raw) > self._limit:
            raw = bounded(raw, self._limit)
        exact = key_of(raw)
        masked = masked_outcome(raw)
        return exact, exact if masked is raw else key_of(masked), len(raw), raw

    def _call_keys(
        self, step: Step, arguments: object, outcome: int | None
    ) -> tuple[int | None, int | None, bool]:
        """Exact key, masked key, and whether the masked one rests on a guess."""
        if arguments is None:
            return None, None, False
        raw = canonical(arguments)
        if len(raw) > self._limit:
            raw = bounded(raw, self._limit)
        seed = _seed((step.name or "")[:_NAMED], (step.agent or "")[:_NAMED])
        exact = key_of(raw, seed)
        masked, guessed = raw, False
        if isinstance(arguments, dict):
            named = cast("dict[str, object]", arguments)
            known = without_volatile(named)
            kept = self._volatile.without(seed, known, outcome)
            guessed = kept is not known
            if kept is not named:
                masked = canonical(kept)
        masked = masked_call(masked)
        return exact, exact if masked is raw else key_of(masked, seed), guessed

    def _effect(self, tool: str, arguments: object) -> Effect:
        if tool in self._settings.write_tools:
            return Effect.WRITE
        if tool in self._settings.read_tools or tool in self._settings.poll_tools:
            return Effect.READ
        return effect_of(tool, arguments)

    def _waiting(
        self, step: Step, call: int | None, outcome: int | None, raw: bytes
    ) -> tuple[int | None, bool]:
        """Gap since the same call, without model time, and whether it was a wait for its answer."""
        if call is None:
            return None, False
        last = self._calls.pop(call, None)
        self._calls[call] = (outcome, step.end or 0, self._model_time)
        if len(self._calls) > _REMEMBERED:
            self._calls.popitem(last=False)
        if last is None:
            return None, False
        known, ended, model_time = last
        if not ended or not step.start:
            return None, False
        gap = step.start - ended - max(self._model_time - model_time, 0)
        if outcome is None or outcome != known or gap < self._settings.wait_gap_s * 1e9:
            return gap, False
        tool = step.name or ""
        sign = (
            gap >= _LONG_GAP
            or tool in self._settings.poll_tools
            or (self._model_time >= 0 and _POLLS.search(tool) is not None)
            or _PENDING.search(raw[:2000]) is not None
        )
        return gap, sign

    def _next_round(self, start: int, end: int) -> int:
        """Number of the round; a clock that jumped by an hour or more begins a new one."""
        if not start or not -_HOUR < start - self._round_end < 0:
            self._round += 1
            self._round_end = end
        else:
            self._round_end = max(self._round_end, end)
        return self._round

    def _written(self, found: Evidence, arguments: object) -> None:
        """Opens an epoch for a change that was not made before with the same outcome."""
        if found.error and not is_compound(arguments):
            return
        change = hash((found.call_exact, found.outcome))
        known = self._writes.pop(change, self) is None
        self._writes[change] = None
        if len(self._writes) > _REMEMBERED:
            self._writes.popitem(last=False)
        if not known:
            self._epoch += 1
