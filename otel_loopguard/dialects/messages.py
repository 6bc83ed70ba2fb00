"""What a model wrote, out of the ways in which messages are put on spans."""

from __future__ import annotations

from otel_loopguard.dialects.values import listing, mapping, parsed

_PARTS = ("message", "parts", "text", "content")
_CALLS = frozenset(("tool_call", "tool_call_response", "tool_use", "function_call"))
_OTHERS = frozenset(("tool", "user", "system"))
_LIMIT = 2_000


def written(value: object) -> str | None:
    """Text of an assistant's messages; empty if it wrote none, None if they were not captured.

    Understands `gen_ai.output.messages` (`[{"role", "parts": [{"type": "text", "content"}]}]`),
    chat messages (`{"role", "content"}`), blocks (`[{"text"}]`) and plain text. Text that was cut
    stays as it is. Calls of tools and messages of others are left out.
    """
    if value is None:
        return None
    whole = parsed(value)
    if isinstance(whole, str):
        return whole
    found: list[str] = []
    # A stack and a limit, because live attributes may hold lists that contain themselves.
    stack: list[object] = [whole]
    for _ in range(_LIMIT):
        if not stack or len(stack) > _LIMIT:
            break
        item = stack.pop()
        if isinstance(item, str):
            found.append(item)
        else:
            stack.extend(_inside(item))
    return "\n".join(line for line in found if line)


def asked(value: object) -> str | None:
    """Text of the newest message of a user, as of `written`; None if there is none."""
    for item in reversed(listing(parsed(value)) or ()):
        message = mapping(item)
        if message is not None and message.get("role") == "user":
            said = {name: part for name, part in message.items() if name != "role"}
            return written(said) or None
    return None


def _inside(item: object) -> list[object]:
    items = listing(item)
    if items is not None:
        return list(items[:_LIMIT])[::-1]
    part = mapping(item)
    if part is None or _one_of(part.get("role"), _OTHERS) or _one_of(part.get("type"), _CALLS):
        return []
    return [part[key] for key in _PARTS if key in part][::-1]


def _one_of(value: object, names: frozenset[str]) -> bool:
    return isinstance(value, str) and value in names
