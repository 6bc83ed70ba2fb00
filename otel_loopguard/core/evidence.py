"""Evidence: computed once per step and read by all detectors; and what kind of error a text is."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass
from functools import cache, lru_cache
from math import exp
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_loopguard._util.tables import read_table
from otel_loopguard._util.text import StrEnum

if TYPE_CHECKING:
    from otel_loopguard.core.step import Kind


class ErrorClass(StrEnum):
    """The kind of an error: it may pass by itself, will not, or that is not known."""

    TRANSIENT = "transient"
    DETERMINISTIC = "deterministic"
    UNKNOWN = "unknown"


class Effect(StrEnum):
    """Effect of a call on the world."""

    READ = "read"
    WRITE = "write"
    WAIT = "wait"
    UNKNOWN = "unknown"


Key = int
"""Identity of something, 64 bits; a journal keeps its keyed digest."""
Moment = tuple["Key | None", str, int, int, int, int]
"""Key and tool of a call, when it ended, and its epoch, round and number."""


_LINE: Final = 60.0
"""Characters of an answer: a word comes again by chance, a line of so many seldom."""


@lru_cache(maxsize=4096)
def says(size: int) -> float:
    """Weight of an answer by its length in characters, 0 to 1."""
    return 1.0 - exp(-((size / _LINE) ** 2))


class Numbers(NamedTuple):
    """The numbers in an outcome; no journal keeps them."""

    around: Key
    """Key of the outcome without its digits."""
    values: tuple[float, ...]
    """All of them, eight at most."""


@dataclass(slots=True)
class Waited:
    """Looks at what was not ready yet, and what the model calls that asked for them used."""

    looks: int = 0
    tokens: int = 0
    cost: float = 0.0  # USD, as far as spans say it
    begin: int = 0  # start of the first, nanoseconds since the epoch; 0 without times
    end: int = 0  # of the newest

    def add(self, tokens: int, cost: float, begin: int, end: int) -> None:
        """Counts one look."""
        self.looks += 1
        self.tokens += tokens
        self.cost += cost
        self.begin, self.end = self.begin or begin, max(self.end, end)

    @property
    def seconds(self) -> float:
        """From the start of the first look to the end of the newest; 0 without times."""
        return max(self.end - self.begin, 0) / 1e9 if self.begin else 0.0


@dataclass(slots=True)
class Evidence:
    """The identity of one tool call and its outcome, as integers that compare in O(1).

    A key of None is *unknown*: equal to nothing, not even to another None.
    """

    number: int
    """Number of the call in its session, from 0: windows and fading count calls, not spans."""
    tool: str
    call: Key | None = None
    """Key of agent, tool and masked arguments."""
    call_exact: Key | None = None
    """Key of tool and arguments as they are."""
    guessed: bool = False
    """True if the key rests on a value that looks like a nonce, or on arguments that were cut."""
    fresh: bool = True
    """True if the call was not made before, as far back as the session remembers."""
    changed: bool = False
    """True if the same call was made before, and never had this outcome."""
    pending: bool = False
    """True if its answer is not there yet by its own words, or its tool is declared to poll."""
    outcome: Key | None = None
    """Key of the masked outcome (or error)."""
    content: Key | None = None
    """Key of the lines and records of the outcome, in whatever order; of a long one its own."""
    outcome_exact: Key | None = None
    outcome_size: int = 0
    """Letters of the outcome, as many as it would have in English."""
    novelty: float | None = None
    """Part of the outcome that the session had not seen, 0 to 1; None if it is not known."""
    echo: bool = False
    """True if half or more of the outcome stood in the call's own arguments."""
    nothing: bool = False
    """True if the outcome says that nothing was found."""
    rejects: bool = False
    """True if the outcome turns down what was tried: a test that did not pass."""
    failing: bool = False
    """True if the call failed, or its outcome reports a failure."""
    error: bool = False
    error_class: ErrorClass = ErrorClass.UNKNOWN
    """Class of the error; UNKNOWN for a call that did not fail."""
    error_line: Key | None = None
    """Key of the line that names the error, numbers and volatile values masked."""
    error_shape: Key | None = None
    """Key of that line without what it quotes from the arguments."""
    call_error: bool = False
    """True if the error is about the call itself: unknown tool, wrong arguments. Of a tool that
    runs what the agent wrote it is an error of that."""
    effect: Effect = Effect.UNKNOWN
    runs_code: bool = False
    """True if the tool runs what the agent wrote: a shell, an interpreter, a database."""
    sample: str = ""
    """The first 256 characters of the arguments. Content: it never leaves the process."""
    place: tuple[Key, float] | None = None
    """Identity of all arguments but the one that pages, and its value; None if none does."""
    epoch: int = 0
    """Number of known changes of the world before this call."""
    time: int = 0
    """End of the call, nanoseconds since the epoch."""
    began: int = 0
    """When it began, after what it was told to sleep; 0 if unknown."""
    round: int = 0
    """Parallel calls share a round, and so do those that one message of a model asked for."""
    ease: float = 1.0
    """Factor of thresholds: above 1 for a tool whose repeats pay off, below 1 where a
    budget is nearly used."""
    agent: Key = 0
    """Key of the agent that made it; 0 if that is not known."""
    refused: bool = False
    """True if the call was not understood: wrong usage, wrong syntax, no such command."""
    idle: bool = False
    """True if it is a command that does nothing."""
    failure: Key | None = None
    """Key of the line that names the error, its numbers too, also where only the outcome says that
    the call failed; of an answer that only rejects what was tried, of all of it."""
    item: bool = False
    """True if it asks the same of another item than the call of its tool before. Told only of what
    found nothing, failed, or was answered by a word or two; of another number or id, and where it
    only reads of another name, also where up to 200 characters bring nothing new."""
    absent: bool = False
    """True if it failed because that item, asked for the first time, is not there."""
    file: Key | None = None
    """Key of the name of the file that it writes to, unless it runs what the agent wrote."""
    score: tuple[Key, float] | None = None
    """Key of the name of the number that its outcome measures (score, loss, failures, …), and the
    number."""
    revises: bool = False
    """True if its long arguments and outcome are nearly those of the call of its tool before."""
    brief: bool = False
    """True if it asks for one more item, is no search, and was answered by a word or two, or by a
    record, as those of items are alike: all that there is to say of it. Not where they say that
    nothing is there."""
    own: bool = False
    """True if it is known to read what the agent alone changes: its files."""
    empty: bool = False
    """True if its outcome is an empty list, or a record that holds no more."""
    transient: bool = False
    """True if it failed for a while, by its status or by what it says."""
    cut: bool = False
    """True if a limit cut its outcome: what stood behind may be another."""
    variant: bool = False
    """True if it was made before, and its short answer differs from the last in a name or two."""
    makes: bool = False
    """True if it creates, sends, orders or pays, by its name or as declared."""
    deed: Key | None = None
    """Key of tool and arguments without ids that mark the request, of a call that makes something;
    None if it has none."""
    rested: float = 0.0
    """Share of a rest between it and the same call before, 0 to 1; see `evidence.weight`."""
    hint_weight: float = 0.0
    """Weight of a repeat towards a hint, 0 to 1."""
    stop_weight: float = 0.0
    """Weight of a repeat towards a stop, 0 to 1."""
    waits: bool = False
    """True if it is a wait, or a look again at what is pending or may change by itself."""
    seen: bool = False
    """True if an equal outcome, volatile values masked, was given to its agent before, whatever the
    call; False also where the outcome was not captured."""
    numbers: Numbers | None = None
    """Of a call that was made before, the numbers in its outcome; None where nothing but digits is
    said, or none, or more than eight."""
    state: Key | None = None
    """Key of what a call leaves in the file that it writes, of another that works of what it shows,
    from 200 characters on: a page, a screen."""
    terms: frozenset[str] = frozenset()
    """Content words of a question (four letters or more, 32 at most); empty for code, for changes
    and for fewer than two words. Content: they never leave the process."""

    unanswered: bool = False
    """True if it failed because no answer came in time: it may have been done."""
    anew: bool = False
    """True if it had this outcome before, and a user asked for it once more in another turn."""
    args_cut: bool = False
    """True if the arguments are JSON that does not end: different calls may have the same key."""
    asked: int = 0
    """Tokens of the model calls since the tool call before, as far as they are known."""
    wait: Waited | None = None
    """The wait that it belongs to, if it `waits`: running totals, do not keep a reference."""
    ahead: tuple[Key, float] | None = None
    """Key of agent and tool, and the seconds by which a time among its arguments is later than its
    start: it may be the time of the call itself. None without one, and where it has a place."""
    _moment: Moment | None = None

    @property
    def moment(self) -> Moment:
        """The part that tables of calls keep: one shared tuple."""
        found = self._moment
        if found is None:
            found = self._moment = (
                self.call, self.tool, self.time, self.epoch, self.round, self.number
            )  # fmt: skip
        return found

    def needs(self, threshold: float) -> float:
        """Returns the effective threshold of this call, at least 2."""
        return max(threshold * self.ease, 2.0)

    def shown(self, threshold: float) -> float:
        """Returns the effective threshold of this call, as decisions show it."""
        return round(self.needs(threshold), 2)


