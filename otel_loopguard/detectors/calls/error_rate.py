"""Does nearly everything fail, whatever is tried? (C4)"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from xxhash import xxh3_64_intdigest as key_of

from otel_loopguard.core import Action, Detection, ErrorClass, Severity

if TYPE_CHECKING:
    from otel_loopguard.core import Evidence
    from otel_loopguard.settings import Settings

_AGENTS: Final = 32
_KEYS: Final = frozenset({key_of(b"error_rate")})


@dataclass(slots=True)
class _Newest:
    """The newest rounds of one agent: which failed, and how many of the last ones in a row.

    `passing` names, for each round, the tool that failed in a way that may pass; else it is empty.
    """

    failed: deque[bool]
    passing: deque[str]
    round: int = -1
    row: int = 0

    def worked(self, tool: str) -> None:
        """A tool works again: what failed of it in passing is over."""
        for place, name in enumerate(self.passing):
            if name == tool:
                self.failed[place], self.passing[place] = False, ""


class ErrorRate:
    """Looks at the newest rounds of an agent's calls: how many failed, each in its own way.

    A round fails if all of its parallel calls do; an answer that reports a failure (an exit code, a
    status, a traceback) counts as one. A detection if `error_rate` (75 %) of the newest
    `error_rate_rounds` (10) rounds failed, or the newest `error_streak` (6) all did. A retry with
    patience (a transient error, `wait_gap_s` after the same call) does not count, nor do the
    transient errors of a tool that works after them, nor one item after the other that is not
    there. It leads to another way at most: what helps
    against many different errors is not known.

    Source: FEATURES C4; `notes/evidence.md`, row "error rate".
    """

    name = "error_rate"
    family = "errors"
    __slots__ = ("_agents", "_patience", "_rate", "_rounds", "_streak")

    def __init__(self, settings: Settings) -> None:
        self._rate = settings.error_rate
        self._rounds = settings.error_rate_rounds
        self._streak = settings.error_streak
        self._patience = settings.wait_gap_s * 1e9
        self._agents: dict[int, _Newest] = {}

    def user_turn(self) -> None:
        """What failed before was asked for something else."""
        self._agents.clear()

    def observe(self, evidence: Evidence) -> Detection | None:
        if evidence.waits or evidence.absent or self._patient(evidence):
            return None
        newest = self._of(evidence.agent)
        failed, passing = newest.failed, newest.passing
        if not evidence.failing and evidence.tool in passing:
            newest.worked(evidence.tool)
        tool = evidence.tool if evidence.error_class is ErrorClass.TRANSIENT else ""
        if evidence.round == newest.round and failed:
            failed[-1] = failed[-1] and evidence.failing
            passing[-1] = tool
        else:
            failed.append(evidence.failing)
            passing.append(tool)
            newest.row += 1
        newest.round = evidence.round
        if not failed[-1]:
            newest.row = 0
            return None
        return self._judge(evidence, newest)

    def _of(self, agent: int) -> _Newest:
        newest = self._agents.get(agent)
        if newest is None:
            newest = self._agents[agent] = _Newest(
                deque(maxlen=self._rounds), deque(maxlen=self._rounds)
            )
            if len(self._agents) > _AGENTS:
                del self._agents[next(iter(self._agents))]
        return newest

    def _patient(self, evidence: Evidence) -> bool:
        return (
            evidence.error_class is ErrorClass.TRANSIENT
            and evidence.gap is not None
            and evidence.gap >= self._patience
        )

    def _judge(self, evidence: Evidence, newest: _Newest) -> Detection | None:
        if newest.row >= evidence.needs(self._streak):
            which = f"the last {newest.row}"
            needed = evidence.shown(self._streak)
            return self._detection("error_streak", newest.row, needed, which)
        failed, rounds = sum(newest.failed), self._rounds
        if len(newest.failed) < rounds or failed < self._rate * rounds * max(evidence.ease, 1.0):
            return None
        threshold = self._rate * rounds
        return self._detection("error_rate", failed, threshold, f"{failed} of the last {rounds}")

    def _detection(self, reason: str, count: int, threshold: float, which: str) -> Detection:
        return Detection(
            detector=self.name,
            reason=reason,
            severity=Severity.WARNING,
            confidence=min(0.85, 0.6 + 0.03 * (count - threshold)),
            keys=_KEYS,
            count=count,
            threshold=threshold,
            message=f"{which} rounds of calls failed",
            max_action=Action.STEER,
        )
