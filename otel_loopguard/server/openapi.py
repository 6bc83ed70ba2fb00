"""The OpenAPI document of the flag's API."""

from __future__ import annotations

from typing import Any, Final

from otel_loopguard.version import __version__

_TEXT: Final = {"type": "string"}
_MAYBE: Final = {"type": ["string", "null"]}
_NUMBER: Final = {"type": "number"}
_WHOLE: Final = {"type": "integer"}
_ACTION: Final = {
    "type": "string",
    "enum": ["allow", "hint", "steer", "ask", "deny", "pause", "abort"],
    "description": "What the runtime should do, from weak to strong.",
}
_BY: Final = {**_TEXT, "description": "Name of the person who does it."}
_KEY: Final = "Key of the session: the conversation id of its spans, else their trace id."
_IN_PATH: Final = {
    "name": "session", "in": "path", "required": True, "schema": _TEXT,
    "description": f"{_KEY} Clients take `..` out of a path, and some proxies decode it: such keys "
    "are reached in the query.",
}  # fmt: skip
_IN_QUERY: Final = {
    "name": "id", "in": "query", "required": True, "schema": _TEXT, "description": _KEY,
}  # fmt: skip


def _object(properties: dict[str, Any], *, closed: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "object", "properties": properties}
    return {**found, "additionalProperties": False} if closed else found


_CHECKS: Final = _object(
    dict.fromkeys(("running", "judging", "queue", "store", "next_hop"), _TEXT)
) | {"description": "`ok`, or why not, in words. What is not configured is left out."}
_SCHEMAS: Final = {
    "Control": _object({
        "session": _TEXT,
        "action": _ACTION,
        "stops": {"type": "boolean", "description": "Whether it is deny, pause or abort."},
        "reason": {**_MAYBE, "description": "Why, in a sentence without content of the calls."},
        "hint": {**_MAYBE, "description": "What to tell the model, ready for its messages."},
        "by": {**_MAYBE, "description": "`policy`, or the name of a person."},
        "until": {
            "type": ["integer", "null"],
            "description": "When it ends by itself, nanoseconds since the epoch.",
        },
        "decision": {
            "type": ["object", "null"],
            "properties": {
                "id": _TEXT, "detector": _TEXT, "rule": _TEXT, "message": _TEXT, "tool": _MAYBE,
                "step": _WHOLE, "count": _NUMBER, "confidence": _NUMBER,
                "shadow": {"type": "boolean"},
            },
        },
        "warning": {
            **_MAYBE,
            "description": "For who runs the agent: why the session is not guarded well, as of "
            "spans that come too late. No part of `version`.",
        },
        "version": {**_TEXT, "description": "Another one after every change."},
    }),
    "Session": _object({
        "session": _TEXT, "process": _TEXT, "agent": _MAYBE, "step": _MAYBE, "steps": _WHOLE,
        "action": _ACTION, "by": _MAYBE, "reason": _MAYBE, "detector": _MAYBE,
        "tokens": {"type": ["integer", "null"]}, "since": _WHOLE, "last": _WHOLE,
        "escalation": _MAYBE,
    }),
    "Problem": _object({"type": _TEXT, "status": _WHOLE, "detail": _TEXT}),
}  # fmt: skip

_BODIES: Final = {
    "pause": ("Gates wait until it is resumed or aborted.", {"reason": _TEXT, "by": _BY}),
    "resume": ("Lets it go on, an aborted one too.", {"guidance": _TEXT, "by": _BY}),
    "abort": ("Ends it.", {"reason": _TEXT, "by": _BY}),
    "answer": (
        "Answers its escalation.",
        {
            "answer": {
                "type": "string",
                "enum": ["continue", "modify_plan", "skip_task", "abort"],
            },
            "guidance": _TEXT,
            "by": _BY,
        },
    ),
    "allow": (
        "A false alarm: lets the denied call through, or the whole session.",
        {"scope": {"type": "string", "enum": ["call", "session"], "default": "call"}, "by": _BY},
    ),
}


