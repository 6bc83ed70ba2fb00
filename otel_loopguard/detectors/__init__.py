"""Evidence -> detection: a file per question asked."""

from __future__ import annotations

from otel_loopguard.detectors.budget import (
    CannotSucceed,
    CheckpointAdvice,
    ContextSize,
    MilestoneStall,
    OwnLimit,
    SpendingLimit,
    TokenRate,
)
from otel_loopguard.detectors.errors import ErrorRate, ErrorRepeat, Outage, RefusedCall, SameFailure
from otel_loopguard.detectors.graph import (
    GraphLimit,
    NodeCycle,
    NoProgress,
    RapidIteration,
    StateConvergence,
)
from otel_loopguard.detectors.handoffs import HandoffRepeat, PairCycle, RingCycle, TopicCycle
from otel_loopguard.detectors.registry import Detector, Entry, Factory, Registry
from otel_loopguard.detectors.repetition import (
    Cycle,
    Echo,
    ExactRepeat,
    RevisedInVain,
    SimilarRepeat,
    Sweep,
)
from otel_loopguard.detectors.stalls import (
    Clock,
    agent_clocks,
    idle_clocks,
    model_clocks,
    phase_clocks,
    run_clocks,
    stalled,
    step_clocks,
)
from otel_loopguard.detectors.standstill import (
    FoundNothing,
    Grinding,
    IdleCommand,
    NoBetterScore,
    RepeatedEdit,
    SameVerdict,
    Stagnation,
    ToolShopping,
)
from otel_loopguard.detectors.text import (
    Apologising,
    Hedging,
    RefinementSpiral,
    ScopeCreep,
    TalkWithoutAction,
    TextRepetition,
)

DETECTORS: tuple[Factory, ...] = (
    ExactRepeat,
    Cycle,
    ErrorRepeat,
    Stagnation,
    Outage,
    SimilarRepeat,
    ErrorRate,
    Echo,
    FoundNothing,
    SameVerdict,
    Sweep,
    Grinding,
    RefusedCall,
    IdleCommand,
    SameFailure,
    RepeatedEdit,
    NoBetterScore,
    RevisedInVain,
    NodeCycle,
    StateConvergence,
    NoProgress,
    RapidIteration,
    GraphLimit,
    HandoffRepeat,
    PairCycle,
    RingCycle,
    TopicCycle,
    SpendingLimit,
    OwnLimit,
    TokenRate,
    CheckpointAdvice,
    ContextSize,
    MilestoneStall,
    CannotSucceed,
    RefinementSpiral,
    TextRepetition,
    TalkWithoutAction,
    Apologising,
    Hedging,
    ScopeCreep,
    ToolShopping,
)
"""Every detector that looks at finished steps; one line registers one."""

__all__ = [
    "DETECTORS",
    "Clock",
    "Detector",
    "Entry",
    "Factory",
    "Registry",
    "agent_clocks",
    "idle_clocks",
    "model_clocks",
    "phase_clocks",
    "run_clocks",
    "stalled",
    "step_clocks",
]
