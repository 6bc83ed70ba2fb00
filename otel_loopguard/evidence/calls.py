"""The identity of a call: agent, tool and arguments, as keys."""

from __future__ import annotations

import re
import sys
import unicodedata
from datetime import datetime
from functools import lru_cache
from itertools import islice
from posixpath import normpath
from typing import TYPE_CHECKING, Final, NamedTuple

from rapidfuzz import fuzz

from otel_loopguard._util.bounded import keep
from otel_loopguard._util.fields import is_list, is_map
from otel_loopguard.evidence import normalize
from otel_loopguard.evidence.model_text import cut
from otel_loopguard.evidence.normalize import NAMED, canonical, key_of, text_bytes, without_volatile
from otel_loopguard.evidence.vocabulary import FILE_ARGUMENTS, WORDS, pattern_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from otel_loopguard.core import Step
    from otel_loopguard.evidence.outcomes import Outcome, Reading
    from otel_loopguard.settings import Settings

_SAMPLE: Final = 256
"""Characters of arguments that are kept for comparison: the subject usually comes first."""
_PAGING, _ENDS = WORDS["paging"], WORDS["ends"]
"""Arguments that page, where they are numbers or lists that begin with one; and how far."""

_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d")
_SECONDS: Final = range(1_400_000_000, 2_000_000_000)
"""Seconds since 1970 that are a time of these years, as the masks of answers take them."""
_TIMED: Final = re.compile(
    r"\d(?:\d{3}-\d\d-\d\d[T ]\d\d:\d\d|(?<=1)(?<!\w1)[4-9]\d{8}(?:\d{3})?\b)"
)
"""Values that hold a time, as text or as seconds or milliseconds since 1970; other arguments are
not searched for one."""
_TIME_CHARS: Final = 16
"""Characters of a time up to its minute, which is enough to tell two windows apart."""


@lru_cache(maxsize=4096)
def seed_of(tool: str, agent: str = "") -> int:
    """Key that separates equal arguments of different tools or agents."""
    return key_of(text_bytes(f"{agent}\0{tool}"))


@lru_cache(maxsize=1024)
def agent_key(agent: str | None) -> int:
    """Key of an agent by its name; 0 without one."""
    return key_of(text_bytes(f"agent\0{agent[:NAMED]}")) if agent else 0


def maker_of(step: Step) -> str:
    """Name of the agent of a step, told apart from runs of the same name at the same time.

    None of these knows what another was told, so that it repeats nothing of it.
    """
    name = (step.agent or "")[:NAMED]
    return f"{step.lane}\0{name}"[:NAMED] if step.lane else name


class Call(NamedTuple):
    """The identity of one call; its keys are None if its arguments were not captured."""

    exact: int | None
    """Key of tool and arguments as they are."""
    key: int | None
    """Key of them with volatile values masked."""
    change: int | None
    """Key of them without arguments that are volatile by name, the rest as it is."""
    guessed: bool
    """True if the key rests on a value that looks volatile, or on arguments that were cut."""
    raw: bytes
    """Canonical bytes of the arguments, bounded."""
    arguments: object
    """The arguments as a JSON value or text."""
    sample: str
    """The first characters of the arguments."""
    seed: int
    """Key of agent and tool."""
    ahead: float | None = None
    """Seconds from the call's start to a time in its arguments that may be its own clock; None
    without."""


def deed_of(call: Call, *, once: bool) -> int | None:
    """Identity of a call without the ids that mark its request; None if there are none.

    Of what is declared to be done once, whatever such an id looks like.
    """
    named = call.arguments
    if not is_map(named):
        return None
    if once:
        return None if WORDS["request ids"].isdisjoint(named) else call.change
    kept = normalize.without_request_ids(named)
    return key_of(canonical(kept), call.seed) if 0 < len(kept) < len(named) else None


def place_of(call: Call) -> tuple[int, float] | None:
    """Key of the other arguments, and the page position, of a call that pages through something.

    The position is a number under a paging name, or a time under any name, as text or as seconds
    since 1970: logs are paged by time.
    """
    arguments = call.arguments
    if not is_map(arguments):
        return None
    if _PAGING.isdisjoint(arguments):
        timed = _TIMED.search(call.sample) is not None
        return _time_of(arguments, call.seed) if timed else None
    named = without_volatile(arguments)
    paging = [name for name in named if name in _PAGING]
    if len(paging) > 1:
        # One number beside texts is the place.
        paging = [name for name in paging if type(named[name]) in (int, float)]
    if len(paging) != 1:
        return None
    value = named[paging[0]]
    if is_list(value) and value:
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not abs(value) <= sys.float_info.max:  # NaN neither
        return None
    rest = {name: item for name, item in named.items() if name not in _PAGING and name not in _ENDS}
    return key_of(canonical(rest), call.seed), float(value)


