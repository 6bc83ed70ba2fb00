"""For tests of agents: runs one under a guard of its own, and reports what the guard decided.

The pytest plugin (`otel_loopguard_pytest`) gives the same as the fixture `loopguard`.
"""

from __future__ import annotations

from otel_loopguard.testing.fixture import LoopGuardFixture, Outcome, options, watching

__all__ = ["LoopGuardFixture", "Outcome", "options", "watching"]
