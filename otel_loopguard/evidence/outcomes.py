"""The outcome of one call as keys that compare in constant time, and what it says."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from otel_loopguard._util.bounded_json import LONGEST, MANY
from otel_loopguard.core import Effect, Kind
from otel_loopguard.evidence.effects import command_of, is_compound, is_shell
from otel_loopguard.evidence.errors import error_text, is_call_error
from otel_loopguard.evidence.normalize import (
    bounded,
    canonical,
    is_cut_json,
    key_of,
    masked_outcome,
    parsed,
    text_bytes,
)

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_LOOK: Final = 2_000
_SENTENCE: Final = 400
_WORD: Final = 120
_WORDS: Final = (
    rb"pending|in[ _-]?progress|(?:en)?queued?|running|waiting|processing|working|starting|"
    rb"scheduled|provisioning|initiali[sz]ing|creating|submitted|accepted|"
    rb"preparing|building|deploying|rolling|uploading|downloading|compiling|indexing|rendering|"
    rb"training|syncing|updating|installing|loading|pulling|transcoding|converting|exporting|"
    rb"importing|generating|validating|verifying|awaiting\w*|ongoing|incomplete|"
    rb"unfinished|delayed|deferred|retrying|warming|booting|executing|in[ _-]?review|"
    rb"under[ _-]review|not[ _-](?:yet[ _-]|ready|started|finished|done|complete)\w*|dispatched|"
    rb"on[ _-]hold"
)
_FIELD: Final = re.compile(
    rb"\b(?:\w{1,20}[_ .-]?)?(?:status|state|phase|stage|progress|lifecycle)\b[\"']?"
    rb"(?: is)?(?:\s{0,3}[:=>]|[^<>\n]{0,40}>| )\s{0,3}[\"']?(?:" + _WORDS + rb")\b"
    rb"|\b(?:is_?)?(?:done|ready|finished|completed?|available|approved|terminal|resolved)[\"']?"
    rb"\s{0,3}[:=>]\s{0,3}[\"']?(?:false|no|0|null|none)\b"
    rb"|(?:status|code|http)[\w/. \"']{0,12}[:=>\s]\s{0,3}[\"']?202\b|\b202 accepted|"
    rb"^\W{0,3}202\W{0,3}$"
)
"""A field that says so, whatever stands around it."""
_SAYS: Final = re.compile(
    rb"\b(?:pending|in[ _-]progress|(?:en)?queued|not (?:yet )?(?:ready|available|finished|done|"
    rb"complete|completed|started|processed|approved|answered|arrived|there)|"
    rb"(?:isn|hasn|aren|haven)'t (?:\w{1,20} ){0,3}yet|(?:no|not|nothing)\b.{0,60}\byet|"
    rb"still \w+|awaiting|waiting (?:for|on|to)|please wait|check (?:back|again)|"
    rb"(?:try|ask|come|look) (?:again|back) (?:later|in|soon|shortly)|retry[- _]?after|"
    rb"under review|in (?:the )?queue|being \w+ed|no new output|eta\b ?[:=~]? ?\d|"
    rb"(?:container|pod)(?:creat|initializ)ing|"
    rb"\d+(?:\.\d+)? ?(?:s|secs?|seconds?|m|mins?|minutes?|h|hours?|%) (?:remaining|left|to go))"
)
_SHORT: Final = re.compile(
    rb"\b(?:running|processing|waiting|working|starting|scheduled|provisioning|initiali[sz]ing|"
    rb"loading|active|ongoing|unfinished|incomplete|"
    rb"(?<![\d.])\d{1,2}(?:\.\d{1,3})? ?%|"
    rb"\d+ ?(?:/|of) ?\d+ (?:done|completed?|processed|ready|finished|jobs|steps|tasks))"
    rb"|^\W{0,4}(?!nothing|missing|warning|string|something|anything|everything|king|thing|"
    rb"meeting|listing|setting|morning|evening|spring)[a-z]{3,20}ing"
    rb"(?:\W{0,4}$|[^\n]{0,80}(?:\.\.\.|\xe2\x80\xa6)\W{0,4}$)"
)
_NOT_OVER: Final = re.compile(
    rb"\b(?:not|no|n't|0|until|when|once|if|after|before|for) (?:\w{1,20} ){0,3}?"
    rb"(?:done|finished|completed?|success\w{0,5}|failed|failures?|errors?|stopped|exited)"
)
_OVER: Final = re.compile(
    rb"\b(?:fail(?:s|ed|ure|ures)?|errors?|exception|traceback|denied|crash\w{0,12}|abort(?:ed)?|"
    rb"cancell?ed|completed?|finished|done|success\w{0,5}|succeeded|exited|killed|timed out|"
    rb"not found|no such|stopped|rejected|invalid|refused|fatal|unavailable|expired|closed|"
    rb"not running)\b"
)
_ASKS: Final = re.compile(
    r"(?i)(?:^|_|\b)(?:is|has|are|await|poll|wait)(?:_?for)?_?(?:\w*_)?(?:ready|done|finished|"
    r"completed?|available|approved|arrived|started|running|over)|poll|await"
)
_NO: Final = frozenset((b"false", b"no", b"0", b"null", b"none", b"no.", b"not yet", b"{}", b"[]"))


def is_pending(outcome: Outcome, tool: str) -> bool:
    """Whether an outcome says by itself that it is not there yet: running, queued, not ready, 202.

    A field that says so counts wherever it stands in the first 2,000 bytes; words do in an answer
    of at most 400 characters, and words that mean other things too in one of at most 120. What
    speaks of an end, good or bad, is not pending.
    """
    if outcome.key is None:
        return False
    low = outcome.raw[:_LOOK].lower()
    said = outcome.said
    if outcome.size <= _WORD and said.strip(b" \"'\n") in _NO:
        return _ASKS.search(tool) is not None
    if _FIELD.search(low) is not None or _FIELD.search(said) is not None:
        return True
    if outcome.size > _SENTENCE:
        return False
    if _SAYS.search(low) is None and (outcome.size > _WORD or _SHORT.search(said) is None):
        return False
    return _OVER.search(_NOT_OVER.sub(b"", low)) is None


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
    """Whether a call presses, clicks, scrolls, types or moves, by its name or its action."""
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


class Reading(NamedTuple):
    """What `prepare` found in a step, and what it found it in: another span may add to a step.

    Attributes:
        args: The arguments that it was made of.
        outcome: The outcome, likewise.
        error: Whether the step had failed.
        error_text: What the error said, likewise.
        limit: Characters that were looked at.
        arguments: The JSON value of the arguments.
        said: The JSON value of the outcome.
        raw: Canonical bytes of the arguments; None of text.
        found: The outcome as keys; None where nobody asks for it.
        leaves: Keys of the values in outcome and arguments of a graph's node.
    """

    args: object
    outcome: object
    error: bool
    error_text: str | None
    limit: int
    arguments: object
    said: object
    raw: bytes | None = None
    found: Outcome | None = None
    leaves: tuple[frozenset[int] | None, frozenset[int] | None] = (None, None)


def prepare(step: Step, limit: int = LONGEST) -> None:
    """Parses arguments and outcome of a step, once and before the session's lock is taken."""
    if (step.args is None and step.outcome is None and not step.error) or reading_of(step):
        return
    arguments, said = parsed(step.args, MANY), parsed(step.outcome)
    raw = found = None
    if step.kind is Kind.TOOL:
        found = outcome_of(step, limit)
        if arguments is not None and not isinstance(arguments, str):
            raw = canonical(arguments)
            raw = raw if len(raw) <= limit else bounded(raw, limit)
    leaves = None, None
    if step.kind is Kind.NODE or step.kind is Kind.AGENT:
        gave = step.error_text if step.outcome is None else said
        leaves = (
            None if gave is None else leaves_of(gave),
            None if step.args is None else leaves_of(arguments),
        )
    step.reading = Reading(
        step.args, step.outcome, step.error, step.error_text, limit, arguments, said, raw, found,
        leaves,
    )  # fmt: skip


