"""The coding agents whose hooks are understood: how their events are read, and how answered.

Sources: Claude Code: types of `@anthropic-ai/claude-agent-sdk` 0.3.332. Codex: schemas of
openai/codex `codex-rs/hooks`, developers.openai.com, and 0.171.0. gemini-cli:
docs/hooks/reference.md, 0.61.0. Copilot in VS Code: code.visualstudio.com
docs/agents/reference/hooks-reference; Copilot CLI, which reads the same files: 1.0.102. Cursor:
`@cursor/sdk` 1.0.32. opencode: `data/opencode.js`, our plugin in it, whose events are named after
the hooks of `@opencode-ai/plugin` 1.18.33 that it is called by.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from otel_loopguard._util.fields import is_list, is_map, mapping, sequence
from otel_loopguard._util.tables import read_table
from otel_loopguard.spans import coding_tools, values

# Ids are UUIDs and the like; a longer text is not an id, and would be kept with the state.
_LONGEST_ID: Final = 512
_LONGEST_TOLD: Final = 8_000
"""Codex cuts what it passes on at about 10,000 characters."""
# A longer duration is a point in time, or has another unit.
_YEAR_MS: Final = 365 * 24 * 3_600_000
_TIMES: Final = frozenset(("durationMs", "durationSeconds", "totalDurationMs"))


class EventKind(enum.Enum):
    """The content of an event of a coding agent."""

    CALL = "call"  # a tool is about to be called, and may be refused
    RESULT = "result"  # a tool has answered or failed
    BATCH = "batch"  # so have all calls of one answer of the model
    PROMPT = "prompt"  # a user has written: a new turn
    RESPONSE = "response"  # text of the model
    STOP = "stop"  # the agent, or a sub-agent, has ended its turn
    SESSION_START = "session_start"
    SESSION_END = "session_end"
    COMPACTION = "compaction"  # the model's context was made smaller
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One event; None where the agent does not say.

    Attributes:
        agent: Name of the coding agent, as on the command line: `claude-code`.
        kind: What it tells.
        session: Id of the session, the one that the agent's own telemetry has.
        sub_agent: Id of the sub-agent that it is about; None for the main agent.
        call_id: Joins a call with its result.
        tool: Name of the tool.
        args: Arguments of the call.
        outcome: What the tool answered.
        error: What went wrong, in the tool's words; empty where it failed without any.
        duration_ns: How long the call took.
        text: What the user or the model wrote.
        model: Name of the model.
        accepts_hint: True if an answer to it can tell the model something.
        calls: Those of a batch, with what the model is told of each; an error unless other events
            told its result.
    """

    agent: str
    kind: EventKind
    session: str
    sub_agent: str | None = None
    call_id: str | None = None
    tool: str | None = None
    args: Mapping[str, Any] | None = None
    outcome: object = None
    error: str | None = None
    duration_ns: int | None = None
    text: str | None = None
    model: str | None = None
    accepts_hint: bool = False
    calls: tuple[HookEvent, ...] = ()


class Reply(enum.Enum):
    """An answer to a coding agent; each agent gets as much of it as it understands."""

    NOTHING = "nothing"
    HINT = "hint"  # go on, and tell the model something
    ASK = "ask"  # ask the user whether the call may be made
    DENY = "deny"  # do not make this call
    STOP = "stop"  # end the turn


@dataclass(frozen=True, slots=True)
class HookAnswer:
    """The guard's answer to an event."""

    reply: Reply = Reply.NOTHING
    reason: str = ""  # why a call is refused or the turn ended: for the model and for people
    hint: str = ""  # what to tell the model


CALL, RESULT, PROMPT, STOP = EventKind.CALL, EventKind.RESULT, EventKind.PROMPT, EventKind.STOP
BATCH: Final = EventKind.BATCH
OTHER: Final = EventKind.OTHER
_LABELS: Final = (*(kind.value for kind in EventKind), "hint", "hold", "install")
_EVENTS: Final = {row.name: row.labelled(*_LABELS) for row in read_table(__name__, "agents.txt")}
_FORMS: Final = ("ask", "deny", "stop", "end", "end prompt", "hold", "go on", "tell", "tell after")
_ANSWERS: Final = {row.name: row.labelled(*_FORMS) for row in read_table(__name__, "answers.txt")}


