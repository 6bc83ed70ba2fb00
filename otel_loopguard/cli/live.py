"""The commands that ask live processes."""

from __future__ import annotations

import getpass
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Optional, cast

import typer
from rich.console import Group
from rich.live import Live

from otel_loopguard._control.flag import is_reserved
from otel_loopguard.cli.output import Format, cell, console, json_line, line, say, table
from otel_loopguard.escalation.admin.client import SocketLines, StoreLines
from otel_loopguard.escalation.answers import answer_of

if TYPE_CHECKING:
    from rich.table import Table

    from otel_loopguard.escalation.admin.client import Lines
    from otel_loopguard.escalation.admin.handlers import Message
    from otel_loopguard.settings import Settings

_LISTED_S: Final = 3.0
"""A live process lists its new sessions every `tuning.admin.heartbeat_s` (2 s)."""
_AGAIN_S: Final = 0.2
_DONE: Final = {
    "pause": "is paused",
    "resume": "goes on",
    "abort": "is aborted",
}


def give(lines: Lines, request: Mapping[str, str | None]) -> int:
    """Sends a request to the processes that know its session, and prints what came of it."""
    sent = {name: value for name, value in request.items() if value is not None}
    if "answer" in sent:
        sent["answer"] = answer_of(sent["answer"]).value
    sent.setdefault("by", _user())
    replies = _asked(lines, sent)
    if not replies:
        what = "escalation" if "escalation" in sent else "session"
        return unknown(what, sent[what])
    code = 0
    for reply in replies:
        if reply.get("ok"):
            say(_said(sent, str(reply.get("process", ""))))
        else:
            say(f"otel-loopguard: {reply.get('message')}", error=True)
            code = 1
    return code


def _asked(lines: Lines, sent: Mapping[str, str]) -> list[dict[str, object]]:
    """The replies; a session that has only begun is waited for until it is listed."""
    until = time.monotonic() + _LISTED_S
    while not (replies := lines.ask(dict(sent))) and time.monotonic() < until:
        time.sleep(_AGAIN_S)
    return replies


def unknown(what: str, name: str) -> int:
    """Says that no live process knows something; gives the exit code."""
    say(f"otel-loopguard: no live process knows the {what} {name!r}", error=True)
    return 1


def _said(sent: Mapping[str, str], process: str) -> str:
    where = f" (process {process})" if process else ""
    if "escalation" in sent:
        return f"escalation {sent['escalation']}: {sent['by']} answered {sent['answer']}{where}"
    return f"session {sent['session']} {_DONE[sent['op']]}, by {sent['by']}{where}"


def _user() -> str:
    with suppress(OSError, KeyError, ImportError):
        name = getpass.getuser()
        return f"user {name}" if is_reserved(name) else name
    return "somebody"


_COLUMNS: Final = (
    *("session", "agent", "at", "steps#", "action", "detector", "tokens#", "age#", "idle#"),
    *("escalation", "process"),
)
_WIDTHS: Final = {"session": 10, "escalation": 16}
_COLOURS: Final = {"abort": "red", "pause": "magenta", "deny": "yellow", "ask": "cyan"}


def print_sessions(lines: Lines, form: Format) -> int:
    """Prints one object or row per session, the one in use last first; gives the exit code."""
    found = _sorted(lines.sessions())
    if form is Format.JSON:
        for row in found:
            json_line(row)
    else:
        console().print(grid(found, time.time_ns()))
        if not found:
            say(f"otel-loopguard: {lines.why_empty()}", error=True)
    return 0


def watch_sessions(lines: Lines, interval_s: float, rounds: int) -> int:
    """Shows the table of sessions again and again; gives the exit code.

    On a terminal in place, in a pipe one below the other.
    """
    out, left = console(), rounds or sys.maxsize
    with Live(console=out, auto_refresh=False, transient=False) as live:
        while left:
            found = _sorted(lines.sessions())
            shown = grid(found, time.time_ns())
            why = "" if found else lines.why_empty()
            if out.is_terminal:
                live.update(Group(shown, cell(why, 400)) if why else shown, refresh=True)
            else:
                out.print(shown)
                if why:
                    say(f"otel-loopguard: {why}", error=True)
            left -= 1
            if left and not _slept(interval_s):
                return 0
    return 0


def grid(rows: Sequence[Message], now: int) -> Table:
    """The table of sessions."""
    shown = table(_COLUMNS)
    shown.collapse_padding = True
    for column in shown.columns:
        # What is to be typed into the next command is wrapped, and never cut.
        column.overflow = "fold"
    for place, name in enumerate(_COLUMNS):
        shown.columns[place].min_width = _WIDTHS.get(name)
    for row in rows:
        action = cell(row.get("action"), 10)
        action.stylize(_COLOURS.get(action.plain, ""))
        shown.add_row(
            cell(row.get("session"), 40),
            cell(row.get("agent"), 20),
            cell(row.get("step"), 24),
            cell(row.get("steps")),
            action,
            cell(row.get("detector"), 20),
            cell(row.get("tokens")),
            cell(_since(row.get("since"), now)),
            cell(_since(row.get("last"), now)),
            cell(row.get("escalation"), 16),
            cell(row.get("process"), 40),
        )
    return shown


def _sorted(rows: list[Message]) -> list[Message]:
    return sorted(rows, key=_last, reverse=True)


def _last(row: Message) -> int:
    last = row.get("last")
    return last if isinstance(last, int) else 0


def _since(then: object, now: int) -> str:
    """How long ago something was, in the largest unit that fits."""
    if not isinstance(then, int):
        return ""
    seconds = max(0, now - then) // 10**9
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _slept(seconds: float) -> bool:
    """Waits; False if somebody pressed Ctrl-C."""
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        return False
    return True