def reading_of(step: Step) -> Reading | None:
    """What was found in a step before; None if nothing was, or the step has changed since."""
    found = step.reading
    if (
        isinstance(found, Reading)
        and found.args is step.args
        and found.outcome is step.outcome
        and found.error_text is step.error_text
    ):
        return found
    return None


def arguments_of(step: Step) -> object:
    """The arguments of a step as a JSON value, or text that is none."""
    found = reading_of(step)
    return parsed(step.args, MANY) if found is None else found.arguments


def said_of(step: Step) -> object:
    """The outcome of a step as a JSON value, or text that is none."""
    found = reading_of(step)
    return parsed(step.outcome) if found is None else found.said


_OUTPUTS: Final = ("error", "stderr", "stdout", "output", "message", "result")
_LINES: Final = 3
_WIDTH: Final = 400
_HEAD: Final = 1_200
_MANUAL: Final = 600
_SKIPPED: Final = re.compile(r"(?i)exit ?code:? ?\d{1,3}$|\W*$")
_REFUSED: Final = re.compile(
    r"(?i)<tool_use_error>|input ?validation ?error|"
    r"\b(?:unrecogni[sz]ed|unknown|invalid|illegal) (?:command(?:[: ]|$)|option\b|arguments?:)|"
    r"the following arguments are required"
)
_USAGE: Final = re.compile(r"(?i)\A[\d:.,\[\]TZ+ -]{0,40}(?:\S{1,40} ?: )?usage:? ")
_SYNTAX: Final = re.compile(
    r"syntax error (?:near|:|at) |^\S{0,40}sh: .{0,80}syntax error|"
    r"unexpected EOF while looking for|syntax error: unexpected"
)
_UNKNOWN: Final = re.compile(
    r"\S: (?:command not found|not found(?:$| \())|command not found: |"
    r"is not recogni[sz]ed as (?:an internal or external command|the name of a cmdlet)"
)
_A_SHELL: Final = re.compile(r"sh(?:: |$)|command|cmdlet")
_HELP: Final = re.compile(
    r"(?:^|[;&|]\s*)(?:help|man|info|cat|head|tail|less|more|grep|sed)\b|\s(?:--?help|-h|-\?|/\?)(?:\s|$)"
)

