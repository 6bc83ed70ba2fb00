"""Dataclasses that share the functions by which they are compared, hashed and shown.

`dataclasses` compiles these for each class anew: half of its time, and with some seventy classes a
tenth of what an import of the package costs.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - what it is to type checkers
else:

    def dataclass(*, frozen=False, slots=False):
        """The standard library's, with the options that the package uses."""

        def decorate(cls):
            made = dataclasses.dataclass(cls, eq=False, repr=False, frozen=frozen, slots=slots)
            made.__eq__ = equal
            made.__hash__ = hash_of if frozen else None
            made.__repr__ = text_of
            return made

        return decorate


def equal(self: Any, other: object) -> bool:
    """`__eq__`: whether both are of one class, and the values of their fields are equal."""
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _compared(self) == _compared(other)


def hash_of(self: Any) -> int:
    """`__hash__`."""
    return hash(_compared(self))


def text_of(self: Any) -> str:
    """`__repr__`."""
    names = [each.name for each in dataclasses.fields(self) if each.repr]
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
    return f"{type(self).__qualname__}({values})"


def _compared(one: Any) -> tuple[object, ...]:
    return tuple(getattr(one, each.name) for each in dataclasses.fields(one) if each.compare)
