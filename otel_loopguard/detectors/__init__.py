"""Evidence -> detection: a file per question asked."""

from __future__ import annotations

from otel_loopguard.detectors.budget.checkpoint import CheckpointAdvice
from otel_loopguard.detectors.budget.context import ContextSize
from otel_loopguard.detectors.budget.limits import SpendingLimit
from otel_loopguard.detectors.budget.milestones import CannotSucceed, MilestoneStall
from otel_loopguard.detectors.budget.own_limits import OwnLimit
from otel_loopguard.detectors.budget.rate import TokenRate
from otel_loopguard.detectors.calls.cycle import Cycle
from otel_loopguard.detectors.calls.echo import Echo
from otel_loopguard.detectors.calls.edits import RepeatedEdit
from otel_loopguard.detectors.calls.error_rate import ErrorRate
from otel_loopguard.detectors.calls.errors import ErrorRepeat
from otel_loopguard.detectors.calls.found_nothing import FoundNothing
from otel_loopguard.detectors.calls.grinding import Grinding
from otel_loopguard.detectors.calls.idle import IdleCommand
from otel_loopguard.detectors.calls.no_better import NoBetterScore
from otel_loopguard.detectors.calls.outage import Outage
from otel_loopguard.detectors.calls.refused import RefusedCall
from otel_loopguard.detectors.calls.repeat import ExactRepeat
from otel_loopguard.detectors.calls.revised import RevisedInVain
from otel_loopguard.detectors.calls.same_failure import SameFailure
from otel_loopguard.detectors.calls.same_verdict import SameVerdict
from otel_loopguard.detectors.calls.similar import SimilarRepeat
from otel_loopguard.detectors.calls.stagnation import Stagnation
from otel_loopguard.detectors.calls.sweep import Sweep
from otel_loopguard.detectors.detector import Detector, Factory
from otel_loopguard.detectors.exchange.handoffs import HandoffRepeat
from otel_loopguard.detectors.exchange.pair import PairCycle
from otel_loopguard.detectors.exchange.ring import RingCycle
from otel_loopguard.detectors.exchange.topic import TopicCycle
from otel_loopguard.detectors.graph.convergence import StateConvergence
from otel_loopguard.detectors.graph.cycle import NodeCycle
from otel_loopguard.detectors.graph.limit import GraphLimit
from otel_loopguard.detectors.graph.progress import NoProgress
from otel_loopguard.detectors.graph.speed import RapidIteration
from otel_loopguard.detectors.registry import Entry, Registry
from otel_loopguard.detectors.stall import (
    Clock,
    agent_clocks,
    idle_clocks,
    model_clocks,
    phase_clocks,
    run_clocks,
    stalled,
    step_clocks,
)
from otel_loopguard.detectors.text.apologising import Apologising
from otel_loopguard.detectors.text.hedging import Hedging
from otel_loopguard.detectors.text.refinement import RefinementSpiral
from otel_loopguard.detectors.text.repetition import TextRepetition
from otel_loopguard.detectors.text.scope import ScopeCreep
from otel_loopguard.detectors.text.shopping import ToolShopping
from otel_loopguard.detectors.text.talk import TalkWithoutAction

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
