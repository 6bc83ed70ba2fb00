"""Records what a program with an agent exports: a server that takes OTLP, and a model's script.

The model asks for the calls of each turn of the script, then says that it is done. A request that
has no tools is none of the agent's, as one for a title. An answer of the Responses API that is
asked for in the background is there when it is fetched for the third time.
"""

import base64
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import IO, Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_loopguard.server.otlp import decode, decompressed
from tests.server.serving import listening

Call = tuple[str, dict[str, Any]]
Turn = Call | list[Call]
LIMIT = 64 << 20
PARIS: Call = ("search", {"query": "weather in Paris"})
SUB_TASK = "sub task"
"""What a sub-agent is asked for, in the words of its prompt."""
SCRIPT: list[Call] = [PARIS, PARIS, PARIS, ("broken", {"x": 1})]
_KINDS = {"/v1/traces": ExportTraceServiceRequest, "/v1/logs": ExportLogsServiceRequest}
_KEPT = re.compile(r"service\.|telemetry\.")
_LEFT_OUT = re.compile(
    r"stack|user\.|host\.|process\.|organization|installation|sandbox|"
    r"^ai\.prompt|llm\.input_messages|tool\.definitions|tool\.description|input\.messages|system_instructions"
)
"""Keys of what is of the machine, and of what agents tell their models."""
_STACK = re.compile(r"\\n {4}at [^\"]*")
_OWN = re.compile(r"ai\.|Tool\.execute|LLM\.run|http\.")
"""The spans to keep of the hundreds that opencode writes about its own work."""


class Recorder:
    """Takes OTLP, a JSON text for each request, and answers as a model at `/openai/v1`."""

    def __init__(self, script: Sequence[Turn], home: str, sub: Sequence[Turn] = ()) -> None:
        self.url = ""
        self.lines: dict[str, list[str]] = {path: [] for path in _KINDS}
        self.asked: list[dict[str, Any]] = []
        self._kept: dict[str, list[dict[str, Any]]] = {}
        self._script, self._home, self._sub = script, home, sub

    def take(self, path: str, body: bytes, media: str) -> None:
        """Keeps a request, without what is of this machine only."""
        document = MessageToDict(decode(_KINDS[path], body, media), use_integers_for_enums=True)
        _hex_ids(document)
        if _scrub(document):
            line = _STACK.sub("", json.dumps(document, separators=(",", ":")))
            home = self._home or "/home/user"
            self.lines[path].append(line.replace(home, "/home/user"))

    def save(self, folder: Path, name: str, *, logs: bool) -> None:
        for path, ending in [("/v1/traces", "otlp"), ("/v1/logs", "logs")][: 1 + logs]:
            (folder / f"{name}.{ending}.jsonl").write_text("\n".join(self.lines[path]) + "\n")

    def turn(self, request: dict[str, Any]) -> tuple[int, list[Call]]:
        """The number of a request, by the results in it, and the calls that answer it."""
        self.asked.append(request)
        said = _parts(request)
        results = {"tool", "function_call_output", "tool_result"}
        done = sum(not results.isdisjoint((one.get("role"), one.get("type"))) for one in said)
        sub = any(SUB_TASK in str(one.get("text", "")) for one in said)
        made = 0
        for turn in (self._sub if sub else self._script) if request.get("tools") else ():
            calls = turn if isinstance(turn, list) else [turn]
            if made == done:
                return done + 1, calls
            made += len(calls)
        return done + 1, []

    def answered(self, api: str, request: dict[str, Any]) -> dict[str, Any] | bytes:
        """What the model answers, by the last word of its path; bytes are a stream."""
        streams = request.get("stream")
        if api == "completions":
            answer = _chat(*self.turn(request))
            return _chunks(answer) if streams else answer
        if api == "messages":
            answer = _message(*self.turn(request))
            return _events(answer) if streams else answer
        if api != "responses":
            return {}
        answer = _response(*self.turn(request))
        if not request.get("background"):
            return answer
        queued, *later = (
            {**answer, "status": status, "output": [], "usage": None}
            for status in ("queued", "in_progress", "in_progress")
        )
        self._kept[answer["id"]] = [*later, answer]
        return queued

    def fetched(self, name: str) -> dict[str, Any]:
        """An answer in the background, as it is by now."""
        kept = self._kept[name]
        return kept.pop(0) if len(kept) > 1 else kept[0]


@contextmanager
def recording(
    script: Sequence[Turn] = SCRIPT, home: str = "", sub: Sequence[Turn] = ()
) -> Iterator[Recorder]:
    recorder = Recorder(script, home, sub)

    def answer(to: BaseHTTPRequestHandler, body: bytes) -> None:
        path, media = to.path.partition("?")[0], to.headers.get("content-type", "")
        if to.command == "GET":
            said: object = recorder.fetched(path.rpartition("/")[2])
        else:
            if to.headers.get("transfer-encoding") == "chunked":
                body = b"".join(_chunks_of(to.rfile))
            body = decompressed(body, to.headers.get("content-encoding", ""), LIMIT)
            if path in _KINDS:
                recorder.take(path, body, media)
                said = b"{}" if "json" in media else b""
            else:
                said = recorder.answered(path.rpartition("/")[2], json.loads(body))
                media = "text/event-stream"
        if not isinstance(said, bytes):
            said, media = json.dumps(said).encode(), "application/json"
        to.send_response(404 if said == b"{}" and path not in _KINDS else 200)
        to.send_header("content-type", media)
        to.send_header("content-length", str(len(said)))
        to.end_headers()
        to.wfile.write(said)

    with listening(answer) as recorder.url:
        yield recorder


