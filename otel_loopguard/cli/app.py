"""The commands, their arguments and exit codes; each imports what it needs when it is run."""

from __future__ import annotations

import os
import sys
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from otel_loopguard.cli import hook
from otel_loopguard.cli.output import Format, drop_output, keep_faults, open_streams, say
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.version import __version__

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_RECORDED: Final = "Recorded runs"
_AGENTS: Final = "Agents elsewhere"
_LIVE: Final = "Live sessions"
"""Headings of the list of commands."""
_PLAN_CHARS: Final = 65_536
"""Characters of a plan that are read: a request has room for fewer, and is refused with more."""


class _Commands(TyperGroup):
    """The commands: each returns its exit code (or nothing for 0), or raises what it cannot use."""

    def invoke(self, ctx: Any) -> NoReturn:
        """Ends with the code of a command."""
        code: int = super().invoke(ctx) or 0
        sys.stdout.flush()
        raise typer.Exit(code)

    def main(self, *args: Any, **options: Any) -> None:
        """Ends with 2 and one line where something cannot be used, also for `--help`.

        Where whoever read the output has enough, typer has ended without a word.
        """
        try:
            super().main(*args, **options)
        except LoopGuardError as error:
            say(f"otel-loopguard: {error}", error=True)
            sys.exit(2)
        except OSError as error:
            place = error.filename
            if place is None and isinstance(error, FileNotFoundError):
                place = "the current folder"  # where it was deleted; no stream fails like that
            elif place is None:
                drop_output()
                place = "standard output"
            say(f"otel-loopguard: {place}: {error.strerror or error}", error=True)
            sys.exit(2)


app = typer.Typer(
    name="otel-loopguard",
    cls=_Commands,
    help="Replays recorded agent runs with the rules of the live guard, and controls live ones.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(hook.app, rich_help_panel=_AGENTS)

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE",
        help="OTLP JSON lines, Jaeger JSON, JSON of ConsoleSpanExporter, exports of Phoenix, "
        "LangSmith or Langfuse, labelled step lines, transcripts of coding agents or folders of "
        "them; plain, .gz, or - for stdin.",
    ),
]
Form = Annotated[Format, typer.Option("--format", help="table, or one JSON object per line.")]
SettingsFile = Annotated[
    str | None,
    typer.Option("--settings", metavar="FILE", help="Settings of the guard, TOML, JSON or YAML."),
]
Store = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Store shared by the processes; LOOPGUARD_STORE_URL by default."
    ),
]
Socket = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="Socket of one process. Without it and without a store: those of all your processes "
        "with control_socket = auto.",
    ),
]
Jobs = Annotated[int, typer.Option(min=0, help="Worker processes; 0: one per processor.")]
Name = Annotated[str, typer.Argument(metavar="SESSION", help="Key of the session.")]
By = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Your name; your user name by default.")
]
Reason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Reason, shown on the trace.")
]
Guidance = Annotated[
    str | None, typer.Option("--guidance", metavar="TEXT", help="Message to the model.")
]


def _version(value: bool) -> None:
    if value:
        typer.echo(f"otel-loopguard {__version__}")
        raise typer.Exit


@app.callback()
def _prepare(
    version: Annotated[  # noqa: ARG001  # its callback prints it
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Prints the version."),
    ] = False,
) -> None:
    open_streams()
    # Recorded text may have characters that the terminal's encoding lacks.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    keep_faults()


@app.command(rich_help_panel=_RECORDED)
def steps(files: Files, form: Form = Format.TABLE) -> int:
    """Prints the canonical steps of recorded runs: each call once, whoever reported it."""
    from otel_loopguard.cli.report import print_steps  # noqa: PLC0415

    return print_steps(files, form)


@app.command(rich_help_panel=_RECORDED)
def replay(
    files: Files,
    form: Form = Format.TABLE,
    settings: SettingsFile = None,
    tree: Annotated[
        bool, typer.Option("--tree", help="Shows decisions on the trace tree (spans only).")
    ] = False,
) -> int:
    """Prints what the guard would have decided, session by session."""
    from otel_loopguard.cli.replay import print_replay  # noqa: PLC0415

    return print_replay(files, form, _settings(settings), tree=tree)


@app.command(rich_help_panel=_RECORDED)
def report(files: Files, form: Form = Format.TABLE, settings: SettingsFile = None) -> int:
    """Prints a report of each session: counts, tools, errors, loops, alerts, missing content."""
    from otel_loopguard.cli.report import print_reports  # noqa: PLC0415

    return print_reports(files, form, _settings(settings))


