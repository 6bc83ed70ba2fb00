"""Model texts, tool calls and results, read from messages on spans.

A model's answer holds the calls that it asks for, and its next request holds what came of them.
Read are `gen_ai.output.messages` and `gen_ai.input.messages` (OTel GenAI), the numbered attributes
`llm.output_messages.N…` (OpenInference) and `gen_ai.completion.N…` (OpenLLMetry, LiteLLM) with
their inputs, `ai.response.toolCalls` and `ai.prompt.messages` (Vercel), `langfuse.observation.*`
(Langfuse), `gen_ai.completion` and `gen_ai.prompt` (LangSmith), `mlflow.spanOutputs` and
`mlflow.spanInputs`, `input` (Pipecat), `events`, `response_data` and `request_data` (logfire), and
the events of spans. The shapes inside are those of OpenAI (chat and
responses), Anthropic, Google, Bedrock, LangChain and the AI SDK, whichever key they stand under.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from otel_loopguard._util.text import truncate
from otel_loopguard.spans.steps import captured
from otel_loopguard.spans.values import (
    LONGEST_ID,
    agent_result,
    hidden,
    identifier,
    known,
    listing,
    mapping,
    parsed,
    text,
    texts,
)

if TYPE_CHECKING:
    from otel_loopguard.spans.views import SpanView

_PARTS: Final = ("content", "text", "parts", "message")  # the last one is read first
_NO_TEXT: Final = frozenset(("tool_call", "tool_call_response", "tool_use", "function_call"))
_USERS: Final = frozenset(("user", "human"))
_NO_ASSISTANTS: Final = frozenset(("tool", "user", "system"))
_NODES: Final = 4_096
"""Lists, maps and texts of messages that are walked through (2 ms), and that may wait meanwhile:
live attributes may hold lists that contain themselves. The largest answer seen has some hundred."""


def assistant_text(value: object) -> str | None:
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
    stack: list[object] = [whole]
    for _ in range(_NODES):
        if not stack or len(stack) > _NODES:
            break
        item = stack.pop()
        if isinstance(item, str):
            found.append(item)
        elif isinstance(item, (list, tuple)):
            stack.extend(cast("list[object]", item)[:_NODES][::-1])
        elif (part := mapping(item)) is not None and _is_own(part):
            # No generator: it costs as much as all the rest of a short answer.
            stack += [part[key] for key in _PARTS if key in part]
    return "\n".join(filter(None, found))


def _is_own(part: Mapping[str, object]) -> bool:
    """True for a message of the assistant or text in one, false for calls and other roles."""
    return not (_one_of(part.get("role"), _NO_ASSISTANTS) or _one_of(part.get("type"), _NO_TEXT))


def user_text(value: object) -> str | None:
    """Text of the newest message of a user, as of `assistant_text`; None if there is none."""
    for item in reversed(listing(parsed(value)) or ()):
        if _one_of(_role(item), _USERS):
            return _text_in(item)
    return None


def last_answer(value: object) -> str | None:
    """Text of the last message, as of `assistant_text`; None if it is not an assistant's."""
    messages = listing(parsed(value)) or (None,)
    return None if _one_of(_role(messages[-1]), _USERS | _NO_ASSISTANTS) else _text_in(messages[-1])


def _text_in(message: object) -> str | None:
    """Text of a message, also out of LangChain's wrapping."""
    outer = mapping(message) or {}
    inner = mapping(outer.get("data")) or mapping(outer.get("kwargs")) or outer
    return assistant_text({name: part for name, part in inner.items() if name != "role"}) or None


def _one_of(value: object, names: frozenset[str]) -> bool:
    return isinstance(value, str) and value in names


_MOST_CALLS: Final = 64
"""Calls read of one answer: models ask for a handful, and each is looked for in later requests."""
_MOST_MESSAGES: Final = 256
"""Newest messages of a request that may be read: four times the calls of an answer, so that all
that came since the last request is among them."""
_PARSED_CHARS: Final = 262_144
"""Characters at the end of a request that are parsed (1 ms): 64 results of 4,000 characters."""
_LONG_CHARS: Final = 32_768
"""Characters of a request of which a part may do. A shorter one that does not parse was cut. Of a
longer one so much of its end is parsed where `_PARSED_CHARS` of it have too many values."""
_MOST_BEGINNINGS: Final = 4
"""Places in the end of a request that are tried as the beginning of a message. The same words may
stand in a result, and each try parses up to the end."""
_HEAD_CHARS: Final = 400
"""Characters of the first message that tell conversations apart: a few sentences do."""
_ROLE: Final = re.compile(r'\{\s?"role"')

