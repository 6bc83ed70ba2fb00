"""Texts for the model or the user: what was measured, what may help, and other ways."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from otel_loopguard.core import Action

if TYPE_CHECKING:
    from otel_loopguard.core import Decision, Detection, Diagnosis

_HINT: Final = "Do not repeat this: use what you have, try another way, or say what is missing."
_FIXES: Final = 2
_FOLLOWS: Final = {
    Action.STEER: "Stop doing this.",
    Action.ASK: "Ask the user before you go on.",
    Action.DENY: "Further calls of this kind are refused: try another way, or finish with what you "
    "have.",
    Action.PAUSE: "The run is paused until a person lets it go on.",
    Action.ABORT: "The run is stopped.",
}


def hint(decision: Decision) -> str:
    """Renders a decision as sentences for the model.

    First what was measured, then what follows; then the detector's own advice, the other ways of a
    steer or a deny, the question of an ask, and for an error its cause and what may help. Fixes
    that cannot be taken back are named as such.
    """
    parts = [_sentence(decision.message), _FOLLOWS.get(decision.action, "")]
    if decision.action is Action.HINT and not decision.advice:
        # A detector's own advice is more specific than the general one.
        parts.append(_HINT)
    if decision.action is not Action.ABORT:
        parts.append(decision.advice)
        if decision.alternatives:
            parts.append(f"Other ways: {'; '.join(decision.alternatives)}.")
        if decision.action is Action.ASK:
            parts.append(f"To ask: {decision.question}")
        if decision.diagnosis is not None:
            parts.append(f"Likely cause: {_sentence(decision.diagnosis.cause)}")
            fixes = [
                f"{fix.text} (cannot be taken back)" if fix.risk == "high" else fix.text
                for fix in decision.diagnosis.fixes[:_FIXES]
            ]
            parts.append(f"What may help: {'; '.join(fixes)}." if fixes else "")
    return " ".join(part for part in parts if part)


def question(action: Action, found: Detection, known: Diagnosis | None) -> str | None:
    """Returns the question for the user; None unless the action is `ask` or `pause`."""
    if action not in (Action.ASK, Action.PAUSE):
        return None
    cause = f" {known.cause}" if known is not None else ""
    return (
        f"{_sentence(found.message)}{cause} Should the agent go on like this, try another way "
        "(which?), or stop?"
    )


def _sentence(text: str) -> str:
    text = text.strip()
    ended = text if text.endswith((".", "?", "!")) else f"{text}."
    return f"{ended[:1].upper()}{ended[1:]}"


_WAYS: Final = 3
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")

STRATEGIES: Final[Mapping[str, tuple[str, ...]]] = {
    "patch": (
        "read the file again and build the patch from its lines as they are now",
        "replace the few lines by exact text instead of a patch",
        "write the whole file anew",
    ),
    "edit": (
        "read the lines around the place again and copy the text to replace from there",
        "make a smaller edit",
        "apply it as a patch, or write the whole file anew",
    ),
    "sql": (
        "read the schema, and query one table at a time",
        "take a few rows without any condition, to see what values look like",
        "build the query up again from its smallest part that works",
    ),
    "python": (
        "print the values and types in between",
        "run the smallest part that fails by itself",
        "use another library, or the standard library",
    ),
    "browse": (
        "open another page that has the same information",
        "search for the words on the page instead of scrolling",
        "use a search, an API or a download instead of the page",
    ),
    "search": (
        "search for other words, fewer of them, or a more general term",
        "look in another place",
        "use what was found so far, and say what is missing",
    ),
    "read": (
        "list the folder to see which files there are",
        "read another part of the file, or search it for a word",
        "use what was read so far",
    ),
    "request": (
        "ask for less, or for another page",
        "use another endpoint or source",
        "go on without it, and say what is missing",
    ),
    "agent": (
        "give the work to another agent, or do it yourself",
        "give it in smaller parts, each with what is known so far",
        "finish with what came back so far",
    ),
    "shell": (
        "read the output of the last command again and change the command",
        "run a smaller command that shows the state things are in",
        "use a tool made for the purpose, or a script in a file",
    ),
    "any": (
        "use what is known so far",
        "use another tool",
        "say what is missing, and finish",
    ),
}
"""Other ways, by kind of tool; the kinds are looked for in this order."""

_WORDS: Final[Mapping[str, frozenset[str]]] = {
    "patch": frozenset({"patch", "diff"}),
    "edit": frozenset({"edit", "editor", "replace", "insert", "str", "write", "rewrite", "update"}),
    "sql": frozenset({"sql", "query", "database", "db", "postgres", "sqlite", "mysql", "bigquery"}),
    "python": frozenset({"python", "ipython", "jupyter", "notebook", "code", "interpreter"}),
    "browse": frozenset({
        "browse", "browser", "click", "scroll", "navigate", "page", "visit", "goto", "web", "url",
    }),
    "search": frozenset({"search", "find", "grep", "lookup", "retrieve", "retriever", "rag"}),
    "read": frozenset({"read", "cat", "open", "view", "ls", "list", "file", "files", "glob"}),
    "request": frozenset({"http", "api", "request", "fetch", "get", "post", "curl", "call"}),
    "agent": frozenset({"agent", "transfer", "handoff", "delegate", "task", "assistant"}),
    "shell": frozenset({"bash", "shell", "sh", "exec", "execute", "run", "command", "terminal"}),
}  # fmt: skip


def kind_of(tool: str) -> str:
    """Returns the kind of a tool by the words of its name; `any` if unknown.

    `web_search` is a search: the words of a kind further in front count only where none of a
    search is there.
    """
    words = {word.lower() for word in _WORD.findall(tool[:200])}
    if words & _WORDS["search"] and not words & (_WORDS["sql"] | _WORDS["edit"]):
        return "search"
    return next((kind for kind, known in _WORDS.items() if words & known), "any")


def alternatives(
    tool: str, own: Mapping[str, tuple[str, ...]], *, shipped: bool = True
) -> tuple[str, ...]:
    """Other ways than a tool that gets nowhere, at most three: the user's own in front."""
    given = [text for name, texts in own.items() if fnmatchcase(tool, name) for text in texts]
    known = STRATEGIES[kind_of(tool)] if shipped else ()
    return tuple(dict.fromkeys((*given, *known)))[:_WAYS]