@app.command(rich_help_panel=_RECORDED)
def explain(
    what: Annotated[
        str, typer.Argument(metavar="FILE|SESSION", help="Recorded runs, or the key of a session.")
    ],
    form: Form = Format.TABLE, settings: SettingsFile = None, store: Store = None,
    socket: Socket = None,
) -> int:  # fmt: skip
    """Says why sessions were stopped or not: what was counted, its weights, what comes next."""
    from otel_loopguard.cli.report import print_explanations  # noqa: PLC0415

    return print_explanations(what, form, _settings(settings), store, socket)


@app.command(rich_help_panel=_AGENTS)
def transcripts(  # noqa: PLR0913, PLR0917  # they are options
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Files or folders; without any, where Claude Code, Codex, gemini-cli and opencode "
            "keep their transcripts.",
        ),
    ] = None,
    last: Annotated[
        int, typer.Option(min=0, metavar="N", help="The N sessions that changed last; 0: all.")
    ] = 50,
    days: Annotated[
        float, typer.Option(min=0, metavar="N", help="Sessions that changed in N days; 0: all.")
    ] = 0,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also writes the overview as an HTML page.")
    ] = None,
    form: Form = Format.TABLE,
    settings: SettingsFile = None,
    jobs: Jobs = 0,
) -> int:
    """Shows which of your sessions with coding agents went in circles, and what that cost."""
    from otel_loopguard.cli.transcripts import print_transcripts  # noqa: PLC0415

    return print_transcripts(
        paths or [], form, _settings(settings), last=last, days=days, html=html, jobs=jobs
    )


@app.command(rich_help_panel=_AGENTS)
def serve(  # noqa: PLR0913, PLR0917  # they are options
    http: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="Address of OTLP over HTTP, the flag's API and the page."
        ),
    ] = "127.0.0.1:4318",
    grpc: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address of OTLP over gRPC; empty: none.")
    ] = "127.0.0.1:4317",
    forward: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Next hop: http(s)://HOST:PORT, or grpc(s)://HOST:PORT for gRPC."
        ),
    ] = "",
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Header for the next hop; may be repeated."),
    ] = None,
    untouched: Annotated[
        bool,
        typer.Option(
            "--untouched", help="Forwards spans unchanged; decisions go as log records only."
        ),
    ] = False,
    tokens: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="TOML table `tokens`: bearer tokens by tenant."),
    ] = None,
    lateness: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long to wait for late spans, to put them in order (default: 0.2 if requests "
            "come at once).",
            min=0,
        ),
    ] = None,
    drain: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="How long to take requests once told to end, while /readyz says so.",
            min=0,
        ),
    ] = 0,
    certificate: Annotated[str, typer.Option(metavar="FILE", help="TLS certificate, PEM.")] = "",
    key: Annotated[str, typer.Option(metavar="FILE", help="Key of the certificate, PEM.")] = "",
    settings: SettingsFile = None,
) -> int:
    """Judges the spans that agents in any language send by OTLP, and serves their flags."""
    try:
        from otel_loopguard.cli.serve import run  # noqa: PLC0415  # an extra
    except ModuleNotFoundError as missing:
        need = f"serve needs the extra `server` ({missing}): pip install 'otel-loopguard[server]'"
        say(f"otel-loopguard: {need}", error=True)
        raise typer.Exit(2) from None
    return run(
        partial(_settings, settings), tokens, header or [], http=http, grpc=grpc, forward=forward,
        mode="untouched" if untouched else "annotated", lateness_s=lateness, drain_s=drain,
        certificate=certificate, key=key,
    )  # fmt: skip


@app.command("eval", rich_help_panel=_RECORDED)
def evaluate(  # noqa: PLR0913, PLR0917
    files: Files,
    form: Form = Format.TABLE,
    settings: SettingsFile = None,
    stuck: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SESSION",
            help="Session that got stuck; may be repeated. Others without a label are healthy.",
        ),
    ] = None,
    errors: Annotated[
        bool,
        typer.Option(
            "--errors",
            help="Lists missed loops and false notices with the steps around them. Shows content.",
        ),
    ] = False,
    jobs: Jobs = 0,
) -> int:
    """Measures the guard on labelled runs: what it finds, and what it would wrongly stop."""
    from otel_loopguard.cli.evaluate import print_evaluation  # noqa: PLC0415

    named = frozenset(stuck or ())
    return print_evaluation(files, form, _settings(settings), errors=errors, jobs=jobs, stuck=named)