_QUIET: Final = re.compile(r"(?i)\A\W{0,2}[\w ]{0,60}\b(?:no|any) (?:console )?output\W{0,2}$")
_METER: Final = re.compile(
    r"(?i)(?:\d{4}-\d\d-\d\d[T ])?\d{1,2}:\d\d[\d:.,Z+-]*|"
    r"(?:(?:took|in|after|elapsed|duration|time)\W{1,4})?(?:\d{1,20}(?:\.\d{0,20})?|\.\d{1,20})"
    r" ?(?:ns|us|ms|s|secs?|seconds?)"
)
"""A clock or a duration, which some tools put around every answer."""
_COLON: Final = re.compile(r"\A\s*(?::(?:\s|$)|true\s*$|#[^\n]*$)")
_ECHO: Final = re.compile(r"\A\s*echo\b(?:[^|<>;&$`\n\\]|\\.)*$")
_REDIRECT: Final = re.compile(r"(?<!\d)(?<!&)>{1,2}\s*(?![&\s]|/dev/null)\S|<<|\$\(|`")


def refusal_of(step: Step, arguments: object) -> bytes | None:
    """The line that says that a call was refused; None if it was not, or nothing says so.

    Refused: the tool or the shell did not understand the call. It says how it is to be used, that
    it has no such command or option, or where the syntax is wrong. Help that was asked for is no
    refusal, and neither is text that only quotes one: it has to stand in the first three lines.
    """
    text = _said(step)
    if not text:
        return None
    shell = is_shell(step.name or "")
    lines = [line.strip() for line in text[:_HEAD].split("\n")[: 2 * _LINES]]
    for line in [line[:_WIDTH] for line in lines if not _SKIPPED.match(line)][:_LINES]:
        refused = _REFUSED.search(line) is not None or (
            shell
            and (
                _SYNTAX.search(line) is not None
                or (_UNKNOWN.search(line) is not None and _A_SHELL.search(line) is not None)
            )
        )
        if not refused and _USAGE.match(line) is not None:
            asked = shell and _HELP.search((command_of(arguments) or "")[:_WIDTH]) is not None
            refused = not asked and (step.error or len(text) <= _MANUAL)
        if refused:
            return text_bytes(line)
    if step.error and not shell and is_call_error(step):
        return text_bytes(text[:_WIDTH])
    return None


