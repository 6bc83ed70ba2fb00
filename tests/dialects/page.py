"""Tables of the pages about dialects, made from the code and the captures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from otel_loopguard.core import Kind, Step
from otel_loopguard.dialects import registered
from otel_loopguard.spans.dialects.registry import collect_keys
from tests.dialects import captures
from tests.dialects.captures import PARTLY, SCRIPT, UNREADABLE


def recovered() -> str:
    captures.need_shared()
    names = captures.names()
    table = "\n".join(_captures(names))
    return f"{table}\n\n{_reasons(names)}\n"


def keys() -> str:
    found = (("session", collect_keys("session_keys")), ("agent", collect_keys("agent_keys")))
    rows = (f"| {name} | {', '.join(f'`{key}`' for key in keys)} |" for name, keys in found)
    return "\n".join(["| | read from |", "|---|---|", *rows]) + "\n"


def dialects() -> str:
    return "\n".join(["| dialect | marks: one of | |", "|---|---|---|", *_dialects()]) + "\n"


def _dialects() -> list[str]:
    rows: list[str] = []
    for dialect in registered():
        marks = ", ".join(f"`{mark}`" for mark in sorted(dialect.marks))
        about = (type(dialect).__doc__ or "").partition("\n")[0]
        more = "" if about.startswith("Reads spans that have") else about
        rows.append(f"| {dialect.name} | {marks} | {more} |")
    return rows


_COLUMNS = ("calls", "arguments", "results", "failures with text", "session id", "captures")


def _captures(names: list[str]) -> Iterator[str]:
    """A row for all captures that gave back the same."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        groups.setdefault(_given_back(name), []).append(f"`{name}`")
    yield "| " + " | ".join(_COLUMNS) + " |"
    yield "|" + "---|" * len(_COLUMNS)
    for given, found in groups.items():
        yield f"| {' | '.join(given)} | {', '.join(found)} |"


def _given_back(name: str) -> tuple[str, ...]:
    run = captures.live(name)
    tools, executed = run.of(Kind.TOOL), captures.executed(name)
    failed = [step for step in tools if step.error]
    went_well = [step for step in tools if not step.error]
    steps = [*run.read, *run.opened.values()]
    return (
        "-" if not (executed or tools) else _share(len(tools), executed),
        _share(_arguments(name, tools), len(tools)),
        _share(sum(step.outcome is not None for step in went_well), len(went_well)),
        _share(sum(step.error_text is not None for step in failed), len(failed)),
        "yes" if any(step.session is not None for step in steps) else "no",
    )


def _share(found: int, of: int) -> str:
    return "-" if not of else "all" if found == of else "none" if not found else f"{found} of {of}"


def _arguments(name: str, tools: list[Step]) -> int:
    if not captures.scripted(name):
        return sum(step.args is not None for step in tools)
    pairs = zip(tools, SCRIPT, strict=True)
    return sum(captures.same_args(step, args) for step, (_, args) in pairs)


def _reasons(names: list[str]) -> str:
    reasons: dict[str, Any] = {name: why for name, (_, why) in PARTLY.items()}
    reasons |= UNREADABLE
    rows = [f"* `{name}`: {why}." for name, why in sorted(reasons.items()) if name in names]
    return "Not or only partly readable:\n\n" + "\n".join(rows)
