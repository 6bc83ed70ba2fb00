"""The journal of a session: its newest entries, and the state that earlier entries restore.

Entries are stored as compact, versioned bytes without content. The fields of `Evidence` that
survive follow from its declaration: a bit per `bool` and a keyed digest per `Key`, in their order.
A change of that order needs a new `VERSION`; a new field at the end does not.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections import deque
from contextlib import suppress
from dataclasses import fields, replace
from enum import IntEnum
from itertools import compress
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import xxhash

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.clock import now as clock
from otel_loopguard._util.clock import was_set_back
from otel_loopguard._util.text import StrEnum
from otel_loopguard.core import Action, Decision, Detection
from otel_loopguard.core.decision import Severity
from otel_loopguard.core.evidence import Effect, ErrorClass, Evidence
from otel_loopguard.detectors import DetectorSet, Registry
from otel_loopguard.evidence import NEWS, Rounds
from otel_loopguard.evidence.normalize import CALLS
from otel_loopguard.evidence.weight import Pace, RepeatBaseline, Since, weigh
from otel_loopguard.policy import Loop, Policy
from otel_loopguard.sessions.decisions import is_about

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from otel_loopguard._util.errors import InternalErrors
    from otel_loopguard.core.progress import Progress
    from otel_loopguard.settings import Settings

VERSION: Final = 5
"""Version that is written; entries of other versions are not read."""

_DECLARED: Final = {field.name: str(field.type) for field in fields(Evidence) if field.init}
_FLAGS: Final = tuple(name for name, kind in _DECLARED.items() if kind == "bool")
_KEYS: Final = tuple(name for name, kind in _DECLARED.items() if kind in ("Key", "Key | None"))
_PAIRS: Final = tuple(name for name, kind in _DECLARED.items() if kind.startswith("tuple[Key,"))
_flags_of: Final = attrgetter(*_FLAGS)
_keys_of: Final = attrgetter(*_KEYS)
_pairs_of: Final = attrgetter(*_PAIRS)
_is_there: Final = itemgetter(1)
_BITS: Final = tuple(1 << place for place in range(1, len(_FLAGS) + 1))
_SAME: Final = 16
"""Above the bit that says that a key is there: whether it is the key before."""
_PAIRED: Final = 12
"""The first bit that says that a pair is there; below are those of twelve keys."""
# The largest numbers that fields of eight, four and two bytes and a float of four bytes hold.
_UNSIGNED: Final = 0xFFFF_FFFF_FFFF_FFFF
_MOST: Final = 0xFFFF_FFFF
_SHORT: Final = 0xFFFF
_LARGEST: Final = 3.0e38
# A share of 0 to 1 in one byte, of which the last value says that there is none.
_SHARES: Final = 254
_NO_SHARE: Final = 255
_SIZE: Final = 159
"""Bytes of the body of a call; the name of its tool is cut to what is left of them, 64 at most."""
_NAMED: Final = 64
"""Bytes of a tool's name: OpenAI allows no longer ones; of others the head tells enough."""
_LOOP_KEYS: Final = 32
"""Keys of a loop that are written down, 8 bytes each: a cycle has two for each of sixteen calls."""
_TEXTS: Final = (("detector", 32), ("reason", 32), ("tool", 36))
"""Texts of a decision, and how many bytes of each are kept."""

_HEAD: Final = struct.Struct("<BB2sI")
_CALL: Final = struct.Struct("<QIBBHIIBBfIB")
_LOOP: Final = struct.Struct("<QQBfHHHB")
_DECISION: Final = struct.Struct("<QQQQBBBfffHI")
_PAIR: Final = struct.Struct("<Qd")
_WORDS: Final = tuple(struct.Struct(f"<{count}Q") for count in range(len(_KEYS) + 1))
"""Reads a number of keys."""
_EFFECTS: Final = tuple(Effect)
_CLASSES: Final = tuple(ErrorClass)
_ACTIONS: Final = tuple(Action)
_SEVERITIES: Final = tuple(Severity)


