"""One change of a session's control, as it travels between processes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

import orjson

from otel_loopguard.control.flag import RESERVED, is_reserved
from otel_loopguard.core import Action

BAGGAGE: Final = "baggage"
"""Origin of a notice that came in baggage."""
MOST_BYTES: Final = 4096
"""Bytes that an encoded notice has at most; more is no notice."""

_VERSION: Final = 1
_LONGEST: Final = 500
_TEXTS: Final = ("id", "session", "who", "origin")
_MAYBE_TEXTS: Final = ("reason", "hint", "decision_id", "guidance")


@dataclass(frozen=True, slots=True)
class Notice:
    """One change of a session's control (O5).

    Attributes:
        id: Id of this change, the same wherever it is heard; unique.
        session: Name of the session, as `names.wire_name` gives it.
        action: What its runtimes are to do; `allow`: go on.
        reason: Why, in a sentence without content of the calls; None for `allow`.
        hint: What to tell the model, if anything.
        who: Who set it: `policy`, or the name of a person.
        decision_id: Id of the decision behind it, or of the one that a person answers.
        at: When it was set, nanoseconds since the epoch. Of two the newer one counts.
        until: When it ends by itself, nanoseconds since the epoch; None: not by itself.
        guidance: What a person says to the model with an answer, if anything.
        origin: Which guard sent it; empty where no guard did, as from the command line.
    """

    id: str
    session: str
    action: Action
    reason: str | None
    hint: str | None
    who: str
    decision_id: str | None
    at: int
    until: int | None
    guidance: str | None
    origin: str = ""

    def encode(self) -> bytes:
        """JSON of at most 4 KiB: of a longer text its first 500 characters."""
        values: dict[str, Any] = {"v": _VERSION}
        for field in fields(self):
            value = getattr(self, field.name)
            values[field.name] = _short(value) if isinstance(value, str) else value
        encoded = orjson.dumps(values)
        if len(encoded) <= MOST_BYTES:
            return encoded
        # Characters of several bytes, or escaped ones: an eighth of them always fits.
        shorter = {
            name: value[: _LONGEST // 8] if isinstance(value, str) else value
            for name, value in values.items()
        }
        return orjson.dumps(shorter)

    @classmethod
    def decode(cls, raw: bytes) -> Notice | None:
        """A notice; None if it is not one, of another version or larger than 4 KiB.

        Nor is one that claims a name of the guard's own and no guard sent, or to be baggage.
        """
        if len(raw) > MOST_BYTES:
            return None
        try:
            found: Any = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(found, dict) or found.pop("v", None) != _VERSION:  # pyright: ignore[reportUnknownMemberType]
            return None
        return _read(found)  # pyright: ignore[reportUnknownArgumentType]


def _read(found: dict[str, object]) -> Notice | None:
    if set(found) != {field.name for field in fields(Notice)}:
        return None
    texts = all(isinstance(found[name], str) for name in _TEXTS)
    maybe = all(found[name] is None or isinstance(found[name], str) for name in _MAYBE_TEXTS)
    times = _is_time(found["at"]) and (found["until"] is None or _is_time(found["until"]))
    action = found["action"]
    if not (texts and maybe and times and found["id"] and found["session"] and found["who"]):
        return None
    if not isinstance(action, str) or action not in _ACTIONS:
        return None
    who, origin = str(found["who"]), found["origin"]
    if origin == BAGGAGE or (is_reserved(who) and not (origin and who in RESERVED)):
        return None
    values: Any = {**found, "action": Action(action)}
    return Notice(**values)


_ACTIONS: Final = frozenset(action.value for action in Action)


def _is_time(value: object) -> bool:
    return type(value) is int and 0 < value < 2**63


def _short(text: str) -> str:
    """Text that JSON can hold: a lone surrogate is replaced."""
    return text[:_LONGEST].encode("utf-8", "replace").decode()
