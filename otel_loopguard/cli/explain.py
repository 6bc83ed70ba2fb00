"""`explain`: why sessions were stopped, or why not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from otel_loopguard.cli import live
from otel_loopguard.cli.inputs import Inputs
from otel_loopguard.cli.output import Format, json_line, say, sentence
from otel_loopguard.cli.replay import replay_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from otel_loopguard.settings import Settings


def print_explanations(
    what: str, form: Format, settings: Settings, store: str | None, socket: str | None
) -> int:
    """Prints one text or object per session of a recording, or of a live session.

    Returns:
        The exit code; 1 if no live process knows the session.
    """
    if what == "-" or Path(what).exists():
        with Inputs([what]) as inputs:
            for result in replay_all(inputs, settings):
                if result.explanation is not None:
                    told = result.explanation
                    _print(form, {"source": result.source, **told.to_dict()}, str(told))
        return inputs.code
    found = list(_ask(what, store, socket))
    for reply in found:
        _print(form, reply["explanation"], reply["text"])
    return 0 if found else live.report_unknown("file or session", what)


def _ask(session: str, store: str | None, socket: str | None) -> Iterator[dict[str, Any]]:
    transport = live.transport_to(store, socket)
    for reply in transport.ask({"op": "explain", "session": session}):
        if isinstance(reply.get("explanation"), dict) and isinstance(reply.get("text"), str):
            yield reply
        else:
            say(f"otel-loopguard: {reply.get('message')}", error=True)


def _print(form: Format, told: dict[str, Any], text: str) -> None:
    if form is Format.JSON:
        json_line(told)
    else:
        for line in text.splitlines():
            sentence(line)