_CALL_TYPES: Final = frozenset(("tool_call", "tool_use", "tool-call", "function_call", "function"))
_RESULT_TYPES: Final = frozenset(
    ("tool_call_response", "tool_result", "tool-result", "function_call_output")
)
_WRAPPED_CALLS: Final = ("toolUse", "functionCall", "function_call", "tool_call")
_WRAPPED_RESULTS: Final = ("toolResult", "functionResponse", "function_response")
_INSIDE: Final = (
    "message", "messages", "choices", "candidates", "generations", "output", "content", "parts",
    "kwargs", "data", "additional_kwargs",
)  # fmt: skip
_CALL_IDS: Final = ("call_id", "tool_call_id", "toolCallId", "toolUseId", "tool_use_id", "id")
_NAMES: Final = ("name", "toolName")
_ARGUMENTS: Final = ("arguments", "args", "input")
_RESULTS: Final = ("response", "result", "output", "content")
_ASKING: Final = frozenset(("assistant", "ai", "model"))
_ANSWERING: Final = frozenset(("tool", "function"))
_ERROR_OUTPUTS: Final = frozenset(("error-text", "error-json"))
_OUTPUTS: Final = frozenset(("text", "json", "content", *_ERROR_OUTPUTS))
_FAILED: Final = re.compile(
    r"\A\s{0,8}(?:error|exception|traceback|[\w.]{1,60}(?:Error|Exception))\b[:( ]", re.IGNORECASE
)
_ERROR_CHARS: Final = 4_000
"""Characters of the longest result that is an error by its first word: a document that begins with
"Error" is longer."""

_ANSWERS: Final = (
    "gen_ai.output.messages", "ai.response.toolCalls", "langfuse.observation.output",
    "gen_ai.completion", "response_data", "mlflow.spanOutputs",
)  # fmt: skip
_REQUESTS: Final = (
    "gen_ai.input.messages", "ai.prompt.messages", "langfuse.observation.input", "gen_ai.prompt",
    "request_data", "mlflow.spanInputs", "input",
)  # fmt: skip
_NUMBERED_ANSWERS: Final = (("llm.output_messages.", ".message."), ("gen_ai.completion.", "."))
_NUMBERED: Final = ("role", "tool_calls.0.name", "function_call.name")
"""A field that every numbered answer has one of."""
_NUMBERED_REQUESTS: Final = (("llm.input_messages.", ".message."), ("gen_ai.prompt.", "."))
"""Prefixes of messages whose fields are attributes of their own, and what follows their numbers."""
_DETAILS: Final = "gen_ai.client.inference.operation.details"
_SAID: Final = ("gen_ai.assistant.message", "gen_ai.tool.message", "gen_ai.user.message")
EVENTS: Final = frozenset((*_SAID, "gen_ai.choice", _DETAILS))
"""Events that carry messages, whether of spans or logged."""
_REASONS: Final = (
    "gen_ai.response.finish_reasons", "llm.finish_reason", "ai.response.finishReason",
    "gen_ai.completion.0.finish_reason", "anthropic.message.stop_reason",
)  # fmt: skip
_ASKS: Final = re.compile(r"tool_call|tool-call|tool_use|function_call")


class RequestedCall(NamedTuple):
    """A call that a model asks for."""

    call_id: str | None
    name: str
    args: object  # a JSON value or text; None if they were not captured


class Answered(NamedTuple):
    """The result of a call."""

    call_id: str | None
    value: object  # a JSON value or text; None if it was not captured
    failed: bool


class Message(NamedTuple):
    """One message of a request, as far as calls of tools go."""

    asking: bool  # it is one of the model's own
    calls: tuple[RequestedCall, ...]
    results: tuple[Answered, ...]


