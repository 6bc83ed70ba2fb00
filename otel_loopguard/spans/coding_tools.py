"""Steps of coding agents, the same for a call out of telemetry, a hook or a transcript.

Claude Code and gemini-cli say whether a call failed. Codex does not: its answer is a text with an
exit code in its head, or JSON with one (0.30 and older), or a sentence (openai/codex codex-rs/core
at 0.169.0: `tools/`, `unified_exec/`). Of a call that a person refused or interrupted the outcome
is not known, and the tool did not fail.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.values import hidden, listing, mapping, parsed, text, texts, within

MAIN: Final = "main"
"""Name of the agent that works for the user, beside those that work for it."""

_EXIT: Final = re.compile(r"^(?:Process exited with code|Exit code:) (-?\d{1,10})$", re.MULTILINE)
_OUTPUT: Final = "\nOutput:\n"
_SHELL: Final = re.compile(r"\n?<shellId: \w+ completed with exit code (-?\d{1,10})>\s*\Z")
_GROUP: Final = re.compile(r"^Process Group PGID: \d+\n?", re.MULTILINE)
_HEAD_CHARS: Final = 500
"""Characters in which Codex, at the start, and Copilot, at the end, tell of the exit code: a few
short lines. The same words further in are the command's own."""
_TAIL_CHARS: Final = 300
"""Characters at the end in which gemini-cli names exit code, signal and process group, likewise."""
_GEMINI_SHELL: Final = re.compile(r"\A(?:<untrusted_context>\n)?(?:Command|Output|Stdout): ")
_GEMINI_EXIT: Final = re.compile(r"^Exit Code: (?!0$)-?\d{1,10}$", re.MULTILINE)
_FAILED: Final = re.compile(
    r"\A(?:apply_patch verification failed|failed to parse (?:function )?arguments|"
    r"unsupported (?:custom tool )?call|execution error|tool call error|exec_command failed|"
    r"write_stdin failed|failed in sandbox|command timed out after|unable to locate image)\b"
)
_STOPPED: Final = re.compile(
    r"\A(?:(?:Error: )?The user doesn't want to (?:proceed with this tool use|take this action)|"
    r"\[Request interrupted by user|<tool_use_error>Cancelled: parallel tool call|"
    r"(?:exec command|patch|MCP tool call) rejected by user|user (?:rejected|cancelled) MCP tool|"
    r"(?:Wall time: [\d.]{1,12} seconds\s)?(?:command )?aborted by user|"
    r"\[Operation Cancelled\]|User (?:denied|did not allow) )"
)
_BY_PROGRAM: Final = (
    "<local-command-",
    "<task-notification",
    "<bash-",
    "<system-reminder",
    "<teammate-message",
    "Caveat: The messages below",
)
"""Beginnings of text that Claude Code, not a person, put into a user's message."""
_SHELL_FLAGS: Final = frozenset(("-c", "-lc", "-ic", "-Command", "/c", "/C"))


def by_person(prompt: str) -> bool:
    """False for a user's message that Claude Code has written by itself."""
    return not prompt.startswith(_BY_PROGRAM)


def prompt_step(agent: str, *, start: int = 0) -> Step:
    """A person wrote: the next turn of the session."""
    return Step(Kind.OTHER, "user", _dialect(agent), start=start, end=start)


def answer_step(  # noqa: PLR0913  # what agents say of an answer
    agent: str,
    model: str | None,
    said: str = "",
    *,
    sub_agent: str | None = None,
    start: int = 0,
    end: int = 0,
) -> Step:
    """A model answered."""
    step = Step(Kind.MODEL, model, _dialect(agent), start=start, end=end)
    step.model, step.agent, step.text = model, sub_agent or MAIN, said
    return step


def tool_step(  # noqa: PLR0913  # what agents say of a call
    agent: str,
    tool: str | None,
    args: object,
    outcome: object = None,
    *,
    error: object = None,
    stopped: bool | None = None,
    call_id: str | None = None,
    sub_agent: str | None = None,
    start: int = 0,
    end: int = 0,
) -> Step:
    """One call of a coding agent.

    Args:
        agent: Name of the coding agent: `claude-code`, `codex`, `gemini`, …
        tool: Name of the tool.
        args: Its arguments: a map, or JSON text.
        outcome: What it answered, as the agent has it; None where that is not known.
        error: Whether it failed: None if not, as far as the agent says; else the tool's words,
            empty or True where there are none but the outcome.
        stopped: Whether a person refused or interrupted it; None: its words may say so.
        call_id: Joins what tells of the same call.
        sub_agent: Id of the sub-agent that made it; None for the main agent.
        start: Start, nanoseconds since the epoch.
        end: End, likewise; 0 where times are unknown.
    """
    step = Step(Kind.TOOL, tool, _dialect(agent), start=start, end=end, call_id=call_id)
    step.agent = sub_agent or MAIN
    step.args = arguments(args)
    said = shown(outcome)
    code = None
    if agent == "codex":
        said, code = codex_output(said)
    words = text(error) or text(said)
    told = bool(code) or (error is not None and error is not False)
    if stopped is None and words and (told or agent == "codex"):
        stopped = _STOPPED.match(words) is not None
    if stopped:
        return step
    step.outcome = said
    if told or (agent == "codex" and words is not None and _FAILED.match(words) is not None):
        # All of it: where a command failed, what counts is often behind a traceback.
        step.error, step.error_text = True, None if hidden(words) else words
        step.outcome = words if said is None else said
    return step


