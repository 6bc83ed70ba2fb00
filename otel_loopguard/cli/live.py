"""The commands that ask live processes: `sessions`, `watch`, `show`, `pause`, `answer`, …"""

from __future__ import annotations

import getpass
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.live import Live

from otel_loopguard._control.flag import is_reserved
from otel_loopguard._util.fields import integer, mapping, sequence
from otel_loopguard.cli.output import Format, cell, console, give, json_line, line, say, table, word
from otel_loopguard.escalation.cases import answer_of
from otel_loopguard.escalation.mailbox import StoreTransport
from otel_loopguard.escalation.unix import SocketTransport
from otel_loopguard.hooks.client import send, start
from otel_loopguard.hooks.state_folder import StateFolder
from otel_loopguard.settings import Settings

if TYPE_CHECKING:
    from otel_loopguard.escalation.protocol import Message, Transport

# A process of hooks takes about a second to start; on a machine under load much longer.
_START_S: Final = 30.0
_DONE: Final = {
    "pause": "is paused",
    "resume": "goes on",
    "abort": "is aborted",
    "call": "goes on, and is not stopped for this again",
    "session": "goes on, and is not stopped again",
}


def transport_to(store: str | None, socket: str | None) -> Transport:
    """The transport to live processes: through a store, a socket, or all sockets of the user."""
    if socket is not None:
        hooks = StateFolder(str(Path(socket).parent))
        if Path(socket) == Path(hooks.socket):
            _start_hook_process(hooks)
        return SocketTransport(socket)
    settings = Settings() if store is None else Settings(store_url=store)
    if settings.store_url:
        return StoreTransport(settings)
    return SocketTransport(more=[StateFolder().socket])


def _start_hook_process(hooks: StateFolder) -> None:
    """Starts the process of the hooks, which ends by itself, if they have ever been used."""
    if not (Path(hooks.path) / "hooks.sqlite").exists():
        return
    until = time.monotonic() + _START_S
    while send(hooks, b"{}\n") is None and time.monotonic() < until:
        with suppress(OSError):
            start(hooks)
        time.sleep(0.02)


def send_request(transport: Transport, **request: str | None) -> int:
    """Sends a request to the processes that know its session, and prints their replies."""
    sent = {name: value for name, value in request.items() if value is not None}
    if "answer" in sent:
        sent["answer"] = answer_of(sent["answer"]).value
    sent.setdefault("by", user_name())
    replies = transport.ask(dict(sent))
    if not replies and isinstance(transport, SocketTransport):
        _start_hook_process(StateFolder())
        replies = transport.ask(dict(sent))
    if not replies:
        what = "escalation" if "escalation" in sent else "session"
        return report_unknown(transport, what, sent[what])
    for reply in replies:
        if reply.get("ok"):
            process = reply.get("process") or ""
            if "escalation" in sent:
                what = f"escalation {sent['escalation']}: {sent['by']} answered {sent['answer']}"
            elif sent.get("scope") == "call" and not reply.get("stopped", True):
                what = f"nothing of session {sent['session']} is stopped: it goes on as before"
            else:
                done = _DONE[sent["scope"] if sent["op"] == "allow" else sent["op"]]
                what = f"session {sent['session']} {done}, by {sent['by']}"
            say(f"{what} (process {process})" if process else what)
            if reply.get("setting"):
                say(f"to allow this for good, set {reply['setting']}")
        else:
            # Of a plan it has a line for each problem.
            for line in f"otel-loopguard: {reply.get('message')}".split("\n"):
                say(line, error=True)
    return 0 if all(reply.get("ok") for reply in replies) else 1


def report_unknown(transport: Transport, what: str, name: str, before: str = "") -> int:
    """Prints that no live process knows something, and why if none is there; returns the code."""
    _, why = transport.sessions()
    more = f"; {why}" if why else ""
    say(f"otel-loopguard: {before}no live process knows the {what} {name!r}{more}", error=True)
    return 1


def user_name() -> str:
    """Name of the current user, for the record of who did what."""
    with suppress(OSError, KeyError, ImportError):
        name = getpass.getuser()
        return f"user {name}" if is_reserved(name) else name
    return "somebody"


_COLUMNS: Final = (
    *("session", "agent", "at", "steps#", "action", "detector", "tokens#", "age#", "idle#"),
    *("escalation", "process"),
)
_FIELDS: Final = {"at": "step", "age": "since", "idle": "last"}
_COLOURS: Final = {"abort": "red", "pause": "magenta", "deny": "yellow", "ask": "cyan"}


def print_sessions(transport: Transport, form: Format) -> int:
    """Prints one object or row per session, the one in use last first; returns the exit code."""
    rows, note = _listed(transport)
    give(rows, form, dict, lambda rows: console().print(_grid(rows)))
    if note and (rows or form is not Format.JSON):
        say(f"otel-loopguard: {note}", error=True)
    return 0