class Request(NamedTuple):
    """The messages that a model was sent."""

    read: Callable[[int], Message]
    places: Sequence[int]  # the newest first, 256 at most
    head: int | None  # stands for the first message; None if that was not captured

    @property
    def newest(self) -> Iterator[Message]:
        """Its newest messages, the newest first; only those that are asked for are read."""
        return map(self.read, self.places)


def calls_on(span: SpanView) -> list[RequestedCall]:
    """The calls that the answer on a model's span asks for, in order; 64 at most.

    A span whose answer has none costs a few look-ups: its text is searched for a word, not parsed.
    """
    attributes = span.attributes
    for key in _ANSWERS:
        value = attributes.get(key)
        # What stood there before it was hidden may ask for tools, too.
        if value is not None and (span.start_attributes is not None or _may_call(value)):
            found = _calls_in(captured(span, key))
            if found:
                return found
    for prefix, between in _NUMBERED_ANSWERS:
        first = f"{prefix}0{between}"
        if any(f"{first}{key}" in attributes for key in _NUMBERED):
            return _numbered_calls(attributes, prefix, between)
    if "logfire.msg_template" in attributes:
        events = listing(_json(attributes.get("events")))
        return _calls_in(events[-1]) if events else []
    for name, carried in span.events or ():
        key = "gen_ai.output.messages" if name == _DETAILS else "message"
        if name in (_DETAILS, "gen_ai.choice") and key in carried:
            found = _calls_in(carried) if "tool_calls" in carried else _calls_in(carried[key])
            if found:
                return found
    return []


def fetched(span: SpanView) -> bool:
    """True if the span fetches an answer that its model was asked for before, and it is there.

    Each look at an answer that is not there yet has such a span, too (`in_progress`).
    """
    get = span.attributes.get
    fetches = get("gen_ai.operation.name") == "fetch_response"
    return fetches and get("gen_ai.response.status") not in ("queued", "in_progress")


def asks_for_tools(span: SpanView) -> bool:
    """True if a model's span says that its answer asks for tools, whatever else it says."""
    why = _first(span.attributes, _REASONS)
    # A reason is one word; other values are not searched.
    return any(isinstance(one, str) and _ASKS.search(one[:200]) for one in listing(why) or (why,))


def request_on(span: SpanView) -> Request | None:
    """The newest messages of the request on a model's span; None if they were not captured.

    Of a long request the end is parsed (262,144 characters); a value that a limit has cut has lost
    just that, and is not captured.
    """
    attributes = span.attributes
    for key in _REQUESTS:
        value = attributes.get(key)
        if value is not None:
            found = _request_of(captured(span, key))
            if found is not None:
                return found
    for prefix, between in _NUMBERED_REQUESTS:
        found = _numbered_request(attributes, prefix, between)
        if found is not None:
            return found
    # The last of logfire's events is the answer.
    said = (
        listing(_json(attributes.get("events"))) if "logfire.msg_template" in attributes else None
    )
    found = _request_of(said[:-1]) if said else None
    return found or (_request_from_events(span) if span.events else None)


def _request_from_events(span: SpanView) -> Request | None:
    messages: list[object] = []
    for name, carried in span.events:
        if name == _DETAILS and "gen_ai.input.messages" in carried:
            return _request_of(carried["gen_ai.input.messages"])
        if name in _SAID:
            role = name.removeprefix("gen_ai.").removesuffix(".message")
            messages.append({"role": role, **carried, "content": _json(carried.get("content"))})
    return _request_of(messages) if messages else None


def _json(value: object) -> object:
    return parsed(known(value))


def _may_call(value: object) -> bool:
    """False if no call can be in the value: each has one of these words in it, as text."""
    return not isinstance(value, str) or "tool" in value or "function" in value


def _calls_in(value: object) -> list[RequestedCall]:
    # To parse the text costs a hundred times as much.
    if not _may_call(value):
        return []
    calls: list[RequestedCall] = []
    _collect(_json(value), calls, [])
    return calls[:_MOST_CALLS]


def _request_of(value: object) -> Request | None:
    messages, whole = _messages(value)
    if not messages:
        return None
    newest = range(len(messages))[::-1][:_MOST_MESSAGES]
    head = hash(truncate(messages[0], _HEAD_CHARS)) if whole else None
    return _request(messages.__getitem__, newest, head)