@app.command(rich_help_panel=_RECORDED)
def calibrate(  # noqa: PLR0913, PLR0917
    files: Files,
    false_stops: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="How often a good run may be stopped, 0 to 1: 0.001 is 1 in 1,000."
        ),
    ],
    form: Form = Format.TABLE,
    settings: SettingsFile = None,
    output: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Settings file (.toml) to write; must not exist yet."),
    ] = None,
    except_for: Annotated[
        list[str] | None,
        typer.Option(
            "--except", metavar="SESSION", help="Session that did not go well; may be repeated."
        ),
    ] = None,
) -> int:
    """Chooses the stop line from past runs that went well, for a rate of false stops."""
    from otel_loopguard.cli.calibrate import print_calibration  # noqa: PLC0415

    bad = frozenset(except_for or ())
    return print_calibration(
        files, form, _settings(settings), rate=false_stops, bad=bad, output=output
    )


@app.command(rich_help_panel=_RECORDED)
def learn(files: Files, form: Form = Format.TABLE, settings: SettingsFile = None) -> int:
    """Prints what is learned of each tool: durations, failures, and how well estimates hold."""
    from otel_loopguard.cli.calibrate import print_learned  # noqa: PLC0415

    return print_learned(files, form, _settings(settings))


@app.command(rich_help_panel=_RECORDED)
def backtest(  # noqa: PLR0913, PLR0917  # they are options
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="File, folder or pattern: Parquet or JSON lines of spans in the columns of the "
            "ClickHouse exporter, or what `replay` reads; or a table: "
            "clickhouse://HOST/DATABASE?table=otel_traces.",
        ),
    ],
    where: Annotated[
        str, typer.Option(metavar="SQL", help="Condition on the columns; other rows are left out.")
    ] = "",
    engine: Annotated[
        str, typer.Option(metavar="duckdb|ray", help="What replays the sessions.")
    ] = "duckdb",
    settings: SettingsFile = None,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Second settings: lists the sessions that they decide differently."
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Folder of the result; an unfinished backtest in it is continued."
        ),
    ] = Path("backtest"),
    jobs: Jobs = 0,
    memory: Annotated[
        str,
        typer.Option(metavar="SIZE", help="Memory that DuckDB may use before it spills to disk."),
    ] = "1GB",
) -> int:
    """Replays millions of sessions: decisions as Parquet, and a page with a summary."""
    from otel_loopguard.cli.backtest import print_backtest  # noqa: PLC0415

    given = [_settings(settings), *([_settings(compare)] if compare else [])]
    return print_backtest(source, given, out, where=where, engine=engine, jobs=jobs, memory=memory)


@app.command()
def doctor(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE", help="Recordings to look at; without any, this environment."
        ),
    ] = None,
    form: Form = Format.TABLE,
) -> int:
    """Checks an environment or a recording: what is there, what is missing, how to add it."""
    from otel_loopguard.cli.doctor import print_findings  # noqa: PLC0415

    return print_findings(files or [], form)


@app.command()
def demo() -> int:
    """Shows a live agent that gets stuck and is stopped, then a recorded run. Needs no server."""
    from otel_loopguard.cli.replay import run_demo  # noqa: PLC0415

    return run_demo()


@app.command(rich_help_panel=_LIVE)
def sessions(store: Store = None, socket: Socket = None, form: Form = Format.TABLE) -> int:
    """Lists the sessions of live processes, with their step, flag and tokens."""
    from otel_loopguard.cli import live  # noqa: PLC0415

    return live.print_sessions(live.transport_to(store, socket), form)


