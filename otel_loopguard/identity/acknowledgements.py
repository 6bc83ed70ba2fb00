"""Whether an outcome only acknowledges the call, and whether a call acts on a device or a page."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from otel_loopguard.core import Effect
from otel_loopguard.identity.canonical import parsed

if TYPE_CHECKING:
    from otel_loopguard.identity.outcomes import Outcome

_LONGEST: Final = 120
_FIELDS: Final = 6
_NONE: Final = frozenset((b"none", b"nil", b"undefined", b"void", b"yes"))
_BARE_WORDS: Final = frozenset(
    "ok okay done success successful successfully succeeded true yes null none nil undefined void "
    "ack acknowledged acked completed complete executed performed sent clicked pressed tapped "
    "scrolled typed moved swiped dragged dropped entered submitted accepted saved stored written "
    "created updated inserted added deleted removed uploaded posted published applied set "
    "processed received delivered queued action command operation request event call key keys "
    "message email mail file record row item entry result status the a an was is has been have "
    "it all has with code exit output no and now good great fine thanks finished input tool "
    "http response returned returns empty nothing to report".split()
)
_ACKNOWLEDGES: Final = frozenset(
    "ok okay done success successful successfully succeeded true yes null none nil undefined void "
    "ack acknowledged acked completed complete executed performed sent clicked pressed tapped "
    "scrolled typed moved swiped dragged dropped entered submitted accepted saved stored written "
    "created updated inserted added deleted removed uploaded posted published applied processed "
    "received delivered queued finished 200 201 204 0".split()
)
_IDS: Final = ("_id", "-id", "Id", "ID", "uuid", "guid")
_TOKEN: Final = re.compile(rb"[a-z]+|\d+(?:\.\d+)?")
_IMAGE: Final = re.compile(
    rb"^\W{0,4}(?:(?:binary|base64|png|jpe?g|inline|new)\W{1,2}){0,2}(?:image|screenshot|picture|"
    rb"screen ?shot|screen|frame|photo)\b.{0,60}$|^\W{0,4}(?:took|taken|captured|here is|got|saved)"
    rb"\b.{0,20}\b(?:screenshot|image|picture|photo)\b.{0,60}$|^data:image/|"
    rb'^[\[{]?\{?"(?:type|kind)":"(?:image|image_url|input_image)"'
)
_STATES: Final = frozenset(
    "status success ok result done sent state message code error data response acknowledged "
    "completed output value detail details content isError is_error errors".split()
)
_ASIDE: Final = frozenset(
    "error errors warning warnings detail details message messages meta metadata".split()
)
_ACTS: Final = frozenset(
    "press pressed click clicked dblclick doubleclick tap tapped scroll scrolled swipe type typing "
    "typed key keys keypress keystroke keyboard hotkey sendkeys mouse wheel drag drop hover touch "
    "pinch zoom pan hold release move moves moved rotate turn steer drive walk step jump strafe "
    "forward backward back left right up down grip grasp lift lower push pull nudge "
    "joystick gamepad increment decrement toggle advance navigate shift spin tilt throttle dig "
    "place attack play".split()
)
_HARMLESS: Final = frozenset(
    "file files get list read search find fetch lookup query directory folder row record copy step "
    "steps".split()
)
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_CHOOSES: Final = ("action", "act", "op", "operation", "gesture", "command", "event", "type")
_GENERAL: Final = frozenset(
    "computer browser desktop device phone ui gui screen action act robot arm game env environment "
    "emulator controller remote simulator puppeteer playwright web page app".split()
)


def is_bare(outcome: Outcome, effect: Effect = Effect.UNKNOWN) -> bool:
    """Whether an outcome only acknowledges: ok, done, true, null, nothing, {"status": "ok"}.

    A placeholder for an image that was left out says as little. Where something was read, "none"
    and the like are answers.
    """
    if outcome.key is None or outcome.size > _LONGEST:
        return False
    raw = outcome.said
    if effect is Effect.READ and raw.strip(b" \"'`.!") in _NONE:
        return False
    if raw[:1] in (b"{", b"[", b'"'):
        found = parsed(raw.decode("utf-8", "replace"))
        if isinstance(found, dict):
            return _is_bare_map(cast("dict[str, object]", found)) or _IMAGE.search(raw) is not None
        if isinstance(found, list):
            # An empty list is an answer to a question, and a list of one text is that text.
            items = cast("list[object]", found)
            return len(items) == 1 and isinstance(items[0], str) and _is_bare_text(items[0])
    return _is_bare_raw(raw)


def _is_bare_raw(raw: bytes) -> bool:
    if not raw.strip(b" \"'`.!#"):
        return True
    if _IMAGE.search(raw) is not None:
        return True
    words = [word.decode() for word in _TOKEN.findall(raw)]
    # What has no word of this alphabet says something that is not known here.
    if not words or len(words) > 8 or not raw.isascii():
        return raw.strip() in ("✓".encode(), "✅".encode(), "👍".encode())
    if _ACKNOWLEDGES.isdisjoint(words):
        return False
    return all(word in _BARE_WORDS or word in _ACKNOWLEDGES for word in words)


def _is_bare_text(text: str) -> bool:
    return _is_bare_raw(text.strip().lower().encode("utf-8", "replace"))


def _is_bare_map(found: dict[str, object]) -> bool:
    if len(found) > _FIELDS:
        return False
    return all(_says_nothing(name, value) for name, value in found.items())


def _says_nothing(name: str, value: object) -> bool:
    if value is None or value == "":
        return True
    if isinstance(value, bool):
        # "error": false is as good as "ok": true.
        return value if "err" not in name else not value
    if isinstance(value, str):
        # Something was made if it has an id.
        return _is_bare_text(value) and name != "id" and not name.endswith(_IDS)
    if isinstance(value, int):
        return name in _STATES and value in (0, 1, 200, 201, 204)
    # An empty list of rows is an answer to a question; of errors it is not.
    return isinstance(value, (dict, list)) and not value and name in _ASIDE


def is_acting(tool: str, arguments: object, effect: Effect) -> bool:
    """Whether a call presses, clicks, scrolls, types or moves, by its name or its action.

    Args:
        tool: Name of the tool.
        arguments: Its arguments, as `canonical.parsed` gives them.
        effect: Its effect.
    """
    words, acts = _by_name(tool[:200])
    if acts:
        return effect is not Effect.READ
    if not isinstance(arguments, dict) or words.isdisjoint(_GENERAL):
        return False
    given = cast("dict[str, object]", arguments)
    for name in _CHOOSES:
        chosen = given.get(name)
        if isinstance(chosen, str) and len(chosen) <= _LONGEST:
            return _by_name(chosen)[1]
    return False


@lru_cache(maxsize=4096)
def _by_name(name: str) -> tuple[frozenset[str], bool]:
    words = frozenset(word.lower() for word in _PARTS.findall(name))
    return words, not words.isdisjoint(_ACTS) and words.isdisjoint(_HARMLESS)
