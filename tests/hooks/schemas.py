"""What each coding agent takes for an answer, as JSON schemas written after the vendors' own.

Codex: the schemas in its program, which `codex_schemas.py` compares, and what its parser refuses
besides. gemini-cli: docs/hooks/reference.md. VS Code: `extensions/copilot` in microsoft/vscode, and
Copilot CLI 1.0.102. Cursor: what `@cursor/sdk` 1.0.32 looks at in an answer; it passes over fields
that it does not know. Claude Code: the types of its SDK, which `test_types.py` asks the compiler
about, too. opencode: `hooks/data/opencode.js`. An empty object says nothing, to all.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from otel_loopguard.hooks.agents import mapping

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "pattern": r"\S"}
ENDED: Schema = {"continue": {"const": False}, "stopReason": TEXT}


def closed(*required: str, **properties: Schema) -> Schema:
    """An object with these fields and no others."""
    shape: Schema = {"type": "object", "properties": properties, "required": list(required)}
    return {**shape, "additionalProperties": False}


def specific(name: str, outside: Schema | None = None, **inside: Schema) -> Schema:
    """The part of an answer that belongs to one event, and what stands outside of it."""
    inner = closed("hookEventName", *inside, hookEventName={"const": name}, **inside)
    return closed("hookSpecificOutput", hookSpecificOutput=inner, **(outside or {}))


def every(**properties: Schema) -> Schema:
    """An object with all of these fields and no others."""
    return closed(*properties, **properties)


def permission(name: str, *decisions: str, outside: Schema | None = None) -> Schema:
    """An answer that refuses a call, or asks about it."""
    decided = {"permissionDecision": {"enum": decisions}, "permissionDecisionReason": TEXT}
    return specific(name, outside, **decided)


def context_twice(name: str) -> Schema:
    """A message to the model, for an agent that reads it in one of two places."""
    both = specific(name, {"additionalContext": TEXT}, additionalContext=TEXT)
    return {**both, "required": ["hookSpecificOutput", "additionalContext"]}


NOTHING = closed()
ADDED = {**TEXT, "maxLength": 10_000}
DENY: Schema = {"const": "deny"}
AGENT = {"agent_message": TEXT}
SHAPES: dict[str, Callable[[str], Schema]] = {
    "context": lambda name: specific(name, additionalContext=TEXT),
    "context-twice": context_twice,
    "refused": lambda name: permission(name, "deny"),
    "refused-or-asked": lambda name: permission(name, "deny", "ask", outside=ENDED),
    "blocked": lambda _: every(decision={"const": "block"}, reason=TEXT),
    "stopped": lambda _: every(**ENDED),
    "denied": lambda _: every(decision=DENY, reason=TEXT),
    "denied-ended": lambda _: closed(*ENDED, **ENDED, reason=TEXT, decision=DENY),
    "kept": lambda _: closed(*ENDED, **ENDED, reason=TEXT),
    "added": lambda _: every(additional_context=ADDED),
    "forbidden": lambda _: closed("permission", permission=DENY, user_message=TEXT, **AGENT),
    "unsent": lambda _: closed("continue", **{"continue": {"const": False}}, user_message=TEXT),
    "followup": lambda _: every(followup_message=TEXT),
    "deny": lambda _: closed("deny", deny=TEXT, stop=TEXT),
    "hint": lambda _: every(hint=TEXT),
    "hint-or-stop": lambda _: closed(hint=TEXT, stop=TEXT),
}
TABLE = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()[1:]

ANSWERS: dict[str, dict[str, list[Schema]]] = {}
for agent, shape, *events in map(str.split, TABLE):
    for event in events:
        ANSWERS.setdefault(agent, {}).setdefault(event, []).append(SHAPES[shape](event))

_VALIDATORS: dict[tuple[str, str], Any] = {
    (agent, event): Draft202012Validator({"anyOf": [NOTHING, *schemas]})
    for agent, events in ANSWERS.items()
    for event, schemas in events.items()
}
_NONE: Any = Draft202012Validator(NOTHING)


def refused(agent: str, payload: Any, answer: object) -> str | None:
    """Why an agent would not take an answer; None if it does."""
    fields = mapping(payload)
    keys = ("event",) if agent == "opencode" else ("hook_event_name", "hookEventName")
    names = (fields.get(key) for key in keys)
    name = next((each for each in names if isinstance(each, str) and each), "")
    found = next(_VALIDATORS.get((agent, name), _NONE).iter_errors(answer), None)
    return None if found is None else found.message
