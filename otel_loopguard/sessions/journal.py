"""The journal of a session: compact, versioned, without content."""

from __future__ import annotations

import hashlib
import secrets
import struct
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

import xxhash

from otel_loopguard.core import Action, Decision, Effect, ErrorClass, Evidence, Kind, Severity
from otel_loopguard.evidence import Rounds
from otel_loopguard.policy import Loop, Policy
from otel_loopguard.sessions.detector_set import DetectorSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core import Detection, Progress, Step
    from otel_loopguard.detectors import Registry
    from otel_loopguard.settings import Settings

_SINGLE: Final = ("error_line", "error_shape", "failure", "file")
_UNSIGNED: Final = 0xFFFF_FFFF_FFFF_FFFF


class Pseudonymizer:
    """Turns keys of 64 bits into keyed digests of 64 bits (BLAKE2b), at 0.7 µs each.

    The keys of evidence are xxhash, which anybody can compute; with a secret seed it is no better,
    for the seed can be computed from one known text and its hash. So the 8 bytes are hashed once
    more, with a key that is not in the store.

    Attributes:
        id: Two bytes that tell the key.
        lasting: Whether another process can have the same key.
    """

    __slots__ = ("_keyed", "id", "lasting")

    def __init__(self, key: str) -> None:
        given = hashlib.blake2b(key.encode("utf-8", "surrogatepass")).digest()
        secret = given if key else secrets.token_bytes(32)
        self.lasting = bool(key)
        self.id = hashlib.blake2b(b"loopguard journal", key=secret, digest_size=2).digest()
        self._keyed = hashlib.blake2b(key=secret, digest_size=8)

    def of(self, key: int) -> int:
        """The digest of one key."""
        keyed = self._keyed.copy()
        keyed.update((key & _UNSIGNED).to_bytes(8, "big"))
        return int.from_bytes(keyed.digest(), "big")

    def call(self, seen: Evidence) -> None:
        """Replaces the keys of a call by their digests."""
        of, call, exact, outcome = self.of, seen.call, seen.call_exact, seen.outcome
        if call is not None:
            seen.call = of(call)
        if exact is not None:
            seen.call_exact = seen.call if exact == call else of(exact)
        if outcome is not None:
            seen.outcome = of(outcome)
        if seen.outcome_exact is not None:
            seen.outcome_exact = (
                seen.outcome if seen.outcome_exact == outcome else of(seen.outcome_exact)
            )
        for name in _SINGLE:
            key: int | None = getattr(seen, name)
            if key is not None:
                setattr(seen, name, of(key))
        if seen.agent:
            seen.agent = of(seen.agent)
        if seen.score is not None:
            seen.score = (of(seen.score[0]), seen.score[1])
        if seen.place is not None:
            seen.place = (of(seen.place[0]), seen.place[1])

    def detection(self, found: Detection) -> Detection:
        """A detection with its keys replaced; one that names none is known by its rule."""
        keys = found.keys or frozenset({self._rule(found)})
        return replace(found, keys=frozenset(map(self.of, keys)))

    def _rule(self, found: Detection) -> int:
        raw = hashlib.blake2b(f"{found.detector}\0{found.reason}".encode(), digest_size=8)
        return int.from_bytes(raw.digest(), "big")


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
    """Reads what `CallEntry.packed` wrote."""
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
_UNKNOWN: Final = _MOST


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
    """Writes and reads entries."""

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
        """Reads an entry; never throws, whatever it is."""
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


Written = tuple[str, bytes]
"""Id and value of an entry."""

Noted = tuple[str, bytes | CallEntry]
"""The same, with calls that are still to be packed: that is not done where steps end."""

_REMEMBERED: Final = 128
_WORDINGS: Final = 4


class Answers(NamedTuple):
    """What the past knows of one call.

    Attributes:
        outcomes: Keys of its newest answers, four at most, the newest last.
        waiting: Whether it was waiting when it was made last.
        pending: Whether it may have been waiting then.
    """

    outcomes: tuple[int | None, ...]
    waiting: bool
    pending: bool


