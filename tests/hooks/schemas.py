"""What each coding agent takes for an answer, as JSON schemas written after the vendors' own.

Codex: the schemas in its program, which `codex_schemas.py` compares, and what its parser refuses
besides. gemini-cli: docs/hooks/reference.md. VS Code: `extensions/copilot` in microsoft/vscode, and
Copilot CLI 1.0.102. Cursor: what `@cursor/sdk` 1.0.32 looks at in an answer; it passes over fields
that it does not know. Claude Code: the types of its SDK, which `test_types.py` asks the compiler
about, too. opencode: `hooks/data/opencode.js`. An empty object says nothing, to all.
"""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

from otel_loopguard.hooks.agents import mapping

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "pattern": r"\S"}
ENDED: Schema = {"continue": {"const": False}, "stopReason": TEXT}


def closed(*required: str, **properties: Schema) -> Schema:
    """An object with these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


NOTHING = closed()
BLOCKED = closed("decision", "reason", decision={"const": "block"}, reason=TEXT)
STOPPED = closed("continue", "stopReason", **ENDED)


def context(name: str) -> Schema:
    """An answer with a message to the model."""
    inner = closed(
        "hookEventName", "additionalContext", hookEventName={"const": name}, additionalContext=TEXT
    )
    return closed("hookSpecificOutput", hookSpecificOutput=inner)


def permission(*decisions: str, **others: Schema) -> Schema:
    """An answer that refuses a call, or asks about it."""
    inner = closed(
        "hookEventName",
        "permissionDecision",
        "permissionDecisionReason",
        hookEventName={"const": "PreToolUse"},
        permissionDecision={"enum": list(decisions)},
        permissionDecisionReason=TEXT,
    )
    return closed("hookSpecificOutput", hookSpecificOutput=inner, **others)


def nested(hinted: str, stopped: str, held: str, *refusals: Schema) -> dict[str, list[Schema]]:
    """By event what an agent of Claude Code's form takes."""
    taken: dict[str, list[Schema]] = {"PreToolUse": list(refusals)}
    for name in hinted.split():
        taken.setdefault(name, []).append(context(name))
    for name in stopped.split():
        taken.setdefault(name, []).append(STOPPED)
    for name in held.split():
        taken.setdefault(name, []).append(BLOCKED)
    return taken


def context_twice(name: str) -> Schema:
    """The same, for an agent that reads it in one of two places."""
    both = context(name)
    both["properties"]["additionalContext"] = TEXT
    both["required"].append("additionalContext")
    return both


DENIED = closed("decision", "reason", decision={"const": "deny"}, reason=TEXT)
GEMINI_ENDED = closed("continue", "stopReason", **ENDED, reason=TEXT, decision={"const": "deny"})
GEMINI_KEPT = closed("continue", "stopReason", **ENDED, reason=TEXT)
CURSOR_DENIED = closed(
    "permission", permission={"const": "deny"}, user_message=TEXT, agent_message=TEXT
)
CURSOR_CONTEXT = closed("additional_context", additional_context={**TEXT, "maxLength": 10_000})

ANSWERS: dict[str, dict[str, list[Schema]]] = {
    "claude-code": nested(
        "SessionStart UserPromptSubmit PreToolUse PostToolUse PostToolUseFailure",
        "UserPromptSubmit PostToolUse PostToolUseFailure",
        "Stop SubagentStop",
        permission("deny", "ask", **ENDED),
    ),
    "codex": nested(
        "SessionStart UserPromptSubmit PreToolUse PostToolUse",
        "UserPromptSubmit PostToolUse",
        "Stop SubagentStop",
        permission("deny"),
    ),
    "vscode": {
        **nested(
            "SessionStart PreToolUse", "UserPromptSubmit", "", permission("deny", "ask", **ENDED)
        ),
        "PostToolUse": [context_twice("PostToolUse"), STOPPED],
    },
    "gemini": {
        "SessionStart": [context("SessionStart")],
        "BeforeAgent": [context("BeforeAgent"), GEMINI_KEPT],
        "BeforeTool": [DENIED, GEMINI_ENDED],
        "AfterTool": [context("AfterTool"), GEMINI_KEPT],
        "AfterAgent": [DENIED],
    },
    "cursor": {
        "sessionStart": [CURSOR_CONTEXT],
        "beforeSubmitPrompt": [
            CURSOR_CONTEXT,
            closed("continue", **{"continue": {"const": False}}, user_message=TEXT),
        ],
        "preToolUse": [CURSOR_CONTEXT, CURSOR_DENIED],
        "postToolUse": [CURSOR_CONTEXT],
        "postToolUseFailure": [CURSOR_CONTEXT],
        "stop": [closed("followup_message", followup_message=TEXT)],
    },
    "opencode": {
        "tool.execute.before": [
            closed("deny", deny=TEXT, stop=TEXT),
            closed("hint", hint=TEXT),
        ],
        "tool.execute.after": [closed(hint=TEXT, stop=TEXT)],
        "tool.error": [closed(hint=TEXT, stop=TEXT)],
    },
}
"""By agent and by event what is taken; at an event that is not named, nothing."""

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
