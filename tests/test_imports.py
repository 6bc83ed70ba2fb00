"""What a process imports that only adds the processor: what is not configured is not loaded."""

import json

from tests.programs import printed

PROGRAM = """
import json, sys
from opentelemetry.sdk.trace import TracerProvider
provider = TracerProvider()
before = set(sys.modules)
import otel_loopguard
face = set(sys.modules) - before
from otel_loopguard import LoopGuardSpanProcessor
provider.add_span_processor(LoopGuardSpanProcessor())
call = {"gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": '{"query": "weather"}'}
with provider.get_tracer("my.agent").start_as_current_span("execute_tool search", attributes=call):
    pass
print(json.dumps([sorted(face), sorted(set(sys.modules) - before)]))
"""
SPANS = """
from types import SimpleNamespace
from opentelemetry.sdk.trace import TracerProvider
from otel_loopguard import LoopGuardSpanProcessor
from otel_loopguard.evidence import normalize
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())
compiled = []
compile_python, compile_rust = normalize.re.compile, normalize.prefilter
normalize.re = SimpleNamespace(**vars(normalize.re))
normalize.re.compile = lambda *given: compiled.append(given) or compile_python(*given)
normalize.prefilter = lambda *given, of_bytes: (
    compiled.append(given) or compile_rust(*given, of_bytes=of_bytes)
)
call = {"gen_ai.tool.name": "run"}
for words in ("status: pending", "no results found", "3 of 9 tests failed", "try again", "0 rows"):
    call["gen_ai.tool.call.result"] = f"{words}. " + 99 * "All is well. "
    with provider.get_tracer("my.agent").start_as_current_span("execute_tool run", attributes=call):
        pass
print(compiled)
"""
UNUSED = {
    "asyncio", "httpx", "pathlib", "pydantic", "pydantic_settings", "redis", "rich", "statistics",
    "tenacity", "tomllib", "typer", "yaml",
    "otel_loopguard.cli", "otel_loopguard.control", "otel_loopguard.escalation.protocol",
    "otel_loopguard.integrations", "otel_loopguard.plans.splitting", "otel_loopguard.replay",
    "otel_loopguard.resilience.recovery", "otel_loopguard.server",
    "otel_loopguard.sessions.journal", "otel_loopguard.stores", "otel_loopguard.testing",
}  # fmt: skip


def test_a_tool_span_imports_what_it_needs() -> None:
    """With default settings: few modules of ours, and none of what is not configured."""
    face, used = (set(names) for names in json.loads(printed(PROGRAM)))
    assert used & UNUSED == set()
    assert len([name for name in face if name.startswith("otel_loopguard")]) <= 6
    assert len([name for name in used if name.startswith("otel_loopguard")]) <= 146


def test_no_span_waits_until_patterns_are_compiled() -> None:
    """What is looked for in outcomes was compiled when the processor was made."""
    assert printed(SPANS).splitlines()[0] == "[]"


def test_the_list_of_commands_loads_no_guard() -> None:
    """Who asks which commands there are, or installs hooks, does not wait for what judges."""
    program = "import json, sys; import otel_loopguard.cli.app; print(json.dumps([*sys.modules]))"
    loaded = set(json.loads(printed(program)))
    judging = {"evidence", "detectors", "guard", "settings", "stores", "telemetry"}
    assert loaded & {f"otel_loopguard.{room}" for room in judging} == set()
