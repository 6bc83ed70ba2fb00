"""Masks for what changes by itself: clocks, durations, ids, process numbers, temporary paths.

Plain numbers are never masked: "37 %" -> "41 %" is progress, an offset is a place. The patterns
run only where a byte-level look says that they could match, because a regular expression over a
long outcome costs more than everything else the guard does.
"""

from __future__ import annotations

import re
from typing import Final

from otel_loopguard.identity.canonical import key_of

_NAMES: Final = 1_000
_SPAN: Final = 16_000
"""Bytes of a text that are masked, half from its head and half from its tail."""

_RIND: Final = b"# \t\r\n\"'{}[]().,:;|"

_FLAT: Final = bytes.maketrans(b"123456789", b"000000000")
_HEX: Final = bytes.maketrans(b"123456789abcdefABCDEF", b"0" * 21)

_TIMES: Final = re.compile(
    rb"\d(?<![\w.]\d)(?:"
    rb"\d{3}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|GMT)|[+-]\d\d:?\d\d)?"
    rb"|\d?:\d\d:\d\d(?:[.,]\d+)?(?: ?[AaPp][Mm])?"
    rb"|\d*(?:\.\d+)? ?(?:ms|us|ns|s|secs?|seconds?|milliseconds?|minutes?|mins?|hours?)(?!\w)"
    rb"|(?<=1)[4-9]\d{8}(?:\d{3})?(?:\.\d+)?(?!\d)"
    rb")"
)
_TIME_SIGN: Final = re.compile(rb"0(?:0{9}|:00| ?[smunh])")
"""What every match of `_TIMES` looks like once its digits are zeros."""

_IDS: Final = re.compile(
    rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}|(?:0x)?[0-9a-fA-F]{16,}"
)
_POINTER: Final = re.compile(rb"0x[0-9a-fA-F]{6,}")
_PROCESS: Final = re.compile(rb"(?i)\bpid\W{1,3}\d+")
_TEMPORARY: Final = re.compile(rb"/(?:tmp|var/tmp|var/folders)/[\w.@+-]+")
_FIELDS: Final = re.compile(
    rb'(?i)("?\b(?:took|elapsed|duration|latency|uptime|timestamp|created_at|updated_at|request_?id|'
    rb"correlation_?id|trace_?id|nonce)(?:_?(?:ms|us|ns|s|secs?|seconds|time))?\"?\s{0,2}[:=]\s{0,2})"
    rb'(?:"[^"\n]{0,64}"|[\d.]+)'
)
_STAMPS: Final = re.compile(
    rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|GMT)|[+-]\d\d:?\d\d)?"
    rb"|1[4-9]\d{8}(?:\d{3})?(?:\.\d+)?(?!\d)"
)
_NUMBERS: Final = re.compile(rb"\d+")

VOLATILE_ARGUMENTS: Final = frozenset(
    {
        "request_id", "requestId", "req_id", "correlation_id", "correlationId", "trace_id",
        "traceId", "idempotency_key", "idempotencyKey", "nonce", "timestamp", "ts", "current_time",
        "tool_call_id", "reason", "reasoning", "description", "thought", "thoughts", "explanation",
        "rationale", "justification", "task_progress",
    }
)  # fmt: skip
"""Names of arguments that say who asks, when, or why, but not what for."""


_ASKING: Final = re.compile(
    r"(?i)req|trace|span|corr|nonce|idemp|attempt|call_?id|stamp|seed|salt|etag|cache|^rid$|_rid$"
)


def masked_outcome(raw: bytes) -> bytes:
    """An outcome with volatile values replaced; of a long one in its head and tail only.

    Linear in the length; the middle of a long one counts as it is.
    """
    if len(raw) > _SPAN:
        half = _SPAN // 2
        middle = b"%x" % key_of(raw[half:-half])
        return b"%b|%b|%b" % (_masked(raw[:half]), middle, _masked(raw[-half:]))
    masked = _masked(raw)
    # Of an answer that is nothing but a time its mask leaves nothing: it is told by the time.
    return masked if masked is raw or masked.strip(_RIND) else raw