def has_cursor(arguments: object) -> bool:
    """True if a call pages by a mark that the page before gave, which is no place."""
    return is_map(arguments) and any(
        isinstance(arguments[name], str) and arguments[name] for name in arguments.keys() & _PAGING
    )


def _time_of(arguments: dict[str, object], seed: int) -> tuple[int, float] | None:
    named = without_volatile(arguments)
    times = {name: at for name, value in named.items() if (at := _as_time(value)) is not None}
    if not times:
        return None
    rest = {name: item for name, item in named.items() if name not in times}
    return key_of(canonical(rest), seed), next(iter(times.values()))


def _as_time(value: object) -> float | None:
    """A time as a number that grows with it; None of what is none."""
    if isinstance(value, str):
        return float(re.sub(r"\D", "", value[:_TIME_CHARS])) if _TIME.match(value) else None
    # Compared, not converted: JSON of Python has NaN and Infinity, too.
    if isinstance(value, (int, float)) and any(
        _SECONDS.start * unit <= value < _SECONDS.stop * unit for unit in (1, 1_000)
    ):
        return float(value)
    return None


class Calls:
    """Tells the calls of one session apart; it learns which arguments are volatile."""

    __slots__ = ("_ahead", "_limit", "_settings", "_volatile", "before")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._limit = settings.tuning.calls.value_chars
        self._volatile = normalize.VolatileArguments()
        # By tool, of the calls of a journal, what is kept below.
        self.before: Mapping[str, float] = {}
        # By tool and argument how far the newest time was ahead of the clock, in seconds.
        self._ahead: dict[tuple[int, str], float] = {}

    def identify(self, step: Step, reading: Reading, outcome: int | None) -> Call:
        """The identity of a call."""
        arguments, raw = reading.arguments, reading.raw
        if arguments is None:
            return Call(None, None, None, False, b"", None, "", 0)
        if isinstance(step.args, str) and len(step.args) > self._limit:
            kept = normalize.bounded(text_bytes(step.args), self._limit)
            arguments, raw = kept.decode("utf-8", "replace"), None
        if raw is None:
            raw = self._raw(arguments)
        seed = seed_of((step.name or "")[:NAMED], maker_of(step))
        exact = key_of(raw, seed)
        if not isinstance(arguments, dict):
            cut = normalize.is_cut_json(raw)
            return Call(exact, exact, exact, cut, raw, arguments, _head(raw), seed)
        named: dict[str, object] = arguments  # pyright: ignore[reportUnknownVariableType]
        known = named
        declared = self._settings.declared.get(step.name or "")
        if declared is not None and declared.key is not None:
            # Its settings say which arguments are the identity of its calls.
            known = {name: named[name] for name in declared.key if name in named} or named
            if known is not named:
                exact = key_of(self._raw(known), seed)
        asked: dict[str, object] = {}
        ahead: float | None = None
        if known is named and not WORDS["volatile"].isdisjoint(named):
            asked, ahead = self._asked_times(named, seed, step, outcome)
            known = _with(without_volatile(named), asked)
        if (b"./" in raw or b"//" in raw) and any(name in known for name in FILE_ARGUMENTS):
            known = {name: _plain_path(name, value) for name, value in known.items()}
        # What says why or when it is asked is not what is asked for.
        asked_for = raw if known is named else self._raw(known)
        change = exact if known is named else key_of(asked_for, seed)
        sample = _head(asked_for)
        # A value that only looks volatile may be what the call is about: that is a guess.
        kept = known
        if self._volatile.learned or len(raw) > self._limit or normalize.may_hold_nonces(raw):
            kept = normalize.without_nonces(self._volatile.without(seed, known, outcome))
            kept = kept if kept is known else _with(kept, asked)
        key = change if kept is known else key_of(self._raw(kept), seed)
        return Call(exact, key, change, kept is not known, raw, arguments, sample, seed, ahead)

    def _asked_times(
        self, arguments: dict[str, object], seed: int, step: Step, outcome: int | None
    ) -> tuple[dict[str, object], float | None]:
        """Arguments named like the time of the call that are times which are asked for.

        And how far the last time under such a name is ahead of the clock.
        """
        asked: dict[str, object] = {}
        last: float | None = None
        began = (step.start or step.end or 0) / 1e9
        for name in WORDS["volatile"].intersection(arguments) if began else ():
            at = _seconds_of(arguments[name])
            if at is None:
                continue
            ahead = at - began
            last = ahead
            usual = self.before.get((step.name or "")[:NAMED], ahead)
            if abs(ahead - self._ahead.get((seed, name), usual)) > _BEYOND_S:
                asked[name] = arguments[name]
            if outcome is not None:
                keep(self._ahead, (seed, name), ahead, normalize.CALLS)
        return asked, last

    def _raw(self, arguments: object) -> bytes:
        raw = canonical(arguments)
        return raw if len(raw) <= self._limit else normalize.bounded(raw, self._limit)


