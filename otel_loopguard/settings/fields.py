"""Types of settings that several families share."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import NoDecode

Names = Annotated[frozenset[str], NoDecode]
"""Names; from the environment a text with commas between them. Needs `names_of`."""

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[float, Field(ge=2, le=1000)]
Share = Annotated[float, Field(gt=0, le=1)]

_SHORTEST_KEY: Final = 16
_ENCODED: Final = "whsec_"
_TOO_SHORT: Final = (
    f"a key has at least {_SHORTEST_KEY} bytes, for a shorter one can be guessed: "
    "take one of `openssl rand -hex 32`"
)


def key_bytes(secret: str) -> bytes:
    """The bytes of a key: Base64 after `whsec_` (Standard Webhooks), else the text itself.

    Raises:
        ValueError: What stands after `whsec_` is not Base64.
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


def names_of(value: object) -> object:
    """Names may come as a list, or as text with commas between them."""
    if isinstance(value, str):
        names = value.strip().removeprefix("[").removesuffix("]").split(",")
        return frozenset(name.strip(" \t\"'") for name in names if name.strip(" \t\"'"))
    return value
