"""Settings of how people reach the sessions of a live guard from outside of its process."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Seconds


class DeskSettings(BaseSettings):
    """How people reach the sessions of a live guard."""

    control_socket: str = Field(
        "",
        description="Unix socket by which `otel-loopguard sessions`, `resume` and the like reach "
        "this process: a path, or `auto` for one of its own in a folder of yours; empty: none.",
    )
    desk_heartbeat_s: Seconds = Field(
        2,
        description="Seconds between two reports of this process's sessions to the store; with a "
        "`store_url` only.",
    )
    desk_sessions: int = Field(
        1000, ge=1, le=10_000, description="Sessions of this process that are listed, the newest."
    )
    desk_idle_s: Seconds = Field(
        600,
        description="Seconds that a session is listed after its last step; one that is paused or "
        "aborted, as long as it is kept.",
    )