class Pseudonymizer:
    """Turns keys of 64 bits into keyed digests of 64 bits (BLAKE2b), at 0.7 µs each.

    The keys of evidence are xxhash, which anybody can compute; with a secret seed it is no better,
    for the seed can be computed from one known text and its hash. So the 8 bytes are hashed once
    more, with a key that is not in the store.
    """

    __slots__ = ("_keyed", "id")

    def __init__(self, key: str) -> None:
        given = hashlib.blake2b(key.encode("utf-8", "surrogatepass")).digest()
        secret = given if key else secrets.token_bytes(32)
        # Two bytes that tell whether another process has the same key.
        self.id = hashlib.blake2b(b"loopguard journal", key=secret, digest_size=2).digest()
        self._keyed = hashlib.blake2b(key=secret, digest_size=8)

    def of(self, key: int) -> int:
        """The digest of one key."""
        keyed = self._keyed.copy()
        keyed.update((key & _UNSIGNED).to_bytes(8, "big"))
        return int.from_bytes(keyed.digest(), "big")

    def call(self, seen: Evidence) -> None:
        """Replaces the keys of a call by their digests."""
        before = digest = 0
        for name, key in filter(_is_there, zip(_KEYS, _keys_of(seen), strict=True)):
            if key != before:  # mostly the exact key is the key
                before, digest = key, self.of(key)
            setattr(seen, name, digest)
        for name, (key, value) in filter(_is_there, zip(_PAIRS, _pairs_of(seen), strict=True)):
            setattr(seen, name, (self.of(key), value))

    def detection(self, found: Detection) -> Detection:
        """A detection with its keys replaced; one that names none is known by its rule."""
        keys = found.keys or frozenset({self._rule(found)})
        return replace(found, keys=frozenset(map(self.of, keys)))

    def _rule(self, found: Detection) -> int:
        raw = hashlib.blake2b(f"{found.detector}\0{found.reason}".encode(), digest_size=8)
        return int.from_bytes(raw.digest(), "big")


class Unread(StrEnum):
    """Why an entry was not read."""

    CORRUPTED = "corrupted"
    NEWER = "of a newer version"
    OLDER = "of an older version"
    FOREIGN = "written with another digest_key"


class Mark(IntEnum):
    """Kind of an entry; the last four have no body and mark what happened between two steps.

    These are the user's next turn, a person letting the session continue, a flag that went down by
    itself, and a return to a checkpoint.
    """

    CALL = 1
    LOOP = 2
    DECISION = 3
    TURN = 4
    CLEARED = 5
    LOWERED = 6
    RESTORED = 7


class CallEntry(NamedTuple):
    """A finished tool call; the keys of its evidence are keyed digests.

    Number, round and epoch are 0, as merging journals counts them anew. Its sample is not kept.
    Read back, times are to a microsecond and its novelty to 1/254.
    """

    evidence: Evidence
    # Nanoseconds, 71 minutes at most; and whether it changed the world.
    took: int
    opened: bool


Entry = CallEntry | Loop | Decision | Mark
"""An entry: a call, the position of a loop, a decision, or a mark."""


def instant(time: int) -> int:
    """Nanoseconds since the epoch, as eight bytes can have them."""
    return min(max(time, 0), (1 << 63) - 1)


