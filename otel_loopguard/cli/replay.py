"""`replay`: what the guard would have decided about recorded runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from otel_loopguard.cli.accounts import Account, Book
from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, cell, console, json_line, table
from otel_loopguard.cli.tree import Forest
from otel_loopguard.dialects import Reader
from otel_loopguard.guard import LoopGuard
from otel_loopguard.recordings import Run, SpanReplay, replay_run

if TYPE_CHECKING:
    from otel_loopguard.dialects.view import RecordedSpan
    from otel_loopguard.settings import Settings


def print_replay(files: Sequence[str], form: Format, settings: Settings, *, tree: bool) -> int:
    """Replays files and prints one object or row per session; gives the exit code.

    Sessions do not reach over files: each file has a guard of its own, and so has each labelled
    run, whose session is its id.
    """
    forest = Forest(Reader().read) if tree else None
    with Inputs(files) as inputs:
        found = accounts(inputs, settings, forest)
        if form is Format.JSON:
            for account in found:
                json_line(account.row())
        else:
            show(list(found), forest)
    return inputs.code


def show(found: Sequence[Account], forest: Forest | None) -> None:
    """Prints accounts as a table, or as trees where the spans are known."""
    out = console()
    grid = table(("source", "session", "steps#", "strongest", "decisions"))
    for account in found:
        branch = forest.tree(account) if forest and account.decisions else None
        if branch is not None:
            out.print(branch)
        said = "; ".join(
            f"{decision.action} at {decision.step} ({decision.reason}, {decision.count:.3g} times)"
            for decision in account.decisions
        )
        names = (cell(account.source, 40), cell(account.session, 48))
        grid.add_row(*names, str(account.steps), account.strongest.value, cell(said, 160))
    out.print(grid)


def accounts(inputs: Inputs, settings: Settings, forest: Forest | None = None) -> Iterator[Account]:
    """Replays all that was given; gives an account per session, in about the order of their ends.

    Args:
        inputs: What to replay.
        settings: Settings of the guards.
        forest: Keeps the names of spans for trees, if these are wanted.
    """
    for recording in inputs:
        spans = SpanAccounts(recording.name, settings, forest)
        for entry in inputs.entries(recording):
            if isinstance(entry, Run):
                yield account_of(entry, settings)
            else:
                yield from spans.add(entry)
        yield from spans.finish()


def account_of(run: Run, settings: Settings) -> Account:
    """Replays one labelled run with a guard of its own."""
    account = Account(run.source, run.id, steps=len(run.steps))
    guard = LoopGuard(
        settings,
        clock="replay",
        on_decision=lambda _session, decision: account.decisions.append(decision),
    )
    replay_run(guard, run)
    guard.shutdown()
    account.report = guard.report(run.id)
    return account


class SpanAccounts:
    """Replays the spans of one file and keeps the accounts of their sessions.

    Args:
        name: Name of the file.
        settings: Settings of the guard.
        forest: Keeps the names of spans for trees, if these are wanted.
    """

    def __init__(self, name: str, settings: Settings, forest: Forest | None = None) -> None:
        self._book = Book(name)
        self._forest = forest
        self._guard = LoopGuard(
            settings,
            clock="replay",
            on_step=self._book.on_step,
            on_decision=self._book.on_decision,
        )
        self._replay = SpanReplay(self._guard, Reader().read)

    def add(self, span: RecordedSpan) -> Iterator[Account]:
        """Takes one span; gives accounts that are closed by now."""
        if self._forest:
            self._forest.add(span)
        self._replay.add(span)
        return self._book.closed()

    def finish(self) -> Iterator[Account]:
        """Feeds what is held back; gives all other accounts."""
        self._replay.finish()
        self._guard.shutdown()
        return self._book.close()