def _chunks_of(stream: IO[bytes]) -> Iterator[bytes]:
    """The chunks of a body whose length nobody told."""
    while size := int(stream.readline(), 16):
        yield stream.read(size)
        stream.readline()
    stream.readline()


WROTE = 5
"""Tokens of an answer; a request has ten for each turn."""


def _said(calls: Sequence[Call]) -> str:
    return "Let me look." if calls else "I found nothing."


def _chat(turn: int, calls: Sequence[Call]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": _said(calls)}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call_{turn + place}", "type": "function",
                "function": {"name": name, "arguments": json.dumps(args)},
            }
            for place, (name, args) in enumerate(calls)
        ]  # fmt: skip
    read = 10 * turn
    return {
        "id": f"response_{turn}", "object": "chat.completion", "created": 0,
        "model": "scripted-model",
        "choices": [
            {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        ],
        "usage": {"prompt_tokens": read, "completion_tokens": WROTE, "total_tokens": read + WROTE},
    }  # fmt: skip


def _chunks(answer: dict[str, Any]) -> bytes:
    choice = answer["choices"][0]
    message = choice["message"]
    for index, call in enumerate(message.get("tool_calls", ())):
        call["index"] = index
    ends: list[tuple[dict[str, Any], str | None]] = [(message, None), ({}, choice["finish_reason"])]
    head = {**answer, "object": "chat.completion.chunk"}
    usage = head.pop("usage")
    parts = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        for delta, reason in ends
    ]
    parts.append({**head, "choices": [], "usage": usage})
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts).encode() + b"data: [DONE]\n\n"


def _response(turn: int, calls: Sequence[Call]) -> dict[str, Any]:
    output: list[dict[str, Any]] = [
        {
            "type": "message", "id": f"msg_{turn}", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": _said(calls), "annotations": []}],
        },
        *(
            {
                "type": "function_call", "id": f"fc_{turn + place}", "status": "completed",
                "call_id": f"call_{turn + place}", "name": name, "arguments": json.dumps(args),
            }
            for place, (name, args) in enumerate(calls)
        ),
    ]  # fmt: skip
    read = 10 * turn
    return {
        "id": f"response_{turn}", "object": "response", "created_at": 0, "status": "completed",
        "model": "scripted-model", "output": output, "parallel_tool_calls": False, "tools": [],
        "usage": {
            "input_tokens": read, "output_tokens": WROTE, "total_tokens": read + WROTE,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }  # fmt: skip


def _message(turn: int, calls: Sequence[Call]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [
        {"type": "text", "text": _said(calls)},
        *(
            {"type": "tool_use", "id": f"toolu_{name}_{turn + place}", "name": name, "input": args}
            for place, (name, args) in enumerate(calls)
        ),
    ]
    read = 10 * turn
    return {
        "id": f"msg_{turn}", "type": "message", "role": "assistant", "content": content,
        "usage": {"input_tokens": read, "output_tokens": WROTE}, "model": "claude-sonnet-4-5",
        "stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None,
    }  # fmt: skip


def _events(message: dict[str, Any]) -> bytes:
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    empty = {**message, "content": [], "stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": empty}]
    for index, block in enumerate(message["content"]):
        if block["type"] == "text":
            begun, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            begun, text = {**block, "input": {}}, json.dumps(block["input"])
            delta = {"type": "input_json_delta", "partial_json": text}
        events += [
            {"type": "content_block_start", "index": index, "content_block": begun},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    events.append({"type": "message_delta", "delta": stop, "usage": message["usage"]})
    events.append({"type": "message_stop"})
    written = (f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    return "".join(written).encode()


def _parts(request: dict[str, Any]) -> list[dict[str, Any]]:
    said = request.get("messages") or request.get("input")
    parts = [one for one in (said if isinstance(said, list) else []) if isinstance(one, dict)]
    for message in tuple(parts):
        content = message.get("content")
        if isinstance(content, list):
            parts += [one for one in content if isinstance(one, dict)]
        elif isinstance(content, str):
            parts.append({"text": content})
    return parts


def _hex_ids(value: object) -> None:
    """OTLP's JSON has ids in hex where protobuf's JSON has base64."""
    if isinstance(value, dict):
        for name in ("traceId", "spanId", "parentSpanId"):
            if isinstance(value.get(name), str):
                value[name] = base64.b64decode(value[name]).hex()
        for entry in value.values():
            _hex_ids(entry)
    elif isinstance(value, list):
        for entry in value:
            _hex_ids(entry)


def _scrub(document: dict[str, Any]) -> bool:
    """Leaves out what is of this machine, and fills in empty lists; whether anything is left."""
    kept = False
    for resource in document.get("resourceSpans", []) + document.get("resourceLogs", []):
        held = resource.setdefault("resource", {}).get("attributes", [])
        resource["resource"]["attributes"] = [one for one in held if _KEPT.match(one["key"])]
        for scope in resource.get("scopeSpans", []) + resource.get("scopeLogs", []):
            scope.setdefault("scope", {})
            if scope["scope"].get("name") == "opencode":
                spans = scope.get("spans", [])
                scope["spans"] = [span for span in spans if _OWN.match(span["name"])]
            entries = scope.get("spans", []) + scope.get("logRecords", [])
            kept = kept or bool(entries)
            for entry in entries + [event for one in entries for event in one.get("events", ())]:
                held = entry.get("attributes", [])
                entry["attributes"] = [one for one in held if not _LEFT_OUT.search(one["key"])]
    return kept