def arguments(args: object) -> object:
    """Arguments as a map where they are one; a command that is a list as the line it stands for."""
    args = parsed(args)
    found = mapping(args)
    command = listing(None if found is None else found.get("command"))
    if found is None or command is None or not all(isinstance(part, str) for part in command):
        return args
    parts = [str(part) for part in command]
    line = parts[2] if len(parts) == 3 and parts[1] in _SHELL_FLAGS else shlex.join(parts)
    return {**found, "command": line}


def shown(outcome: object) -> object:
    """The part of an answer that the model is shown, where that can be told; else all of it."""
    # A text stays as it is, also one that is JSON.
    answer = outcome if isinstance(outcome, str) else texts(outcome)
    found = mapping(answer)
    if found is None:
        return answer
    if "stdout" in found and "stderr" in found:  # a command's, in hooks of Claude Code
        # Of one in the background that has said nothing its state is all that is told.
        parts = map(text, (found.get("status"), found["stdout"], found["stderr"]))
        return "\n".join(part.rstrip("\n") for part in parts if part)
    if "originalFile" in found:  # the file as it was differs after each edit
        return {name: value for name, value in found.items() if name != "originalFile"}
    file = mapping(found.get("file"))
    if file is not None and isinstance(file.get("content"), str):  # a read
        return file["content"]
    if "llmContent" in found:  # hooks of gemini-cli
        return gemini_text(found["llmContent"])
    return answer


def codex_output(output: object) -> tuple[object, int]:
    """The output of a command, without the numbers around it, and its exit code."""
    if not isinstance(output, str):
        return output, 0
    head, found, rest = output[:_HEAD_CHARS].partition(_OUTPUT)
    code = _EXIT.search(head)
    if found and code is not None:
        return rest + output[_HEAD_CHARS:], int(code[1])
    if output[:1] == "{":
        old = mapping(parsed(output))
        exit_code = within(old, "metadata", "exit_code")
        if old is not None and isinstance(exit_code, int) and isinstance(old.get("output"), str):
            return old["output"], exit_code
    return output, 0


def copilot_output(output: object) -> tuple[object, int]:
    """The output of a command, without the number of its shell behind it, and its exit code."""
    if not isinstance(output, str):
        return output, 0
    ended = _SHELL.search(output, max(len(output) - _HEAD_CHARS, 0))
    return (output, 0) if ended is None else (output[: ended.start()], int(ended[1]))


def opencode_output(output: object) -> tuple[object, int]:
    """The output of a tool, without its title and metadata, and the exit code of a command."""
    answer = parsed(output) if isinstance(output, str) and output[:9] == '{"title":' else None
    said, code = within(answer, "output"), within(answer, "metadata", "exit")
    return (output if said is None else said), code if isinstance(code, int) else 0


def gemini_result(result: object) -> tuple[object, str | None]:
    """The answer of a tool of gemini-cli, and its error, out of the parts of its response."""
    parts = listing(result) or (result or None,)
    answer = within(within(parts[0], "functionResponse"), "response")
    if answer is None:
        return gemini_text(result or None), None
    said = text(within(answer, "output"))
    if said is None:
        broken = text(within(answer, "error"))
        return answer if broken is None else broken, broken
    return gemini_output(said)


def gemini_output(said: str) -> tuple[str, str | None]:
    """The text of a tool of gemini-cli, and its error.

    A command that failed is a success to gemini-cli; its exit code stands at the end.
    """
    exited = _GEMINI_SHELL.match(said) and _GEMINI_EXIT.search(
        said, max(0, len(said) - _TAIL_CHARS)
    )
    said = _GROUP.sub("", said)
    return said, said if exited else None


def gemini_text(content: object) -> object:
    """Text of what gemini-cli shows its model: a text, a part, or a list of them."""
    part = mapping(content)
    said = texts([part]) if part is not None and "text" in part else shown(content)
    return _GROUP.sub("", said) if isinstance(said, str) else said


def _dialect(agent: str) -> str:
    return "gemini_cli" if agent == "gemini" else agent.replace("-", "_")
