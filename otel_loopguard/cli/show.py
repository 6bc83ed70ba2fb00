"""`show`: one session of a live process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from otel_loopguard.cli.orders import unknown
from otel_loopguard.cli.output import Format, cell, console, json_line, line, table

if TYPE_CHECKING:
    from otel_loopguard.desk.client import Lines

_TOTALS = (
    "steps", "actions", "failures", "model_calls", "tokens", "changes", "loops_detected",
    "loops_prevented", "alerts",
)  # fmt: skip


def print_session(lines: Lines, session: str, form: Format) -> int:
    """Prints what the processes know of a session; gives the exit code, 1 where none does.

    Args:
        lines: The ways to the processes.
        session: Key of the session.
        form: Table, or one object per process.
    """
    replies = lines.ask({"op": "show", "session": session})
    found = [reply["session"] for reply in replies if isinstance(reply.get("session"), dict)]
    if not found:
        return unknown("session", session)
    for view in found:
        if form is Format.JSON:
            json_line(view)
        else:
            _show(view)
    return 0


def _show(view: Mapping[str, Any]) -> None:
    out = console()
    facts = table(("session", line(view.get("session", ""), 60)))
    for name, value in _facts(view):
        facts.add_row(name, cell(value, 160))
    out.print(facts)
    decided = table(("step#", "action", "detector", "rule", "what was measured"))
    for decision in _maps(view.get("decisions")):
        names = (decision.get(name) for name in ("step", "action", "detector", "rule"))
        decided.add_row(*map(cell, names), cell(decision.get("message"), 160))
    done = table(("last actions", "agent", "outcome", "error", "seconds#"))
    for act in _maps(view.get("actions")):
        names = (act.get(name) for name in ("tool", "agent", "outcome", "error_type"))
        done.add_row(*map(cell, names), cell(act.get("duration_s")))
    for shown in (done, decided):
        if shown.row_count:
            out.print()
            out.print(shown)
    _show_package(view.get("package"))


def _facts(view: Mapping[str, Any]) -> list[tuple[str, object]]:
    totals = cast("Mapping[str, Any]", view.get("totals") or {})
    said = view.get("action")
    by = f" (by {view['by']})" if view.get("by") else ""
    return [
        ("process", view.get("process")),
        ("agent", view.get("agent")),
        ("at", view.get("step")),
        ("flag", f"{said}{by}"),
        ("reason", view.get("reason")),
        *((name.replace("_", " "), totals.get(name)) for name in _TOTALS),
        ("seconds", totals.get("duration_s")),
    ]


def _show_package(package: object) -> None:
    """What was put before people about it, and how that ended."""
    if not isinstance(package, dict):
        return
    found = cast("dict[str, Any]", package)
    ended = cast("dict[str, Any] | None", found.get("ended"))
    out = console()
    out.print()
    out.print(
        cell(f"escalation {found.get('id')}: {found.get('cause')}: {found.get('reason')}", 200)
    )
    if ended is not None:
        why = f": {ended['guidance']}" if ended.get("guidance") else ""
        said = f"over: {ended.get('answer') or 'no answer'} by {ended.get('by')}{why}"
        out.print(cell(said, 200))
        return
    out.print(cell(f"open until {_clock(found.get('until'))}, then {found.get('fallback')}", 200))
    for one in _maps(found.get("suggestions")):
        out.print(cell(f"  {one.get('answer')}: {one.get('text')}", 200))


def _maps(value: object) -> Sequence[Mapping[str, Any]]:
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, Any]", item) for item in items if isinstance(item, dict)]


def _clock(then: object) -> str:
    if not isinstance(then, int):
        return "?"
    return f"{datetime.fromtimestamp(then / 1e9).astimezone():%H:%M:%S}"
