"""Reads what models write as evidence, and keeps no text.

All phrases match at word boundaries ("in**stalled**" is no stall), and none means anything when it
occurs once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress, zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

from rapidfuzz import fuzz

from otel_loopguard._util.bounded import BloomSketch, keep
from otel_loopguard.core import Kind, Step
from otel_loopguard.core.evidence import CHANTED, Gain, ModelText, Promise, Tail, says
from otel_loopguard.evidence import normalize
from otel_loopguard.evidence.normalize import (
    NAMED,
    PrefilteredPattern,
    key_of,
    text_bytes,
    unescaped,
)
from otel_loopguard.evidence.vocabulary import WORDS, pattern_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from otel_loopguard.core.progress import Progress
    from otel_loopguard.settings import Settings


@lru_cache(maxsize=1024)
def _key(agent: str, node: str, model: str) -> int:
    return key_of(text_bytes(f"saying\0{agent}\0{node}\0{model}"))


def speaker_of(step: Step) -> tuple[int, str]:
    """Key and name of the speaker of a step's text: its agent, node and model.

    Two models that are asked the same are two speakers, as two agents are.
    """
    agent, node, model = ((part or "")[:NAMED] for part in (step.agent, step.node, step.model))
    return _key(agent, node, model), repr(agent or node) if agent or node else "the model"


_HEDGES: Final = PrefilteredPattern(pattern_of("hedges"))
_APOLOGIES: Final = PrefilteredPattern(pattern_of("apologizes"))
_PERSONAL: Final = re.compile(pattern_of("personal"))
_may_be_personal: Final = normalize.prefilter(r"(?-u:\b)(?:i|we|my|our|let(?:'s| me))(?-u:\b)")
_PROMISE: Final = PrefilteredPattern(pattern_of("promises"))
_ONGOING: Final = PrefilteredPattern(pattern_of("is at"))
_EXCUSES: Final = PrefilteredPattern(f"{_HEDGES.outline}|{_APOLOGIES.outline}")
_ANNOUNCES: Final = PrefilteredPattern(f"{_PROMISE.outline}|{_ONGOING.outline}")
"""Most texts need one look for both of them."""
_WORDS: Final = re.compile(r"[^\W\d_]{2,40}")
_AHEAD: Final = 160
"""Characters behind an announcement that say of what: a sentence."""
_BRIEF: Final = 600
"""Characters of a text that may be an announcement: a longer one has done what it speaks of."""


def _count(phrases: PrefilteredPattern, plain: str) -> int:
    return len(phrases.pattern.findall(plain)) if phrases.may_match(plain) else 0


def promise_in(plain: str) -> Promise | None:
    """The action that a text in lower case announces; None if there is none.

    Only a brief text (up to 600 characters) is an announcement: a long one has done what it speaks
    of, in words. The words after the announcing phrase, up to the end of the sentence, say which
    action. To explain or to ask is no action.
    """
    if len(plain) > _BRIEF or not _ANNOUNCES.may_match(plain):
        return None
    found = _PROMISE.pattern.search(plain) if _PROMISE.may_match(plain) else None
    if found is None and _ONGOING.may_match(plain):
        found = _ONGOING.pattern.search(plain)
    if found is None:
        return None
    ahead = re.split(r"[.!?:;\n]", plain[found.end() : found.end() + _AHEAD], maxsplit=1)[0]
    named = [word for word in _WORDS.findall(ahead) if word not in WORDS["empty"]]
    begins = found.group("begin") is not None
    said = named if begins else [*named, found.group().rsplit(" ", 1)[-1]]
    keys = frozenset(key_of(word.encode("utf-8", "replace")) for word in said)
    return Promise(keys, begins)


_SAMPLE: Final = 1_000
"""Characters of each end of a text that others are compared with: 0.1 ms for a pair of them."""
_LOOK: Final = 4_000
"""Characters of each end of a text in which patterns are looked for: three pages in all."""
_PROBE: Final = 48
"""Characters at the end of a text that are looked for before it: prose repeats fewer."""
_FENCE: Final = "```"
_MARKS: Final = frozenset("{}[]|<>=;`\t")
_TABLE: Final = 0.5
"""Share of lines with a column mark from which a text is a table."""
_DIGITS: Final = re.compile(r"\d+")
_COMPARED: Final = 16_000
"""Characters of each end of a text in which sentences are compared."""
_SENTENCES: Final = 500
"""Sentences of each end that are compared, for half a millisecond."""
_VERSES: Final = 24
"""Sentences of the longest verse: models that repeat a page repeat it at the end, as a tail."""
_LEAST: Final = 25
"""Letters of the shortest verse: a shorter one is a word that a list begins with."""
_WHOLE: Final = 12
"""Letters that one of its sentences has: "Step 1." is none."""
_DATA: Final = ("{", "[", "<")
_BLOCK: Final = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_SENTENCE: Final = re.compile(r"[^.!?\n\u061f\u0964\u3002\uff01\uff1f\uff61]+")
"""Up to the mark that ends it, of Arabic, Hindi, Chinese and Japanese as well."""


def size_of(text: str) -> int:
    """Letters of a text, as of answers: a Chinese character says as much as three of English."""
    if text.isascii():
        return len(text)
    return normalize.size_of(text.encode("utf-8", "surrogatepass"))


def cut(text: str, each: int) -> str:
    """Head and tail of a text, of at most `each` characters; all of a text that is no longer."""
    return text if len(text) <= 2 * each else f"{text[:each]}\n{text[-each:]}"


def look_of(text: str) -> str:
    """The 8,000 characters of a text that patterns are looked for in."""
    return cut(text, _LOOK)


def sample_of(text: str) -> str:
    """The 2,000 characters of a text that others are compared with: lower case, evenly spaced."""
    low = cut(text, _SAMPLE).lower()
    if low.isprintable() and "  " not in low:
        # The only space that is printable is the common one.
        return low.strip()
    return " ".join(low.split())


def is_structured(look: str) -> bool:
    """True if a text is data rather than prose: JSON, a block of code, a table."""
    text = look.strip()
    if text[:1] in _DATA or text.startswith(_FENCE):
        return True
    if "|" not in text and "\t" not in text:
        return False
    lines = [line for line in text.split("\n", 200)[:200] if line]
    rows = sum("|" in line or "\t" in line for line in lines)
    return rows > _TABLE * len(lines)


def tail_of(text: str, longest: int, times: int, chars: int) -> Tail | None:
    """The end of a text, if it repeats itself; None otherwise, in data and in blocks of code.

    The last 48 characters are looked for right before themselves: how far back they stand is the
    period. All of it is done by comparing slices of a window of bounded length.
    """
    window = text[-max(longest * (times + 1), chars + longest) - _PROBE :].rstrip()
    place = len(window) - _PROBE
    found = window.rfind(window[-_PROBE:], 0, len(window) - 1) if place > 0 else -1
    period = place - found
    if found < 0 or period > longest:
        return None
    unit = window[-period:]
    need = max(times, -(-chars // size_of(unit)))
    # An odd number of fences, as far as its look tells, is code that has not ended.
    fenced = look_of(text).count(_FENCE) % 2
    if fenced or not window.endswith(unit * need) or not _is_prose(unit):
        return None
    start = len(window)
    while start >= period and window.startswith(unit, start - period):
        start -= period
    # Its characters in order are the same wherever the tail was cut: one loop.
    key = key_of("".join(sorted(unit)).encode("utf-8", "surrogatepass"))
    return Tail(key, period, (len(window) - start) // period)


def chant_of(text: str, times: int, chars: int) -> Tail | None:
    """Finds a sentence, or a few, that a text says over and over; None if there is none.

    Sentences and lines are compared in a row and in groups of up to 24, one with 12 letters; case
    and spaces do not count. Blocks of code and data are left out, and a line that is no prose,
    such as a row of a table, ends a row. Of a long text, head and tail are searched: 16,000
    characters and 500 sentences each.
    """
    if size_of(text) < chars or text[:_LOOK].lstrip()[:1] in _DATA:
        return None
    prose = _BLOCK.sub("\n`\n", cut(text, _COMPARED))
    sentences: list[str] = _SENTENCE.findall(prose)
    if len(sentences) > 2 * _SENTENCES:
        sentences = [*sentences[:_SENTENCES], "`", *sentences[-_SENTENCES:]]
    said = [" ".join(one.lower().split()) for one in sentences]
    said = [one for one in said if one]
    if len(said) < times or len(set(said)) > len(said) - times + 1:
        return None
    for period in range(1, min(_VERSES, len(said) // times) + 1):
        found = _verses(said, period, times, chars)
        if found is not None:
            return found
    return None


def _verses(said: list[str], period: int, times: int, chars: int) -> Tail | None:
    """Finds a group of sentences that occurs often enough in a row."""
    row = 0
    prose: dict[str, bool] = {}
    for place in range(period, len(said)):
        one = said[place]
        same = one == said[place - period]
        if same and one not in prose:
            prose[one] = _is_prose(f"{one} ")
        same = same and prose[one]
        row = row + 1 if same else 0
        if row < period * (times - 1):
            continue
        verse = said[place - period + 1 : place + 1]
        size, often = sum(map(size_of, verse)) + period, row // period + 1
        if size >= max(_LEAST, -(-chars // often)) and max(map(size_of, verse)) >= _WHOLE:
            key = key_of("".join(sorted(verse)).encode("utf-8", "surrogatepass"))
            return Tail(key, size, often)
    return None


def _is_prose(unit: str) -> bool:
    letters = [char for char in unit if char.isalpha()]
    # Who writes no spaces between words has no letters of ASCII either, as ids have.
    spaced = any(char.isspace() for char in unit) or any(char > "\x7f" for char in letters)
    return len(letters) > 1 and spaced and _MARKS.isdisjoint(unit)


_NOVELTY_CHARS: Final = 2_000
"""Bytes of each end of an answer that are looked at for news: to hash them is what a call costs."""
_MOST: Final = 64
"""Pieces of it that are remembered: of 2,500 that a sketch holds, forty answers."""
_ALL: Final = 2 * _NOVELTY_CHARS + 2
"""More pieces than an answer has."""
_SHORTEST: Final = 3
"""Bytes of a piece: what is shorter is in every answer."""
_ENDS: Final = b".,;:!?{}[]()|\"'<>=\t\r"
_PIECES: Final = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZ" + _ENDS, b"abcdefghijklmnopqrstuvwxyz" + b"\n" * len(_ENDS)
)


_FOREIGN_ENDS: Final = re.compile(
    rb"\xef\xbc[\x81-\x8f\x9a-\xa0]|\xe3\x80[\x81\x82\x88-\x91]|\xd8[\x8c\x9b\x9f]|"
    rb"\xe1(?:\x9f[\x94\x95]|\x81[\x8a\x8b])"
)
_DANDA: Final = "\u0964".encode()
_THAI_SPACE: Final = re.compile(rb" (?<=\xe0[\xb8-\xbb]. )")
"""Such marks of East Asian texts, Arabic, Khmer and Burmese, of Indic scripts, and the space of
Thai and Lao, which stands between sentences. Together they would take four times as long."""
_OF_ALL: Final = 0x616C_6C21
"""Tells the key of a whole answer from that of a piece."""
_OF_WORDS: Final = 0x776F_7264
"""As above for a word: a line with one word is a piece, too."""
_WORD: Final = re.compile(r"\w+")
LINE: Final = 120
"""Bytes from which a text is more than a line: twice what says something by itself."""


class News(NamedTuple):
    """Novelty of an outcome."""

    share: float
    """The part of it that is new, 0 to 1."""
    echo: bool
    """True if half or more of it occurred in the call's own arguments."""
    seen: bool
    """True if all of it was known."""