def changed_nothing(line: bytes, step: Step, arguments: object) -> bool:
    """Whether a refused call did nothing at all: of a list of commands the others may have run."""
    if not is_shell(step.name or ""):
        return True
    return _SYNTAX.search(line.decode("utf-8", "replace")) is not None or not is_compound(arguments)


def does_nothing(step: Step, arguments: object) -> bool:
    """Whether a shell command does nothing: `:`, a comment, punctuation, a mere `echo`."""
    if step.error or not is_shell(step.name or ""):
        return False
    command = command_of(arguments)
    if command is None:
        return False
    if not any(letter.isalnum() for letter in command[:_WIDTH]):
        return len(command) <= _WIDTH and _refusal_says_nothing(step)
    if _ECHO.match(command):
        return True
    return (
        _COLON.match(command) is not None
        and _refusal_says_nothing(step)
        and _REDIRECT.search(command) is None
    )


def _said(step: Step) -> str:
    """What a call came to, as text: of a map what it has under the names of a process's output."""
    if step.error_text:
        return step.error_text
    found = said_of(step)
    if isinstance(found, dict):
        named = cast("dict[str, object]", found)
        parts = (named.get(name) for name in _OUTPUTS)
        return "\n".join(part[:_HEAD] for part in parts if isinstance(part, str) and part)
    return step.outcome if isinstance(step.outcome, str) else ""


def _refusal_says_nothing(step: Step) -> bool:
    if step.outcome is None:
        return False
    said = _said(step)[:_WIDTH]
    rest = _METER.sub("", said)
    silent = not said.strip() if rest == said else re.search(r"\w", rest) is None
    return silent or _QUIET.match(said) is not None


_MOST: Final = 256
_MAX_STATE_CHARS: Final = 100_000
_NAMED: Final = 200
_VOLATILE: Final = frozenset(
    ("tool_call_id", "run_id", "checkpoint_id", "checkpoint_ns", "langgraph_step",
     "usage_metadata", "response_metadata", "usage")
)  # fmt: skip
_MESSAGES: Final = (frozenset(("content", "type")), frozenset(("content", "role")))
_CALLS: Final = (frozenset(("name", "args")), frozenset(("function", "type")))


def leaves_of(state: object) -> frozenset[int]:
    """Keys of the values in a state, each with the name that it stands under.

    Order and number of equal values do not matter: a log to which a line is added that it has
    already holds nothing new. Ids of messages and calls, token counts and values that `masks` takes
    for volatile do not count; numbers do.
    """
    whole = parsed(state)
    waiting: list[tuple[str, object]] = [("", whole)]
    found: set[int] = set()
    looked = 0
    while waiting and looked < _MOST:
        name, item = waiting.pop()
        looked += 1
        if isinstance(item, dict):
            waiting.extend(_named(cast("dict[object, object]", item)))
        elif isinstance(item, (list, tuple)):
            items = cast("list[object]", item)
            waiting.extend((name, inner) for inner in items[-_MOST:])
        else:
            found.add(_leaf(name, item))
    if waiting:
        found.add(key_of(bounded(canonical(whole), _MAX_STATE_CHARS)))
    return frozenset(found)


def _named(item: dict[object, object]) -> list[tuple[str, object]]:
    """The entries of a map, without those that differ although nothing is new."""
    without_id = any(item.keys() >= shape for shape in (*_MESSAGES, *_CALLS))
    return [
        (str(name)[:_NAMED], inner)
        for name, inner in islice(item.items(), _MOST + 1)
        if name not in _VOLATILE and not (without_id and name == "id")
    ]


def _leaf(name: str, item: object) -> int:
    raw = text_bytes(item) if isinstance(item, str) else canonical(item)
    # With its name before it, as the masks look for `took`, `created_at` and the like.
    return key_of(masked_outcome(b"%b: %b" % (text_bytes(name), bounded(raw, _MAX_STATE_CHARS))))


