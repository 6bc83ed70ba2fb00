"""The commands, their arguments and exit codes."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Optional

import typer

from otel_loopguard.cli.output import Format
from otel_loopguard.errors import LoopGuardError
from otel_loopguard.settings import Settings

app = typer.Typer(
    name="otel-loopguard",
    help="Reads recorded agent runs with the same rules as the live guard.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="OTLP JSON lines, labelled step lines or Jaeger JSON; plain, .gz, or - for stdin.",
    ),
]
Form = Annotated[Format, typer.Option("--format", help="table, or one JSON object per line.")]
SettingsFile = Annotated[
    Optional[str],  # noqa: UP045  # typer evaluates it, on Python 3.10 too
    typer.Option("--settings", metavar="FILE", help="Settings of the guard, TOML or JSON."),
]


@app.callback()
def _prepare() -> None:
    # Recorded text may hold what the terminal's encoding has not.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    logging.getLogger("otel_loopguard").addFilter(_is_fault)


def _is_fault(record: logging.LogRecord) -> bool:
    """Keeps faults on standard error, and leaves decisions, which are printed, out of it."""
    return record.exc_info is not None


@app.command()
def steps(files: Files, form: Form = Format.TABLE) -> None:
    """Prints the canonical steps of recorded runs: every call once, whoever reported it."""
    from otel_loopguard.cli.steps import print_steps  # noqa: PLC0415  # quick start of --help

    with _refusing():
        raise typer.Exit(print_steps(files, form))


@app.command()
def replay(
    files: Files,
    form: Form = Format.TABLE,
    settings: SettingsFile = None,
    tree: Annotated[
        bool, typer.Option("--tree", help="Shows decisions on the trace tree (spans only).")
    ] = False,
) -> None:
    """Prints what the guard would have decided, session by session."""
    from otel_loopguard.cli.replay import print_replay  # noqa: PLC0415

    with _refusing():
        raise typer.Exit(print_replay(files, form, _settings(settings), tree=tree))


@app.command("eval")
def evaluate(
    files: Files,
    form: Form = Format.TABLE,
    settings: SettingsFile = None,
    baselines: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            metavar="FILE",
            help="Python file with lists FIVE and EXTRAS of factories of other detectors.",
        ),
    ] = None,
) -> None:
    """Measures the guard on labelled runs: what it finds, and what it would wrongly stop."""
    from otel_loopguard.cli.evaluate import print_evaluation  # noqa: PLC0415

    with _refusing():
        raise typer.Exit(print_evaluation(files, form, _settings(settings), baselines))


@app.command()
def demo() -> None:
    """Shows a live agent that gets stuck and is stopped, then a recorded run. Needs no server."""
    from otel_loopguard.cli.demo import run_demo  # noqa: PLC0415

    with _refusing():
        raise typer.Exit(run_demo())


@contextmanager
def _refusing() -> Generator[None, None, None]:
    """Turns what cannot be used into one line on standard error and exit code 2."""
    try:
        yield
    except LoopGuardError as error:
        typer.echo(f"otel-loopguard: {error}", err=True)
        raise typer.Exit(2) from error


def _settings(file: str | None) -> Settings:
    """The settings of a file, with those of the environment above them."""
    if file is None:
        return Settings()
    if not Path(file).is_file():
        msg = f"--settings {file}: there is no such file"
        raise typer.BadParameter(msg)
    os.environ["LOOPGUARD_SETTINGS_FILE"] = file
    return Settings()