def _request(at: Callable[[int], object], places: Sequence[int], head: int | None) -> Request:
    @cache
    def read(place: int) -> Message:
        return _message(at(place))

    return Request(read, places, head)


def _messages(value: object) -> tuple[list[object] | tuple[object, ...], bool]:
    """The messages of a request, or those at its end, and whether they are all."""
    if isinstance(value, str) and len(value) > _LONG_CHARS:
        found = _json(value) if len(value) <= _PARSED_CHARS else value
        if found is value:
            # Too long, of too many values, or cut: what its end says may be known all the same.
            return _tail(value, _PARSED_CHARS) or _tail(value, _LONG_CHARS), False
    else:
        found = _json(value)
    for key in ("messages", "input", "contents"):
        inner = mapping(found)
        found = inner[key] if inner is not None and key in inner else found
    messages = listing(found) or ()
    batch = listing(messages[0]) if len(messages) == 1 else None
    return messages if batch is None else batch, True


def _tail(value: str, size: int) -> list[object] | tuple[object, ...]:
    """The messages at the end of a long JSON list: from where on a message begins, it parses."""
    end = value[-size:]
    for place, _ in zip(_ROLE.finditer(end), range(_MOST_BEGINNINGS), strict=False):
        found = listing(parsed(f"[{end[place.start() :]}"))
        if found is not None:
            return found
    return ()


def _message(item: object) -> Message:
    calls: list[RequestedCall] = []
    results: list[Answered] = []
    _collect(item, calls, results)
    return Message(bool(calls) or _one_of(_role(item), _ASKING), tuple(calls), tuple(results))


def _role(item: object) -> object:
    found = mapping(item) or {}
    kwargs = mapping(found.get("kwargs"))
    if kwargs is not None:
        return kwargs.get("type")
    return found.get("role", found.get("type"))


def _collect(item: object, calls: list[RequestedCall], results: list[Answered]) -> None:
    """Walks through the shapes of messages, in order and within a bound."""
    stack = [item]
    for _ in range(_NODES):
        if not stack or len(stack) > _NODES:
            return
        value = stack.pop()
        items, part = listing(value), mapping(value)
        if items is not None:
            stack.extend(reversed(items[:_NODES]))
        elif part is None:
            continue
        elif (answered := _result(part)) is not None:
            results.append(answered)
        elif (asked := _call(part)) is not None:
            calls.append(asked)
        else:
            # Where calls are listed twice, they are read in one of the two places.
            called = list(listing(part.get("tool_calls")) or ())[:_MOST_CALLS]
            stack.extend(reversed(called or [part[key] for key in _INSIDE if key in part]))


def _call(part: Mapping[str, object]) -> RequestedCall | None:
    for key in _WRAPPED_CALLS:
        inner = mapping(part.get(key))
        if inner is not None:
            asked = _call({"type": "tool_call", **inner})
            return asked if asked is None or asked.call_id else asked._replace(call_id=_id(part))
    function = mapping(part.get("function"))
    if function is not None:
        name, args = text(function.get("name")), _first(function, _ARGUMENTS)
    elif _one_of(part.get("type"), _CALL_TYPES) or "toolName" in part:
        name, args = text(_first(part, _NAMES)), _first(part, _ARGUMENTS)
    elif "name" in part and "args" in part:
        name, args = text(part["name"]), part["args"]
    else:
        return None
    if name is None or hidden(name):
        return None
    return RequestedCall(_id(part), name[:LONGEST_ID], "{}" if args == "" else known(args))


def _result(part: Mapping[str, object]) -> Answered | None:
    for key in _WRAPPED_RESULTS:
        inner = mapping(part.get(key))
        if inner is not None:
            return _result({"type": "tool_result", **inner})
    answering = _one_of(part.get("role"), _ANSWERING) or (
        "tool_call_id" in part and "content" in part
    )
    if not answering and not _one_of(part.get("type"), _RESULT_TYPES):
        return None
    # LiteLLM has the id of a call beside the parts of its result, which are text.
    of_parts = "parts" in part and "tool_call_id" in part
    if answering and (_holds_results(part.get("content")) or ("parts" in part and not of_parts)):
        return None
    value, failed = _value(assistant_text(part["parts"]) if of_parts else _first(part, _RESULTS))
    failed = failed or part.get("is_error") is True or part.get("status") == "error"
    # Often no other sign of an error is left in a message.
    failed = failed or (
        isinstance(value, str) and len(value) <= _ERROR_CHARS and bool(_FAILED.match(value))
    )
    return Answered(_id(part, results=True), value, failed)


