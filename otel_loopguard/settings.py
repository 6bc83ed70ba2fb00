"""Settings of one guard, and where they come from.

The variable of a setting is `LOOPGUARD_` and its name in capitals. Keyword arguments take
precedence over the environment, the environment over the file that `LOOPGUARD_SETTINGS_FILE` names
(TOML, JSON, or YAML with the extra `yaml`), and the file over the defaults. Numbers that few people
change are in `otel_loopguard.tuning`, and reached as `settings.tuning`.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from otel_loopguard import _settings_names as names
from otel_loopguard._settings_file import FORMS, read_file
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.tuning import (
    Action,
    Amount,
    Count,
    Limit,
    Names,
    Positive,
    Seconds,
    Tuning,
    names_of,
    only,
)

_SHORTEST_KEY: Final = 16
_ENCODED: Final = "whsec_"
_TOO_SHORT: Final = (
    f"a key has at least {_SHORTEST_KEY} bytes, for a shorter one can be guessed: "
    "take one of `openssl rand -hex 32`"
)
_WEEK_S: Final = 604_800
_REASONS = frozenset({"pause", "ask", "cycle"})
_TRAITS = frozenset({"exempt", "polls", "effect", "key"})
_DEFAULT_TUNING: Final = Tuning()


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
        msg = "expected Base64 after 'whsec_'"
        raise ValueError(msg) from None


def _long_enough(secret: SecretStr) -> SecretStr:
    size = len(secret.get_secret_value().encode("utf-8", "surrogatepass"))
    if 0 < size < _SHORTEST_KEY:
        raise ValueError(_TOO_SHORT)
    return secret


def _signs(secret: SecretStr) -> SecretStr:
    if secret and len(key_bytes(secret.get_secret_value())) < _SHORTEST_KEY:
        raise ValueError(_TOO_SHORT)
    return secret


Key = Annotated[SecretStr, AfterValidator(_long_enough)]
"""A secret that digests or signatures are made with; empty, or of 16 bytes at least."""
SigningKey = Annotated[SecretStr, AfterValidator(_signs)]
"""The same, as a text or as `whsec_` and Base64; of which the 16 bytes are counted."""


class ToolSettings(BaseModel):
    """What is declared of one tool; what is not named stays as it is for all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    exempt: bool = Field(False, description="Never judged.")
    polls: bool = Field(False, description="An unchanged answer after a pause is waiting.")
    effect: Literal["read", "write", "wait"] | None = Field(
        None, description="Whether it changes something; by default its name or command says so."
    )
    key: tuple[str, ...] | None = Field(
        None,
        description="Arguments that make two calls the same; by default all but volatile ones.",
    )
    repeat_threshold: Count | None = Field(None, description="Its own `repeat_threshold`.")
    similar_threshold: Count | None = Field(None, description="Its own `similar_threshold`.")
    error_threshold: Count | None = Field(None, description="Its own `error_threshold`.")
    transient_budget_s: Seconds | None = Field(None, description="Its own `transient_budget_s`.")
    wait_budget_s: Seconds | None = Field(None, description="Its own `wait_budget_s`.")
    step_timeout_s: Seconds | None = Field(None, description="Its own `step_timeout_s`.")

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings of calls that this tool has its own value of."""
        own = self.model_dump(exclude_none=True)
        return {name: value for name, value in own.items() if name not in _TRAITS}


_Count = Annotated[int | None, Field(gt=0)]
_Cost = Annotated[float | None, Field(gt=0, allow_inf_nan=False)]

LIMITED: Final = {
    "actions": "tool calls",
    "errors": "failed tool calls in a row",
    "tokens": "tokens",
    "cost": "USD",
    "steps": "steps",
    "elapsed_s": "seconds of one task",
}
"""What may be limited, and what is counted."""


class AgentLimits(BaseModel):
    """How much one agent may use in a session; what is not named has no limit of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    actions: _Count = Field(None, description="Its tool calls.")
    errors: _Count = Field(None, description="Its failed tool calls in a row.")
    tokens: _Count = Field(None, description="Tokens of its model calls.")
    cost: _Cost = Field(None, description="Cost of its model calls, in USD.")
    action: Action | None = Field(
        None, description="What a limit leads to; `budget_action` by default."
    )

    def limits(self) -> tuple[tuple[str, float], ...]:
        """The limits that are set, by name."""
        named = ((name, getattr(self, name, None)) for name in LIMITED)
        return tuple((name, float(limit)) for name, limit in named if limit is not None)