@dataclass(frozen=True, slots=True)
class Exchange:
    """A hand-off, or the run of a sub-agent that nothing announced, as keys that compare fast.

    Of its text only keys are kept: 4 bytes for each of at most 64 words.
    """

    number: int
    source: str | None
    """Name of the agent that gives the work; None if it is not known."""
    agent: str
    """Name of the agent that gets it."""
    source_key: int | None
    key: int
    """Key of the receiver's name, as part of the identity of a loop."""
    words: array[int]
    """Sorted keys of the words, volatile values masked; of more than 64 the smallest."""
    terms: frozenset[int]
    """Keys of the content words, of four letters and more, 64 at most."""
    numbers: frozenset[int]
    """Keys of the words with a digit in them, 16 at most."""
    names: frozenset[int]
    """Keys of the words that look like names, 16 at most."""
    size: int
    """Characters of what was said."""
    silent: bool
    """True if it was passed on without a word or a call: its topic is that of the one before."""
    step: int
    """Number of its step within the session, of any kind."""
    time: int
    answers: int
    """Answers of tools and of asked agents that the session had seen by then."""
    unseen: int
    """Answers that had not been captured by then."""
    news: float
    """Sum of the novelty of the answers, each 0 to 1."""
    worded: float
    """The same with an agent's line only as new as its words."""
    repeats: int
    """Answers that the same call had already had before."""
    edits: int
    """Different changes of files by then."""


