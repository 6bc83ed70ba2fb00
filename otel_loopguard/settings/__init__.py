"""Settings of one guard, and where they come from.

The variable of a setting is `LOOPGUARD_` and its name in capitals. Keyword arguments take
precedence over the environment, the environment over the file that `LOOPGUARD_SETTINGS_FILE` names
(TOML, JSON, or YAML with the extra `yaml`), and the file over the defaults. Numbers that few people
change are in `otel_loopguard.settings.tuning`, and reached as `settings.tuning`.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeVar, cast

from otel_loopguard.core.decision import Severity
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.settings import _sources
from otel_loopguard.settings._group import NO_SECRET, Group, leaves, one_of, value
from otel_loopguard.settings._sources import imported as imported
from otel_loopguard.settings.tuning import Tuning

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import ValidationError

    from otel_loopguard.settings._types import (
        Action,
        Amount,
        Count,
        Limit,
        MaxAmount,
        MaxCount,
        Names,
        NamesInOrder,
        Seconds,
        SecretStr,
    )

_SHORTEST_KEY: Final = 16
"""Bytes of a key: 128 bits cannot be tried out, as Standard Webhooks and HMAC want too."""
_ENCODED: Final = "whsec_"
_TOO_SHORT: Final = (
    f"a key needs at least {_SHORTEST_KEY} bytes, or it can be guessed: "
    "`openssl rand -hex 32` makes one"
)
_REASONS = frozenset({"pause", "ask", "cycle"})
_VERDICTS = frozenset({"annotations", "evaluations", "langfuse", "langsmith", "mlflow", "phoenix"})
_TRAITS = frozenset({"exempt", "polls", "once", "effect", "key", "parallel", "duration_ms"})
_Value = TypeVar("_Value")
_NAME_CHARS: Final = 200
"""Of a tool's name that patterns are compared with: the results are kept, and a model may make
names up."""


class _ByPattern(dict[str, _Value]):
    """Values by names and patterns of tools; the name goes first, then the longest pattern.

    A tool with the value False is not contained.
    """

    def __init__(self, values: Mapping[str, _Value]) -> None:
        super().__init__(values)
        self._names = tuple(values)

    def __contains__(self, tool: object) -> bool:
        return super().get(self._key(tool), False) is not False

    def get(self, tool: str, default: Any = None) -> Any:
        return super().get(self._key(tool), default)

    def _key(self, tool: object) -> str:
        name = tool if isinstance(tool, str) else ""
        return name if super().__contains__(name) else _fitting(name[:_NAME_CHARS], self._names)


@lru_cache(1024)
def _fitting(tool: str, names: tuple[str, ...]) -> str:
    fitting = (name for name in reversed(names) if fnmatchcase(tool, name))
    return max(fitting, key=len, default=tool)


def by_tool(values: Mapping[str, _Value]) -> Mapping[str, _Value]:
    """Values by names of tools; if one is a pattern such as `browser_*`, by those that it fits."""
    plain = not any(sign in name for name in values for sign in "*?[")
    return values if plain and False not in values.values() else _ByPattern(values)


@contextmanager
def needing(what: str, extra: str, module: str) -> Generator[None]:
    """Says which extra `what` needs, where a module of it is missing.

    Raises:
        LoopGuardSettingsError: It is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != module:
            raise
        msg = f"{what} needs: pip install 'otel-loopguard[{extra}]'"
        raise LoopGuardSettingsError(msg) from None


def key_bytes(secret: str) -> bytes:
    """The bytes of a key: Base64 after `whsec_` (Standard Webhooks), else the text itself.

    Raises:
        ValueError: What follows `whsec_` is not Base64.
    """
    if not secret.startswith(_ENCODED):
        return secret.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("expected Base64 after 'whsec_'") from None


def _long_enough(secret: SecretStr) -> SecretStr:
    if secret and len(key_bytes(secret.get_secret_value())) < _SHORTEST_KEY:
        raise ValueError(_TOO_SHORT)
    return secret


