"""Turns what the models of one session write into evidence, once per text."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rapidfuzz import fuzz

from otel_loopguard.core import Gain, Kind, Progress, Saying, Step, Tail
from otel_loopguard.identity.phrases import apologies_in, hedges_in, is_personal, promise_in
from otel_loopguard.identity.speakers import speaker_of
from otel_loopguard.identity.texts import (
    chant_of,
    is_structured,
    key_of_text,
    look_of,
    sample_of,
    shape_of,
    tail_of,
)

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_SPEAKERS: Final = 4


@dataclass(slots=True)
class _Last:
    """The text before of one speaker, as far as the next one is compared with it."""

    sample: str
    key: int
    shape: int
    turn: int
    end: int


class Sayings:
    """Evidence of what is written in one session. Not thread-safe: the session's lock is held.

    Cost per text is bounded, whatever its length: phrases and comparisons look at 2,000 characters,
    the end that repeats itself at `text_tail_period` times `text_tail_times`. Of the newest 4
    speakers the sample of the newest text is kept, in the process only.

    Args:
        settings: Settings of the guard.
        progress: Totals of the session; read only.
    """

    __slots__ = ("_acts", "_end", "_last", "_progress", "_settings", "_trace", "_turn")

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._settings = settings
        self._progress = progress
        self._last: OrderedDict[int, _Last] = OrderedDict()
        self._acts = 0
        self._turn = 0
        self._trace = 0
        self._end = 0

    def see(self, step: Step) -> Saying | None:
        """Evidence of a model call that wrote something; of any other step that it was done.

        A model that wrote nothing has called a tool, as a rule, seen or not.
        """
        if step.kind is not Kind.MODEL or not step.text:
            self._acts += step.kind is not Kind.MODEL or not step.error
            return None
        self._next_turn(step)
        return self._saying(step, step.text)

    def _saying(self, step: Step, text: str) -> Saying:
        progress = self._progress
        speaker, name = speaker_of(step)
        now = _Last(
            sample_of(text), key_of_text(text), 0, self._turn, step.end or 0,
        )  # fmt: skip
        now.shape = shape_of(now.sample)
        before = self._remember(speaker, now)
        alike, renumbered = (0.0, False) if before is None else self._compared(before, now)
        tail = self._tail(text)
        return Saying(
            speaker=speaker,
            name=name,
            turn=self._turn,
            key=now.key,
            size=len(text),
            words=now.sample.count(" ") + 1,
            structured=is_structured(look_of(text)),
            alike=alike,
            renumbered=renumbered,
            beside=before is not None and 0 < step.start < before.end,
            hedges=hedges_in(now.sample),
            apologies=apologies_in(now.sample),
            personal=is_personal(now.sample),
            promise=promise_in(now.sample),
            tail=tail,
            chant=None if tail is not None else self._chant(text),
            acts=self._acts,
            calls=progress.calls,
            gain=Gain(progress.answers, progress.unseen, progress.news, progress.epoch),
        )

    def _compared(self, before: _Last, now: _Last) -> tuple[float, bool]:
        """How much of two samples is common, and whether they differ in numbers only."""
        if before.turn != now.turn:
            return 0.0, False
        if before.sample == now.sample:
            return 1.0, False
        least = 100 * self._settings.text_alike
        alike = fuzz.ratio(before.sample, now.sample, score_cutoff=least) / 100
        return alike, before.shape == now.shape

    def _tail(self, text: str) -> Tail | None:
        settings = self._settings
        longest, times = settings.text_tail_period, settings.text_tail_times
        return tail_of(text, longest, times, settings.text_tail_chars)

    def _chant(self, text: str) -> Tail | None:
        settings = self._settings
        return chant_of(text, settings.text_chant_times, settings.text_tail_chars)

    def _remember(self, speaker: int, now: _Last) -> _Last | None:
        before = self._last.pop(speaker, None)
        self._last[speaker] = now
        if len(self._last) > _SPEAKERS:
            self._last.popitem(last=False)
        return before

    def _next_turn(self, step: Step) -> None:
        """Another trace after a pause: a user may have spoken, and nothing says so."""
        pause = step.start - self._end
        if step.trace_id != self._trace and pause >= self._settings.text_turn_gap_s * 1e9:
            self._turn += 1
        self._trace = step.trace_id
        self._end = max(self._end, step.end or 0)