@dataclass(frozen=True, slots=True)
class NodeVisit:
    """A node of a graph was visited, or an agent beside others has run.

    What is new is told from everything that ended since the visit before in the same graph run:
    the state of the node, tool calls and their answers, what models wrote, what was handed over.
    """

    kind: Kind
    """`NODE` or `AGENT`."""
    name: str
    key: int
    """Key of graph run and name, as the identity of a loop."""
    place: int
    """Key of graph run, name and state: equal for two visits that gave the same."""
    graph: int
    """Key of the graph run; a user's turn and a new root run begin another one."""
    state: int | None
    """Key of what the node gave (or else got), whatever its order; None if neither is known."""
    news: bool
    """True if anything was seen that the graph run had not seen before."""
    known: bool
    """True if it can be told that nothing was new: by a state, or a tool call with its answer."""
    unseen: bool
    """True if something happened that may be new, and was not captured."""
    waiting: bool
    """True if time was given: a wait, or `tuning.calls.wait_gap_s` without work of a model."""
    again: bool
    """True if there was a visit of the same place since the last news."""
    home: bool
    """True if a stretch without news has come round again: detectors speak once per go-round."""
    gap: int | None
    """Nanoseconds since the start of the visit before; None for the first, or without times."""
    hint_weight: float = 1.0
    """What the tool calls since the last news say for a hint, 0 to 1, on the average; 1 where there
    were none. A node that passes on what a call gave says no more than the call."""
    stop_weight: float = 1.0
    """The same for a stop."""

    @property
    def moves(self) -> bool:
        """True if the graph got on, or gave time: what was counted before is over."""
        return self.news or self.waiting

    @property
    def idle(self) -> bool:
        """True if surely nothing new came of it, and no time was given."""
        return self.known and not (self.news or self.unseen or self.waiting)


CHANTED: Final = 6
"""Times in a row that sentences are a chant: a refrain comes four or five times."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of one text, or a place inside of it, where it repeats itself."""

    key: int
    """Key of what is repeated."""
    period: int
    """Its length, in characters."""
    times: int
    """Times that it occurs in a row; a lower bound for a very long tail."""


@dataclass(frozen=True, slots=True)
class Promise:
    """An action that a text announces: keys of the words that say which, and whether it begins."""

    words: frozenset[int]
    begins: bool

    def is_like(self, other: Promise) -> bool:
        """True if two announcements are of the same action.

        Half of their words are common; or both are to begin, and one does not say with what.
        """
        if self.begins and other.begins and not (self.words and other.words):
            return True
        common = len(self.words & other.words)
        return common > 0 and 2 * common >= len(self.words | other.words)


@dataclass(slots=True)
class Gain:
    """Totals of the tool calls of a session at some moment; see `Progress`."""

    answers: int
    unseen: int
    news: float
    epoch: int

    def nothing_since(self, before: Gain, most_news: float) -> bool:
        """True if nothing was changed since, and what tools answered was hardly new.

        An answer that was not captured may all be new; `most_news` is the mean novelty, 0 to 1, up
        to which answers are hardly new.
        """
        if self.epoch != before.epoch or self.unseen != before.unseen:
            return False
        answers = self.answers - before.answers
        return self.news - before.news <= most_news * answers if answers else True


