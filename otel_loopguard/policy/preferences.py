"""What a user prefers about the execution of calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from otel_loopguard.core import Choice

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

_Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Preferences(BaseModel):
    """Preferences of one user; what nobody set is as the settings say.

    Attributes:
        auto_background_threshold_s: Seconds from which a call goes to the background; 45.
        prompt_threshold_s: Seconds below which a call runs at once; 15.
        auto_background_enabled: Whether calls may go there without a question; True.
        remember_choices: Whether answers become a vote on the same tools; True.
        parallel_execution_preferred: Whether a batch runs in parallel where it may; True.
        default_choice: What is taken where votes tie; None: the user is asked.
        notify_on_completion: Whether the end of a background call is to be told; True.
        notification_channels: Where it is told; none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    auto_background_threshold_s: _Seconds = 45
    prompt_threshold_s: _Seconds = 15
    auto_background_enabled: StrictBool = True
    remember_choices: StrictBool = True
    parallel_execution_preferred: StrictBool = True
    default_choice: Choice | None = None
    notify_on_completion: StrictBool = True
    notification_channels: tuple[str, ...] = ()

    def changed(self, changes: Mapping[str, object]) -> Preferences:
        """These preferences with some of them changed."""
        try:
            return Preferences.model_validate({**self.model_dump(), **changes})
        except ValidationError as error:
            msg = "; ".join(_problem(found) for found in cast("list[Any]", error.errors()))
            raise ValueError(msg) from None


class Kept(BaseModel):
    """What a store has of one user.

    Attributes:
        preferences: What was understood; the rest as the settings say.
        own: What the user set, by name.
        problems: What was not understood, one sentence each.
    """

    model_config = ConfigDict(frozen=True)

    preferences: Preferences
    own: dict[str, Any] = {}
    problems: tuple[str, ...] = ()


def default_preferences(settings: Settings) -> Preferences:
    """What everybody prefers who did not say otherwise."""
    tuning = settings.tuning.execution
    return Preferences(
        auto_background_threshold_s=settings.execution_background_s,
        prompt_threshold_s=settings.execution_prompt_s,
        auto_background_enabled=settings.execution_background,
        remember_choices=tuning.remember,
        parallel_execution_preferred=settings.execution_parallel,
        default_choice=Choice(settings.execution_default) if settings.execution_default else None,
        notify_on_completion=tuning.notify,
        notification_channels=tuple(sorted(tuning.channels)),
    )


def read_preferences(raw: bytes, defaults: Preferences) -> Kept:
    """Preferences as a store has them: a JSON object of those that the user set."""
    try:
        found: object = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return Kept(preferences=defaults, problems=(f"no JSON: {error}",))
    if not isinstance(found, dict):
        problem = f"expected a JSON object, got {type(found).__name__}"
        return Kept(preferences=defaults, problems=(problem,))
    own, known, problems = cast("dict[str, Any]", found), defaults, list[str]()
    for name, value in own.items():
        try:
            known = known.changed({name: value})
        except ValueError as error:  # noqa: PERF203
            problems.append(str(error))
    return Kept(preferences=known, own=own, problems=tuple(problems))


def written_preferences(own: Mapping[str, object]) -> bytes:
    """What a store keeps of a user: only what the user set, as a JSON object."""
    return orjson.dumps(dict(own), default=list)


def _problem(found: Mapping[str, Any]) -> str:
    name = ".".join(str(part) for part in found["loc"])
    value = repr(found.get("input"))
    shown = value if len(value) <= 100 else f"{value[:97]}..."
    if found["type"] == "extra_forbidden":
        return f"{name} = {shown}: there is no such preference"
    return f"{name} = {shown}: {found['msg']}"
