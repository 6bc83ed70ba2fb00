"""The commands that ask live processes, their arguments and exit codes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Final, Optional

import typer

from otel_loopguard.cli.output import Format
from otel_loopguard.desk.client import SocketLines, StoreLines

if TYPE_CHECKING:
    from otel_loopguard.desk.client import Lines
    from otel_loopguard.settings import Settings

Form = Annotated[Format, typer.Option("--format", help="table, or one JSON object per line.")]
Store = Annotated[
    Optional[str],  # noqa: UP045  # typer evaluates it, on Python 3.10 too
    typer.Option(
        metavar="URL", help="Store that the processes share; LOOPGUARD_STORE_URL by default."
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
    typer.Option("--by", metavar="NAME", help="Who does it; your user name by default."),
]
Reason = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--reason", metavar="TEXT", help="Why; it stands on the trace."),
]
Guidance = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--guidance", metavar="TEXT", help="What the model is told next."),
]

_PLAN_BYTES: Final = 1024 * 1024

Refusing = Callable[[], AbstractContextManager[None]]
Ways = Callable[["str | None", "str | None"], "Lines"]
"""The ways to the processes: of a store, a socket, or neither."""


def register(app: typer.Typer, refusing: Refusing, read: Callable[[str | None], Settings]) -> None:
    """Adds the commands.

    Args:
        app: The command line.
        refusing: Turns what cannot be used into a line and exit code 2.
        read: Settings with the store of an address, or of the environment.
    """

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
        from otel_loopguard.cli.sessions import print_sessions  # noqa: PLC0415

        with refusing():
            raise typer.Exit(print_sessions(lines(store, socket), form))

    @app.command()
    def watch(
        store: Store = None,
        socket: Socket = None,
        interval: Annotated[
            float, typer.Option(min=0.1, max=3600, help="Seconds between two looks.")
        ] = 1.0,
        rounds: Annotated[
            int, typer.Option(min=0, help="Looks until it ends; 0: it goes on until Ctrl-C.")
        ] = 0,
    ) -> None:
        """Shows the sessions of live processes, again and again."""
        from otel_loopguard.cli.sessions import watch_sessions  # noqa: PLC0415

        with refusing():
            raise typer.Exit(watch_sessions(lines(store, socket), interval, rounds))

    @app.command()
    def show(
        session: Name, store: Store = None, socket: Socket = None, form: Form = Format.TABLE
    ) -> None:
        """Shows one session: what it came to, its last actions and decisions, what was asked."""
        from otel_loopguard.cli.show import print_session  # noqa: PLC0415

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
            str, typer.Argument(metavar="ESCALATION", help="Id of what was put before you.")
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
                help="With modify-plan: JSON list of the tasks to be done from now on, or -.",
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
    from otel_loopguard.cli.orders import give  # noqa: PLC0415

    with refusing():
        if request.get("plan") is not None:
            request["plan"] = _plan(str(request["plan"]))
        raise typer.Exit(give(lines(store, socket), request))


def _plan(file: str) -> str:
    from otel_loopguard.recordings import read_whole  # noqa: PLC0415

    return read_whole(file, _PLAN_BYTES).decode("utf-8", "replace")
