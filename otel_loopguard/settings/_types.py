"""Types that annotations of settings name. Only type checkers and pydantic read them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, StrictBool

__all__ = ["SecretStr", "StrictBool"]


def _split(value: object) -> object:
    """The names in a text with commas between them; a list or set is left as it is."""
    if isinstance(value, str):
        parts = value.strip().removeprefix("[").removesuffix("]").split(",")
        return tuple(name.strip(" \t\"'") for name in parts if name.strip(" \t\"'"))
    return value


def _at_most(most: float) -> AfterValidator:
    """Cuts numbers that mean "never": no thread waits for 1e10 s, and no float holds 10**400."""
    return AfterValidator(lambda number: number and min(number, most))


Names = Annotated[frozenset[str], BeforeValidator(_split)]
NamesInOrder = Annotated[tuple[str, ...], BeforeValidator(_split)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), _at_most(1e9)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False), _at_most(1e9)]
Limit = Annotated[int, Field(ge=0), _at_most(2**53)]
Count = Annotated[float, Field(ge=2, le=1000)]
Share = Annotated[float, Field(gt=0, le=1)]
Action = Literal["allow", "hint", "ask", "pause", "abort"]
Rounds = Annotated[int, Field(ge=0, le=1000)]
Tasks = Annotated[int, Field(ge=1, le=10_000)]
Percent = Annotated[float, Field(gt=0, le=100)]
MaxCount = Annotated[int | None, Field(gt=0), _at_most(2**53)]
MaxAmount = Annotated[float | None, Field(gt=0, allow_inf_nan=False), _at_most(1e9)]