_TOTALS = (
    "steps", "actions", "failures", "model_calls", "tokens", "changes", "loops_detected",
    "loops_prevented", "alerts",
)  # fmt: skip


def print_session(lines: Lines, session: str, form: Format) -> int:
    """Prints what the processes know of a session; gives the exit code, 1 where none does."""
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


Form = Annotated[Format, typer.Option("--format", help="table, or one JSON object per line.")]
Store = Annotated[
    Optional[str],  # noqa: UP045  # typer evaluates it, on Python 3.10 too
    typer.Option(
        metavar="URL", help="Store shared by the processes; LOOPGUARD_STORE_URL by default."
    ),
]
Socket = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        metavar="PATH",
        help="Socket of one process. Without it and without a store: those of all your processes "
        "with control_socket = auto.",
    ),
]
Name = Annotated[str, typer.Argument(metavar="SESSION", help="Key of the session.")]
By = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--by", metavar="NAME", help="Your name; your user name by default."),
]
Reason = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--reason", metavar="TEXT", help="Reason, shown on the trace."),
]
Guidance = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--guidance", metavar="TEXT", help="Message to the model."),
]

_PLAN_BYTES: Final = 1024 * 1024

Refusing = Callable[[], AbstractContextManager[None]]
Ways = Callable[["str | None", "str | None"], "Lines"]
"""The ways to the processes: of a store, a socket, or neither."""


def register(app: typer.Typer, refusing: Refusing, read: Callable[[str | None], Settings]) -> None:
    """Adds the commands."""

    def lines(store: str | None, socket: str | None) -> Lines:
        if socket is not None:
            return SocketLines(socket)
        settings = read(store)
        return StoreLines(settings) if settings.store_url else SocketLines()

    _add_looks(app, refusing, lines)
    _add_orders(app, refusing, lines)
    _add_answer(app, refusing, lines)


def _add_looks(app: typer.Typer, refusing: Refusing, lines: Ways) -> None:
    @app.command()
    def sessions(store: Store = None, socket: Socket = None, form: Form = Format.TABLE) -> None:
        """Lists the sessions of live processes: where each is, what its flag says, its tokens."""
        with refusing():
            raise typer.Exit(print_sessions(lines(store, socket), form))

    @app.command()
    def watch(
        store: Store = None,
        socket: Socket = None,
        interval: Annotated[
            float, typer.Option(min=0.1, max=3600, help="Seconds between updates.")
        ] = 1.0,
        rounds: Annotated[
            int, typer.Option(min=0, help="Updates before it ends; 0: until Ctrl-C.")
        ] = 0,
    ) -> None:
        """Shows the sessions of live processes, again and again."""
        with refusing():
            raise typer.Exit(watch_sessions(lines(store, socket), interval, rounds))

    @app.command()
    def show(
        session: Name, store: Store = None, socket: Socket = None, form: Form = Format.TABLE
    ) -> None:
        """Shows one session: what it came to, its last actions and decisions, what was asked."""
        with refusing():
            raise typer.Exit(print_session(lines(store, socket), session, form))


def _add_orders(app: typer.Typer, refusing: Refusing, lines: Ways) -> None:
    @app.command()
    def pause(
        session: Name, reason: Reason = None, by: By = None, store: Store = None,
        socket: Socket = None,
    ) -> None:  # fmt: skip
        """Pauses a session: it waits at its next gate."""
        _give(lines, refusing, store, socket, op="pause", session=session, reason=reason, by=by)

    @app.command()
    def resume(
        session: Name, guidance: Guidance = None, by: By = None, store: Store = None,
        socket: Socket = None,
    ) -> None:  # fmt: skip
        """Lets a session go on, an aborted one too."""
        _give(
            lines, refusing, store, socket, op="resume", session=session, guidance=guidance, by=by
        )

    @app.command()
    def abort(
        session: Name, reason: Reason = None, by: By = None, store: Store = None,
        socket: Socket = None,
    ) -> None:  # fmt: skip
        """Aborts a session: it ends at its next check or gate."""
        _give(lines, refusing, store, socket, op="abort", session=session, reason=reason, by=by)


def _add_answer(app: typer.Typer, refusing: Refusing, lines: Ways) -> None:
    @app.command()
    def answer(  # noqa: PLR0913, PLR0917  # they are options
        escalation: Annotated[
            str, typer.Argument(metavar="ESCALATION", help="Id of the escalation.")
        ],
        said: Annotated[
            str,
            typer.Argument(metavar="ANSWER", help="continue, abort, modify-plan or skip-task."),
        ],
        guidance: Guidance = None,
        plan: Annotated[
            Optional[str],  # noqa: UP045
            typer.Option(
                "--plan",
                metavar="FILE",
                help="With modify-plan: JSON list of the new tasks, or -.",
            ),
        ] = None,
        by: By = None,
        store: Store = None,
        socket: Socket = None,
    ) -> None:
        """Answers an escalation."""
        _give(
            lines, refusing, store, socket,
            op="answer", escalation=escalation, answer=said, guidance=guidance, by=by,
            plan=plan,
        )  # fmt: skip


def _give(
    lines: Ways,
    refusing: Refusing,
    store: str | None,
    socket: str | None,
    **request: str | None,
) -> None:

    with refusing():
        if request.get("plan") is not None:
            request["plan"] = _plan(str(request["plan"]))
        raise typer.Exit(give(lines(store, socket), request))


def _plan(file: str) -> str:
    from otel_loopguard.replay import read_whole  # noqa: PLC0415

    return read_whole(file, _PLAN_BYTES).decode("utf-8", "replace")