class Codec:
    """Writes and reads entries."""

    __slots__ = ("_key_id",)

    def __init__(self, key_id: bytes) -> None:
        self._key_id = key_id[:2]

    def call(self, entry: CallEntry) -> bytes:
        """A tool call, 167 bytes at most."""
        seen, took, opened = entry
        present, keys = _packed_keys(seen)
        share = seen.novelty
        tool = seen.tool.encode("utf-8", "replace")
        tool = tool[: max(min(_NAMED, _SIZE - _CALL.size - len(keys)), 0)]
        body = _CALL.pack(
            instant(seen.time), min(max(took, 0) // 1000, _MOST),
            _share_of(seen.rested), _share_of(seen.hint_weight), round(seen.stop_weight * _SHORT),
            sum(compress(_BITS, _flags_of(seen)), int(opened)), present,
            _EFFECTS.index(seen.effect) | _CLASSES.index(seen.error_class) << 3,
            _NO_SHARE if share is None else _share_of(share),
            min(seen.ease, _LARGEST), min(seen.outcome_size, _MOST), len(tool),
        )  # fmt: skip
        return self._sealed(Mark.CALL, body + keys + tool)

    def loop(self, loop: Loop) -> bytes:
        """Position of a loop on the ladder, with at most 32 of its keys."""
        keys = sorted(loop.keys - {loop.id})[: _LOOP_KEYS - 1]
        body = _LOOP.pack(
            loop.id, instant(loop.since), _ACTIONS.index(loop.action), loop.confirmed,
            min(loop.rounds, _SHORT), min(loop.shown, _SHORT), min(loop.descents, _SHORT),
            len(keys),
        )  # fmt: skip
        return self._sealed(Mark.LOOP, body + struct.pack(f"<{len(keys)}Q", *keys))

    def decision(self, decision: Decision) -> bytes:
        """A decision, without its message."""
        body = _DECISION.pack(
            int(decision.id, 16), int(decision.loop, 16), int(decision.fingerprint or "0", 16),
            instant(decision.time), decision.action.rank, decision.severity.rank,
            decision.shadow | (decision.fingerprint is not None) << 1, decision.confidence,
            min(decision.count, _LARGEST), min(decision.threshold, _LARGEST),
            min(decision.period, _SHORT), min(decision.step, _MOST),
        )  # fmt: skip
        texts = (
            str(getattr(decision, name)).replace("\0", " ").encode("utf-8", "replace")[:most]
            for name, most in _TEXTS
        )
        return self._sealed(Mark.DECISION, body + b"\0".join(texts))

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
        except (struct.error, ValueError, IndexError):
            return Unread.CORRUPTED

    def _sealed(self, mark: Mark, body: bytes) -> bytes:
        head = bytes((VERSION, mark)) + self._key_id
        return head + xxhash.xxh32_intdigest(head + body).to_bytes(4, "little") + body


def _entry(mark: Mark, body: bytes, session: str) -> Entry:
    if mark is Mark.CALL:
        return _call(body)
    if mark is Mark.LOOP:
        return _loop(body)
    return _decision(body, session) if mark is Mark.DECISION else mark


def _packed_keys(seen: Evidence) -> tuple[int, bytes]:
    """Which keys are there, and those; one that is equal to the one before is not written again."""
    present, bit = 0, 1
    keys: list[int] = []
    for key in _keys_of(seen):
        if key:
            present |= bit
            if keys and keys[-1] == key:
                present |= bit << _SAME
            else:
                keys.append(key)
        bit <<= 1
    packed = _WORDS[len(keys)].pack(*keys)
    for place, pair in enumerate(_pairs_of(seen), _PAIRED):
        if pair is not None:
            present |= 1 << place
            packed += _PAIR.pack(*pair)
    return present, packed


def _call(body: bytes) -> CallEntry:
    (
        time, took, rested, hint, stop, flags, present, kinds, share, ease, size, named,
    ) = _CALL.unpack_from(body)  # fmt: skip
    found: dict[str, Any] = {name: bool(flags >> place & 1) for place, name in enumerate(_FLAGS, 1)}
    at, key = _CALL.size, 0
    for place, name in enumerate(_KEYS):
        there = present >> place & 1
        if there and not present >> place + _SAME & 1:
            (key,) = struct.unpack_from("<Q", body, at)
            at += 8
        found[name] = key if there else _NO_KEY[name]
    for place, name in enumerate(_PAIRS, _PAIRED):
        there = present >> place & 1
        found[name] = _PAIR.unpack_from(body, at) if there else None
        at += 16 * there
    if len(body) != at + named:
        raise ValueError(f"a call of {len(body)} bytes")
    seen = Evidence(
        number=0, tool=body[at:].decode("utf-8", "ignore"), outcome_size=size,
        novelty=None if share == _NO_SHARE else share / _SHARES,
        error_class=_CLASSES[int(kinds) >> 3], effect=_EFFECTS[int(kinds) & 7], sample="", epoch=0,
        rested=rested / _SHARES, hint_weight=hint / _SHARES, stop_weight=stop / _SHORT,
        time=time, round=0, ease=ease, **found,
    )  # fmt: skip
    return CallEntry(seen, took * 1000, bool(flags & 1))


_NO_KEY: Final = {name: None if "None" in _DECLARED[name] else 0 for name in _KEYS}


def _loop(body: bytes) -> Loop:
    key, since, action, confirmed, rounds, shown, descents, more = _LOOP.unpack_from(body)
    keys = struct.unpack(f"<{more}Q", body[_LOOP.size :])
    return Loop(
        frozenset((key, *keys)), key, _ACTIONS[int(action)], confirmed, 0, 0, shown, since,
        descents, rounds=rounds,
    )  # fmt: skip


def _decision(body: bytes, session: str) -> Decision:
    (
        own, loop, call, time, action, severity, flags, confidence, count, threshold, period, step,
    ) = _DECISION.unpack_from(body)  # fmt: skip
    texts = body[_DECISION.size :].split(b"\0")
    detector, reason, tool = (text.decode("utf-8", "ignore") for text in texts)
    message = f"decided before, by {detector}: {reason}" + (f", about {tool!r}" if tool else "")
    return Decision(
        id=f"{own:016x}", session=session, action=_ACTIONS[int(action)], detector=detector,
        reason=reason, severity=_SEVERITIES[int(severity)], confidence=round(confidence, 3),
        message=message, loop=f"{loop:016x}", count=round(count, 2),
        threshold=round(threshold, 2), period=period, step=step, time=time,
        fingerprint=f"{call:016x}" if flags & 2 else None, shadow=bool(flags & 1), tool=tool,
    )  # fmt: skip


def _share_of(share: float) -> int:
    return round(min(max(share, 0.0), 1.0) * _SHARES)


Written = tuple[str, bytes]
"""Id and value of an entry."""

Noted = tuple[str, bytes | CallEntry]
"""As above, with calls that are not packed yet: packing is kept away from the end of steps."""

MarkName = Literal["TURN", "CLEARED", "LOWERED", "RESTORED"]


class Known:
    """Knowledge from earlier entries about the calls that follow.

    Attributes:
        turn: The number of the user's turn.
    """

    __slots__ = ("_answers", "_last", "habits", "pace", "turn")

    def __init__(self) -> None:
        self.pace, self.habits = Pace(), RepeatBaseline()
        self.turn = 0
        self._last: dict[str, int | None] = {}
        self._answers: dict[int | None, None] = {}

    def note(self, seen: Evidence, took: int) -> Since:
        """Notes a call, and says what was between it and the same call before."""
        return self.pace.add(seen, max(seen.time - took, 0) if took else 0, turn=self.turn)

    def add(self, seen: Evidence, took: int) -> None:
        """Adds a call of the past."""
        self.habits.ease(seen, self.note(seen, took))
        keep(self._last, seen.tool, seen.call, CALLS)
        keep(self._answers, seen.outcome, None, CALLS)

    def tell(self, seen: Evidence, took: int) -> bool:
        """Corrects what this process takes for a first call, by those of earlier processes.

        True if it was made before, and had this outcome.
        """
        if seen.novelty and seen.outcome in self._answers:
            seen.novelty = 0.0
        since, last = self.note(seen, took), self._last.get(seen.tool)
        keep(self._last, seen.tool, seen.call, CALLS)
        if since.fresh or not seen.fresh:
            return False
        before = self.habits.of(seen)
        seen.ease *= self.habits.ease(seen, since) / before
        seen.fresh, seen.changed = False, since.changed
        seen.item = seen.item and last != seen.call
        seen.absent = seen.brief = False
        if since.equal and seen.novelty is not None:
            seen.novelty = 0.0
        weigh(seen, since)
        return since.equal


class Before(NamedTuple):
    """Calls, changes of the world and rounds before those of this process, added to its own."""

    calls: int = 0
    epochs: int = 0
    rounds: int = 0


class JournalBuffer:
    """The newest `journal.steps` (1000) entries of one session, own ones and those of others."""

    __slots__ = (
        "_codec", "_cover", "_moment", "_number", "_process", "after", "before", "cover",
        "decision_id", "entries", "known", "looks", "pending", "round", "since",
    )  # fmt: skip

    def __init__(self, cover: Pseudonymizer, size: int) -> None:
        self._cover = cover
        self.cover = cover.of  # the digest of a key
        self._codec = Codec(cover.id)
        self._process = secrets.token_hex(4)
        self._moment = self._number = 0
        # Those handed on or of others, and those still to be handed on, in order.
        self.entries: deque[Written] = deque(maxlen=size)
        self.pending: list[Noted] = []
        # Those that came since others' were asked for; None while nobody asks.
        self.since: list[Noted] | None = None
        self.before = Before()
        # Calls of the past that this process has not made yet, and its newest round.
        self.known: Known | None = None
        self.round = 0
        # The entry that the store was read to, and how often it is still to be read.
        self.after: str | None = None
        self.looks = 0
        # The decision of another process, or of before, that the flag stands for.
        self.decision_id: str | None = None

    def call(self, seen: Evidence, *, opened: bool) -> None:
        """Covers the keys of a call, numbers it after what comes before, and writes it down."""
        before = self.before
        self.round = seen.round
        self._cover.call(seen)
        seen.number += before.calls
        seen.epoch += before.epochs
        seen.round += before.rounds
        # Not 0, which says that it is not known: a command may do nothing but sleep.
        took = max(seen.time - seen.began, 1_000) if seen.began else 0
        if self.known is not None and self.known.tell(seen, took) and opened:
            # It was changed so before, which this process does not know.
            opened = False
            self.before = before._replace(epochs=before.epochs - 1)
        self._add(CallEntry(seen, took, opened), seen.time)

    def loops(self, loops: Iterable[Loop]) -> None:
        """Writes down where loops stand."""
        for loop in loops:
            self._add(self._codec.loop(loop))

    def decided(self, decision: Decision) -> None:
        """Writes a decision down."""
        self._add(self._codec.decision(decision))

    def mark(self, name: MarkName, moment: int = 0) -> None:
        """Writes down what happened between two steps; now, where their clock does not say when."""
        if self.known is not None:
            self.known.turn += name == "TURN"
        self._add(self._codec.mark(Mark[name]), moment or max(clock(), self._moment))

    def covered(self, found: Sequence[Detection]) -> list[Detection]:
        """Detections by other evidence than calls, with their keys covered."""
        return [self._cover.detection(one) for one in found]

    def follow(self, known: Known, calls: int, epochs: int, rounds: int, own: Progress) -> None:
        """Numbers what comes after the past."""
        self.known = known
        self.before = Before(calls - own.calls, epochs - own.epoch, rounds - self.round)

    def wrote(self, name: str) -> bool:
        """True if the entry with this id was written here, so that its call is already counted."""
        return name.startswith(self._process, 17)

    def start_over(self) -> None:
        """The session has another key: under that nothing is written yet, nor read."""
        self.pending = [*self.entries, *self.pending]
        self.entries.clear()
        self.after = None

    def goes_on(self, name: str) -> None:
        """Has what is written next sort after an entry that was read, whatever its clock said."""
        with suppress(ValueError):
            self._moment = max(self._moment, instant(int(name[:16], 16) + 1))

    def take(self) -> list[Noted]:
        """Hands over the entries to write, once; later they are `packed` into `entries`."""
        pending, self.pending = self.pending, []
        return pending

    def packed(self, noted: Iterable[Noted]) -> list[Written]:
        """Entries as they are stored. Needs no lock."""
        pack = self._codec.call
        return [(name, value if isinstance(value, bytes) else pack(value)) for name, value in noted]

    def _add(self, value: bytes | CallEntry, moment: int = 0) -> None:
        """Adds an entry; without a moment of its own it belongs to the entry before."""
        moment = instant(moment) or self._moment or clock()
        if was_set_back(self._moment, moment):
            # What is written now comes after what was.
            moment = self._moment
        self._moment = moment
        self._number += 1
        # Ids sort by time, and of one process in the order of writing; `wrote` knows them by it.
        name = f"{moment:016x}-{self._process}{self._number & 0xFFFF_FFFF:08x}"
        self.pending.append((name, value))
        if self.since is not None:
            self.since.append((name, value))


_LASTING: Final = (Action.PAUSE, Action.ABORT)
_DENIED: Final = 32
"""Denies that are known: one for each loop that a policy remembers."""


class JournalReplay:
    """Restores a session from entries in order of time; nothing is decided again.

    Calls, rounds and epochs get new numbers, so that the steps of several processes form one row.
    Detectors see every call, but their findings are not judged: loops stand where the entries say,
    and what the user did or a success took back is applied again. Arguments are not stored, so a
    number replaces them, and short equal answers count as answers about many items (no sign of a
    loop).
    """

    def __init__(self, settings: Settings, registry: Registry, faults: InternalErrors) -> None:
        self._settings = settings
        self.rounds = Rounds()
        self.detectors = DetectorSet(registry, settings, faults)
        self.policy = Policy(settings)
        self.known = Known()
        # By tool how far the times that its calls name are ahead of the clock.
        self.tools: dict[str, float | None] = {}
        self.calls = self.epochs = self.round = 0
        # The decision that the flag stood for; None if it was down.
        self.standing: Decision | None = None
        self.troubled = False
        # Denies since the loops began: a flag that went down leaves the loops denied.
        self.denied: deque[Decision] = deque(maxlen=_DENIED)
        # Loops whose rung was only noted by a guard in mode shadow: nobody has heard it.
        self._noted: set[int] = set()
        # The newest call and whether it succeeded: it calms loops, unless it shows one.
        self._calming: tuple[int, bool] | None = None

    def take(self, entry: Entry) -> None:
        """Takes the next entry."""
        if isinstance(entry, Loop):
            self._calming = None
        self.settle()
        if isinstance(entry, CallEntry):
            self._call(entry)
        elif isinstance(entry, Loop):
            self.troubled = True
            entry.last, entry.moment = self.calls - 1, self.round
            entry.newest = 1.0  # what its round weighs at most: calls side by side confirm once
            if entry.id in self._noted:
                entry.action = Action.ALLOW
            self.policy.recall(entry)
        elif isinstance(entry, Decision):
            self._decided(entry)
        else:
            self._marked(entry)

    def settle(self) -> None:
        """Lowers loops after a success that showed none: the entry of a loop follows its call."""
        if self._calming is not None:
            number, succeeded = self._calming
            self._calming = None
            self.policy.calm(number, succeeded=succeeded)

    def _call(self, entry: CallEntry) -> None:
        seen = entry.evidence
        seen.number, seen.epoch, seen.sample = self.calls, self.epochs, str(self.calls)
        seen.round = self.round = self.rounds.add(max(seen.time - entry.took, 0), seen.time)
        self.known.add(seen, entry.took)
        ahead = self.tools.get(seen.tool) if seen.ahead is None else seen.ahead[1]
        keep(self.tools, seen.tool, ahead, CALLS)
        if seen.tool not in self._settings.exempt:
            self.detectors.observe(seen)
            self._calm(seen, opened=entry.opened)
        self.calls += 1
        self.epochs += entry.opened

    def _calm(self, seen: Evidence, *, opened: bool) -> None:
        if not self.troubled:
            return
        if seen.call is not None and seen.changed and not seen.error:
            self.policy.moved(seen.call)
        new = seen.novelty is not None and seen.novelty >= NEWS
        succeeded = not (seen.error or seen.waits) and (new or opened)
        self._calming = seen.number, succeeded

    def _decided(self, decision: Decision) -> None:
        self.troubled = True
        shadow = decision.shadow and self._settings.mode != "shadow"
        for loop in self.policy.shown(self.round):
            if is_about(decision, loop, self._settings):
                loop.decision = "" if decision.shadow else decision.id
                if shadow:
                    loop.action = Action.ALLOW
                    self._noted.add(loop.id)
                else:
                    self._noted.discard(loop.id)
        if not shadow:
            self.policy.ended = self.policy.ended or decision.action is Action.ABORT
        if decision.shadow:
            return
        if decision.action is Action.DENY:
            self.denied.append(decision)
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
        if mark is Mark.CLEARED or self.policy.stops or stopped:
            self.policy.start_over()
            self.denied.clear()
        self.standing = None
        self.known.turn += mark is Mark.TURN
        self.detectors.user_turn()
        self.policy.user_turn()

    def _restored(self, *, lasts: bool) -> None:
        """Forgets what was done before: the journal has no copies of the state."""
        self.detectors.restore({}, {})
        self.known = Known()
        self.epochs += 1
        if not (lasts or self.policy.ended):
            self.policy.start_over()
            self.denied.clear()