def document() -> dict[str, Any]:
    """The document, as JSON values."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "otel-loopguard",
            "version": __version__,
            "description": "The control flag of agent sessions. OTLP is taken at /v1/traces, "
            "/v1/logs and /v1/metrics.",
        },
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
        "paths": {
            "/livez": _probe(
                "live",
                "Whether the process answers; `/healthz` is the same.",
                {"200": _answer("It does.", _TEXT, "text/plain")},
            ),
            "/readyz": _probe(
                "ready",
                "Whether requests would be taken: it is not being shut down, the judging threads "
                "work, not too much waits, the store and the next hop answer.",
                {"200": _answer("All hold.", _CHECKS), "503": _answer("One does not.", _CHECKS)},
            ),
            "/metrics": {
                "get": _operation(
                    "metrics",
                    "All metrics, for Prometheus: with the token of the only tenant, or `metrics` "
                    "of the file of tokens. Where the process has a meter provider of its own "
                    "there is no such path.",
                    _TEXT,
                    media="text/plain",
                )
            },
            "/v1/sessions": {
                "get": _operation(
                    "sessions",
                    "The sessions in use, and those that are stopped.",
                    _object(
                        {
                            "sessions": {"type": "array", "items": _ref("Session")},
                            "omitted": {
                                **_WHOLE,
                                "description": "Sessions that are known and not looked at: "
                                "the newest 1,000 are (`tuning.admin.sessions`).",
                            },
                        }
                    ),
                )
            },
            **_paths("/v1/sessions/{session}", "", _IN_PATH),
            **_paths("/v1/session", "_by_query", _IN_QUERY),
        },
    }


def _probe(name: str, summary: str, answers: dict[str, Any]) -> dict[str, Any]:
    """A path for orchestrators, which have no token."""
    public: list[dict[str, list[str]]] = []
    get = {"operationId": name, "summary": summary, "security": public, "responses": answers}
    return {"get": get}


def _answer(
    description: str, schema: dict[str, Any], media: str = "application/json"
) -> dict[str, Any]:
    return {"description": description, "content": {media: {"schema": schema}}}


def _paths(one: str, suffix: str, key: dict[str, Any]) -> dict[str, Any]:
    """The paths of one session, whose key stands in the path or in the query."""
    return {
        one: {
            "get": _operation(
                f"session{suffix}", "All that there is to show of a session.",
                _object({"session": _ref("Session")}), parameters=[key],
            )
        },
        f"{one}/control": {
            "get": _operation(
                f"control{suffix}",
                "What its runtime should do. A session that is not known is allowed: its first "
                "spans may be on their way.",
                _ref("Control"),
                parameters=[
                    key,
                    _query(
                        "wait", _NUMBER,
                        "Seconds to wait for a change, up to 60: of `since`, or of `allow`.",
                    ),
                    _query("since", _TEXT, "The `version` that is known."),
                ],
            )
        },
        f"{one}/events": {
            "get": _operation(
                f"events{suffix}",
                "The same as server-sent events named `control`: at once, and after each change.",
                _TEXT, media="text/event-stream", parameters=[key],
            )
        },
        **{
            f"{one}/{action}": {
                "post": _operation(
                    f"{action}{suffix}", summary, _object(answer), parameters=[key],
                    body=_object(properties),
                )
            }
            for action, (summary, properties) in _BODIES.items()
            for answer in [{"action": _ACTION} | ({"setting": _TEXT} if action == "allow" else {})]
        },
    }  # fmt: skip


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema, "description": description}


def _operation(  # noqa: PLR0913
    name: str, summary: str, schema: dict[str, Any], *, media: str = "application/json",
    parameters: list[dict[str, Any]] | None = None, body: dict[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    found: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": _answer("Done.", schema, media),
            "4XX": _answer("It cannot be done.", _ref("Problem"), "application/problem+json"),
        },
    }
    if parameters:
        found["parameters"] = parameters
    if body is not None:
        found["requestBody"] = {"content": {"application/json": {"schema": body}}}
    return found