def _holds_results(content: object) -> bool:
    inner = listing(content)
    first = mapping(inner[0]) if inner else None
    return first is not None and (
        _one_of(first.get("type"), _RESULT_TYPES) or any(key in first for key in _WRAPPED_RESULTS)
    )


def _value(value: object) -> tuple[object, bool]:
    """A result without what messages put around it, and whether that says that it failed."""
    output = mapping(value)
    kind = None if output is None else output.get("type")
    if output is not None and _one_of(kind, _OUTPUTS) and "value" in output:
        return texts(output["value"]), _one_of(kind, _ERROR_OUTPUTS)
    outcome = agent_result(texts(known(value)))
    return outcome.error if outcome.failed else outcome.value, outcome.failed


def _id(part: Mapping[str, object], *, results: bool = False) -> str | None:
    for key in _CALL_IDS:
        # The id of a message that holds a result is the message's own where it names the call too.
        if key in part and (key != "id" or not results or "tool_call_id" not in part):
            found = identifier(part[key])
            if found is not None:
                return found
    return None


def _first(part: Mapping[str, object], keys: tuple[str, ...]) -> object:
    return next((part[key] for key in keys if key in part), None)


def _numbered(attributes: Mapping[str, object], head: str) -> dict[str, object]:
    """A message whose fields are attributes of their own, as a map."""
    get = attributes.get
    message: dict[str, object] = {"role": get(f"{head}role")}
    # Anthropic sends results as the user, and so they are written.
    if _one_of(message["role"], _ANSWERING) or f"{head}tool_call_id" in attributes:
        message["content"] = get(f"{head}content")
        message["tool_call_id"] = get(f"{head}tool_call_id")
    calls: list[object] = []
    for number in range(_MOST_CALLS):
        one, inside = f"{head}tool_calls.{number}.", ""
        if f"{one}name" not in attributes:
            one, inside = f"{one}tool_call.", "function."
        name = text(get(f"{one}{inside}name"))
        if name is None:
            break
        # Without arguments OpenInference leaves the key out, and so it does where it hides them.
        args = get(f"{one}{inside}arguments")
        calls.append({"type": "tool_call", "name": name, "arguments": args, "id": get(f"{one}id")})
    if not calls and (name := text(get(f"{head}function_call.name"))) is not None:
        # LiteLLM numbers the calls of one message.
        calls.append(
            {"type": "tool_call", "name": name, "arguments": get(f"{head}function_call.arguments")}
        )
    message["tool_calls"] = calls
    return message


def _numbered_calls(
    attributes: Mapping[str, object], prefix: str, between: str
) -> list[RequestedCall]:
    messages: list[object] = []
    for index in range(_MOST_CALLS):
        head = f"{prefix}{index}{between}"
        message = _numbered(attributes, head)
        if index and not message["tool_calls"] and f"{head}role" not in attributes:
            break
        messages.append(message)
    return _calls_in(messages)


def _numbered_request(
    attributes: Mapping[str, object], prefix: str, between: str
) -> Request | None:
    size = len(prefix)
    numbers = (key[size:].partition(".")[0] for key in attributes if key.startswith(prefix))
    # No request has a million messages; `int` raises for thousands of digits.
    places = {int(number) for number in numbers if number.isdecimal() and len(number) < 7}
    if not places:
        return None
    first, head = min(places), None
    if first < 2:
        # Attributes over the limit are dropped from the oldest on: then it is no longer the first.
        head = hash(truncate(attributes.get(f"{prefix}{first}{between}content"), _HEAD_CHARS))
    newest = sorted(places, reverse=True)[:_MOST_MESSAGES]
    return _request(lambda place: _numbered(attributes, f"{prefix}{place}{between}"), newest, head)
