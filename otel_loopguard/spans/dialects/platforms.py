"""Spans that the SDKs of platforms write for frameworks they instrument.

* Laminar: `lmnr.span.type`, `.input`, `.output`, beside GenAI names.
  https://laminar.sh/docs/tracing
* Langfuse: `langfuse.observation.type`, `.input`, `.output`; metadata as JSON, with quotes. The
  tool's name is the name of the span. https://langfuse.com/integrations/native/opentelemetry
* LangSmith: `langsmith.span.kind`, `gen_ai.prompt`, `gen_ai.completion`. The spans are made by a
  background thread after the fact, with their times put back. `LANGSMITH_HIDE_INPUTS` and
  `_OUTPUTS` leave `{}`, which a tool without arguments has too, and is taken for one whose
  arguments are not known. https://docs.langchain.com/langsmith/trace-with-opentelemetry
* logfire: plain keys (`name`, `input`) in the scope of its OpenAI Agents instrumentation.
  Everything is there when the span starts, but as JSON `null`. pydantic-ai under logfire writes
  GenAI names. https://logfire.pydantic.dev/docs/integrations/llms/openai/
* MLflow: `mlflow.spanType`, `.spanInputs`, `.spanOutputs`, each value as JSON. It has a provider of
  its own unless `MLFLOW_USE_DEFAULT_TRACER_PROVIDER=false`.
  https://mlflow.org/docs/latest/genai/tracing/opentelemetry/
* OpenLIT: GenAI names. LangChain's values are written as Python prints them; a node of LangGraph, a
  turn of OpenAI Agents and a step of smolagents are `invoke_agent`, too. https://docs.openlit.io
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from otel_loopguard.core import Kind, Step
from otel_loopguard.spans.dialects import genai
from otel_loopguard.spans.messages import assistant_text, last_answer, user_text
from otel_loopguard.spans.steps import begin, captured, fail, failed, put_off, set_outcome
from otel_loopguard.spans.values import (
    call_inputs,
    count,
    entry,
    identifier,
    listing,
    literal,
    mapping,
    parsed,
    text,
    tool_message,
    unquoted,
    within,
)

if TYPE_CHECKING:
    from otel_loopguard.spans.views import SpanView

_METADATA: Final = "langfuse.observation.metadata."
_OBSERVATIONS: Final = {"tool": Kind.TOOL, "generation": Kind.MODEL, "agent": Kind.AGENT}
_OBSERVED: Final = {"args", "kwargs"}
"""Keys under which Langfuse's `observe` writes the arguments of a function."""
_HIDDEN: Final = "{}"


def _first_count(usage: object, *names: str) -> int | None:
    """The first count, in the names of Langfuse and of the APIs of OpenAI, which it passes on."""
    found = (count(within(usage, name)) for name in names)
    return next((number for number in found if number is not None), None)


def _chain(span: SpanView, node: object, agent: object) -> Kind:
    """The kind of a LangChain chain: an agent and a node have their names, a run is at the top."""
    if agent == span.name:
        return Kind.AGENT
    if node == span.name:
        return Kind.NODE
    return Kind.WORKFLOW if span.parent_id is None else Kind.OTHER


def _set_call(step: Step, given: object, gave: object) -> None:
    """Sets arguments and result of a tool, which may be LangChain's."""
    step.args = given
    if gave is not None:
        set_outcome(step, tool_message(gave))


def _set_io(step: Step, given: object, gave: object) -> None:
    """Sets what an agent of LangChain was asked and answered, out of the states around its run."""
    step.args = user_text(within(given, "messages"))
    step.outcome = last_answer(within(gave, "messages"))