def watch_sessions(transport: Transport, interval_s: float, rounds: int) -> int:
    """Shows the table of sessions again and again; returns the exit code.

    On a terminal in place, in a pipe one below the other.
    """
    out = console()
    with Live(console=out, auto_refresh=False, transient=False) as live:
        for left in range(rounds or sys.maxsize, 0, -1):
            rows, why = _listed(transport)
            shown = _grid(rows)
            if out.is_terminal:
                live.update(Group(shown, cell(why, 400)) if why else shown, refresh=True)
            else:
                out.print(shown)
                if why:
                    say(f"otel-loopguard: {why}", error=True)
            try:
                time.sleep(interval_s if left > 1 else 0)
            except KeyboardInterrupt:
                break
    return 0


def _listed(transport: Transport) -> tuple[list[Message], str]:
    """The sessions, the one in use last first, and what to say where some are missing."""
    rows, note = transport.sessions()
    rows.sort(key=lambda row: last if isinstance(last := row.get("last"), int) else 0, reverse=True)
    return rows, note


def _grid(rows: Sequence[Message]) -> RenderableType:
    now = time.time_ns()
    return table(_COLUMNS, ([*_row(row, now)] for row in rows))


def _row(row: Message, now: int) -> Iterator[object]:
    names = (column.rstrip("#") for column in _COLUMNS)
    for name in names:
        value = row.get(_FIELDS.get(name, name))
        if name == "action":
            action = cell(value)
            action.stylize(_COLOURS.get(action.plain, ""))
            yield action
        else:
            yield _since(value, now) if name in ("age", "idle") else value


def _since(then: object, now: int) -> str:
    """Age of something in the largest unit that fits."""
    if not isinstance(then, int):
        return ""
    seconds = max(0, now - then) // 10**9
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


_TOTALS = (
    "steps", "actions", "failures", "model_calls", "tokens", "changes", "loops_detected",
    "loops_prevented", "alerts",
)  # fmt: skip


def print_session(transport: Transport, session: str, form: Format) -> int:
    """Prints what the processes know of a session; returns the exit code, 1 where none does."""
    replies = transport.ask({"op": "show", "session": session})
    found = [reply["session"] for reply in replies if isinstance(reply.get("session"), dict)]
    for view in found:
        if form is Format.JSON:
            json_line(view)
        else:
            _show(view)
    return 0 if found else report_unknown(transport, "session", session)


def _show(view: Message) -> None:
    out = console()
    out.print(table(("session", f"{line(view.get('session'), 400)}~"), _facts(view)))
    actions, decisions = (map(mapping, sequence(view.get(it))) for it in ("actions", "decisions"))
    fields = ("tool", "agent", "outcome", "error_type", "duration_s")
    done = [[act.get(name) for name in fields] for act in actions]
    decided = [
        # For people steps count from 1.
        ((integer(one.get("step")) or 0) + 1, word(str(one.get("action"))), one.get("detector"),
         one.get("rule"), one.get("message"))
        for one in decisions
    ]  # fmt: skip
    for columns, rows in (
        (("last actions", "agent", "outcome", "error", "seconds#"), done),
        (("step#", "action", "detector", "rule", "what was measured~"), decided),
    ):
        if rows:
            out.print()
            out.print(table(columns, rows))
    _show_package(mapping(view.get("package")))


def _facts(view: Message) -> list[tuple[str, object]]:
    totals = mapping(view.get("totals"))
    action = view.get("action")
    who = str(view.get("by") or "")
    by = f" (by {who.removeprefix('by ')})" if who else ""
    return [
        ("process", view.get("process")),
        ("agent", view.get("agent")),
        ("at", view.get("step")),
        ("flag", f"{action}{by}"),
        ("reason", view.get("reason")),
        *((name.replace("_", " "), totals.get(name)) for name in _TOTALS),
        ("seconds", totals.get("duration_s")),
    ]


def _show_package(found: Mapping[str, object]) -> None:
    """Shows the escalation of a session, and how it ended."""
    if not found:
        return
    told = ["", f"escalation {found.get('id')}: {found.get('cause')}: {found.get('reason')}"]
    if ended := mapping(found.get("ended")):
        why = f": {ended['guidance']}" if ended.get("guidance") else ""
        told.append(f"over: {ended.get('answer') or 'no answer'} by {ended.get('by')}{why}")
    else:
        told.append(f"open until {_clock(found.get('until'))}, then {found.get('fallback')}")
        suggested = map(mapping, sequence(found.get("suggestions")))
        told += (f"  {one.get('answer')}: {one.get('text')}" for one in suggested)
    for text in told:
        console().print(cell(text, 200))


def _clock(then: object) -> str:
    if not isinstance(then, int):
        return "?"
    return f"{datetime.fromtimestamp(then / 1e9).astimezone():%H:%M:%S}"