def _head(raw: bytes) -> str:
    return raw[: 4 * _SAMPLE].decode("utf-8", "replace")[:_SAMPLE]


_BEYOND_S: Final = 1_800.0
"""Seconds that a time among the arguments moves beyond the clock before it is no time of the call:
models that write one themselves are some minutes off."""


def _with(arguments: dict[str, object], others: dict[str, object]) -> dict[str, object]:
    """The arguments and others; the very same ones if there are none."""
    return {**arguments, **others} if others else arguments


def _seconds_of(value: object) -> float | None:
    """Seconds since 1970 of a time, as text without its zone or as a number; None of any other."""
    if isinstance(value, str) and _TIME.match(value):
        try:
            return datetime.fromisoformat(f"{value[:_TIME_CHARS]}+00:00").timestamp()
        except ValueError:
            return None
    at = _as_time(value)
    return at if at is None or at < _SECONDS.stop else at / 1_000


def _plain_path(name: str, value: object) -> object:
    """The path of a file without the steps that lead nowhere: `./a`, `x/../a`."""
    if name not in FILE_ARGUMENTS or not isinstance(value, str) or "://" in value:
        return value
    return normpath(value) if value else value


_PAIR: Final = re.compile(r'"((?:[^"\\]|\\.){1,64})":("(?:[^"\\]|\\.){0,200}"?|[^,{}\[\]]{1,64})')
_PLAIN_PAIR: Final = re.compile(r'"([^"]{1,64})":("[^"]{0,200}"?|[^,{}\[\]]{1,64})')
"""As above for text without a backslash, in a fraction of the time."""
_IDENTIFIES: Final = re.compile(pattern_of("identifies"))
_NUMBERED: Final = re.compile(
    r'\A(?:"?(?=[^\s"]{4})(?=[^\s"]*[a-zA-Z])[^\s"]*\d\d[^\s"]*"?|"?[^\s"@]+@[^\s"]+"?|"?\d{3,}"?|'
    r'"?\d{1,9}(?:[.:-]\d{1,9}){1,8}"?)'
)
_NO_DIGITS: Final = str.maketrans("", "", "0123456789")
_NONCE: Final = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-|[0-9a-fA-F]{16}|\d{4}-\d\d-\d\d[T ]\d|\b1[4-9]\d{8}|"
    r"/(?:tmp|var)/|(?:[a-zA-Z]{1,8}\d{1,8}){3}"
)
_IN_LETTERS: Final = re.compile(r'"[^\W\d_]+(?:[ .\'-]{1,2}[^\W\d_]+){0,4}\.?"')
_NAMES: Final = re.compile(r"[^\W\d_](?<![\w-].)[\w-]{2,63}")
"""Names in a program, as of a table, a host or a region; options and most commands are none."""
_SPELLED: Final = 80.0
"""Percent of two names that are common where one is the other, spelled otherwise: one letter in
five, as in Meier and Meyer."""


def _differing(last: str, sample: str) -> list[tuple[str, str, str]]:
    """Names and both values in which two calls differ; empty if other arguments are given."""
    before, now = _pairs(last), _pairs(sample)
    if [name for name, _ in before] != [name for name, _ in now]:
        return []
    return [
        (name, was, value)
        for (name, was), (_, value) in zip(before, now, strict=True)
        if was != value
    ]


def is_another(last: str, sample: str, *, texts: bool = False) -> bool:
    """True if a call asks the same as its tool's last call, about another item (a name or number).

    In a search only numbers and addresses are items, because other words may ask for the same
    thing, unless `texts` are what the tool is about. A value that looks like a nonce, beside
    arguments that stay the same, is no item.
    """
    differing = _differing(last, sample)
    for name, was, value in differing:
        numbered = _NUMBERED.fullmatch(was) and _NUMBERED.fullmatch(value)
        if not (texts or numbered) and _is_search(name):
            return False
    return bool(differing) and (
        shares_nothing(last, sample)
        or not any(_NONCE.search(was) or _NONCE.search(value) for _, was, value in differing)
    )