class HookAgent:
    """A coding agent; by default one that speaks as Claude Code does.

    Attributes:
        kinds: Kinds of events by name, as `agents.txt` has them.
        forms: Answers by what they do, as `answers.txt` has them.
        hinted: Events whose answer can carry a message to the model.
        held: Events whose answer can keep the agent from ending its turn.
        installed: Events for which hooks are installed.
    """

    name: str
    ended: frozenset[EventKind] = frozenset((CALL, RESULT, BATCH, PROMPT))
    """Kinds of events whose answer can end the turn."""
    events: tuple[str, ...] = ("hook_event_name", "hookEventName")
    sessions: tuple[str, ...] = ("session_id", "sessionId", "conversation_id")
    call: str = "tool_use_id"
    tool: str = "tool_name"
    args: str = "tool_input"
    """Fields of an event, and so the four before it."""

    def __init__(self) -> None:
        told, forms = _EVENTS[self.name], _ANSWERS[self.name]
        self.forms: dict[str, Any] = {form: json.loads(forms[form]) for form in forms if form}
        self.kinds = {
            event: kind for kind in EventKind for event in told.get(kind.value, "").split()
        }
        self.hinted, self.held, self.installed = (
            tuple(told.get(what, "").split()) for what in ("hint", "hold", "install")
        )

    def read(self, payload: Mapping[str, Any]) -> HookEvent | None:
        """Reads the event on standard input; None for an unknown one."""
        fields = mapping(payload)
        name, session = self.event(fields), identifier(fields, *self.sessions)
        kind = self.kind(name, fields)
        if name is None or kind is None or session is None:
            return None
        outcome, error = self.outcome(fields) if kind in (RESULT, BATCH) else (None, None)
        texts = map(
            values.text, map(fields.get, ("last_assistant_message", "prompt_response", "prompt"))
        )
        return HookEvent(
            self.name,
            kind,
            session,
            sub_agent=identifier(fields, "agent_id", "parent_tool_call_id"),
            call_id=identifier(fields, self.call),
            tool=identifier(fields, self.tool),
            args=arguments(fields.get(self.args)) if kind in (CALL, RESULT, BATCH) else None,
            outcome=outcome,
            error=error,
            duration_ns=nanoseconds(fields.get("duration_ms", fields.get("duration"))),
            text=next(filter(None, texts), None) or values.text(fields.get("text")),
            model=identifier(fields, "model"),
            accepts_hint=name in self.hinted,
        )

    def event(self, fields: Mapping[str, Any]) -> str | None:
        """Returns the agent's own name for an event."""
        return identifier(fields, *self.events)

    def kind(self, name: str | None, fields: Mapping[str, Any]) -> EventKind | None:  # noqa: ARG002
        """Returns what an event tells; None for an unknown one."""
        return self.kinds.get(name) if name else None

    def outcome(self, fields: Mapping[str, Any]) -> tuple[object, str | None]:
        """Returns what a tool answered, and its error; neither where the user interrupted it."""
        if self.event(fields) != "PostToolUseFailure":
            return result(fields.get("tool_response")), None
        error, stopped = fields.get("error"), fields.get("is_interrupt") is True
        return None, None if stopped else error if isinstance(error, str) else ""

    def answer(self, payload: Mapping[str, Any], answer: HookAnswer) -> dict[str, Any]:
        """Returns the answer for standard output; `{}` for none.

        It is `{}`, too, where this agent can be told nothing at this event, as a hint at the end of
        a turn: then nobody was told. An agent that cannot do what is asked is told the nearest that
        it can: without a way to ask, a call is denied; where a turn cannot be ended, each call is.
        """
        fields = mapping(payload)
        name = self.event(fields)
        kind = self.kind(name, fields)
        if name is None or kind is None or answer.reply is Reply.NOTHING:
            return {}
        form = self.form(kind, name, answer.reply, fields)
        why = answer.reason or ("" if form.startswith("tell") else "refused by otel-loopguard")
        said = "\n".join(filter(None, (why, answer.hint)))[:_LONGEST_TOLD]
        found = self.forms.get(form)
        return filled(found, {"EVENT": name, "WHY": said}) if found and said else {}

    def form(self, kind: EventKind, name: str, reply: Reply, fields: Mapping[str, Any]) -> str:
        """Returns what an answer does, one of `forms`; empty where it can do nothing."""
        if kind is CALL and reply is not Reply.HINT:
            return reply.value if reply.value in self.forms else "deny"
        if reply is Reply.STOP:
            return "end" if kind in self.ended else ""
        if name in self.held and reply is Reply.DENY:
            # Blocked again and again the agent would never end.
            return "hold" if fields.get("stop_hook_active") is False else ""
        return "tell" if name in self.hinted else ""