def masked_call(raw: bytes) -> bytes:
    """Arguments with ids, full timestamps, pointers and temporary paths replaced.

    Durations, dates, numbers and places stay: they are what a call asks for. The middle of what is
    long counts as it is.
    """
    if len(raw) > _SPAN:
        half = _SPAN // 2
        head, tail = raw[:half], raw[-half:]
        ends = masked_call(head), masked_call(tail)
        if ends[0] is head and ends[1] is tail:
            return raw
        return b"%b|%x|%b" % (ends[0], key_of(raw[half:-half]), ends[1])
    flat = raw.translate(_FLAT)
    if b"0" not in flat:
        return raw
    out = raw
    if b"0:00:00" in flat or b"0000000000" in flat:
        out = _STAMPS.sub(b"#", out)
    return _without_ids(raw, flat, out)


def masked_numbers(raw: bytes) -> bytes:
    """An error line with every number replaced: its shape, whatever the arguments were."""
    return _NUMBERS.sub(b"#", _masked(raw))


def without_volatile(arguments: dict[str, object]) -> dict[str, object]:
    """The arguments without those that are volatile by name, if any others remain."""
    if VOLATILE_ARGUMENTS.isdisjoint(arguments):
        return arguments
    kept = {name: item for name, item in arguments.items() if name not in VOLATILE_ARGUMENTS}
    return kept or arguments


def without_nonces(arguments: dict[str, object]) -> dict[str, object]:
    """The arguments with the values masked that look volatile; the very same dict if none does.

    Of more than a thousand arguments none is looked at. In a text of several words ids, timestamps
    and temporary paths are masked. A value that is an id and nothing else says what is asked for,
    unless its name says that it marks the asking.
    """
    masked: dict[str, object] = {}
    if len(arguments) > _NAMES:
        return arguments
    for name, value in arguments.items():
        # Keys that are no text come from what is no JSON.
        if isinstance(value, str) and (" " in value or _ASKING.search(str(name))):
            raw = value.encode("utf-8", "surrogatepass")
            found = masked_call(raw)
            if found is not raw:
                masked[name] = found.decode("utf-8", "replace")
    return {**arguments, **masked} if masked else arguments


def _masked(raw: bytes) -> bytes:
    flat = raw.translate(_FLAT)
    if b"0" not in flat:
        return raw
    out = raw
    if b":" in flat or b"=" in flat:
        if _has_fields(flat):
            out = _FIELDS.sub(rb"\1#", out)
        if b"pid" in flat or b"PID" in flat:
            out = _PROCESS.sub(b"#", out)
    if _TIME_SIGN.search(flat):
        out = _TIMES.sub(b"#", out)
    return _without_ids(raw, flat, out)


def _has_fields(flat: bytes) -> bool:
    # Spelled out: `any` over a generator costs more than all of these together.
    return (
        b"took" in flat or b"lapsed" in flat or b"uration" in flat or b"atency" in flat
        or b"ptime" in flat or b"imestamp" in flat or b"ed_at" in flat or b"equest" in flat
        or b"trace" in flat or b"orrelation" in flat or b"nonce" in flat
    )  # fmt: skip


def _without_ids(raw: bytes, flat: bytes, out: bytes) -> bytes:
    if len(raw) >= 16:
        digits = raw.translate(_HEX)
        if b"00000000-0000-" in digits or b"0000000000000000" in digits:
            out = _IDS.sub(b"#", out)
    if b"x" in flat and b"0x" in flat:
        out = _POINTER.sub(b"#", out)
    if b"/" in raw and (b"/tmp/" in raw or b"/var/" in raw):
        out = _TEMPORARY.sub(b"#", out)
    return out