class Langfuse:
    """Reads spans that have `langfuse.observation.type`."""

    name = "langfuse"
    marks = frozenset(("langfuse.observation.type",))
    scopes = ("langfuse*",)
    key_order = 0
    session_keys = (
        "langfuse.session.id",
        "langfuse.trace.metadata.session_id",
        "langfuse.trace.metadata.thread_id",
        f"{_METADATA}session_id",
        f"{_METADATA}thread_id",
    )
    agent_keys = ("langfuse.observation.metadata.lc_agent_name",)
    key_prefixes = ("langfuse.",)
    call_words: ClassVar = {
        "langfuse.observation.type": frozenset(("tool", "generation", "embedding", "retriever")),
    }

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None without a type."""
        attributes = span.attributes
        named = attributes.get("langfuse.observation.type")
        if not isinstance(named, str):
            return None
        step = begin(span, _OBSERVATIONS.get(named, Kind.OTHER), span.name)
        step.node = identifier(attributes.get(f"{_METADATA}langgraph_node"))
        if step.kind is Kind.TOOL:
            step.call_id = identifier(attributes.get(f"{_METADATA}tool_call_id"))
            given = captured(span, "langfuse.observation.input")
            if (mapping(parsed(given)) or {}).keys() == _OBSERVED:
                given = call_inputs(given)
            _set_call(step, given, captured(span, "langfuse.observation.output"))
        elif step.kind is Kind.MODEL:
            self._model(step, span)
        elif named == "chain":
            agent = identifier(attributes.get(f"{_METADATA}lc_agent_name"))
            step.kind = _chain(span, step.node, agent)
            if step.kind is Kind.AGENT:
                given = captured(span, "langfuse.observation.input")
                _set_io(step, given, captured(span, "langfuse.observation.output"))
        failed(step, span)
        level = attributes.get("langfuse.observation.level")
        said = attributes.get("langfuse.observation.status_message")
        if level == "ERROR":
            fail(step, said)
        elif level == "DEFAULT" and said is not None and step.outcome is None:
            # LangGraph's exceptions that are no errors: interrupts.
            put_off(step)
        return step

    def _model(self, step: Step, span: SpanView) -> None:
        step.model = text(span.attributes.get("langfuse.observation.model.name"))
        step.name = step.model or span.name
        usage = span.attributes.get("langfuse.observation.usage_details")
        step.tokens_in = _first_count(usage, "input", "prompt_tokens", "input_tokens")
        step.tokens_out = _first_count(usage, "output", "completion_tokens", "output_tokens")
        details = within(usage, "prompt_tokens_details") or within(usage, "input_tokens_details")
        step.cache_read = _first_count(details, "cached_tokens")
        step.text = assistant_text(captured(span, "langfuse.observation.output"))


class LangSmith:
    """Reads spans that have `langsmith.span.kind`."""

    name = "langsmith"
    marks = frozenset(("langsmith.span.kind",))
    builds_on = genai.NAME
    scopes = ("langsmith*",)
    # `langsmith.trace.session_name` is a project.
    session_keys = ("langsmith.metadata.session_id", "langsmith.metadata.thread_id")
    agent_keys = ("langsmith.metadata.lc_agent_name",)
    key_prefixes = ("langgraph", "langsmith.")
    call_words: ClassVar = {"langsmith.span.kind": frozenset(("tool", "llm", "retriever"))}

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None without a kind."""
        attributes = span.attributes
        kind = attributes.get("langsmith.span.kind")
        if not isinstance(kind, str):
            return None
        node = text(attributes.get("langsmith.metadata.langgraph_node"))
        if kind == "tool":
            step = self._tool(span)
        elif kind == "llm":
            step = self._model(span)
        else:
            agent = attributes.get("langsmith.metadata.lc_agent_name")
            step = failed(begin(span, _chain(span, node, agent), span.name), span)
            if step.kind is Kind.AGENT:
                _set_io(step, captured(span, "gen_ai.prompt"), captured(span, "gen_ai.completion"))
        step.node = node
        return step

    def _tool(self, span: SpanView) -> Step:
        name = text(span.attributes.get("gen_ai.tool.name")) or span.name
        step = failed(begin(span, Kind.TOOL, name), span)
        step.call_id = identifier(span.attributes.get("gen_ai.tool.call.id"))
        given, gave = captured(span, "gen_ai.prompt"), captured(span, "gen_ai.completion")
        # A tool that raised has no result either.
        _set_call(step, None if given == _HIDDEN else given, None if gave == _HIDDEN else gave)
        return step

    def _model(self, span: SpanView) -> Step:
        step = genai.model(span)
        step.model = step.model or text(span.attributes.get("langsmith.metadata.ls_model_name"))
        step.name = step.model or span.name
        said = captured(span, "gen_ai.completion")
        generations = listing(within(said, "generations"))
        if generations is not None:
            # The text of each generation; the message beside it says the same again.
            inner = [one for group in generations for one in (listing(group) or (group,))]
            said = [within(one, "text") for one in inner]
        step.text = assistant_text(said)
        return step


