"""The page docs/dialects.md, made from the captures and the code."""

from __future__ import annotations

from collections import Counter
from typing import Any

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.dialects import registered
from tests.dialects import captures
from tests.dialects.captures import PARTLY, SCRIPT, UNREADABLE, Run

EXAMPLE = '''\
from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.views import SpanView
from otel_loopguard.spans.dialects import register


class MyAgents:
    """Reads the spans of our own framework: `myagents.kind`, `myagents.tool`, …"""

    name = "myagents"
    marks = frozenset({"myagents.kind"})

    def read(self, span: SpanView) -> Step | None:
        get = span.attributes.get
        if get("myagents.kind") != "tool":
            return None
        step = Step(Kind.TOOL, str(get("myagents.tool")), self.name, span.scope)
        step.trace_id, step.span_id, step.parent_id = span.trace_id, span.span_id, span.parent_id
        step.start, step.end = span.start, span.end
        step.args, step.outcome = get("myagents.input"), get("myagents.output")
        step.error = span.status == "error"
        return step


register(MyAgents())
'''

_TOP = """\
# Dialects: how spans become steps

<!-- Written by tests/dialects/test_captures.py; `LOOPGUARD_WRITE_DOCS=1 make test` rewrites it. -->

Every instrumentation writes the spans of an agent differently. A *dialect* reads one convention:
from a span, live or recorded, it makes a *step* — a tool call, a model call, a graph node, an
agent run, a handoff. This page says what is read, in which order, what each convention lacks, what
was recovered from each of {captures} real captures, and how to add a dialect of your own.

## Order of precedence

The first dialect that claims a span reads it. Others whose marks are also on it fill what is
unknown (pydantic-ai under OpenInference carries two conventions on one span). A dialect that writes
wrapped values under the names of another comes before that other.

| | dialect | marks: one of these attributes | |
|---|---|---|---|
{dialects}

A span without any of them is a tool call if its name is `execute_tool <tool>`: Google ADK and
Strands set attributes only after the span started. Which dialects are on a span is worked out once
per combination of keys, so another dialect costs nothing per span.

Session and agent are read for all dialects alike, first found wins; ids that were scrubbed, are
empty or are a written `null` do not count, and a trace id is never a session id.

* session: {sessions}; `session_id` or `thread_id` in OpenInference LangChain's `metadata`;
  `group_id` of logfire's OpenAI Agents traces; the team's uuid in AutoGen's agent ids and topics
* agent: {agents}; `lc_agent_name` in `metadata`

Tools named `transfer_to_<agent>`, `transfer_to_agent` or `delegate_work_to_coworker` are handoffs.

## What is unknown

`None` means *not captured*, never *empty*. A value that logfire replaced by `[Scrubbed due to …]`
is read from the live span as it was before, or is unknown. Text that a limit has cut does not
parse as JSON and stays text. Wrappings that instrumentations put around values are taken off, by
the dialect that makes them and by no other, since a tool may well have an argument named `kwargs`.

| convention | what it lacks |
|---|---|
| OTel GenAI with content capture off (the default) | arguments and results |
| AutoGen, native | arguments and results, always |
| Google ADK 2.x, default schema | arguments and results; the text of errors |
| MCP, native | arguments and results, always; on the client's side failures of the tool |
| OpenAI Agents, all conventions | the text of errors, which the framework redacts; call ids |
| OpenInference LangChain | all attributes until the end; the name of an argument that is alone |
| OpenInference LangChain, LangSmith | whether a tool has no arguments, or they are not known |
| LangSmith | spans arrive from a background thread, up to 150 ms late |
| OpenLLMetry agno | failures in the status: only the text of the result tells |
| OpenLLMetry LlamaIndex | the tool's name until the end; failing calls, whose span never ends |
| OpenLLMetry CrewAI, smolagents GenAI | spans for tool calls |
| ADK native and OpenLLMetry OpenAI Agents | the agent that a handoff goes to |
| ADK under OpenInference | tokens: model calls overwrite each other on the span of the agent |

Content that a setting or a mask keeps off the spans is as unknown as content that was never there,
though a word stands in its place: `__REDACTED__` (`OPENINFERENCE_HIDE_INPUTS` and its like),
`[REDACTED]` (Strands), `{{}}` for arguments and results (LangSmith's and ADK's settings),
`[Scrubbed due to …]` (logfire), `<fully masked due to …>` (Langfuse), and what people's own masks
write: a word like *redacted*, *masked*, *hidden* or *filtered* in brackets, or `***`. An adapter
knows the arguments all the same ([frameworks](frameworks.md)).

Arguments that were cut by `OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT` (JSON that does not end) are
compared as far as they go, and their loops are hinted at and not stopped. Of a result that was cut
the beginning counts: leave room for what changes, or a log that grows looks the same.

## One call is one step

With several instrumentations, or with client, server and agent in one process, several spans tell
of one call. Two steps are one call if kind and name are equal, arguments and call ids do not
contradict each other, and

* one span is the direct parent of the other, or
* their scopes differ, there was a time at which both ran, and
  * they are of one run, and start within 5 ms of each other, or one encloses the other, or both
    know the arguments, or
  * they are in two traces, and start and end within 5 ms of each other; the traces are then one
    run.

Two spans of one scope that are not parent and child are two calls. A call with arguments and result
counts as soon as its span ends; one that lacks either is held while an open span may know more,
for a second at most.

## Calls that only messages tell of

A loop of one's own with a plain client (`openai`, `anthropic` and the like) has spans for its model
calls and none for its tools. Where these spans carry messages, the calls are read from them: an
answer holds what is asked for, the next request holds what came of it. Each call counts once, when
its result is shown, as a step of the dialect `messages` between the model call that asked and the
one that heard. Its outcome is unknown where the conversation goes on without a result, or where
requests are hidden or cut; a call that no later request knows of is an answer in the form of a
call, and does not count. Of a history only the end is read, 262,144 characters at most.

* Keys: `gen_ai.output.messages` and `gen_ai.input.messages`; `llm.output_messages.N…` and
  `llm.input_messages.N…`; `gen_ai.completion.N…` and `gen_ai.prompt.N…`; `ai.response.toolCalls`
  and `ai.prompt.messages`; `langfuse.observation.*`; `gen_ai.completion` and `gen_ai.prompt`;
  logfire's `events`; the events `gen_ai.choice`, `gen_ai.tool.message` and
  `gen_ai.client.inference.operation.details`.
* From the first span of a tool or a handoff in a session or a trace on, the spans count and the
  messages do not. Instrument all tools or none.
* A failure is what a message flags (`is_error`, `status`), or text that begins as errors do.
* The model calls have to be of one session: one trace, a session id, or `loopguard.session(...)`.

One warning for each process says when that cannot be: *model calls asked for tools and no tool span
was seen* (content is off), and *tool spans had neither arguments nor results*.

## What was recovered

Each line is a run of a real framework with a real instrumentation and a scripted model; most
replay thirteen calls of which six are equal and the last one fails. *Calls* are the steps that
were counted, of those that really ran. *Sessions* are ids over traces; `-` means that no span has
an id. Measured both as it happened and from OTLP files of ended spans, with the same result.

{table}

{unreadable}

## A dialect of your own

One class and one registration: say by which attributes its spans are known, and read what is
there. It must cope with spans that have just started, and must not throw. Unless `before` names
another, it is asked before all that are built in.

```python
{example}```

A dialect that ships with the package is one file in `otel_loopguard/dialects/` and one line in
`registry.py`.
"""