def shares_nothing(last: str, sample: str) -> bool:
    """True if a call has the arguments of its tool's last call, each with another value."""
    return 0 < len(_differing(last, sample)) == len(_pairs(sample))


def may_be_another(sample: str, *, texts: bool = False) -> bool:
    """True if `is_another` may hold but the tool's last call is no longer known."""
    return any(
        texts or not _is_search(name) or _NUMBERED.fullmatch(value)
        for name, value in _pairs(sample)
    )


def is_respelled(last: str, sample: str) -> bool:
    """True if all names in which a call differs from its tool's last are spelled nearly alike."""
    names = [(was.lower(), value.lower()) for _, was, value in _differing(last, sample)]
    return bool(names) and all(
        _IN_LETTERS.fullmatch(was) is not None
        and _IN_LETTERS.fullmatch(now) is not None
        and (
            fuzz.ratio(was[1:-1], now[1:-1], score_cutoff=_SPELLED) > 0
            or fuzz.token_set_ratio(was[1:-1], now[1:-1], score_cutoff=_SPELLED) > 0
        )
        for was, now in names
    )


def is_numbered(last: str, sample: str) -> bool:
    """True if a call asks the same of another number or id than its tool's last, and no nonce."""
    differing = _differing(last, sample)
    return bool(differing) and all(
        _NUMBERED.fullmatch(was) is not None
        and _NUMBERED.fullmatch(value) is not None
        and _NONCE.search(value) is None
        for _, was, value in differing
    )


def guesses(last: str, sample: str) -> bool:
    """True if a call names a path or an address, and not that of its tool's last by other digits.

    Who guesses those looks for one thing, not for many items; who goes through numbers does not
    guess.
    """
    if "/" not in sample:
        return False
    return last == sample or last.translate(_NO_DIGITS) != sample.translate(_NO_DIGITS)


def is_elsewhere(last: str, sample: str) -> bool:
    """True if a call differs from its tool's last call in nothing but a place: page, line, time."""
    differing = _differing(last, sample)
    return bool(differing) and all(
        name in _PAGING or name in _ENDS or _TIMED.search(value) is not None
        for name, _, value in differing
    )


def is_of_another_file(last: str, sample: str) -> bool:
    """True if a call differs from its tool's last call in nothing but the file that it names."""
    differing = _differing(last, sample)
    return bool(differing) and all(name in FILE_ARGUMENTS for name, *_ in differing)


def is_of_others(last: str, sample: str) -> bool:
    """True if a program is its tool's last one with other names in it: nothing else is changed."""
    return last != sample and _NAMES.sub("#", last) == _NAMES.sub("#", sample)


@lru_cache(maxsize=256)
def _is_search(name: str) -> bool:
    """True if an argument's name (at most 64 characters) says that it holds the search text."""
    return normalize.SEARCHES.search(name) is not None and _IDENTIFIES.search(name) is None


@lru_cache(maxsize=16)
def _pairs(sample: str) -> Sequence[tuple[str, str]]:
    """Names and values in the beginning of arguments: each is asked for twice as a rule."""
    return (_PAIR if "\\" in sample else _PLAIN_PAIR).findall(sample)


_ADDRESS: Final = re.compile(r"[/=@\\]")
_NAME: Final = re.compile(r'"[^"\\]{0,64}":')
_NAME_OR_ADDRESS: Final = re.compile(r'"[^"\\]{0,64}":|[^\s"]{0,256}[/=@\\][^\s"]{0,256}')
"""Parts of a question that are not words: names of arguments, addresses and assigned values. The
pattern without addresses is for text that has none: looking for one costs more than all else."""
_LETTERS: Final = 4
"""Words that carry content are longer than those that join them."""
_TERM: Final = re.compile(rf"[^\W\d_]{{{_LETTERS},}}")
_MARKS: Final = (
    r"\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0970-\u0dff"
)
_JOINED: Final = r"\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1780-\u17d3"
_FOREIGN_TERM: Final = re.compile(
    rf"[\u3040-\u9fff\uac00-\ud7a3]{{2}}|[{_JOINED}]{{4,6}}|(?:[^\W\d_]|[{_MARKS}]){{2,}}"
)
"""In other scripts vowels and accents may be characters of their own. Where words are not written
apart pairs stand for them, and four to six characters in Thai, Lao, Burmese and Khmer."""
_TERMS: Final = 32
"""A sample of 256 characters has no more of them, as a rule."""


