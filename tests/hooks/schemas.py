"""What each coding agent takes for an answer, as JSON schemas written after the vendors' own.

Codex: the schemas in its program, which `codex_schemas.py` compares, and what its parser refuses
besides. gemini-cli: docs/hooks/reference.md. VS Code: `extensions/copilot` in microsoft/vscode, and
Copilot CLI 1.0.102. Cursor: what `@cursor/sdk` 1.0.32 looks at in an answer; it passes over fields
that it does not know. Claude Code: the types of its SDK, which `test_types.py` asks the compiler
about, too. opencode: `hooks/data/opencode.js`. An empty object says nothing, to all.
"""

import json
from typing import Any

from jsonschema import Draft202012Validator

from otel_loopguard._util.fields import is_list, is_map
from otel_loopguard.hooks.agents import mapping
from tests.tables import rows

Schema = dict[str, Any]


def schema(example: object, event: str) -> Schema:
    """The schema of what is like an example; `schemas.txt` says how these are written."""
    if is_map(example):
        parts = {name.rstrip("?"): schema(one, event) for name, one in example.items()}
        needed = [name for name in example if not name.endswith("?")]
        shape: Schema = {"type": "object", "properties": parts, "required": needed}
        return {**shape, "additionalProperties": False}
    if is_list(example):
        return {"enum": example}
    if isinstance(example, str) and example.startswith("TEXT"):
        most = example.removeprefix("TEXT")
        return {"type": "string", "pattern": r"\S", **({"maxLength": int(most)} if most else {})}
    return {"const": event if example == "EVENT" else example}


SHAPES = {
    name: json.loads(example) for name, example in (r.values for r in rows(__file__, "shapes"))
}
NOTHING = schema({}, "")
ANSWERS: dict[str, dict[str, list[Schema]]] = {}
for agent, shape, events in (row.values for row in rows(__file__, "answers")):
    for event in events.split():
        found = ANSWERS.setdefault(agent, {}).setdefault(event, [])
        found.append(schema(SHAPES[shape], event))

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