class Novelty:
    """Remembers the pieces of what a session has seen, in constant memory.

    A piece is the text between two punctuation marks or line ends, at least three characters, in
    lower case; a long text contributes at most 64, from its head and tail. Pieces weigh by their
    length, so the frame around an answer is no news.
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = BloomSketch()

    def add(self, outcome: bytes, arguments: bytes = b"", key: int | None = None) -> News:
        """Returns the novelty of an outcome and of its `key`, which count as seen from then on."""
        asked = set(map(key_of, _pieces(unescaped(arguments))))
        said = _pieces(outcome)
        keys = list(map(key_of, said))
        shown = asked.union(keys)
        # An outcome of one piece is not that piece: others may have it among theirs.
        whole = None if key is None else key ^ _OF_ALL
        if whole is not None:
            shown.add(whole)
        new = self._seen.add(shown) - asked
        seen = whole is not None and whole not in new
        new.discard(whole)  # type: ignore[arg-type]
        if not new:
            share = 0.0
        elif len(new) == len(keys):
            share = 1.0
        else:
            sizes = list(map(len, said))
            share = sum(compress(sizes, map(new.__contains__, keys))) / sum(sizes)
        echo = bool(keys) and 2 * len(asked.intersection(keys)) >= len(keys)
        return News(share, echo, seen)

    def worded(self, said: bytes, share: float) -> float:
        """Novelty of a text if a line is only as new as its words; `share` is its new part.

        "Next I check the ledger" says one new thing after "Next I check the heater". A text with
        another number is the next step, whatever else it says.
        """
        if len(said) >= LINE:
            return share
        found: list[str] = _WORD.findall(said.decode("utf-8", "replace").lower())
        words = {key_of(text_bytes(word)) ^ _OF_WORDS: word for word in found}
        new = [words[key] for key in self._seen.add(words)]
        if any(map(_DIGITS.search, new)):
            return share
        part = sum(map(len, new)) / sum(map(len, words.values())) if new else 0.0
        return max(part, share * says(len(said)))


def ends_of(raw: bytes) -> bytes:
    """The 4,000 bytes of an answer that are looked at for news."""
    if len(raw) <= 2 * _NOVELTY_CHARS:
        return raw
    return raw[:_NOVELTY_CHARS] + b"\n" + raw[-_NOVELTY_CHARS:]


def share_beside(outcome: bytes, before: bytes, arguments: bytes) -> float:
    """The part of an outcome that is neither in the one before nor in the arguments, 0 to 1."""
    # All pieces: in another order the ends have others.
    known = {*_pieces(before, _ALL), *_pieces(unescaped(arguments))}
    said = _pieces(outcome, _ALL)
    return sum(len(piece) for piece in said if piece not in known) / max(sum(map(len, said)), 1)


def _pieces(raw: bytes, most: int = _MOST) -> Collection[bytes]:
    """The pieces of a text, each once."""
    if not raw:
        return ()
    text = ends_of(raw).translate(_PIECES)
    if not text.isascii():
        text = _FOREIGN_ENDS.sub(b"\n", text).replace(_DANDA, b"\n")
        text = _THAI_SPACE.sub(b"\n", text)
    if text.count(b"\n") < most:
        parts = text.split(b"\n")
    else:
        parts = text.split(b"\n", most // 2)[:-1] + text.rsplit(b"\n", most // 2)[1:]
    # Most parts are empty: two marks beside each other, as JSON has them.
    pieces = [part for part in filter(None, map(bytes.strip, parts)) if len(part) >= _SHORTEST]
    # What is too short to have pieces is told apart as a whole.
    return dict.fromkeys(pieces) or (raw,)


def _differ_in_numbers(one: str, other: str) -> bool:
    """True if two samples differ only in their numbers."""
    pairs = zip_longest(one.split(" "), other.split(" "), fillvalue="")
    return all(one == two or _DIGITS.sub("0", one) == _DIGITS.sub("0", two) for one, two in pairs)


_SPEAKERS: Final = 4
"""Speakers whose last sample is kept, 2,000 characters each: few write in turn."""
_REPEATED: Final = 400
"""Letters that a repeated end or chant covers at least: a refrain is shorter."""
_TURN_GAP_S: Final = 2.0
"""Pause between two traces that is long enough for a user to read and answer."""


@dataclass(slots=True)
class _Last:
    """The text before of one speaker, as far as the next one is compared with it."""

    sample: str
    turn: int
    end: int
    gain: Gain


class ModelTextExtractor:
    """Evidence of what is written in one session. Not thread-safe: the session's lock is held.

    Cost per text is bounded, whatever its length: phrases and comparisons look at 2,000 characters,
    the end that repeats itself at `tuning.text.tail_period` times `tuning.text.tail_times`. Of the
    newest 4 speakers the sample of the newest text is kept, in the process only.
    """

    __slots__ = ("_acts", "_end", "_last", "_progress", "_settings", "_trace", "_turn")

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._settings = settings
        self._progress = progress
        self._last: dict[int, _Last] = {}
        self._acts = self._turn = self._trace = self._end = 0

    def extract(self, step: Step) -> ModelText | None:
        """Evidence of a model call that wrote something; of others that they were made.

        A model that wrote nothing has called a tool, as a rule, seen or not. Who asks another agent
        acts, too.
        """
        if step.kind is Kind.AGENT:
            self._acts += step.parent_id is not None and step.args is not None
            return None
        if step.kind is not Kind.MODEL or not step.text:
            self._acts += step.kind is not Kind.MODEL or not step.error
            return None
        # Another trace after a pause: a user may have spoken, and nothing says so.
        pause = step.start - self._end
        if step.trace_id != self._trace and pause >= _TURN_GAP_S * 1e9:
            self._turn += 1
        self._trace, self._end = step.trace_id, max(self._end, step.end or 0)
        text, progress = step.text, self._progress
        speaker, name = speaker_of(step)
        sample = sample_of(text)
        plain = sample.replace("\u2019", "'")
        # Of all of the text: a hash of ten megabytes takes less than a pattern of a page.
        key = normalize.key_of_text(text.strip())
        gain = Gain(progress.answers, progress.unseen, progress.news, progress.epoch)
        now = _Last(sample, self._turn, step.end or 0, gain)
        before = self._last.get(speaker)
        keep(self._last, speaker, now, _SPEAKERS)
        alike, renumbered = (0.0, False) if before is None else self._compared(before, now)
        tuning = self._settings.tuning.text
        tail = tail_of(text, tuning.tail_period, tuning.tail_times, _REPEATED)
        chant = None if tail else chant_of(text, CHANTED, _REPEATED)
        excuses = _EXCUSES.may_match(plain)
        return ModelText(
            speaker=speaker, name=name, turn=self._turn, key=key, size=size_of(text),
            words=sample.count(" ") + 1, structured=is_structured(look_of(text)), alike=alike,
            renumbered=renumbered, beside=before is not None and 0 < step.start < before.end,
            hedges=_count(_HEDGES, plain) if excuses else 0,
            apologies=_count(_APOLOGIES, plain) if excuses else 0,
            personal=_may_be_personal(sample) and _PERSONAL.search(sample) is not None,
            promise=promise_in(plain), tail=tail, chant=chant,
            acts=self._acts + progress.calls + progress.refused, calls=progress.calls, gain=gain,
        )  # fmt: skip

    def _compared(self, before: _Last, now: _Last) -> tuple[float, bool]:
        """Share that two samples have in common, and whether they differ only in numbers.

        Comparing long texts costs more than everything else, so it is skipped if something came of
        the work in between.
        """
        if before.turn != now.turn:
            return 0.0, False
        if before.sample == now.sample:
            return 1.0, False
        tuning = self._settings.tuning.text
        if not now.gain.nothing_since(before.gain, tuning.news):
            return 0.0, False
        least = 100 * tuning.alike
        alike = fuzz.ratio(before.sample, now.sample, score_cutoff=least) / 100
        return alike, alike > 0 and _differ_in_numbers(before.sample, now.sample)