_SHORT_OUTCOME: Final = 400
_NOTHING: Final = re.compile(
    rb"\b(?:(?:no|0|zero) (?:\w{1,20} ){0,2}(?:results?|matches|match|records?|rows?|items?|"
    rb"files?|documents?|hits|entries|data|occurrences|mentions)(?: \w{1,20}){0,3}? "
    rb"?(?:found|returned|available|matched)?|nothing (?:was )?found|not found|none found|"
    rb"no such|does not exist|returned no|did not (?:find|match|return)|empty (?:set|result|list))"
)
_REJECTS: Final = re.compile(
    rb"\b(?:did(?: not|n't) pass|not pass(?:ed)?|(?:[1-9]\d{0,5}|tests?|checks?|case|build) "
    rb"fail(?:ed|ures?|ing)?|fail(?:ed|ure)\b|incorrect|wrong|rejected|"
    rb"not (?:correct|accepted|valid))"
)
_NONE_FAILED: Final = re.compile(
    rb'\b(?:0|no|zero|none) (?:\w{1,12} )?fail\w{0,5}|"?fail\w{0,5}"?[:=] ?0\b'
)
_CODES: Final = ("exit_code", "exitcode", "returncode", "return_code")
_FAILED: Final = frozenset({"error", "failed", "failure", "fatal"})
_SAYS_FAILED: Final = re.compile(
    rb"(?i)\A\s{0,8}(?:(?:error|exception|fatal|failed|failure|traceback)\b|exit ?code:? ?[1-9])"
)
_LIMITS: Final = ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT")
_SAID: Final = 2_000
_AROUND: Final = re.compile(rb"[(\[]?\b(?:took|in|after|at|took:)? ?#(?: ?ms\b)?[)\]]?")
_LEAST_CUT: Final = 64
_ROUND: Final = 250
_MARK: Final = 80
_CUT: Final = re.compile(
    rb"(?i)(?:\.\.\.|\xe2\x80\xa6|[\[(<.]{1,3} ?(?:output )?(?:cut|clipped|shortened|omitted|"
    rb"snip(?:ped)?)\b[^\n]{0,60}|\btruncated\b[^\n]{0,60}|"
    rb"\b\d+ more (?:characters|chars|bytes|lines)[^\n]{0,30})\W{0,4}$"
)
_MEASURES: Final = (
    b"score", b"accuracy", b"loss", b"error", b"f1", b"auc", b"rmse", b"mae", b"mse", b"reward",
    b"fitness", b"precision", b"recall", b"perplexity", b"bleu", b"coverage", b"failed",
    b"failures", b"passed",
)  # fmt: skip
_NUMBER: Final = rb"-?\d{1,12}(?:\.\d{1,15})?(?:e[+-]?\d{1,3})?"
_MEASURED: Final = re.compile(
    rb"\b(\w{0,20}(?:%b)s?)[\"']?\s{0,3}[:=]\s{0,3}(%b)(?![\w.]*\w)"
    % (b"|".join(_MEASURES), _NUMBER)
)
_COUNTED: Final = re.compile(rb"\b(\d{1,9}) (failed|failing|failures?|errors?)\b")
_SCORED: Final = 2_000
_TRACEBACK: Final = "Traceback (most recent call last)"


class Outcome(NamedTuple):
    """The outcome of one call.

    Attributes:
        exact: Key of the outcome (or error) as it is; None if it was not captured.
        key: Key of it with volatile values masked.
        size: Characters.
        masked: The masked bytes, bounded.
        raw: The bytes as they are, bounded.
        cut: Whether a limit cut it, as far as can be told: two of them are equal by a guess.
    """

    exact: int | None
    key: int | None
    size: int
    masked: bytes
    raw: bytes
    cut: bool = False

    @property
    def said(self) -> bytes:
        """The head of it in lower case, without clocks, durations and ids around what it says."""
        low = self.masked[:_SAID].lower()
        return _AROUND.sub(b" ", low).strip() if b"#" in low else low.strip()

    @property
    def nothing(self) -> bool:
        """Whether it says that nothing was found."""
        if self.key is None or self.size > _SHORT_OUTCOME:
            return False
        low = self.raw.lower()
        # What every match has in it; a search costs ten times as much.
        if b"no" not in low and b"0 " not in low and b"zero" not in low and b"empty" not in low:
            return False
        return _NOTHING.search(low) is not None


_UNSEEN: Final = Outcome(None, None, 0, b"", b"")