@dataclass(slots=True)
class ModelText:
    """One text of a model, with what its session had come to by then."""

    speaker: int
    """Key of its author: agent, node and model."""
    name: str
    """Name for messages: the agent, or "the model"."""
    turn: int
    """Number of the turn; from one to the next a user may have spoken."""
    key: int
    """Key of the text as it is."""
    size: int
    """Letters of the text, as many as it would have in English."""
    words: int
    """Words of its sample."""
    structured: bool
    """True if it is data rather than prose: JSON, a table, a block of code."""
    alike: float
    """Share of its sample that stood in the speaker's text before, 0 to 1; 0 for the first, and if
    something came of what was done in between, unless both are equal."""
    renumbered: bool
    """True if it is like the speaker's text before, and nothing but numbers differs."""
    beside: bool
    """True if it was begun before the speaker's text before had ended."""
    hedges: int
    """Phrases of doubt in its sample."""
    apologies: int
    personal: bool
    """True if it speaks of itself: "I", "we", "let me"."""
    promise: Promise | None
    tail: Tail | None
    """Its end, if that repeats itself."""
    acts: int
    """Times that the session had done something, or may have: tool calls, hand-offs, model calls
    without a text."""
    calls: int
    """Tool calls of the session by then."""
    gain: Gain
    chant: Tail | None = None
    """Sentences inside of it that are said over and over, unless its end repeats itself."""


@dataclass(frozen=True, slots=True)
class ModelAttempt:
    """A model call that failed, or the first of the same agent that worked after such ones."""

    key: int
    """Identity of the failures of this agent's model calls, as a loop."""
    name: str
    """Name for messages: the agent, or "the model"."""
    error: int | None
    """Key of the line that names the error; None if the call worked."""
    error_class: ErrorClass
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A list of tasks, as a model wrote it or handed it to a tool that keeps such lists."""

    speaker: int
    name: str
    """Name for messages: the agent, or "the model"."""
    items: frozenset[int]
    """Keys of the tasks, done or not."""
    done: int
    epoch: int
    """Changes of the world by then, except to the list itself."""
    call: int | None = None
    """Number of the tool call that it was handed over with; None of a text."""


_LOOK: Final = 4_000
"""Characters of an error text that are read, half from its head and half from its tail."""

_KINDS: Final = "error_kinds.txt"
_TRANSIENT_STATUS: Final = frozenset((408, 429, *range(500, 600)))


@cache
def _table(name: str) -> dict[str, str]:
    """The patterns of a table beside this module, in its order."""
    return {row.name: "|".join(row.lines) for row in read_table(__name__, name)}


@cache
def _compiled(table: str, name: str) -> re.Pattern[str]:
    """A pattern, compiled for the first error that it is tried on: most processes see few."""
    return re.compile(_table(table)[name])


def _says(name: str, text: str) -> bool:
    return _compiled("error_classes.txt", name).search(text) is not None


def text_class(text: str) -> ErrorClass:
    """Class of an error by its text: whether trying again can help; UNKNOWN if that is not told.

    Rules: 429, 5xx, time-outs and connections are transient; validation, not found, permission
    and unknown tools are deterministic (notes on identity, DESIGN.md).
    """
    # Three times as quick as patterns that ignore case.
    return _class_of(look(text).lower())


@lru_cache(maxsize=16)
def _class_of(text: str) -> ErrorClass:
    """The same for a short text in lower case; cached, as several parts of the guard ask."""
    if _says("transient", text) or (_says("later", text) and not _says("forbidden", text)):
        return ErrorClass.TRANSIENT
    return ErrorClass.DETERMINISTIC if _says("deterministic", text) else ErrorClass.UNKNOWN


def names_call_error(text: str) -> bool:
    """True if an error is about the call itself: unknown tool, wrong or missing arguments."""
    return _says("call_error", look(text).lower())


@lru_cache(maxsize=16)
def text_signature(text: str) -> str | None:
    """Returns the kind of error in a text; None if it is unknown."""
    text = text.lower()
    found = (name for name in _table(_KINDS) if _compiled(_KINDS, name).search(text))
    return next(found, None)


def exception_class(error: BaseException) -> ErrorClass:
    """Class of an exception: whether trying again can help; UNKNOWN if that is not told.

    Looked at, in this order: its HTTP status (`status_code`, `status`, `code`, or that of its
    `response`), the names of its class and of those above it, its text.
    """
    status = _status(error)
    if status is not None:
        return ErrorClass.TRANSIENT if status in _TRANSIENT_STATUS else ErrorClass.DETERMINISTIC
    if any(_says("transient_names", kind.__name__) for kind in type(error).__mro__):
        return ErrorClass.TRANSIENT
    return text_class(f"{type(error).__name__} {error}")


def look(text: str) -> str:
    """Head and tail of a long text, 4,000 characters together; a short one as it is."""
    if len(text) <= _LOOK:
        return text
    half = _LOOK // 2
    return f"{text[:half]}\n{text[-half:]}"


def _status(error: BaseException) -> int | None:
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "status", "code"):
            found: object = getattr(holder, name, None)
            if isinstance(found, int) and 400 <= found < 600:
                return found
    return None