class Known:
    """The answers of the newest 128 different calls of the past."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        self._calls: OrderedDict[int, Answers] = OrderedDict()

    def note(self, seen: Evidence) -> None:
        """Notes a call of the past."""
        if seen.call is None:
            return
        before = self._calls.pop(seen.call, None)
        outcomes = () if before is None else before.outcomes[1 - _WORDINGS :]
        self._calls[seen.call] = Answers((*outcomes, seen.outcome), seen.waiting, seen.pending)
        if len(self._calls) > _REMEMBERED:
            self._calls.popitem(last=False)

    def tell(self, seen: Evidence) -> None:
        """A call that this process has not seen before is none that is made for the first time.

        Who polled before the restart still does: an unchanged answer is taken as it was then.
        """
        past = self._calls.pop(seen.call or 0, None)
        if past is None or not seen.fresh:
            return
        seen.fresh = False
        outcome = seen.outcome
        seen.changed = (
            outcome is not None and None not in past.outcomes and (outcome not in past.outcomes)
        )
        if outcome is not None and outcome in past.outcomes and seen.novelty is not None:
            seen.novelty = 0.0
        if outcome is not None and outcome == past.outcomes[-1]:
            seen.waiting, seen.pending = seen.waiting or past.waiting, seen.pending or past.pending


class Before(NamedTuple):
    """What comes before the steps of this process, added to the numbers of its own.

    Attributes:
        calls: Tool calls.
        epochs: Changes of the world.
        rounds: Rounds.
    """

    calls: int = 0
    epochs: int = 0
    rounds: int = 0


class JournalBuffer:
    """The newest `journal.steps` (1000) entries of one session, own ones and those of others.

    Not thread-safe: the guard's lock is held.

    Attributes:
        entries: Id and value of each that was handed on, or is of others.
        pending: Those that are still to be handed on, in order; not among `entries`.
        since: Those that came since others' were asked for; None while nobody asks.
        before: What comes before the steps of this process.
        known: Calls of the past that this process has not made yet.
        round: Number that the newest round has in this process.
        after: Id of the entry that the store was read to; None at first.
        looks: How often others are still to be looked for, without a step of this process.
        told: Id of the decision of another process, or of before, that the flag stands for.
    """

    __slots__ = (
        "_codec", "_cover", "_moment", "_number", "_process", "after", "before", "entries",
        "known", "looks", "pending", "round", "since", "told",
    )  # fmt: skip

    def __init__(self, cover: Pseudonymizer, size: int) -> None:
        self._cover = cover
        self._codec = Codec(cover.id)
        self._process = secrets.token_hex(4)
        self._moment = self._number = 0
        self.entries: deque[Written] = deque(maxlen=size)
        self.pending: list[Noted] = []
        self.since: list[Noted] | None = None
        self.before = Before()
        self.known: Known | None = None
        self.round = 0
        self.after: str | None = None
        self.looks = 0
        self.told: str | None = None

    def call(self, step: Step, seen: Evidence, *, opened: bool) -> None:
        """Covers the keys of a call, numbers it after what comes before, and writes it down."""
        before = self.before
        self.round = seen.round
        self._cover.call(seen)
        seen.number += before.calls
        seen.epoch += before.epochs
        seen.round += before.rounds
        if self.known is not None:
            self.known.tell(seen)
        took = seen.time - step.start if step.start else 0
        self._add(CallEntry(seen, took, opened), seen.time)

    def step(self, step: Step) -> None:
        """Writes a step down that is no tool call."""
        self._add(self._codec.step(step), step.end or 0)

    def loops(self, loops: Iterable[Loop]) -> None:
        """Writes down where loops stand."""
        for loop in loops:
            self._add(self._codec.loop(loop))

    def decided(self, decision: Decision) -> None:
        """Writes a decision down."""
        self._add(self._codec.decision(decision))

    def mark(self, mark: Mark) -> None:
        """Writes a mark down."""
        self._add(self._codec.mark(mark), time.time_ns())

    def covered(self, found: Sequence[Detection]) -> list[Detection]:
        """Detections by other evidence than calls, with their keys covered."""
        return [self._cover.detection(one) for one in found]

    def cover(self, key: int) -> int:
        """The digest of a key."""
        return self._cover.of(key)

    def follow(self, known: Known, calls: int, epochs: int, rounds: int, own: Progress) -> None:
        """Numbers what comes after the past."""
        self.known = known
        self.before = Before(calls - own.calls, epochs - own.epoch, rounds - self.round)

    def start_over(self) -> None:
        """The session has another key: under that nothing is written yet, nor read."""
        self.pending = [*self.entries, *self.pending]
        self.entries.clear()
        self.after = None

    def take(self) -> list[Noted]:
        """What is still to be handed on, given once; then `packed`, and told to `keep`."""
        pending, self.pending = self.pending, []
        return pending

    def packed(self, noted: Iterable[Noted]) -> list[Written]:
        """Entries as they are stored. Needs no lock."""
        pack = self._codec.call
        return [(name, value if isinstance(value, bytes) else pack(value)) for name, value in noted]

    def keep(self, written: Iterable[Written]) -> None:
        """Remembers what was handed on."""
        self.entries.extend(written)

    def _add(self, value: bytes | CallEntry, moment: int = 0) -> None:
        """Adds an entry; without a moment of its own it belongs to the entry before."""
        moment = self._moment = instant(moment) or self._moment or time.time_ns()
        self._number += 1
        # Ids sort by time, and of one process in the order of writing.
        name = f"{moment:016x}-{self._process}{self._number & 0xFFFF_FFFF:08x}"
        self.pending.append((name, value))
        if self.since is not None:
            self.since.append((name, value))


_LASTING: Final = (Action.PAUSE, Action.ABORT)


class JournalReplay:
    """Takes the entries of a session in order of time; whatever decides is not asked again.

    Calls are numbered anew, and so are rounds and epochs, so that the steps of several processes
    are one row. Detectors see every call. What they find is not judged: loops stand where the
    entries say that they stood, and what the user did or a success took back is done again. The
    arguments are gone: a number stands in their place, so that short equal answers count as those
    of many items (they are no sign of a loop).

    Attributes:
        detectors: Detectors that have seen the calls.
        policy: Has the loops.
        known: The newest calls and their answers.
        calls: Tool calls.
        epochs: Changes of the world.
        round: Number of the newest round.
        standing: The decision that the flag stood for; None if it was down.
        troubled: Whether anything was detected.
    """

    def __init__(self, settings: Settings, registry: Registry, faults: InternalErrors) -> None:
        self._settings = settings
        self._rounds = Rounds()
        self.detectors = DetectorSet(registry, settings, faults)
        self.policy = Policy(settings)
        self.known = Known()
        self.calls = self.epochs = self.round = 0
        self.standing: Decision | None = None
        self.troubled = False

    def take(self, entry: Entry) -> None:
        """Takes the next entry."""
        if isinstance(entry, CallEntry):
            self._call(entry)
        elif isinstance(entry, Loop):
            self.troubled = True
            entry.last, entry.moment = self.calls - 1, self.round
            self.policy.recall(entry)
        elif isinstance(entry, Decision):
            self._decided(entry)
        elif isinstance(entry, Mark):
            self._marked(entry)

    def _call(self, entry: CallEntry) -> None:
        seen = entry.evidence
        seen.number, seen.epoch, seen.sample = self.calls, self.epochs, str(self.calls)
        seen.round = self.round = self._rounds.add(max(seen.time - entry.took, 0), seen.time)
        self.known.note(seen)
        if seen.tool not in self._settings.exempt:
            self.detectors.observe(seen)
            self._calm(seen, opened=entry.opened)
        self.calls += 1
        self.epochs += entry.opened

    def _calm(self, seen: Evidence, *, opened: bool) -> None:
        """What a success takes back. A call that showed a loop has an entry of it behind it."""
        if not self.troubled:
            return
        if seen.call is not None and seen.changed and not seen.error:
            self.policy.moved(seen.call)
        new = (
            seen.novelty is not None
            and seen.novelty >= self._settings.tuning.policy.descend_novelty
        )
        succeeded = not (seen.error or seen.waiting) and (new or opened)
        self.policy.calm(seen.number, succeeded=succeeded)

    def _decided(self, decision: Decision) -> None:
        self.troubled = True
        self.policy.ended = self.policy.ended or decision.action is Action.ABORT
        if decision.shadow:
            return
        standing = self.standing
        if standing is None or decision.action.rank >= standing.action.rank:
            self.standing = decision

    def _marked(self, mark: Mark) -> None:
        if mark in (Mark.LOWERED, Mark.RESTORED):
            lasts = self.standing is not None and self.standing.action in _LASTING
            self.standing = self.standing if lasts else None
            if mark is Mark.RESTORED:
                self._restored(lasts=lasts)
            return
        stopped = self.standing is not None and self.standing.action.stops
        if mark is Mark.CLEARED or self.policy.ended or stopped:
            self.policy.start_over()
        self.standing = None
        self.detectors.user_turn()
        self.policy.user_turn()

    def _restored(self, *, lasts: bool) -> None:
        """Copies of the state are not in the journal: what was done before is forgotten."""
        self.detectors.restore({}, {})
        self.known = Known()
        self.epochs += 1
        if not (lasts or self.policy.ended):
            self.policy.start_over()