_LOGFIRE_ANSWERED: Final = frozenset(
    "gen_ai.output.messages gen_ai.usage.input_tokens response_data".split()
)
"""Keys of which the span of a model's client has one if the answer came with it."""


class Logfire:
    """Reads spans of the scope `logfire.openai_agents`; its keys are too plain to stand alone.

    Of the spans of clients it reads those that end when a stream begins, which are no calls: at its
    end there is a span with request, answer and tokens.
    """

    name = "logfire"
    marks = frozenset(("gen_ai.system", "agent_trace_id"))
    builds_on = genai.NAME
    scopes = ("logfire.openai*",)
    key_prefixes = ("from_agent", "logfire.", "model_", "to_agent")

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None of another scope."""
        attributes = span.attributes
        if not span.scope.startswith("logfire.openai_agents"):
            streams = (
                "request_data" in attributes
                and span.end is not None
                and span.scope.startswith("logfire.")
                and span.status != "error"
                and _LOGFIRE_ANSWERED.isdisjoint(attributes)
            )
            return begin(span, Kind.OTHER, span.name) if streams else None
        template = text(attributes.get("logfire.msg_template")) or span.name
        if attributes.get("gen_ai.operation.name") == "chat":
            step = self._model(span)
        elif template.startswith("Function: "):
            step = begin(span, Kind.TOOL, text(attributes.get("name")))
            step.args = _filled(captured(span, "input"))
            step.outcome = _filled(unquoted(captured(span, "output")))
        elif template.startswith("Handoff: "):
            step = begin(span, Kind.HANDOFF, identifier(attributes.get("to_agent")))
            step.agent = identifier(attributes.get("from_agent"))
        else:
            step = self._enclosing(span, template)
        failed(step, span)
        error = _filled(attributes.get("error"))
        if error is not None:
            reason = within(error, "message")
            fail(step, reason if isinstance(reason, str) else error)
        return step

    def _enclosing(self, span: SpanView, template: str) -> Step:
        attributes = span.attributes
        name = text(attributes.get("name")) or span.name
        step = begin(span, Kind.OTHER, name)
        if template.startswith("Agent run"):
            step.kind, step.agent = Kind.AGENT, identifier(name)
        elif template.startswith("Turn "):
            step.kind, step.name = Kind.NODE, "turn"
            step.agent = identifier(attributes.get("agent_name"))
        elif "agent_trace_id" in attributes:
            step.kind = Kind.WORKFLOW
            step.session = identifier(attributes.get("group_id"))
        return step

    def _model(self, span: SpanView) -> Step:
        step = genai.model(span)
        events = listing(parsed(captured(span, "events")))
        if step.text is None and events is not None:
            answers = [event for event in events if within(event, "role") == "assistant"]
            step.text = assistant_text(answers[-1:])
        return step


def _filled(value: object) -> object:
    return None if value == "null" else value


_MLFLOW_TYPES: Final = {
    "TOOL": Kind.TOOL,
    "LLM": Kind.MODEL,
    "CHAT_MODEL": Kind.MODEL,
    "AGENT": Kind.AGENT,
}


class Laminar:
    """Reads spans that have `lmnr.span.type`."""

    name = "laminar"
    marks = frozenset(("lmnr.span.type",))
    builds_on = genai.NAME
    scopes = ("lmnr*",)
    session_keys = ("lmnr.association.properties.session_id",)
    key_prefixes = ("lmnr.",)
    call_words: ClassVar = {"lmnr.span.type": frozenset(("TOOL", "LLM"))}

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None without a type."""
        named = span.attributes.get("lmnr.span.type")
        if not isinstance(named, str):
            return None
        if named == "TOOL":
            step = genai.tool(span)
            step.name = step.name or span.name
            _set_call(step, captured(span, "lmnr.span.input"), captured(span, "lmnr.span.output"))
        elif named == "LLM":
            step = genai.model(span)
        else:
            step = genai.read(span)
        if step is None:
            kind = Kind.WORKFLOW if span.parent_id is None else Kind.OTHER
            step = failed(begin(span, kind, span.name), span)
        return step


