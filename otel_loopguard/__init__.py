"""Notices agents that loop, stall or get nowhere, from the OpenTelemetry spans they emit."""

from otel_loopguard._util.lazy import lazy as _lazy
from otel_loopguard.version import __version__

TYPE_CHECKING = False  # typing alone takes half of the time that a hook of a coding agent waits
if TYPE_CHECKING:
    from otel_loopguard import control
    from otel_loopguard._control.context import session
    from otel_loopguard._util.clock import set_testing
    from otel_loopguard.core import Action, Decision
    from otel_loopguard.errors import (
        BreakerOpenError,
        CheckpointError,
        LoopGuardAbort,
        LoopGuardError,
        LoopGuardLimit,
        LoopGuardPaused,
        LoopGuardSettingsError,
        LoopGuardStop,
        RecordingError,
        UnverifiedWriteError,
    )
    from otel_loopguard.guard.guard import LoopGuard
    from otel_loopguard.integrations.own_loop import Refusal, turn
    from otel_loopguard.sdk.exporter import LoopGuardSpanExporter
    from otel_loopguard.sdk.processor import LoopGuardSpanProcessor
    from otel_loopguard.sdk.propagator import LoopGuardPropagator, detach_baggage
    from otel_loopguard.sdk.provider import setup
    from otel_loopguard.sdk.sampler import LoopGuardSampler
    from otel_loopguard.settings import Settings

__all__ = [
    "Action",
    "BreakerOpenError",
    "CheckpointError",
    "Decision",
    "LoopGuard",
    "LoopGuardAbort",
    "LoopGuardError",
    "LoopGuardLimit",
    "LoopGuardPaused",
    "LoopGuardPropagator",
    "LoopGuardSampler",
    "LoopGuardSettingsError",
    "LoopGuardSpanExporter",
    "LoopGuardSpanProcessor",
    "LoopGuardStop",
    "RecordingError",
    "Refusal",
    "Settings",
    "UnverifiedWriteError",
    "__version__",
    "control",
    "detach_baggage",
    "session",
    "set_testing",
    "setup",
    "turn",
]

__getattr__ = _lazy(
    __name__,
    {
        "control": "",
        "_control.context": "session",
        "_util.clock": "set_testing",
        "core": "Action Decision",
        "errors": (
            "BreakerOpenError CheckpointError LoopGuardAbort LoopGuardError LoopGuardLimit "
            "LoopGuardPaused LoopGuardSettingsError LoopGuardStop RecordingError "
            "UnverifiedWriteError"
        ),
        "guard.guard": "LoopGuard",
        "integrations.own_loop": "Refusal turn",
        "sdk.exporter": "LoopGuardSpanExporter",
        "sdk.processor": "LoopGuardSpanProcessor",
        "sdk.propagator": "LoopGuardPropagator detach_baggage",
        "sdk.provider": "setup",
        "sdk.sampler": "LoopGuardSampler",
        "settings": "Settings",
    },
    elsewhere={
        "core": "Kind Step",
        "integrations.agent_framework": "loopguard_middleware",
        "integrations.autogen": "LoopGuardAssistantAgent LoopGuardTeam",
        "integrations.crewai": "LoopGuardHooks",
        "integrations.google_adk": "LoopGuardPlugin",
        "integrations.langchain": "LoopGuardMiddleware",
        "integrations.llama_index": "guarded",
        "integrations.mcp": "LoopGuardClient LoopGuardServerMiddleware",
        "integrations.openai_agents": "LoopGuardHooks",
        "integrations.pydantic_ai": "LoopGuardCapability",
        "integrations.smolagents": "guarded",
        "integrations.strands": "LoopGuardHooks",
    },
)


def __dir__() -> list[str]:
    return __all__
