"""An agent that knows OpenTelemetry and not the guard: eight equal tool calls, then the end.

With the argument `flag` it also prints what the guard's flag says, with `settings` some of the
settings of the guard that watches, which a test wants to know.
"""

import sys

from opentelemetry import trace

ATTRIBUTES = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "search",
    "gen_ai.tool.call.arguments": '{"query": "weather in Paris"}',
    "gen_ai.tool.call.result": "No results were found for this query.",
}

tracer = trace.get_tracer("agent")
with tracer.start_as_current_span("invoke_agent looper") as run:
    run.set_attribute("gen_ai.operation.name", "invoke_agent")
    for _ in range(8):
        with tracer.start_as_current_span("execute_tool search", attributes=ATTRIBUTES):
            pass
    if "flag" in sys.argv:
        from otel_loopguard import control

        print(f"flag: {control.current().action}", file=sys.stderr)
    if "settings" in sys.argv:
        from otel_loopguard import LoopGuard

        (guard,) = LoopGuard.all_attached()
        found = guard.settings
        print(
            f"settings: {found.repeat_threshold} {found.mode} {sorted(found.poll_tools)} "
            f"{found.tools['search'].error_threshold}",
            file=sys.stderr,
        )