class _ClaudeCode(HookAgent):
    """Claude Code; only a batch tells of calls that it rejected before or after their first hook.

    So it does with arguments that cannot be right, as a text to replace that is not in the file,
    and without a permission.
    """

    name = "claude-code"

    def read(self, payload: Mapping[str, Any]) -> HookEvent | None:
        event = super().read(payload)
        if event is None or event.kind is not BATCH:
            return event
        each = map(mapping, sequence(payload.get("tool_calls")))
        read = (super(_ClaudeCode, self).read({**payload, **call}) for call in each)
        return replace(event, calls=tuple(call for call in read if call and call.call_id))

    def kind(self, name: str | None, fields: Mapping[str, Any]) -> EventKind | None:
        kind = super().kind(name, fields)
        # Other prompts come from timers and programs, and begin no turn.
        said = values.text(fields.get("prompt")) or ""
        written = fields.get("source") in (None, "user", "sdk") and coding_tools.by_person(said)
        return OTHER if kind is PROMPT and not written else kind

    def outcome(self, fields: Mapping[str, Any]) -> tuple[object, str | None]:
        if self.event(fields) == "PostToolBatch":
            return None, values.text(fields.get("tool_response")) or ""
        return super().outcome(fields)


class _Codex(HookAgent):
    """An answer with a field that Codex does not know or support is thrown away whole.

    The call is made then. `continue: false` after a call does not end the turn, as its
    documentation has it: the model is told the reason in place of the result.
    """

    name = "codex"

    def outcome(self, fields: Mapping[str, Any]) -> tuple[object, str | None]:
        # Only the text of an answer shows that a call failed.
        written, code = coding_tools.codex_output(fields.get("tool_response"))
        failed = code != 0 or mapping(written).get("isError") is True
        written = result(written)
        if isinstance(written, str) and not failed:
            line = values.text(mapping(fields.get(self.args)).get("command")) or ""
            failed = _is_complaint(written, line)
        return written, (values.text(written) or "") if failed else None


class _Gemini(HookAgent):
    """gemini-cli; it reports neither ids of calls nor compactions, and cannot ask."""

    name = "gemini"

    def outcome(self, fields: Mapping[str, Any]) -> tuple[object, str | None]:
        response = fields.get("tool_response")
        written = result(response)
        error = mapping(response).get("error")
        if not error:
            said = isinstance(written, str)
            return coding_tools.gemini_output(written) if said else (written, None)
        message = values.text(mapping(error).get("message")) or values.text(error)
        return written, message or values.text(written) or ""


class _VSCode(HookAgent):
    """Copilot; VS Code reports no failed calls, Copilot CLI no ids of calls."""

    name = "vscode"

    def outcome(self, fields: Mapping[str, Any]) -> tuple[object, str | None]:
        # Only the end of its text shows that a command failed.
        found = mapping(fields.get("tool_result"))
        if not found:
            return super().outcome(fields)
        written, code = coding_tools.copilot_output(result(found.get("text_result_for_llm")))
        failed = code != 0 or found.get("result_type") == "failure"
        return written, (values.text(written) or "") if failed else None

    def form(self, kind: EventKind, name: str, reply: Reply, fields: Mapping[str, Any]) -> str:
        found = super().form(kind, name, reply, fields)
        return "tell after" if found == "tell" and name.startswith("PostToolUse") else found


class _Cursor(HookAgent):
    """Cursor; an answer before a call that it cannot use blocks the call.

    `ask` is taken and not heeded there, and what follows a refusal is an event of a failed call.
    """

    name = "cursor"
    _silent: Final = frozenset(
        ("success", "file_path", "content_length", "pattern", "url", "status_code", "deleted")
    )
    """Fields of an answer that says only that there was one: reading, searching, writing."""

    def kind(self, name: str | None, fields: Mapping[str, Any]) -> EventKind | None:
        denied = fields.get("failure_type") == "permission_denied"  # and so not made
        return OTHER if denied else super().kind(name, fields)

    def outcome(self, fields: Mapping[str, Any]) -> tuple[object, str | None]:
        if self.event(fields) == "postToolUseFailure":
            stopped = fields.get("is_interrupt") is True
            return None, None if stopped else values.text(fields.get("error_message")) or ""
        output = values.parsed(fields.get("tool_output"))
        answer = mapping(output)
        if answer and self._silent.issuperset(answer):
            return None, None
        command = "exitCode" in answer
        written = answer.get("output", answer.get("stdout")) if command else result(output)
        failed = answer.get("isError") is True or answer.get("exitCode") not in (None, 0)
        return written, (values.text(written) or "") if failed else None

    def form(self, kind: EventKind, name: str, reply: Reply, fields: Mapping[str, Any]) -> str:
        if kind is STOP and reply is Reply.DENY and fields.get("loop_count") == 0:
            return "go on"
        ends = kind is PROMPT and reply is Reply.STOP
        return "end prompt" if ends else super().form(kind, name, reply, fields)