class MLflow:
    """Reads spans that have `mlflow.spanType`."""

    name = "mlflow"
    marks = frozenset(("mlflow.spanType",))
    scopes = ("mlflow*",)
    key_prefixes = ("mlflow.",)

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None without a type, or of another writer."""
        attributes = span.attributes
        named = identifier(attributes.get("mlflow.spanType"))
        if named is None:
            return None  # `null` is on spans of others
        step = begin(span, _MLFLOW_TYPES.get(named, Kind.OTHER), span.name)
        given, gave = captured(span, "mlflow.spanInputs"), captured(span, "mlflow.spanOutputs")
        facts = attributes.get("metadata")
        step.node, step.agent = entry(facts, "langgraph_node"), entry(facts, "lc_agent_name")
        if step.kind is Kind.TOOL:
            step.call_id = identifier(attributes.get("tool_call_id"))
            _set_call(step, given, gave)
        elif step.kind is Kind.MODEL:
            step.model = identifier(attributes.get("mlflow.llm.model"))
            step.name = step.model or span.name
            usage = attributes.get("mlflow.chat.tokenUsage")
            step.tokens_in = count(within(usage, "input_tokens"))
            step.tokens_out = count(within(usage, "output_tokens"))
            step.cache_read = count(within(usage, "cache_read_input_tokens"))
            step.text = assistant_text(within(gave, "choices") or gave)
            if named == "LLM" and step.model is None and usage is None:
                step = begin(span, Kind.OTHER, span.name)  # a module of DSPy around a call
        elif named == "CHAIN" and facts is not None:
            step.kind = _chain(span, step.node, step.agent)
            if step.kind is Kind.AGENT:
                _set_io(step, given, gave)
        elif step.kind is Kind.AGENT:
            step.agent = step.agent or span.name
        return failed(step, span)


class OpenLit:
    """Reads tools, nodes and turns; the rest of OpenLIT's is in the GenAI convention alone."""

    name = "openlit"
    marks = frozenset(("gen_ai.sdk.version", "gen_ai.smolagents.step_number"))
    builds_on = genai.NAME
    scopes = ("openlit*",)
    key_prefixes = ()

    def read(self, span: SpanView) -> Step | None:
        """Step of the span, or None of another scope, or without an operation."""
        step = genai.read(span) if span.scope.startswith("openlit.") else None
        if step is None:
            return None
        if step.kind is Kind.TOOL:
            _set_call(step, literal(step.args), step.outcome)
        elif step.kind is Kind.AGENT and span.scope.endswith(".langgraph"):
            step.kind, step.node = Kind.NODE, step.name
        elif step.kind is Kind.AGENT and "gen_ai.smolagents.step_number" in span.attributes:
            step.kind, step.name, step.node = Kind.NODE, span.name, span.name
        elif step.kind is Kind.AGENT and step.agent is None and span.parent_id is not None:
            step.kind = Kind.OTHER
        return step