class ToolSettings(Group):
    """Declarations about one tool; a field that is left out has the general value."""

    exempt: bool = False
    """Never judged."""
    polls: bool = False
    """An unchanged answer after a pause is waiting."""
    once: bool = False
    """The third equal call that succeeds is refused."""
    effect: Literal["read", "write", "wait"] | None = None
    """Its effect; inferred from its name or command by default."""
    key: tuple[str, ...] | None = None
    """Arguments that make two calls the same; by default all but volatile ones."""
    parallel: bool = False
    """Its calls may run concurrently, as those of tools that only read do."""
    duration_ms: Seconds | None = None
    """Milliseconds that a call takes, as long as few are known; precedes the built-in table."""
    repeat_threshold: Count | None = None
    """Its own `repeat_threshold`."""
    similar_threshold: Count | None = None
    """Its own `similar_threshold`."""
    error_threshold: Count | None = None
    """Its own `error_threshold`."""
    transient_budget_s: Seconds | None = None
    """Its own `transient_budget_s`."""
    wait_budget_s: Seconds | None = None
    """Its own `wait_budget_s`."""
    step_timeout_s: Seconds | None = None
    """Its own `step_timeout_s`."""

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings of calls that this tool has its own value of."""
        return {name: each for name, each in self if name not in _TRAITS and each is not None}


class AgentLimits(Group):
    """Limits of one agent in a session; one that is left out does not exist."""

    actions: MaxCount = None
    """Its tool calls."""
    errors: MaxCount = None
    """Its failed tool calls in a row."""
    tokens: MaxCount = None
    """Tokens of its model calls."""
    cost: MaxAmount = None
    """Cost of its model calls, in USD."""
    action: Action | None = None
    """Action at the limit; `budget_action` by default."""

    def limits(self) -> tuple[tuple[str, float], ...]:
        """The limits that are set, by name."""
        numbers = ((name, limit) for name, limit in self if name != "action")
        return tuple((name, float(limit)) for name, limit in numbers if limit is not None)


class TaskLimits(AgentLimits):
    """Limits of a session while its task has one type."""

    steps: MaxCount = None
    """Steps of any kind."""
    elapsed_s: MaxAmount = None
    """Seconds between two words of the user."""


_BUDGETS: Final = {
    "steps": ("steps", "steps"),
    "tokens": ("tokens", "tokens"),
    "cost": ("cost", "USD"),
    "actions": ("calls", "tool calls"),
    "task_actions": ("actions", "tool calls of one task"),
    "errors": ("errors", "failed tool calls in a row"),
    "elapsed_s": ("elapsed_s", "seconds of one task"),
    "phases": ("phases", "phases"),
}
"""Limits by name: the field of `Usage`, and the unit."""
UNITS: Final = {name: unit for name, (_, unit) in _BUDGETS.items()}
"""Units in words, by the name of a limit."""

_STANDARD: Final[Mapping[str, float]] = {
    "budget_steps": 50,
    "budget_tokens": 100_000,
    "budget_actions": 500,
    "budget_task_actions": 100,
    "budget_errors": 10,
    "budget_elapsed_s": 3600.0,
    "budget_phases": 20,
    "stall_idle_s": 30.0,
    "stall_run_s": 300.0,
    "stall_overall_s": 840.0,
    "graph_iterations": 50,
}
"""The limits that `limits="standard"` sets: those of features C10, D3, D5, E1, E2 and G5."""
_STANDARD_CHECKPOINT: Final = 25
"""Tool calls (feature C10): a twentieth of the session's."""


class Budget(NamedTuple):
    """One limit that is set.

    Attributes:
        name: Name of its setting, without `budget_`.
        spent: The field of `Usage` that is held against it.
        unit: What is counted, in words.
        limit: The limit, in that unit; above 0.
    """

    name: str
    spent: str
    unit: str
    limit: float


