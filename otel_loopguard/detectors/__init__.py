"""Evidence -> detection: a module for each family."""

from __future__ import annotations

from otel_loopguard.detectors import (
    budget,
    errors,
    graph,
    handoffs,
    repetition,
    standstill,
    text,
)
from otel_loopguard.detectors.registry import Detector, DetectorSet, Factory, Registry

DETECTORS: tuple[Factory, ...] = (
    repetition.ExactRepeat, repetition.Cycle, repetition.MadeAgain, errors.ErrorRepeat,
    standstill.Stagnation, errors.Outage, repetition.SimilarRepeat, errors.ErrorRate,
    standstill.FoundNothing, standstill.SameVerdict, standstill.Sweep, standstill.NothingNew,
    standstill.IdleCommand, errors.FailingModel, standstill.RepeatedEdit, standstill.BackToState,
    standstill.NoBetterScore, standstill.RevisedInVain, graph.NodeCycle, graph.StateConvergence,
    graph.NoProgress, graph.RapidIteration,
    graph.GraphLimit,
    handoffs.HandoffRepeat, handoffs.PairCycle, handoffs.RingCycle, handoffs.TopicCycle,
    budget.SpendingLimit, budget.OwnLimit, budget.TokenRate, budget.CheckpointAdvice,
    budget.PriceOfWaiting, budget.ContextSize, budget.MilestoneStall, budget.CannotSucceed,
    text.RefinementSpiral, text.TextRepetition, text.TalkWithoutAction, text.Apologising,
    text.Hedging, text.ScopeCreep, text.ToolShopping,
)  # fmt: skip
"""The detectors of finished steps, in the order in which they are asked; a name adds one."""

__all__ = ["DETECTORS", "Detector", "DetectorSet", "Factory", "Registry"]