def terms_of(sample: str) -> frozenset[str]:
    """Content words in the beginning of arguments, in lower case; empty for fewer than two."""
    if " " not in sample and sample.isascii():
        return frozenset()
    names = _NAME_OR_ADDRESS if _ADDRESS.search(sample) else _NAME
    said = names.sub(" ", sample).lower()
    words = sorted(set(_TERM.findall(said) if said.isascii() else _foreign_terms(said)))
    return frozenset(words[:_TERMS] if len(words) > 1 else ())


def _foreign_terms(said: str) -> Iterator[str]:
    for word in _FOREIGN_TERM.findall(unicodedata.normalize("NFC", said)):
        # With its accents, which make up for the few letters of Vietnamese.
        if word[0] >= "\u3040" or len(unicodedata.normalize("NFD", word)) >= _LETTERS:
            yield word


_LEAST: Final = 200
"""Characters from which a text is a draft that can be revised; a shorter one is a value."""
_EACH: Final = 1_000
"""Characters of each end of a draft that are compared: more costs time and tells no more."""
_TOOLS: Final = 4
"""Tools whose last draft is kept, 4,000 characters each."""
_ALIKE: Final = 90.0
"""Percent of both samples that are common where a call revises: two words in twenty."""


_COMPARED: Final = 8
"""Calls whose last short answer is kept: an answer that alternates comes back soon."""
_ANSWER: Final = 400
"""Characters of an answer that is a record, not a document."""
_VARIANT: Final = 85.0
"""Percent of two such answers that are common where only values in them differ."""
_WORDS: Final = 64
"""Words of a call's answers that are kept: more than a list of what runs has states."""
_FEW: Final = 8
"""Arguments that are looked at for an id: calls that ask about something have few."""
_WORD: Final = re.compile(r"[\w-]{1,64}")


class Versions:
    """Compares each call with those before it.

    Of the newest 4 tools the last arguments and outcome are kept, 2,000 characters each, and of the
    newest 8 calls that got another answer its shape and some 64 words, in the process only.
    """

    __slots__ = ("_answers", "_drafts")

    def __init__(self) -> None:
        self._drafts: dict[int, tuple[str, str, int]] = {}
        self._answers: dict[int, tuple[str, frozenset[str]]] = {}

    def revises(self, call: Call, outcome: Outcome) -> bool:
        """True if arguments and outcome are almost those of the tool's last call, and one differs.

        Texts below 200 characters are not kept, so they never count as a revision.
        """
        before = self._drafts.pop(call.seed, None)
        if len(call.raw) < _LEAST or outcome.size < _LEAST:
            return False
        now = _sample(call.raw), _sample(outcome.raw), _others(call.arguments)
        keep(self._drafts, call.seed, now, _TOOLS)
        return (
            before is not None
            and before != now
            and before[2] == now[2]
            and fuzz.ratio(before[0], now[0], score_cutoff=_ALIKE) > 0
            and fuzz.ratio(before[1], now[1], score_cutoff=_ALIKE) > 0
        )

    def varies(self, call: Call, outcome: Outcome) -> bool:
        """True if a repeated call's answer differs from its last in one or two names, new ones."""
        if call.exact is None or not 0 < outcome.size <= _ANSWER:
            return False
        # A sign is part of a number.
        shape = normalize.masked_numbers(outcome.raw).decode("utf-8", "replace").replace("-#", "#")
        words = frozenset(_WORD.findall(shape))
        before, known = self._answers.get(call.exact, (shape, words))
        kept = words if len(known) > _WORDS else known | words
        keep(self._answers, call.exact, (shape, kept), _COMPARED)
        # Numbers alone are how far something has come, and words that come again are its states.
        if words <= known or fuzz.ratio(before, shape, score_cutoff=_VARIANT) == 0:
            return False
        return not _names_id_of(call.arguments, outcome.raw)


def _names_id_of(arguments: object, answer: bytes) -> bool:
    """True if an answer contains an id that the call was given; a new job has none yet."""
    if not is_map(arguments):
        return False
    found = (name for name in islice(arguments, _FEW) if _IDENTIFIES.search(name[:NAMED]))
    ids = {str(arguments[name]) for name in found}
    return bool(ids) and not ids.isdisjoint(_WORD.findall(answer.decode("utf-8", "replace")))


def _sample(raw: bytes) -> str:
    return cut(raw[: 1 << 16].decode("utf-8", "replace"), _EACH)


def _others(arguments: object) -> int:
    """Key of all arguments but long texts and volatile values."""
    if not is_map(arguments):
        return 0
    named = normalize.without_nonces(without_volatile(arguments))
    return key_of(
        canonical(
            {
                name: None if isinstance(value, str) and len(value) >= _LEAST else value
                for name, value in named.items()
                if name not in WORDS["revision"]
            }
        )
    )