class Settings(Group):
    """Settings of one guard.

    Raises:
        LoopGuardSettingsError: A value cannot be used, or a name is unknown; the message has name,
            value and expectation.
    """

    # The guard as a whole.
    enabled: bool = True
    """Guards live runs; if false, spans pass untouched. Recordings are judged anyway."""
    mode: Literal["guard", "shadow"] = "guard"
    """`guard` decides and sets the flag; `shadow` decides and annotates, never sets it, and refuses
    no call."""
    judging: Literal["later", "at_end"] = "later"
    """Moment at which spans are judged: `later`, once anybody asks or after 20 ms, so that hooks
    cost next to nothing; `at_end`, as each ends, on its own thread, listeners included."""
    max_sessions: int = value(10_000, ge=1)
    """Sessions kept; the least recently used one is dropped first."""
    session_ttl_s: Seconds = 3600.0
    """Seconds an unused session is kept, unless a person stopped it."""
    digest_key: SecretStr = value(NO_SECRET, check=_long_enough)
    """Key of the digests that leave the process, at least 16 bytes; empty: a random one, so that
    digests compare within the process only."""
    span_events: bool = False
    """Adds decisions and manual changes to open spans as span events too, for views that show no
    log events."""
    switched_off: Names = frozenset()
    """Detectors, or families of detectors, that are not used."""
    detectors: NamesInOrder = ()
    """Your own detectors: `module:name` of a factory that takes the settings."""

    # Loops of tool calls.
    repeat_threshold: Count = 3.0
    """Equal calls with equal outcomes that make a loop."""
    error_threshold: Count = 3.0
    """Equal errors of one tool, whatever the arguments, that make a loop."""
    similar_threshold: Count = 4.0
    """Like questions among six that make a loop."""
    transient_budget_s: Seconds = 60.0
    """Seconds that transient errors (429, 5xx, timeout) may continue."""
    wait_budget_s: Seconds = 1800.0
    """Seconds that polling an unchanged answer may continue."""

    step_timeout_s: Seconds = 60.0
    """Seconds a tool call may take before it is a stall."""

    # Tools.
    poll_tools: Names = frozenset()
    """Tools that poll: an unchanged answer means waiting."""
    exempt_tools: Names = frozenset()
    """Tools that are never judged. As in all of these lists, a name may be a pattern such as
    `browser_*`; a tool has what is said by its name, else by the longest pattern that fits."""
    read_tools: Names = frozenset()
    """Tools that change nothing; others are judged by their name."""
    write_tools: Names = frozenset()
    """Tools that change something, so that progress is possible."""
    once_tools: Names = frozenset()
    """Tools that do something only once: the third equal call is refused."""
    tools: Mapping[str, ToolSettings] = {}
    """Tools by name or pattern (JSON in the variable): `exempt`, `polls`, `once`, `effect`, `key`,
    `parallel`, `duration_ms` and their own thresholds."""

    # Policy.
    max_action: Literal["hint", "steer", "ask", "deny", "pause", "abort"] = "abort"
    """Strongest action the policy may take; below `deny`, breakers and checks refuse nothing."""
    sensitivity: float = value(1.0, ge=0.25, le=4)
    """Divides all thresholds: above 1, loops are noticed sooner."""
    steer_after: int = value(2, ge=0, le=100)
    """Confirming rounds after a hint before the agent is asked to change its approach."""
    ask_after: int = value(4, ge=0, le=100)
    """Confirming rounds after a hint before the user is to be asked."""
    deny_after: int = value(1, ge=1, le=100)
    """Confirming rounds after a hint before calls are denied."""
    pause_after: int = value(1, ge=1, le=100)
    """Confirming rounds after a hint before the session is paused, where the cause is not the
    agent's own doing."""
    abort_after: int = value(4, ge=1, le=100)
    """Confirming rounds after a hint before the session is aborted."""
    hint_climbs_after: int = value(0, ge=0, le=1000)
    """Rounds that ignore a hint, whatever they weigh, before it climbs to steer, as many more to
    ask, and to deny; 0: never. For agents that nobody watches: 6."""
    warning_limit: int = value(0, ge=0, le=1000)
    """Different warnings in one user turn after which one more aborts the session; 0: no limit."""
    strategies: Mapping[str, tuple[str, ...]] = {}
    """Alternatives to suggest to the model, by tool or pattern such as `browser_*` (JSON in the
    variable); they precede the built-in ones."""
    diagnoser: str = ""
    """Your function for errors of unknown kind, `module:name`; empty: none."""
    pause_limit_s: Seconds = 60.0
    """Seconds a gate waits while the session is paused."""

    # Limits. One that is not set does not exist.
    limits: Literal["", "standard"] = ""
    """`standard` sets every limit that is not set by itself, and advises checkpoints and
    compaction; empty: only those that are set."""
    budget_action: Literal["", "allow", "hint", "ask", "pause", "abort"] = ""
    """Action at a limit that was set; empty: `pause` where somebody can answer (webhook, store,
    socket or callback), else `abort`; `allow` only records it. A warning hints at most."""
    budget_steps: Limit = 0
    """Steps of a session; 0: no limit."""
    budget_tokens: Limit = 0
    """Tokens of a session; 0: no limit."""
    budget_cost: Amount = 0.0
    """Cost of a session, in USD; 0: no limit."""
    prices_file: str = ""
    """File of prices of models (TOML, JSON or YAML) for limits of money, on top of the package's
    own; empty: those alone."""
    budget_actions: Limit = 0
    """Tool calls of a session; 0: no limit."""
    budget_task_actions: Limit = 0
    """Tool calls between two user messages; 0: no limit."""
    budget_errors: Limit = 0
    """Failed tool calls in a row; 0: no limit."""
    budget_elapsed_s: Amount = 0.0
    """Seconds between two user messages; 0: no limit."""
    budget_phases: Limit = 0
    """Stretches of work of one agent after another, between two user messages; 0: no limit."""
    stall_idle_s: Amount = 0.0
    """Seconds an agent's run may be open without any step; 0: no limit."""
    stall_run_s: Amount = 0.0
    """Seconds one run of an agent may take; 0: no limit."""
    stall_overall_s: Amount = 0.0
    """Seconds all runs of a session may take; 0: no limit."""
    graph_iterations: Limit = 0
    """Visits of one node in one run of a graph; 0: no limit."""

    agent_limits: Mapping[str, AgentLimits] = {}
    """Limits of agents by name (JSON in the variable): `actions`, `errors`, `tokens`, `cost`, and
    the `action` they lead to."""
    task_limits: Mapping[str, TaskLimits] = {}
    """Limits of sessions by task type (JSON in the variable), as set by `control.task_type`: those
    of agents, `steps` and `elapsed_s`."""

    # The judge, and reports.
    judge: str = ""
    """Your judge, `module:name` of a callable; empty: none. Replays do not ask it."""
    context_in_hints: bool = True
    """Adds the long-term context to hints; they may then hold content of calls, which stays in the
    process."""

    # Execution and latency.
    execution_queue: str = value("", repr=False)
    """Queue of tasks waiting for workers: `module:function` that returns their number,
    `redis://host/0#list`, `celery+redis://host/0#queue` or `rq+redis://host/0#queue`; empty: none.
    """

    # Control across processes.
    share_control: bool = True
    """Replicates deny, pause, abort and resume of a session to and from other processes with the
    same `store_url`."""
    propagation_key: SecretStr = value(NO_SECRET, check=_long_enough)
    """Secret that signs session and action in baggage, the same in all processes, at least 16
    bytes; empty: nothing is sent or trusted."""

    # Breakers.
    breaker: Literal["off", "session", "shared"] = "off"
    """Refuses calls of a host that fails, or the same call where none names a host: in the
    `session` where it failed, or in all (`shared`). `resilience.breaker(...)` needs no setting."""

    # Stores.
    store_url: SecretStr = NO_SECRET
    """Store of profiles, journals, control and preferences: `redis://`, `rediss://`, `unix://`,
    `redis+sentinel://HOST:PORT,…/SERVICE`, `redis+cluster://HOST:PORT,…`; empty: in memory."""
    # A prefix and the name of a tenant behind it are one, too.
    store_prefix: str = value("loopguard", pattern=r"^[^\x00-\x1f\x7f]{1,200}$")
    """Prefix of all keys in the store."""

    # Telemetry.
    telemetry_metrics: bool = True
    """Records OpenTelemetry metrics, if a meter provider is set."""
    telemetry_events: bool = True
    """Emits OpenTelemetry log events for decisions, escalations and cycles, if a logger provider is
    set."""
    decision_spans: bool | Literal["always"] = True
    """Creates a span for a decision that is on no other: no ancestor is open, and no
    `LoopGuardSpanExporter` writes it on the ended one; `always` for every decision but notes
    (`allow`), so that it is a row of its own wherever a trace is shown."""
    verdicts: Names = value(frozenset(), check=one_of(_VERDICTS, "form"))
    """Forms in which decisions are written as verdicts: `annotations` (OpenInference's, on spans),
    `evaluations` (log events `gen_ai.evaluation.result`), and by their own API `phoenix`,
    `langfuse`, `langsmith`, `mlflow`, which need the extra `verdicts` and take address and keys of
    their usual variables; empty: none."""

    # Escalation.
    escalate_on: Names = value(_REASONS, check=one_of(_REASONS.union(Severity), "reason"))
    """Decisions that are escalated: `pause`, `ask`, `cycle` (a cycle of agents that continues after
    an intervention), and all from a severity (`warning`, `critical`, `fatal`); empty: none."""
    escalation_fallback: Literal["skip_task", "continue", "abort", "wait"] = "skip_task"
    """Answer that is taken if nobody gives one within `pause_limit_s` seconds; with `wait` the
    session stays paused."""
    escalation_content: bool = False
    """Shows the arguments of the last actions, at most 200 characters of each, to those who are
    asked."""
    webhook_url: SecretStr = NO_SECRET
    """URL (`http://` or `https://`) that escalations are posted to; empty: none. Needs the extra
    `webhook`."""
    webhook_secret: SecretStr = value(NO_SECRET, check=_long_enough)
    """Secret that signs posts (HMAC-SHA256, Standard Webhooks), at least 16 bytes: a text, or
    `whsec_` and Base64; empty: not signed."""
    control_socket: str = ""
    """Unix socket by which `otel-loopguard sessions`, `resume` and others reach this process: a
    path, or `auto` for one in a folder of your own; empty: none."""

    tuning: Tuning = Tuning()
    """Tuning values, in groups; they may change with any release."""

    def __init__(self, **given: Any) -> None:
        named = given.pop("settings_file", None)
        path = named or os.environ.get(_sources.FILE)
        own = _sources.merged(_sources.from_environment(type(self)), given)
        source = "" if named else f"{_sources.FILE}="
        found = _sources.merged(_values_of(path, source), own) if path else own
        try:
            super().__init__(**found)
        except ValueError as error:  # pydantic's; naming its class would import it
            files = dict.fromkeys(found.keys() - own.keys(), f"{path}: ")
            why = _sources.explained(cast("ValidationError", error), type(self), files)
            raise LoopGuardSettingsError(why) from None
        for name in sorted(self.read_tools & self.write_tools):
            msg = f"read_tools and write_tools both name {name!r:.100}: a tool reads or writes"
            raise LoopGuardSettingsError(msg)
        _sources.warn_unknown(type(self))
        if self.standard:
            vars(self).update({**_STANDARD, **vars(self)})

    @classmethod
    def from_file(cls, path: str | Path) -> Settings:
        """Settings of a file (TOML, JSON or YAML); the environment takes precedence over it.

        Args:
            path: The file.

        Raises:
            LoopGuardSettingsError: It cannot be read, or a value cannot be used.
        """
        return cls(settings_file=path)

    def of(self, tool: str) -> Settings:
        """The settings as they are for one tool."""
        return self._own.get(tool, self)

    def values(self) -> dict[str, Any]:
        """Every setting and tuning value by its dotted name, such as `tuning.text.tail_period`."""
        return {name: attrgetter(name)(self) for name, _ in leaves(type(self))}

    @cached_property
    def declared(self) -> Mapping[str, ToolSettings]:
        """What is declared about single tools."""
        return by_tool(self.tools)

    @cached_property
    def polling(self) -> Mapping[str, bool]:
        """Tools that are declared to poll."""
        return self._declared(self.poll_tools, "polls")

    @cached_property
    def once(self) -> Mapping[str, bool]:
        """Tools of which an equal call is not to succeed again and again."""
        return self._declared(self.once_tools, "once")

    @cached_property
    def exempt(self) -> Mapping[str, bool]:
        """Tools that are never judged."""
        return self._declared(self.exempt_tools, "exempt")

    @property
    def declared_tools(self) -> Mapping[str, None]:
        """Tools of which anything is declared."""
        lists = (self.poll_tools, self.exempt_tools, self.read_tools, self.write_tools)
        return by_tool(dict.fromkeys(frozenset(self.tools).union(*lists)))

    @cached_property
    def effects(self) -> Mapping[str, str]:
        """Effects that are declared, by the name of the tool."""
        return by_tool(
            {
                **dict.fromkeys(self.poll_tools, "read"),
                **dict.fromkeys(self.read_tools, "read"),
                **dict.fromkeys(self.write_tools, "write"),
                **{name: "write" for name, said in self.once.items() if said},
                **{name: tool.effect for name, tool in self.tools.items() if tool.effect},
            }
        )

    @cached_property
    def budgets(self) -> tuple[Budget, ...]:
        """The limits of what a session uses, as far as they are set."""
        found = (
            Budget(name, spent, unit, float(getattr(self, f"budget_{name}")))
            for name, (spent, unit) in _BUDGETS.items()
        )
        return tuple(budget for budget in found if budget.limit > 0)

    @property
    def limits_money(self) -> bool:
        """True if there is any limit of money."""
        own = (*self.agent_limits.values(), *self.task_limits.values())
        return self.budget_cost > 0 or any(one.cost is not None for one in own)

    @property
    def limits_usage(self) -> bool:
        """True if there is any limit of tokens or money."""
        own = (*self.agent_limits.values(), *self.task_limits.values())
        tokens = self.budget_tokens > 0 or any(one.tokens is not None for one in own)
        return tokens or self.limits_money

    @property
    def standard(self) -> bool:
        """True if the standard limits, and the advice that goes with them, were asked for."""
        return self.limits == "standard"

    @property
    def checkpoint_every(self) -> int:
        """Tool calls after which a checkpoint is advised; 0 where nobody asked for it."""
        budget = self.tuning.budget
        unset = "checkpoint_every" not in budget.model_fields_set
        return _STANDARD_CHECKPOINT if unset and self.standard else budget.checkpoint_every

    def _declared(self, names: frozenset[str], trait: str) -> Mapping[str, bool]:
        own = {
            name: bool(getattr(tool, trait))
            for name, tool in self.tools.items()
            if trait in tool.model_fields_set
        }
        return by_tool({**dict.fromkeys(names, True), **own})

    @cached_property
    def _own(self) -> Mapping[str, Settings]:
        return by_tool(
            {
                name: self.model_copy(update=tool.overrides)
                for name, tool in self.tools.items()
                if tool.overrides
            }
        )


def _values_of(path: Path | str, source: str) -> dict[str, Any]:
    """Returns the names and values of a settings file; an error says by what it was named."""
    from pathlib import Path  # noqa: PLC0415  # if there is one

    from otel_loopguard.settings._sources import read_file  # noqa: PLC0415

    try:
        return read_file(Path(path))
    except ValueError as error:
        raise LoopGuardSettingsError(f"{source}{str(path)!r}: {error}") from None
