"""What `--help` shows."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from otel_loopguard.cli.app import app


def commands(group: Any, *above: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its words, those of groups too."""
    for name, command in group.commands.items():
        yield (*above, name), command
        if hasattr(command, "commands"):
            yield from commands(command, *above, name)


ALL = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_option_is_explained(words: tuple[str, ...]) -> None:
    """The text of each option stands there, whole: rich takes words in brackets for markup."""
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "500"}).output
    plain = re.sub(r"\s+", " ", shown)
    helps = [text for one in ALL[words].params if (text := getattr(one, "help", None))]
    assert [text for text in helps if text not in plain] == []
    assert ALL[words].help