class TaskLimits(AgentLimits):
    """How much a session may use whose task is of one type."""

    steps: _Count = Field(None, description="Steps of any kind.")
    elapsed_s: _Cost = Field(None, description="Seconds between two words of the user.")


_BUDGETS: Final = {
    "steps": ("steps", "steps"),
    "tokens": ("tokens", "tokens"),
    "cost": ("cost", "USD"),
    "actions": ("calls", "tool calls"),
    "task_actions": ("actions", "tool calls of one task"),
    "errors": ("errors", "failed tool calls in a row"),
    "elapsed_s": ("elapsed_s", "seconds of one task"),
    "operation_tokens": ("tokens", "tokens of the whole operation"),
    "phases": ("phases", "phases"),
}
"""What is limited: by name, the field of `Spending` and what is counted."""


class Budget(NamedTuple):
    """One limit that is set.

    Attributes:
        name: Name of its setting, without `budget_`.
        spent: The field of `Spending` that is held against it.
        unit: What is counted, in words.
        limit: The limit, in that unit; above 0.
    """

    name: str
    spent: str
    unit: str
    limit: float


class Settings(BaseSettings):
    """Settings of one guard.

    Raises:
        LoopGuardSettingsError: A value cannot be used, or a name is unknown; the message has name,
            value and expectation.
    """

    model_config = SettingsConfigDict(
        env_prefix=names.PREFIX, env_nested_delimiter="__", extra="forbid", frozen=True,
        env_ignore_empty=True, hide_input_in_errors=True,
    )  # fmt: skip

    # Whether the guard acts, and how much it keeps.
    enabled: bool = Field(True, description="Switches the whole guard off; spans pass untouched.")
    mode: Literal["guard", "shadow"] = Field(
        "guard",
        description="`guard` decides and raises the flag; `shadow` decides and annotates, and "
        "never raises the flag.",
    )
    max_sessions: int = Field(
        10_000, ge=1, description="Sessions kept; the one unused for longest goes first."
    )
    session_ttl_s: Seconds = Field(
        3600, description="Seconds an unused session is kept, if no person stopped it."
    )
    max_open_steps: int = Field(10_000, ge=1, description="Open spans kept; the oldest goes first.")
    max_value_chars: int = Field(
        1_000_000,
        ge=256,
        description="Characters of arguments or outcome that are compared; of longer text the "
        "ends, and a key of the rest.",
    )
    digest_key: Key = Field(
        SecretStr(""),
        repr=False,
        description="Key of the digests that leave the process, of 16 bytes at least; empty: a "
        "random one per process, so that digests compare within it only.",
    )
    span_events: bool = Field(
        True, description="Adds a span event `loopguard.decision` to open ancestors."
    )
    switched_off: Names = Field(
        frozenset(), description="Detectors, or families of them, that are not used."
    )
    detectors: tuple[str, ...] = Field(
        (),
        description="Detectors of your own: `module:name` of something that makes one from the "
        "settings.",
    )

    # What makes a loop of tool calls.
    repeat_threshold: Count = Field(
        3, description="Equal calls with an equal outcome, in repeats, that make a loop."
    )
    cycle_repeats: float = Field(
        3, ge=2, le=20, description="Turns that make a cycle of up to three calls."
    )
    error_threshold: Count = Field(
        3, description="Equal errors of one tool, whatever the arguments, that make a loop."
    )
    similar_threshold: Count = Field(
        5, description="Similar calls that bring nothing new that make a loop."
    )
    transient_budget_s: Seconds = Field(
        60, description="Seconds that transient errors (429, 5xx, timeout) may go on."
    )
    wait_budget_s: Seconds = Field(
        1800, description="Seconds that waiting for an unchanged answer may go on."
    )

    # When something takes too long while it still runs, and what follows. 0 is no limit.
    step_timeout_s: Seconds = Field(
        60, description="Seconds that one tool call may take before it is a stall."
    )
    stall_action: Action = Field(
        "allow",
        description="What a passed limit of a run, an agent or a phase leads to; `allow` only "
        "notes it on trace and log. A warning hints at most.",
    )
    stall_model_s: Amount = Field(
        600, description="Seconds that one model call may take; 0: no limit."
    )
    stall_idle_s: Amount = Field(
        30, description="Seconds without any step while an agent's run is open; 0: any."
    )
    stall_run_s: Amount = Field(
        300, description="Seconds that one run of an agent may take; 0: no limit."
    )
    stall_overall_s: Amount = Field(
        840, description="Seconds that all runs of a session may take; 0: no limit."
    )

    # What is declared of tools.
    poll_tools: Names = Field(
        frozenset(), description="Tools that poll: an unchanged answer is waiting."
    )
    exempt_tools: Names = Field(frozenset(), description="Tools that are never judged.")
    read_tools: Names = Field(
        frozenset(), description="Tools that change nothing; others are judged by their name."
    )
    write_tools: Names = Field(
        frozenset(), description="Tools that change something, so that progress is possible."
    )
    tools: Mapping[str, ToolSettings] = Field(
        {},
        description="Single tools by name (JSON in the variable): `exempt`, `polls`, `effect`, "
        "`key` and thresholds of their own.",
    )

    # How far the policy goes, and how soon.
    max_action: Literal["hint", "steer", "ask", "deny", "pause", "abort"] = Field(
        "abort", description="Strongest action that the policy may take."
    )
    sensitivity: float = Field(
        1,
        ge=0.25,
        le=4,
        description="What all thresholds are divided by: above 1 loops are noticed sooner.",
    )
    steer_after: int = Field(
        2,
        ge=0,
        le=100,
        description="Confirming rounds after a hint until another way is asked for.",
    )
    ask_after: int = Field(
        4, ge=0, le=100, description="Confirming rounds after a hint until the user is to be asked."
    )
    deny_after: int = Field(
        1, ge=1, le=100, description="Confirming rounds after a hint until calls are denied."
    )
    pause_after: int = Field(
        1,
        ge=1,
        le=100,
        description="Confirming rounds after a hint until the session is paused, where the agent "
        "is not stuck by its own doing.",
    )
    abort_after: int = Field(
        2, ge=1, le=100, description="Confirming rounds after a hint until the session is aborted."
    )
    warning_limit: int = Field(
        0,
        ge=0,
        le=1000,
        description="Different warnings in one turn of the user after which one more aborts the "
        "session; 0: no limit.",
    )
    strategies: Mapping[str, tuple[str, ...]] = Field(
        {},
        description="Other ways to offer a model, by tool or pattern such as `browser_*` (JSON in "
        "the variable); they stand in front of the ones that ship.",
    )
    diagnoser: str = Field(
        "", description="Your function for errors of unknown kind, `module:name`; empty: none."
    )
    pause_limit_s: Seconds = Field(
        60, description="Seconds that a gate waits while the session is paused."
    )

    # How much a run may take, and what follows when it takes more. 0 is no limit.
    budget_action: Action = Field(
        "allow",
        description="What a spent budget leads to; `allow` only notes it on trace and log. A "
        "warning hints at most. Once it is set, all budgets hold; else those that are set.",
    )
    budget_steps: Limit = Field(50, description="Steps of a session; 0: no limit.")
    budget_tokens: Limit = Field(100_000, description="Tokens of a session; 0: no limit.")
    budget_cost: Amount = Field(0, description="Cost of a session, in USD; 0: no limit.")
    budget_actions: Limit = Field(500, description="Tool calls of a session; 0: no limit.")
    budget_task_actions: Limit = Field(
        100, description="Tool calls between two words of the user; 0: no limit."
    )
    budget_errors: Limit = Field(10, description="Failed tool calls in a row; 0: no limit.")
    budget_elapsed_s: Amount = Field(
        3600, description="Seconds between two words of the user; 0: no limit."
    )
    budget_operation_tokens: Limit = Field(
        500_000, description="Tokens of a session that are too many for any task; 0: none."
    )
    budget_phases: Limit = Field(
        20,
        description="Stretches of work of one agent after the other, between two words of the "
        "user; 0: no limit.",
    )

    # Limits that are set for single agents and types of tasks.
    agent_limits: Mapping[str, AgentLimits] = Field(
        {},
        description="Limits of agents by name (JSON in the variable): `actions`, `errors`, "
        "`tokens`, `cost`, and the `action` that they lead to.",
    )
    task_limits: Mapping[str, TaskLimits] = Field(
        {},
        description="Limits of sessions by the type of their task (JSON in the variable), as "
        "`control.task_type` says it: those of agents, `steps` and `elapsed_s`.",
    )

    # When what a model writes shows that it gets nowhere.
    text_repeat_times: int = Field(
        4, ge=2, le=100, description="Equal texts of one speaker that are a repetition, in texts."
    )

    # What makes a loop of nodes or agents, and how far it may lead.
    graph_iterations: int = Field(
        50,
        ge=2,
        description="Visits of one node in one run of a graph that are its limit, once this, its "
        "warning or its action is set.",
    )
    graph_limit_action: Literal["allow", "hint", "pause", "abort"] = Field(
        "allow", description="What follows at the limit; `allow` only notes it on the trace."
    )
    graph_max_action: Literal["hint", "steer", "ask", "pause"] = Field(
        "ask", description="Strongest action that nodes with nothing new may lead to."
    )

    # What makes a cycle of agents that pass work back and forth.
    exchange_window_s: Seconds = Field(
        600, description="Seconds within which exchanges make one cycle."
    )
    exchange_low: Count = Field(
        3, description="Exchanges above which a cycle is noticed, of low severity."
    )
    exchange_escalate_at: Literal["low", "medium", "high", "critical"] = Field(
        "critical", description="Severity from which a cycle is put before a human."
    )

    # Who judges, when it is asked, and what may follow (D15).
    judge: str = Field(
        "",
        description="Your judge, `module:name` of a callable; empty: none. Replays of recorded "
        "runs do not ask it.",
    )
    judge_from_step: int = Field(
        30, ge=1, le=100_000, description="Step of a session from which the judge is asked."
    )
    judge_timeout_s: Seconds = Field(
        30, description="Seconds that it may take to answer; later answers do not count."
    )
    judge_max_action: Literal["hint", "steer", "ask", "deny", "pause", "abort"] = Field(
        "ask", description="Strongest action that its opinion may lead to."
    )

    # How much a report lists, and what a hint may say of what was learned before.
    context_in_hints: bool = Field(
        True,
        description="Offers the long-term context in hints; a hint may then have content of "
        "calls, which stays in the process.",
    )

    # How a call or a batch is to be executed (A4, A6), and what is busy (A7).
    execution_on_spans: bool = Field(
        True,
        description="Writes the execution choice on tool spans that start, where a profile of the "
        "tool is known.",
    )
    execution_prompt_s: Seconds = Field(15, description="Seconds below which a call runs at once.")
    execution_background_s: Seconds = Field(
        45, description="Seconds from which a call goes to the background."
    )
    execution_background: bool = Field(
        True, description="Whether calls may go to the background without a question."
    )
    execution_parallel: bool = Field(
        True, description="Whether a batch runs in parallel where its calls allow it."
    )
    execution_default: Literal["", "execute_sync", "prompt_user", "auto_background", "defer"] = (
        Field("", description="The choice where votes tie; empty: the user is asked.")
    )
    execution_resources: bool = Field(
        True, description="Whether CPU, memory, disk and network are measured, in a thread."
    )
    execution_queue: str = Field(
        "",
        repr=False,
        description="Where tasks wait for workers: `module:function` that gives their number, "
        "`redis://host/0#list`, `celery+redis://host/0#queue` or `rq+redis://host/0#queue`; "
        "empty: nowhere.",
    )

    # What is kept of finished calls, and how long the next one may take.
    profile_max_tools: int = Field(
        1000, ge=1, description="Tools that have a profile; the one unused for longest goes."
    )
    profile_defaults_ms: Mapping[str, Positive] = Field(
        {},
        description="Milliseconds of your own tools by name (JSON in the variable); they go "
        "before the built-in table.",
    )
    profile_parallel_tools: Names = Field(
        frozenset(), description="Tools whose calls may run at the same time, beside `read_tools`."
    )
    profile_max_parallel: int = Field(
        3, ge=1, le=1000, description="Calls that run at the same time in a batch."
    )

    # How plans are weighed, grouped and followed.
    plan_max_parallel: int = Field(
        3, ge=1, le=1000, description="Tasks that run side by side at most."
    )
    plan_assume_safe: bool = Field(
        True,
        description="Takes it that a task may run beside others, where nobody said whether it may.",
    )

    # Control across processes: by the store, and by baggage.
    share_control: bool = Field(
        True,
        description="Tells other processes on the same `store_url` of a session's deny, pause, "
        "abort and resume, and does what they tell.",
    )
    propagation_trust: Literal["none", "signed", "store"] = Field(
        "signed",
        description="Which session and action of incoming baggage count: `none`; `signed` with "
        "`propagation_key`; `store`: signed with a key that processes on one `store_url` share "
        "through it. What cannot be signed is not sent.",
    )
    propagation_key: Key = Field(
        SecretStr(""),
        repr=False,
        description="Secret that signs session and action in baggage, the same in all processes, "
        "of 16 bytes at least; empty: nothing is sent, and nothing believed.",
    )
    propagation_ttl_s: Seconds = Field(
        300, description="Seconds after which signed baggage counts no more."
    )

    # What is done after a failure, or before one.
    retry_limit: int = Field(
        3, ge=0, le=100, description="Further tries after the first that failed."
    )
    retry_delay_s: Seconds = Field(
        2, description="Seconds before the first further try; each next delay is twice as long."
    )
    retry_max_delay_s: Seconds = Field(
        30, description="Seconds that a delay between two tries has at most."
    )
    breaker_failures: int = Field(
        3, ge=1, le=1000, description="Failures in a row that open a breaker."
    )
    breaker_open_s: Seconds = Field(
        300, description="Seconds that a breaker stays open before one trial."
    )
    breaker_errors: Literal["transient", "unclear", "all"] = Field(
        "transient",
        description="Errors that count: where trying again may help; those and errors of unknown "
        "kind; or wrong arguments and the like too.",
    )
    recovery_attempts: int = Field(
        3,
        ge=1,
        le=100,
        description="Tries of one recovery strategy in a session and for a tool, until it "
        "succeeds.",
    )
    recovery_check_learned: Literal["warn", "deny"] = Field(
        "warn",
        description="What follows from what was learned where a call is asked about: a warning, "
        "or a refusal as by registered checks.",
    )

    # Where what outlives a session is kept.
    store_url: SecretStr = Field(
        SecretStr(""),
        repr=False,
        description="Where profiles, journals, controls and preferences are kept: `redis://`, "
        "`rediss://`, `unix://`, `redis+sentinel://HOST:PORT,…/SERVICE`, "
        "`redis+cluster://HOST:PORT,…`; empty: in memory.",
    )
    store_prefix: str = Field(
        "loopguard",
        pattern=r"^[A-Za-z0-9_.:-]{1,64}$",
        description="What all keys in the store begin with; letters, digits, `_.:-`.",
    )
    store_timeout_s: Seconds = Field(
        1, description="Seconds that one call of the store may take, and one connection attempt."
    )
    store_records_ttl_s: Seconds = Field(
        _WEEK_S, description="Seconds that a record of a tool is kept."
    )
    store_journal_ttl_s: Seconds = Field(
        _WEEK_S, description="Seconds that a journal is kept after its last entry."
    )

    # What is counted and told, and how much of it there may be.
    telemetry_metrics: bool = Field(
        True, description="Counts for OpenTelemetry's metrics, where a meter provider is set."
    )
    telemetry_events: bool = Field(
        True,
        description="Emits OpenTelemetry log events for decisions, escalations and cycles, where "
        "a logger provider is set.",
    )
    decision_spans: bool = Field(
        True,
        description="Makes a span of its own for a decision that is on no other: no span is open "
        "above, and no `LoopGuardSpanExporter` writes it on the ended one.",
    )

    # What is put before people, and by which way.
    escalate_on: Names = Field(
        _REASONS,
        description="Decisions that are put before people, of `pause`, `ask` and `cycle` (a cycle "
        "of agents that goes on after an intervention); empty: none.",
    )
    escalate_severity: Literal["none", "warning", "critical", "fatal"] = Field(
        "none", description="Severity from which every other decision is put before people too."
    )
    escalation_fallback: Literal["skip_task", "continue", "abort", "wait"] = Field(
        "skip_task",
        description="What follows where nobody answered for `pause_limit_s` seconds; `wait`: the "
        "session stays paused.",
    )
    escalation_cooldown_s: float = Field(
        300,
        ge=0,
        le=604_800,
        description="Seconds after a message about a session in which people are not told the "
        "same again; what the policy does is not changed by it.",
    )
    escalation_content: bool = Field(
        False,
        description="Shows the arguments of these actions, at most 200 characters of each, to "
        "those who are asked.",
    )
    webhook_url: SecretStr = Field(
        SecretStr(""),
        repr=False,
        description="Address (`http://` or `https://`) that escalations are posted to; empty: "
        "none. Needs the extra `webhook`.",
    )
    webhook_secret: SigningKey = Field(
        SecretStr(""),
        repr=False,
        description="Secret that posts are signed with (HMAC-SHA256, Standard Webhooks), of 16 "
        "bytes at least: a text, or `whsec_` and Base64; empty: not signed.",
    )
    webhook_timeout_s: Seconds = Field(
        10, description="Seconds that one post may take, its answer included."
    )
    webhook_attempts: int = Field(
        5, ge=1, le=100, description="Posts of one escalation at most, until one goes well."
    )

    # How people reach the sessions of a live guard.
    control_socket: str = Field(
        "",
        description="Unix socket by which `otel-loopguard sessions`, `resume` and the like reach "
        "this process: a path, or `auto` for one of its own in a folder of yours; empty: none.",
    )

    tuning: Tuning = Field(
        default_factory=lambda: _DEFAULT_TUNING,
        description="Tuning values, in groups; they may change with any release.",
    )

    _split_names = field_validator(
        "switched_off",
        "poll_tools",
        "exempt_tools",
        "read_tools",
        "write_tools",
        "profile_parallel_tools",
        "escalate_on",
        mode="before",
    )(names_of)

    @field_validator("escalate_on")
    @classmethod
    def _known_reasons(cls, given: frozenset[str]) -> frozenset[str]:
        only(given, _REASONS, "reason")
        return given

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise LoopGuardSettingsError(names.explain(error, _secrets())) from None
        except SettingsError as error:
            raise LoopGuardSettingsError(names.unread(error, all_fields())) from None
        except RecursionError:
            msg = "a variable LOOPGUARD_… holds JSON that is nested too deep"
            raise LoopGuardSettingsError(msg) from None
        names.warn_unknown(all_fields())

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
        found = dict(self)
        tuning: Tuning = found.pop("tuning")
        for group, values in tuning:
            found.update((f"tuning.{group}.{name}", value) for name, value in values)
        return found

    @cached_property
    def polling(self) -> frozenset[str]:
        """Tools that are declared to poll."""
        return self.poll_tools | {name for name, tool in self.tools.items() if tool.polls}

    @cached_property
    def exempt(self) -> frozenset[str]:
        """Tools that are never judged."""
        return self.exempt_tools | {name for name, tool in self.tools.items() if tool.exempt}

    @cached_property
    def effects(self) -> Mapping[str, str]:
        """Effects that are declared, by the name of the tool."""
        return {
            **dict.fromkeys(self.poll_tools, "read"),
            **dict.fromkeys(self.read_tools, "read"),
            **dict.fromkeys(self.write_tools, "write"),
            **{name: tool.effect for name, tool in self.tools.items() if tool.effect},
        }

    def budgets(self, *, set_only: bool = False) -> tuple[Budget, ...]:
        """The limits that hold: those that were set; a default is a budget of nobody's.

        Args:
            set_only: Leaves out the defaults, which hold where `budget_action` is set.
        """
        found = (
            Budget(name, spent, unit, float(getattr(self, f"budget_{name}")))
            for name, (spent, unit) in _BUDGETS.items()
            if self._holds(f"budget_{name}", "" if set_only else "budget_action")
        )
        return tuple(budget for budget in found if budget.limit > 0)

    @property
    def checkpoint_every(self) -> int:
        """Tool calls after which a checkpoint is advised; 0 where nobody asked for it."""
        budget = self.tuning.budget
        asked = self._holds("budget_action") or "checkpoint_every" in budget.model_fields_set
        return budget.checkpoint_every if asked else 0

    @property
    def operation_limit_s(self) -> float:
        """`budget_elapsed_s` where it holds, else 0."""
        return self.budget_elapsed_s if self._holds("budget_elapsed_s", "budget_action") else 0

    @property
    def graph_limited(self) -> bool:
        """Whether a limit of iterations was set."""
        return (
            self._holds("graph_iterations", "graph_limit_action")
            or "iterations_warning" in self.tuning.graph.model_fields_set
        )

    def _holds(self, *settings: str) -> bool:
        return not self.model_fields_set.isdisjoint(settings)

    @cached_property
    def _own(self) -> dict[str, Settings]:
        return {
            name: self.model_copy(update=tool.overrides)
            for name, tool in self.tools.items()
            if tool.overrides
        }

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Keyword arguments, then the environment, then the settings file."""
        del dotenv_settings, file_secret_settings
        keywords: Any = init_settings
        environment: Any = env_settings
        given: dict[str, Any] = keywords.init_kwargs
        path = given.pop("settings_file", None) or os.environ.get(names.FILE)
        old: dict[str, str] = {}
        keywords.init_kwargs = names.renamed(given, old)
        environment.env_vars = names.variables(environment.env_vars, old)
        sources = [init_settings, env_settings]
        if path:
            values = names.renamed(_values_of(Path(str(path))), old)
            sources.append(InitSettingsSource(settings_cls, values))
        names.warn_renamed(old)
        return tuple(sources)


@cache
def all_fields() -> Mapping[str, Any]:
    """The fields of every setting and tuning value, by dotted name."""
    return names.fields_of(Settings)


@cache
def _secrets() -> dict[str, bool]:
    return {name: field.annotation is SecretStr for name, field in all_fields().items()}


def _values_of(path: Path) -> dict[str, Any]:
    """Names and values of a settings file."""
    if path.suffix.lower() not in FORMS:
        why = f"expected a file ending in {', '.join(FORMS)}"
    elif not path.is_file():
        why = "it is no file" if path.exists() else "there is no such file"
    else:
        try:
            return read_file(path)
        except (ValueError, OSError) as error:
            why = f"cannot be read: {error}"
        except ImportError:
            why = "YAML needs: pip install 'otel-loopguard[yaml]'"
    msg = f"{names.FILE}={str(path)!r}: {why}"
    raise LoopGuardSettingsError(msg)
