"""A user's preferences about the execution of calls."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, cast

from otel_loopguard._util.values import dataclass
from otel_loopguard.core import Choice

if TYPE_CHECKING:
    from pydantic import BaseModel

    from otel_loopguard.settings import Settings


@dataclass(frozen=True, slots=True)
class Preferences:
    """Preferences of one user; what nobody set is as the settings say.

    Attributes:
        auto_background_threshold_s: Seconds from which a call goes to the background; 45.
        prompt_threshold_s: Seconds below which a call runs at once; 15.
        auto_background_enabled: Whether calls may go there without a question; True.
        remember_choices: Whether answers, also earlier ones, vote on the same tools; True.
        parallel_execution_preferred: Whether a batch runs in parallel where it may; True.
        default_choice: What is taken where votes tie; None: the user is asked.
        notify_on_completion: Whether the end of a background call is to be told; True.
        notification_channels: Where it is told; none.
    """

    auto_background_threshold_s: float = 45.0
    prompt_threshold_s: float = 15.0
    auto_background_enabled: bool = True
    remember_choices: bool = True
    parallel_execution_preferred: bool = True
    default_choice: Choice | None = None
    notify_on_completion: bool = True
    notification_channels: tuple[str, ...] = ()

    def changed(self, changes: Mapping[str, object]) -> Preferences:
        """These preferences with some of them changed.

        Raises:
            ValueError: A name is unknown, or a value cannot be used; the message has both.
        """
        from pydantic import ValidationError  # noqa: PLC0415  # loaded once somebody sets one

        try:
            checked = _model().model_validate({**asdict(self), **changes})
        except ValidationError as error:
            msg = "; ".join(_problem(found) for found in cast("list[Any]", error.errors()))
            raise ValueError(msg) from None
        return Preferences(**dict(checked))

    def row(self, names: Collection[str]) -> dict[str, object]:
        """Some of them, as JSON values."""
        return _model()(**asdict(self)).model_dump(mode="json", include=set(names))


@cache
def _model() -> type[BaseModel]:
    """What checks values that users set."""
    from pydantic import ConfigDict, Field, StrictBool, create_model  # noqa: PLC0415

    checks: dict[str, Any] = {
        "float": Annotated[float, Field(gt=0, allow_inf_nan=False)],
        "bool": StrictBool,
        "Choice | None": Choice | None,
        "tuple[str, ...]": tuple[str, ...],
    }
    config = ConfigDict(frozen=True, extra="forbid")
    found: dict[str, Any] = {
        field.name: (checks[str(field.type)], field.default) for field in fields(Preferences)
    }
    return create_model("Preferences", __config__=config, **found)


def default_preferences(settings: Settings) -> Preferences:
    """What everybody prefers who did not say otherwise."""
    tuning = settings.tuning.execution
    known = Preferences()
    return replace(
        known,
        auto_background_threshold_s=tuning.background_s or known.auto_background_threshold_s,
        prompt_threshold_s=tuning.prompt_s,
        auto_background_enabled=tuning.background_s > 0,
    )


def _problem(found: Mapping[str, Any]) -> str:
    name = ".".join(str(part) for part in found["loc"])
    value = repr(found.get("input"))
    shown = value if len(value) <= 100 else f"{value[:97]}..."
    if found["type"] == "extra_forbidden":
        return f"{name} = {shown}: there is no such preference"
    return f"{name} = {shown}: {found['msg']}"