def rejects(outcome: Outcome) -> bool:
    """Whether an outcome turns down what was tried, in words, in its head or its tail."""
    if outcome.key is None:
        return False
    raw = outcome.raw
    return _turns_down(raw[:_SHORT_OUTCOME]) or (
        len(raw) > _SHORT_OUTCOME and _turns_down(raw[-_SHORT_OUTCOME:])
    )


def _turns_down(text: bytes) -> bool:
    low = text.lower()
    # What every match has in it; a search costs ten times as much.
    if b"fail" in low or b"pass" in low or b"correct" in low or b"rong" in low or b"ejected" in low:
        if _NONE_FAILED.search(low) is not None:
            low = _NONE_FAILED.sub(b"", low)
        return _REJECTS.search(low) is not None
    return b"not " in low and _REJECTS.search(low) is not None


def score_of(outcome: Outcome) -> tuple[int, float] | None:
    """What an outcome measures last: key of the name and the number; None if it measures nothing.

    Names are the usual ones (score, accuracy, loss, …), alone or as the end of a longer one, before
    a number; or a number of failures or errors. An `error` without a fraction is a code.
    """
    low = outcome.raw[-_SCORED:].lower()
    # Spelled out: `any` over a generator costs more.
    for name in _MEASURES:
        if name in low:
            break
    else:
        return None
    found: tuple[bytes, bytes] | None = None
    for match in _MEASURED.finditer(low):
        if not match[1].rstrip(b"s").endswith(b"error") or b"." in match[2]:
            found = match[1], match[2]
    if found is None:
        for match in _COUNTED.finditer(low):
            found = match[2][:4], match[1]
    return None if found is None else (key_of(found[0]), float(found[1]))


def reports_failure(outcome: object, said: object = None) -> bool:
    """Whether an outcome says that it failed: an exit code, a status, a traceback."""
    found = parsed(outcome) if said is None else said
    if isinstance(found, dict):
        return _fields_report(cast("dict[str, object]", found))
    if not isinstance(outcome, str):
        return False
    head = outcome[:200].encode("utf-8", "replace")
    return _SAYS_FAILED.match(head) is not None or _TRACEBACK in outcome[-4000:]


def _fields_report(fields: dict[str, object]) -> bool:
    for name in _CODES:
        code = fields.get(name)
        if isinstance(code, int) and code != 0:
            # A search that matches nothing says 1, and nothing else.
            said = any(isinstance(value, str) and value.strip() for value in fields.values())
            return code != 1 or said
    status = fields.get("status")
    return (
        (isinstance(status, str) and status.lower() in _FAILED)
        or fields.get("success") is False
        or fields.get("ok") is False
        or bool(fields.get("error"))
    )


def outcome_of(step: Step, limit: int) -> Outcome:
    """The outcome of a finished call, of a failed one what it said."""
    read = reading_of(step)
    if (
        read is not None
        and read.found is not None
        and (read.error, read.limit) == (step.error, limit)
    ):
        return read.found
    value = step.outcome
    if step.error and (value is None or step.error_text):
        value = error_text(step)
    if value is None:
        return _UNSEEN
    raw = text_bytes(value) if isinstance(value, str) else canonical(value)
    if len(raw) > limit:
        raw = bounded(raw, limit)
    cut = isinstance(value, str) and _is_cut(value, raw)
    exact = key_of(raw)
    masked = masked_outcome(raw)
    return Outcome(exact, exact if masked is raw else key_of(masked), len(raw), masked, raw, cut)


def _is_cut(text: str, raw: bytes) -> bool:
    """Whether text ends where a limit ends it: of as many characters as limits have, or marked so.

    JSON that does not end was cut as well. Text of one of these lengths by chance is rare.
    """
    if raw[:1] in (b"{", b"[") and raw[-1:] in (b"}", b"]"):
        return False
    size = len(text)
    if size >= _LEAST_CUT and (size in _limits() or size % _ROUND == 0 or not size & (size - 1)):
        return True
    return is_cut_json(raw) or (size >= _MARK and _CUT.search(raw[-_MARK:]) is not None)


def _limits() -> frozenset[int]:
    """The limits of attributes that this process is told to have."""
    return frozenset(
        int(found) for name in _LIMITS if (found := os.environ.get(name, "")).isdecimal()
    )
