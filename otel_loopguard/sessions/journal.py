"""What a step leaves behind in the journal of its session: compact, versioned, without content."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

import xxhash

from otel_loopguard.core import Action, Decision, Kind, Severity
from otel_loopguard.policy import Loop
from otel_loopguard.sessions.calls import CallEntry, decoded_call, instant, micros

if TYPE_CHECKING:
    from otel_loopguard.core import Step

VERSION: Final = 2
"""Version of what is written. An entry of another one is not read."""

_HEAD: Final = struct.Struct("<BB2sI")
_STEP: Final = struct.Struct("<QIBBII")
_LOOP: Final = struct.Struct("<QQBHHHB")
_DECISION: Final = struct.Struct("<QQQQBBBfffHIBBB")
_KINDS: Final = tuple(Kind)
_ACTIONS: Final = tuple(Action)
_SEVERITIES: Final = tuple(Severity)
_KEYS: Final = 16
_CODE: Final = 32
_TOOL: Final = 36
_MOST: Final = 0xFFFF_FFFF
_UNKNOWN: Final = _MOST
_LARGEST: Final = 3.0e38


class Unread(str, Enum):
    """Why an entry was not read."""

    CORRUPTED = "corrupted"
    NEWER = "of a newer version"
    OLDER = "of an older version"
    FOREIGN = "written with another digest_key"

    __str__ = str.__str__


class Mark(IntEnum):
    """What happened between two steps, and what an entry is.

    `STEP`, `CALL`, `LOOP` and `DECISION` have a body; the others have none: the user's next turn,
    somebody let the session go on, its flag went down by itself, and its application went back to
    a checkpoint.
    """

    STEP = 1
    CALL = 2
    LOOP = 3
    DECISION = 4
    TURN = 5
    CLEARED = 6
    LOWERED = 7
    RESTORED = 8


@dataclass(frozen=True, slots=True)
class StepEntry:
    """A step that is no tool call.

    Attributes:
        time: End, nanoseconds since the epoch; 0 if it is not known.
        took: Nanoseconds, to a microsecond; 71 minutes at most.
        kind: What it is.
        error: Whether it failed.
        tokens_in: Input tokens; None if they are not known.
        tokens_out: Output tokens; None if they are not known.
    """

    time: int
    took: int
    kind: Kind
    error: bool
    tokens_in: int | None
    tokens_out: int | None


Entry = StepEntry | CallEntry | Loop | Decision | Mark
"""One entry: a step, a call, where a loop stands, what was decided, or a mark."""


class Codec:
    """Writes and reads entries.

    Args:
        key_id: Two bytes that tell the key of the digests: what another key wrote compares with
            nothing.
    """

    __slots__ = ("_key_id",)

    def __init__(self, key_id: bytes) -> None:
        self._key_id = key_id[:2]

    def step(self, step: Step) -> bytes:
        """A step that is no tool call, 30 bytes."""
        end = step.end or 0
        body = _STEP.pack(
            instant(end), micros(end - step.start), _KINDS.index(step.kind), step.error,
            _tokens(step.tokens_in), _tokens(step.tokens_out),
        )  # fmt: skip
        return self._sealed(Mark.STEP, body)

    def call(self, entry: CallEntry) -> bytes:
        """A tool call, 167 bytes at most."""
        return self._sealed(Mark.CALL, entry.packed())

    def loop(self, loop: Loop) -> bytes:
        """Where a loop stands on the ladder; of its keys 16 at most."""
        keys = sorted(loop.keys - {loop.id})[: _KEYS - 1]
        body = _LOOP.pack(
            loop.id, instant(loop.since), _ACTIONS.index(loop.action), min(loop.confirmed, 0xFFFF),
            min(loop.shown, 0xFFFF), min(loop.descents, 0xFFFF), len(keys),
        )  # fmt: skip
        return self._sealed(Mark.LOOP, body + struct.pack(f"<{len(keys)}Q", *keys))

    def decision(self, decision: Decision) -> bytes:
        """What was decided, without its message; of detector and reason 32 bytes, of tool 36."""
        texts = [
            text.encode("utf-8", "replace")[:most]
            for text, most in (
                (decision.detector, _CODE), (decision.reason, _CODE), (decision.tool, _TOOL),
            )
        ]  # fmt: skip
        body = _DECISION.pack(
            int(decision.id, 16), int(decision.loop, 16), int(decision.fingerprint or "0", 16),
            instant(decision.time), _ACTIONS.index(decision.action),
            _SEVERITIES.index(decision.severity),
            decision.shadow | (decision.fingerprint is not None) << 1, decision.confidence,
            min(decision.count, _LARGEST), min(decision.threshold, _LARGEST),
            min(decision.period, 0xFFFF),
            min(decision.step, _MOST), *map(len, texts),
        )  # fmt: skip
        return self._sealed(Mark.DECISION, body + b"".join(texts))

    def mark(self, mark: Mark) -> bytes:
        """A mark, 8 bytes."""
        return self._sealed(mark, b"")

    def read(self, raw: bytes, session: str) -> Entry | Unread:
        """Reads an entry; never throws, whatever it is.

        Args:
            raw: The entry.
            session: Key of the session that it is of.
        """
        if len(raw) < _HEAD.size:
            return Unread.CORRUPTED
        version, mark, key_id, check = _HEAD.unpack_from(raw)
        if version != VERSION:
            return Unread.NEWER if version > VERSION else Unread.OLDER
        body = raw[_HEAD.size :]
        if check != xxhash.xxh32_intdigest(raw[:4] + body):
            return Unread.CORRUPTED
        if key_id != self._key_id:
            return Unread.FOREIGN
        try:
            return _entry(Mark(mark), body, session)
        except (struct.error, ValueError, IndexError, StopIteration):
            return Unread.CORRUPTED

    def _sealed(self, mark: Mark, body: bytes) -> bytes:
        head = bytes((VERSION, mark)) + self._key_id
        return b"%b%b%b" % (head, xxhash.xxh32_intdigest(head + body).to_bytes(4, "little"), body)


def _entry(mark: Mark, body: bytes, session: str) -> Entry:
    if mark is Mark.STEP:
        time, took, kind, error, tokens_in, tokens_out = _STEP.unpack(body)
        return StepEntry(
            time, took * 1000, _KINDS[int(kind)], bool(error), _known(tokens_in), _known(tokens_out)
        )
    if mark is Mark.CALL:
        return decoded_call(body)
    if mark is Mark.LOOP:
        return _loop(body)
    return _decision(body, session) if mark is Mark.DECISION else mark


def _loop(body: bytes) -> Loop:
    key, since, action, confirmed, shown, descents, more = _LOOP.unpack_from(body)
    keys = struct.unpack(f"<{more}Q", body[_LOOP.size :])
    return Loop(
        frozenset((key, *keys)), key, _ACTIONS[int(action)], confirmed, 0, 0, shown, since, descents
    )


def _decision(body: bytes, session: str) -> Decision:
    (
        own, loop, call, time, action, severity, flags, confidence, count, threshold, period, step,
        *sizes,
    ) = _DECISION.unpack_from(body)  # fmt: skip
    if len(body) != _DECISION.size + sum(sizes):
        msg = f"{len(body)} bytes"
        raise ValueError(msg)
    texts: list[str] = []
    place = _DECISION.size
    for size in sizes:
        texts.append(body[place : place + size].decode("utf-8", "ignore"))
        place += size
    detector, reason, tool = texts
    message = f"decided before, by {detector}: {reason}" + (f", about {tool!r}" if tool else "")
    return Decision(
        id=f"{own:016x}", session=session, action=_ACTIONS[int(action)], detector=detector,
        reason=reason, severity=_SEVERITIES[int(severity)], confidence=round(confidence, 3),
        message=message, loop=f"{loop:016x}", count=round(count, 2),
        threshold=round(threshold, 2), period=period, step=step, time=time,
        fingerprint=f"{call:016x}" if flags & 2 else None, shadow=bool(flags & 1), tool=tool,
    )  # fmt: skip


def _tokens(known: int | None) -> int:
    return _UNKNOWN if known is None else min(max(known, 0), _UNKNOWN - 1)


def _known(tokens: int) -> int | None:
    return None if tokens == _UNKNOWN else tokens