@app.command(rich_help_panel=_LIVE)
def watch(  # noqa: PLR0913, PLR0917  # they are options
    store: Store = None,
    socket: Socket = None,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds between updates.")
    ] = 1.0,
    rounds: Annotated[
        int, typer.Option(min=0, help="Updates before it ends; 0: until Ctrl-C.")
    ] = 0,
    agents: Annotated[
        bool,
        typer.Option(
            "--agents",
            help="Judges coding agents by the transcripts that they are writing, without hooks: a "
            "line for each decision.",
        ),
    ] = False,
    folder: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="With --agents: folder of transcripts; may be repeated. By default those of "
            "Claude Code, Codex, gemini-cli and opencode.",
        ),
    ] = None,
    may_stop: Annotated[
        bool,
        typer.Option(
            "--may-stop",
            help="With --agents: stops (SIGSTOP) the process of a session that goes in circles, "
            "until you answer. Linux.",
        ),
    ] = False,
    settings: SettingsFile = None,
) -> int:
    """Shows the sessions of live processes, updated until Ctrl-C; or watches coding agents."""
    from otel_loopguard.cli import live  # noqa: PLC0415

    if not agents:
        if folder or may_stop or settings:
            raise typer.BadParameter("--folder, --may-stop and --settings need --agents")
        return live.watch_sessions(live.transport_to(store, socket), interval, rounds)
    if store or socket:
        raise typer.BadParameter("--store and --socket are for live processes, not for --agents")
    from otel_loopguard.cli.watch import watch_agents  # noqa: PLC0415

    given = _settings(settings)
    return watch_agents(given, folder or (), may_stop=may_stop, interval_s=interval, rounds=rounds)


@app.command(rich_help_panel=_LIVE)
def show(
    session: Name, store: Store = None, socket: Socket = None, form: Form = Format.TABLE
) -> int:
    """Shows one session: totals, last actions and decisions, escalation."""
    from otel_loopguard.cli import live  # noqa: PLC0415

    return live.print_session(live.transport_to(store, socket), session, form)


@app.command(rich_help_panel=_LIVE)
def pause(
    session: Name, reason: Reason = None, by: By = None, store: Store = None,
    socket: Socket = None,
) -> int:  # fmt: skip
    """Pauses a session: it waits at its next gate."""
    return _send(store, socket, op="pause", session=session, reason=reason, by=by)


@app.command(rich_help_panel=_LIVE)
def resume(
    session: Name, guidance: Guidance = None, by: By = None, store: Store = None,
    socket: Socket = None,
) -> int:  # fmt: skip
    """Lets a session go on, even an aborted one."""
    return _send(store, socket, op="resume", session=session, guidance=guidance, by=by)


@app.command(rich_help_panel=_LIVE)
def abort(
    session: Name, reason: Reason = None, by: By = None, store: Store = None,
    socket: Socket = None,
) -> int:  # fmt: skip
    """Aborts a session: it ends at its next check or gate."""
    return _send(store, socket, op="abort", session=session, reason=reason, by=by)


@app.command(rich_help_panel=_LIVE)
def allow(
    session: Name,
    whole: Annotated[
        bool,
        typer.Option("--session/--call", help="All of the session, or only the stopped loop."),
    ] = False,
    by: By = None, store: Store = None, socket: Socket = None,
) -> int:  # fmt: skip
    """Lets a false alarm through: the session goes on, and is not stopped for it again."""
    scope = "session" if whole else "call"
    return _send(store, socket, op="allow", session=session, scope=scope, by=by)


@app.command(rich_help_panel=_LIVE)
def answer(  # noqa: PLR0913, PLR0917  # they are options
    escalation: Annotated[str, typer.Argument(metavar="ESCALATION", help="Id of the escalation.")],
    said: Annotated[
        str, typer.Argument(metavar="ANSWER", help="continue, abort, modify_plan or skip_task.")
    ],
    guidance: Guidance = None,
    plan: Annotated[
        typer.FileText | None,
        typer.Option(
            metavar="FILE",
            encoding="utf-8",
            errors="replace",
            help="With modify_plan: JSON list of the new tasks, or -.",
        ),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(
            "--limit",
            metavar="NUMBER",
            help="With continue: the new limit of the budget that is spent.",
        ),
    ] = None,
    by: By = None,
    store: Store = None,
    socket: Socket = None,
) -> int:
    """Answers an escalation."""
    tasks = None if plan is None else plan.read(_PLAN_CHARS)
    return _send(
        store, socket,
        op="answer", escalation=escalation, answer=said, guidance=guidance, by=by, plan=tasks,
        limit=limit,
    )  # fmt: skip


def _send(store: str | None, socket: str | None, **request: str | None) -> int:
    from otel_loopguard.cli import live  # noqa: PLC0415

    return live.send_request(live.transport_to(store, socket), **request)


def _settings(file: str | None) -> Settings:
    """The settings of a file, with those of the environment above them."""
    from otel_loopguard.settings import Settings  # noqa: PLC0415

    if file is None:
        return Settings()
    found = Settings.from_file(Path(file))
    os.environ["LOOPGUARD_SETTINGS_FILE"] = file  # for the worker processes
    return found
