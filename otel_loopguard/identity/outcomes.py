"""The outcome of one call, as keys that compare in O(1)."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from otel_loopguard.identity.canonical import (
    bounded,
    canonical,
    is_cut_json,
    key_of,
    parsed,
    text_bytes,
)
from otel_loopguard.identity.errors import error_text
from otel_loopguard.identity.masks import masked_outcome
from otel_loopguard.identity.readings import reading_of

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_SHORT: Final = 400
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
        if self.key is None or self.size > _SHORT:
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
    return _turns_down(raw[:_SHORT]) or (len(raw) > _SHORT and _turns_down(raw[-_SHORT:]))


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

    Args:
        outcome: The outcome; its last 2,000 bytes are looked at.
    """
    low = outcome.raw[-_SCORED:].lower()
    if not any(name in low for name in _MEASURES):
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
    """Whether an outcome says that it failed: an exit code, a status, a traceback.

    Args:
        outcome: The outcome.
        said: Its JSON value, where that is known already.
    """
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
    """The outcome of a finished call, of a failed one what it said.

    Args:
        step: The call.
        limit: Bytes that are looked at; of a longer outcome head, tail and length.
    """
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
