"""A tool call as the journal keeps it: its evidence, less what is content."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Effect, ErrorClass, Evidence

if TYPE_CHECKING:
    from collections.abc import Iterator

_BODY: Final = struct.Struct("<QIIIBHBfIBB")
_PLACE: Final = struct.Struct("<Qd")
_KEY: Final = struct.Struct("<Q")
_EFFECTS: Final = tuple(Effect)
_CLASSES: Final = tuple(ErrorClass)
_MOST: Final = 0xFFFF_FFFF
_SHARES: Final = 254
_NO_SHARE: Final = 255
_NAMED: Final = 64
_SAME, _TWO, _ONE = 1, 2, 3
"""Of a pair of keys: both are equal, both are there, only the first is."""
_PLACED: Final = 64
_NAMED_AGENT: Final = 128
_FAILED: Final = 256
_FILED: Final = 512
_SCORED: Final = 1024
_SIZE: Final = 159
"""Bytes of an entry; a long name of a tool is cut to what is left of them."""
_LARGEST: Final = 3.0e38


@dataclass(frozen=True, slots=True)
class CallEntry:
    """A finished tool call.

    Attributes:
        evidence: What was seen of it. Its keys are keyed digests; its number, round and epoch are
            0: whoever merges journals counts them anew. Its sample is not kept. Read back, the
            name of its tool has 64 bytes at most (21 where all keys are there), times are to a
            microsecond and its novelty to 1/254.
        took: Nanoseconds; 71 minutes at most.
        opened: Whether it changed the world.
    """

    evidence: Evidence
    took: int
    opened: bool

    def packed(self) -> bytes:
        """The entry as bytes, 159 at most."""
        seen = self.evidence
        present, keys = _packed_keys(seen)
        share = seen.novelty
        gap = _MOST if seen.gap is None else min(micros(seen.gap), _MOST - 1)
        kinds = _EFFECTS.index(seen.effect) | _CLASSES.index(seen.error_class) << 3
        if seen.failure is not None:
            present |= _FAILED
            keys += _KEY.pack(seen.failure)
        if seen.file is not None:
            present |= _FILED
            keys += _KEY.pack(seen.file)
        if seen.agent:
            present |= _NAMED_AGENT
            keys += _KEY.pack(seen.agent)
        if seen.score is not None:
            present |= _SCORED
            keys += _PLACE.pack(seen.score[0], seen.score[1])
        if seen.place is not None:
            present |= _PLACED
            keys += _PLACE.pack(seen.place[0], seen.place[1])
        named = min(_NAMED, _SIZE - _BODY.size - len(keys))
        tool = seen.tool.encode("utf-8", "replace")[:named]
        body = _BODY.pack(
            instant(seen.time), micros(self.took), gap, _flags(seen, self.opened),
            kinds, present, _NO_SHARE if share is None else round(min(max(share, 0), 1) * _SHARES),
            min(seen.ease, _LARGEST), min(seen.outcome_size, _MOST), len(keys), len(tool),
        )  # fmt: skip
        return b"%b%b%b" % (body, keys, tool)


def instant(time: int) -> int:
    """Nanoseconds since the epoch, as eight bytes can have them."""
    return min(max(time, 0), (1 << 63) - 1)


def micros(nanoseconds: int) -> int:
    """Nanoseconds as microseconds, as four bytes can have them."""
    return min(max(nanoseconds, 0) // 1000, _MOST)


def decoded_call(body: bytes) -> CallEntry:
    """Reads what `CallEntry.packed` wrote.

    Args:
        body: The bytes.

    Raises:
        ValueError: It is none.
        struct.error: It is cut short.
        IndexError: It names a kind that there is not.
        StopIteration: It has fewer keys than it says.
    """
    (time, took, gap, flags, kinds, present, share, ease, size, keyed, named) = _BODY.unpack_from(
        body
    )
    if len(body) != _BODY.size + keyed + named:
        msg = f"a call of {len(body)} bytes"
        raise ValueError(msg)
    ends = _BODY.size + keyed - (_PLACE.size if present & _PLACED else 0)
    place = _PLACE.unpack_from(body, ends) if present & _PLACED else None
    ends -= _PLACE.size if present & _SCORED else 0
    score = _PLACE.unpack_from(body, ends) if present & _SCORED else None
    ends -= _KEY.size if present & _NAMED_AGENT else 0
    agent = int(_KEY.unpack_from(body, ends)[0]) if present & _NAMED_AGENT else 0
    keys = iter(struct.unpack(f"<{(ends - _BODY.size) // 8}Q", body[_BODY.size : ends]))
    (call, exact), (outcome, outcome_exact), (line, shape) = (
        _pair(keys, present, number) for number in range(3)
    )
    failure = next(keys) if present & _FAILED else None
    file = next(keys) if present & _FILED else None
    bits = [bool(flags >> bit & 1) for bit in range(21)]
    seen = Evidence(
        number=0, tool=body[-named:].decode("utf-8", "ignore") if named else "",
        call=call, call_exact=exact, guessed=bits[0], fresh=bits[1], changed=bits[2],
        pending=bits[3], outcome=outcome, outcome_exact=outcome_exact, outcome_size=size,
        novelty=None if share == _NO_SHARE else share / _SHARES, echo=bits[4], nothing=bits[5],
        rejects=bits[6], failing=bits[7], error=bits[8], error_class=_CLASSES[int(kinds >> 3 & 7)],
        error_line=line, error_shape=shape, call_error=bits[9], effect=_EFFECTS[int(kinds & 7)],
        runs_code=bits[10], sample="", place=place, epoch=0,
        gap=None if gap == _MOST else gap * 1000, waiting=bits[11], time=time, round=0, ease=ease,
        polls=bits[13], bare=bits[14], acts=bits[15], item=bits[16], spaced=bits[17],
        agent=agent, refused=bits[18], idle=bits[19], failure=failure, file=file, score=score,
        revises=bits[20],
    )  # fmt: skip
    return CallEntry(seen, took * 1000, bits[12])


def _packed_keys(seen: Evidence) -> tuple[int, bytes]:
    """Two bits for each pair of keys, and the keys; of two equal ones, one."""
    present = 0
    keys: list[int] = []
    pairs = (
        (seen.call, seen.call_exact),
        (seen.outcome, seen.outcome_exact),
        (seen.error_line, seen.error_shape),
    )
    for place, (one, other) in enumerate(pairs):
        if one is None:
            continue
        keys.append(one)
        if other is not None and other != one:
            keys.append(other)
        present |= (_ONE if other is None else _SAME if other == one else _TWO) << 2 * place
    return present, struct.pack(f"<{len(keys)}Q", *keys)


def _pair(keys: Iterator[int], present: int, place: int) -> tuple[int | None, int | None]:
    how = present >> 2 * place & 3
    one = next(keys) if how else None
    if how == _TWO:
        return one, next(keys)
    return one, one if how == _SAME else None


def _flags(seen: Evidence, opened: bool) -> int:
    return (
        seen.guessed | seen.fresh << 1 | seen.changed << 2 | seen.pending << 3 | seen.echo << 4
        | seen.nothing << 5 | seen.rejects << 6 | seen.failing << 7 | seen.error << 8
        | seen.call_error << 9 | seen.runs_code << 10 | seen.waiting << 11 | opened << 12
        | seen.polls << 13 | seen.bare << 14 | seen.acts << 15 | seen.item << 16
        | seen.spaced << 17 | seen.refused << 18 | seen.idle << 19 | seen.revises << 20
    )  # fmt: skip
