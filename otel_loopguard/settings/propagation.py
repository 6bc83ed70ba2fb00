"""Settings of what is told to other processes, and of what is believed of them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

from otel_loopguard.settings.fields import Key, Seconds

_DAY_S = 86_400


class PropagationSettings(BaseSettings):
    """Control across processes: by the store, and by baggage."""

    share_control: bool = Field(
        True,
        description="Tells other processes on the same `store_url` of a session's deny, pause, "
        "abort and resume, and does what they tell (O5).",
    )
    control_ttl_s: Seconds = Field(
        _DAY_S,
        description="Seconds that a session's control is kept in the store for processes that come "
        "later (O5).",
    )
    propagation_trust: Literal["none", "signed", "store"] = Field(
        "signed",
        description="Which session and action of incoming baggage count: `none`; `signed` with "
        "`propagation_key`; `store`: signed with a key that processes on one `store_url` share "
        "through it (O5). What cannot be signed is not sent.",
    )
    propagation_key: Key = Field(
        SecretStr(""),
        description="Secret that signs session and action in baggage, the same in all processes, "
        "of 16 bytes at least; empty: nothing is sent, and nothing believed (O5).",
        repr=False,
    )
    propagation_ttl_s: Seconds = Field(
        300, description="Seconds after which signed baggage counts no more (O5)."
    )
