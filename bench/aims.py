"""What is aimed at: rows of the table that `make bench` prints, with what 0.3 had.

Aims in seconds were set on a machine on which a tool span of the SDK alone took 18 µs. Beside each
such figure `make bench` times that span, and the figure is scaled by it before it is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

TOOL = "tool span with arguments and result"
IMPORT = "import"
MANY = "a hook, until there are 10,000 sessions of 40 steps"
REPLAY = "replay of trail.otlp.jsonl.gz"
ADMIT = "execution.admit()"
BARE_US: Final = 18.0
"""What a tool span of the SDK alone took where the aims were set."""


class Aim(NamedTuple):
    """A figure that is aimed at: at most so much, or at least; `timed` if in time, not a ratio."""

    says: str
    what: str
    figure: str
    was: str
    aim: float
    timed: bool = False
    at_least: bool = False

    def reached(self, value: float) -> bool:
        return value >= self.aim if self.at_least else value <= self.aim

    def scaled(self, value: float, bare_us: float) -> float:
        """The figure on the machine of the aims, by what the SDK's span took beside it."""
        slower = bare_us / BARE_US
        return value * slower if self.at_least else value / slower


AIMS: Final = (
    Aim("tool span, the agent's thread, over the SDK alone", TOOL, "agent_over_sdk", "10.5", 1.25),
    Aim("tool span, the process, over the SDK alone", TOOL, "process_over_sdk", "10.5", 4),
    Aim("model span, the agent's thread, over the SDK alone", "model span", "agent_over_sdk",
        "4 to 6", 1.25),
    Aim("a hook of a tool span, 99 %, µs", TOOL, "hook_p99_us", "", 50, timed=True),
    Aim(
        "span of no interest, known scope", "span of no interest, known scope",
        "agent_over_sdk", "1.03", 1.05,
    ),
    Aim(
        "span of no interest, unknown scope", "span of no interest, unknown scope",
        "agent_over_sdk", "1.2", 1.10,
    ),
    Aim(
        "span of no interest, scope that has tool spans",
        "span of no interest, scope with tool spans", "agent_over_sdk", "2.6", 1.15,
    ),
    Aim("instructions of a tool span beyond the SDK's", TOOL, "instructions_beyond_sdk",
        "885,000", 350_000),
    Aim("modules that a tool span visits", TOOL, "modules", "88", 28),
    Aim("functions that a tool span calls", TOOL, "calls", "286", 100),
    Aim("idle session, kB", "memory", "idle_session_kb", "28.5", 16),
    Aim("session of 10,000 steps, warm guard, kB", "memory", "session_at_10000_steps_kb",
        "174", 80),
    Aim("worst hook with 10,000 sessions of 40 steps, ms", MANY, "hook_worst_ms",
        "1,900 to 3,800", 100, timed=True),
    Aim("import beyond the SDK's, s of CPU", IMPORT, "beyond_sdk_cpu_s", "0.45", 0.20, timed=True),
    Aim("modules of the package that an import loads", IMPORT, "own_modules", "348", 80),
    Aim("`otel-loopguard --help`, cold start, s", IMPORT, "help_s", "", 0.35, timed=True),
    Aim("tool span with Redis, over the guard without", "tool span, journal and profiles in Redis",
        "guard_with_redis_over_guard", "1.27", 1.10),
    Aim("replay, steps a second of one core", REPLAY, "steps_per_cpu_s", "1,960", 12_000,
        timed=True, at_least=True),
    Aim("step 10,000 of a session over step 100", "one step, by length of the session",
        "at_10000_over_at_100", "0.99", 1.05),
    Aim("execution.admit(), median, µs", ADMIT, "admit_p50_us", "", 30, timed=True),
    Aim("execution.admit(), 99 %, µs", ADMIT, "admit_p99_us", "", 200, timed=True),
)  # fmt: skip

HEAD: Final = ("what", "0.3", "today", "scaled", "aim", "reached", "counted")
COUNTED: Final = {"process_over_sdk": ("bytecodes_beyond_sdk", "bytecodes beyond the SDK's")}


def rows(results: Mapping[str, Mapping[str, float]]) -> list[tuple[str, ...]]:
    """Each aim beside what 0.3 had, what was measured, and what was counted."""
    found: list[tuple[str, ...]] = []
    for each in AIMS:
        figures = results.get(each.what, {})
        value, bare = figures.get(each.figure), figures.get("bare_us")
        shown = "" if value is None else f"{value:,}"
        scaled = ""
        if value is not None and each.timed and bare is not None:
            value = each.scaled(value, bare)
            scaled = f"{value:,.4g}" if value < 1_000 else f"{value:,.0f}"
        sign = "≥" if each.at_least else "≤"
        known = "not measured" if value is None else "yes" if each.reached(value) else "**no**"
        counted = ""
        if each.figure in COUNTED:
            name, says = COUNTED[each.figure]
            counted = f"{figures[name]:,} {says}" if name in figures else ""
        found.append((each.says, each.was, shown, scaled, f"{sign} {each.aim:,g}", known, counted))
    return found
