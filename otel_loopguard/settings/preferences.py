"""A user's preferences about the execution of calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from otel_loopguard.core import Choice  # noqa: TC001  # pydantic reads it
from otel_loopguard.settings._group import Group

if TYPE_CHECKING:
    from pydantic import ValidationError

    from otel_loopguard.settings import Settings
    from otel_loopguard.settings._types import Seconds, StrictBool


class Preferences(Group):
    """Preferences of one user; what nobody set is as the settings say."""

    auto_background_threshold_s: Seconds = 45.0
    """Seconds from which a call goes to the background."""
    prompt_threshold_s: Seconds = 15.0
    """Seconds below which a call runs at once."""
    auto_background_enabled: StrictBool = True
    """Lets calls go there without a question."""
    remember_choices: StrictBool = True
    """Lets earlier answers vote on the same tools."""
    parallel_execution_preferred: StrictBool = True
    """Runs a batch in parallel where it may."""
    default_choice: Choice | None = None
    """Choice if votes tie; None: the user is asked."""
    notify_on_completion: StrictBool = True
    """Announces the end of a background call."""
    notification_channels: tuple[str, ...] = ()
    """Channels for that."""

    def changed(self, changes: Mapping[str, object]) -> Preferences:
        """These preferences with some of them changed.

        Raises:
            ValueError: A name is unknown, or a value cannot be used; the message has both.
        """
        try:
            checked = Preferences(**changes)
        except ValueError as error:  # pydantic's; naming its class would import it
            problems = cast("ValidationError", error).errors(include_url=False)
            raise ValueError("; ".join(map(_problem, problems))) from None
        return self.model_copy(update=vars(checked))


def default_preferences(settings: Settings) -> Preferences:
    """Preferences of users who set none."""
    tuning = settings.tuning.execution
    own: dict[str, Any] = {
        "prompt_threshold_s": tuning.prompt_s,
        "auto_background_enabled": tuning.background_s > 0,
    }
    if tuning.background_s:
        own["auto_background_threshold_s"] = tuning.background_s
    return Preferences().model_copy(update=own)


def _problem(found: Any) -> str:
    name = ".".join(map(str, found["loc"]))
    what = "there is no such preference" if found["type"] == "extra_forbidden" else found["msg"]
    return f"{name} = {found['input']!r:.100}: {what}"