def compose(names: list[str]) -> str:
    """The whole page."""
    from otel_loopguard.spans.keys import AGENT_KEYS, SESSION_KEYS

    return _TOP.format(
        captures=len(names),
        dialects="\n".join(_dialects()),
        sessions=", ".join(f"`{key}`" for key in SESSION_KEYS),
        agents=", ".join(f"`{key}`" for key in AGENT_KEYS),
        table="\n".join([*_head(), *(_row(name) for name in names)]),
        unreadable=_reasons(names),
        example=EXAMPLE,
    )


def _dialects() -> list[str]:
    rows: list[str] = []
    for place, dialect in enumerate(registered(), 1):
        marks = ", ".join(f"`{mark}`" for mark in sorted(dialect.marks))
        said = (type(dialect).__doc__ or "").partition("\n")[0]
        rows.append(f"| {place} | {dialect.name} | {marks} | {said} |")
    return rows


_COLUMNS = (
    "capture",
    "spans",
    "tool spans",
    "calls",
    "arguments",
    "results",
    "failures",
    "sessions / traces",
    "agent",
    "model calls: tokens",
    "other",
)


def _head() -> list[str]:
    return ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]


def _row(name: str) -> str:
    run = captures.live(name)
    tools = run.of(Kind.TOOL)
    cells = [
        name,
        str(run.spans),
        str(sum(step.kind is Kind.TOOL for step in run.read)),
        _calls(name, tools),
        _arguments(name, tools),
        _share(sum(step.outcome is not None for step in tools), len(tools)),
        _failures(tools),
        _sessions(run),
        ", ".join(sorted({step.agent for step in run.read if step.agent})) or "-",
        _models(run),
        _others(run),
    ]
    return "| " + " | ".join(cells) + " |"


def _calls(name: str, tools: list[Step]) -> str:
    executed = captures.executed(name)
    return f"{len(tools)}/{executed}" if executed or tools else "-"


def _share(found: int, of: int) -> str:
    return "-" if not of or not found else f"{found}/{of}"


def _arguments(name: str, tools: list[Step]) -> str:
    if not captures.scripted(name):
        return _share(sum(step.args is not None for step in tools), len(tools))
    pairs = zip(tools, SCRIPT, strict=True)
    return _share(sum(captures.same_args(step, args) for step, (_, args) in pairs), len(tools))


def _failures(tools: list[Step]) -> str:
    failed = [step for step in tools if step.error]
    if not failed:
        return "-"
    told = [
        part for part in (failed[0].error_type, "text" if failed[0].error_text else None) if part
    ]
    return f"{len(failed)}" + (f" ({', '.join(told)})" if told else "")


def _sessions(run: Run) -> str:
    read = [*run.read, *run.opened.values()]
    found = {step.session for step in read if step.session is not None}
    traces = len({step.trace_id for step in read})
    joined = f", {len(run.joined)} joined" if run.joined else ""
    return f"{len(found) or '-'} / {traces}{joined}"


def _models(run: Run) -> str:
    models = run.of(Kind.MODEL)
    if not models:
        return "-"
    tokens = sum(step.tokens or 0 for step in models)
    return f"{len(models)}: {tokens}"


def _others(run: Run) -> str:
    shown = {Kind.HANDOFF: "handoffs", Kind.NODE: "nodes", Kind.MCP_CLIENT: "MCP"}
    shown[Kind.MCP_SERVER] = "MCP"
    counted = Counter(shown[step.kind] for step in run.steps if step.kind in shown)
    return ", ".join(f"{count} {what}" for what, count in sorted(counted.items())) or "-"


def _reasons(names: list[str]) -> str:
    reasons: dict[str, Any] = {name: why for name, (_, why) in PARTLY.items()}
    reasons |= UNREADABLE
    rows = [f"* `{name}`: {why}." for name, why in sorted(reasons.items()) if name in names]
    return "Not, or not wholly, readable:\n\n" + "\n".join(rows)
