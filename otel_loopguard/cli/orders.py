"""`pause`, `resume`, `abort`, `answer`: what people tell live sessions."""

from __future__ import annotations

import getpass
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from otel_loopguard.cli.output import say
from otel_loopguard.control.flag import is_reserved
from otel_loopguard.escalation.answers import answer_of

if TYPE_CHECKING:
    from otel_loopguard.desk.client import Lines

_LISTED_S: Final = 3.0
"""A live process lists its new sessions every `desk_heartbeat_s` (2 s)."""
_AGAIN_S: Final = 0.2
_DONE: Final = {
    "pause": "is paused",
    "resume": "goes on",
    "abort": "is aborted",
}


def give(lines: Lines, request: Mapping[str, str | None]) -> int:
    """Sends a request to the processes that know its session, and prints what came of it.

    Args:
        lines: The ways to the processes.
        request: The request; what is None is left out.

    Returns:
        The exit code: 1 where nobody knows the session, or it was refused.

    Raises:
        LoopGuardError: Nobody can be asked, or there is no such answer.
    """
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
