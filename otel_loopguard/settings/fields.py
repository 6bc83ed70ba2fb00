"""Types of settings that several families share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from pydantic_settings import NoDecode

Names = Annotated[frozenset[str], NoDecode]
"""Names; from the environment a text with commas between them. Needs `names_of`."""

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[float, Field(ge=2, le=1000)]
Share = Annotated[float, Field(gt=0, le=1)]


def names_of(value: object) -> object:
    """Names may come as a list, or as text with commas between them."""
    if isinstance(value, str):
        names = value.strip().removeprefix("[").removesuffix("]").split(",")
        return frozenset(name.strip(" \t\"'") for name in names if name.strip(" \t\"'"))
    return value
