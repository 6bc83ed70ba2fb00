"""Records agents of Microsoft Agent Framework that hand over to each other, also in a ring.

The captures beside this file were written by it, in an environment of their own with Python 3.11:

    pip install -e ".[server]" agent-framework-core==1.23.0 agent-framework-orchestrations==1.4.0
    python -m tests.dialects.handoff_captures.record

The framework answers a hand-off by itself: there is no span of it, the messages tell of it.
"""

# pyright: basic, reportMissingImports=false, reportArgumentType=false

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.dialects.loop_captures.record import exporting, save, written

FINE = ("billing", "tech")
STUCK = ("billing", "triage") * 5
ANSWER = "The refund is on its way."


async def run(hops):
    import agent_framework as af
    from agent_framework.observability import ChatTelemetryLayer
    from agent_framework_orchestrations import HandoffBuilder

    calls = iter(enumerate(hops))

    def said():
        number, to = next(calls, (0, None))
        if to is None:
            return [af.Content.from_text(ANSWER)]
        return [af.Content.from_function_call(f"call_{number}", f"handoff_to_{to}", arguments="{}")]

    class Scripted(
        af.FunctionInvocationLayer, af.ChatMiddlewareLayer, ChatTelemetryLayer, af.BaseChatClient
    ):
        def _inner_get_response(self, *, stream, **_):
            async def updates():
                yield af.ChatResponseUpdate(contents=said(), role="assistant")

            async def answer():
                message = af.Message(role="assistant", contents=said())
                return af.ChatResponse(messages=[message], response_id="r")

            if stream:
                return af.ResponseStream(updates(), finalizer=af.ChatResponse.from_updates)
            return answer()

    agents = [
        af.Agent(client=Scripted(), name=name, require_per_service_call_history_persistence=True)
        for name in ("triage", "billing", "tech")
    ]
    desk = HandoffBuilder(name="desk", participants=agents).with_start_agent(agents[0]).build()
    await desk.run("My bill is wrong.")


def main():
    from agent_framework.observability import enable_instrumentation

    memory = exporting()
    enable_instrumentation(enable_sensitive_data=True)
    for name, hops in (("fine", FINE), ("stuck", STUCK)):
        asyncio.run(run(hops))
        spans = map(written, memory.get_finished_spans())
        tell = ("chat", "invoke_agent", "executor.process", "workflow.run")
        save(
            Path(__file__).parent / f"agent_framework-{name}.json",
            [one for one in spans if one["name"].startswith(tell)],
        )
        memory.clear()


if __name__ == "__main__":
    main()