class _OpenCode(HookAgent):
    """opencode; its plugin refuses a call by `deny`, shows a `hint` and ends a turn by `stop`."""

    name = "opencode"
    ended = frozenset((CALL, RESULT))
    events = ("event",)
    sessions = ("sessionID",)
    call, tool, args = "callID", "tool", "args"

    def outcome(self, fields: Mapping[str, Any]) -> tuple[object, str | None]:
        if self.event(fields) == "tool.error":
            return None, values.text(fields.get("error")) or ""
        written = result(fields.get("output"))
        code = mapping(fields.get("metadata")).get("exit")
        failed = isinstance(code, int) and code != 0
        return written, (values.text(written) or "") if failed else None


AGENTS: Final[Mapping[str, HookAgent]] = {
    agent.name: agent
    for agent in (_ClaudeCode(), _Codex(), _Gemini(), _VSCode(), _Cursor(), _OpenCode())
}
"""Every known agent by its name on the command line."""


def identifier(payload: Mapping[str, Any], *keys: str) -> str | None:
    """The first id among these fields."""
    for key in keys:
        value = payload.get(key)
        if isinstance(value, str) and 0 < len(value) <= _LONGEST_ID:
            return value
    return None


def arguments(value: object) -> Mapping[str, Any] | None:
    """Arguments of a call: a map, or JSON text of one; other values under the name `input`."""
    found = values.parsed(value)
    return found if is_map(found) or found is None else {"input": found}


def nanoseconds(milliseconds: object) -> int | None:
    """A duration in nanoseconds; None for what is no duration."""
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)):
        return None
    return int(milliseconds * 1_000_000) if 0 <= milliseconds <= _YEAR_MS else None


def result(value: object) -> object:
    """A tool's answer, without the parts that differ between equal answers."""
    content = mapping(value).get("content")
    answer = coding_tools.shown(content if is_list(content) else value)
    if not is_map(answer):
        return answer
    return {key: each for key, each in answer.items() if key not in _TIMES}


def filled(template: object, texts: Mapping[str, str]) -> Any:
    """JSON in which texts stand in place of their names."""
    if is_map(template):
        return {name: filled(each, texts) for name, each in template.items()}
    return texts.get(template, template) if isinstance(template, str) else template


_COMPLAINT: Final = re.compile(
    r"(?:/\S{1,60}/)?([\w.+-]{1,40}): (?!warning)(?=.{0,300}"
    r"(?:no such|not found|not a |is a dir|permission|denied|cannot|can't|unable|fail|error|invalid"
    r"|illegal|unknown|unrecogni|missing|refused|timed out|\*\*\*))",
    re.IGNORECASE,
)
_PROGRAM: Final = re.compile(r"(?:^|[|&;(\n])\s{0,20}(?:\S{1,100}/)?([\w.+-]{1,40})")
_SHELLS: Final = frozenset(("sh", "bash", "dash", "zsh", "ksh"))
# A pipe of a few programs that fail; what says more than that is an answer.
_COMPLAINTS: Final = 5
_TRACEBACK: Final = "Traceback (most recent call last):\n"
# Five lines of complaints have a fraction of it; the rest is not looked at.
_LONGEST_COMPLAINT: Final = 8_000


def _is_complaint(written: str, line: str) -> bool:
    """True if all of it is complaints of the shell or of the called program, or a traceback.

    A text that only names an error may be the healthy answer of a search.
    """
    if written.startswith(_TRACEBACK):
        return not written.rstrip().rpartition("\n")[2].startswith(" ")
    lines = written[:_LONGEST_COMPLAINT].rstrip().split("\n")
    programs = _SHELLS.union(_PROGRAM.findall(line[:_LONGEST_COMPLAINT]))
    named = [_COMPLAINT.match(each) for each in lines]
    return len(lines) <= _COMPLAINTS and all(each and each[1] in programs for each in named)
