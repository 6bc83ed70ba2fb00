"""Dataclasses and named tuples, made at half the price.

An import of the package makes 130 of them. For each, `dataclasses` compiles how it is compared,
hashed and shown, although that is the same for all; and `typing.NamedTuple` compiles the type of
each field, although nobody asks for it.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  # what it is to type checkers
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414  # the same
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

    class _NamedTupleMeta(type):
        def __new__(cls, name, bases, body):
            if not bases:
                return super().__new__(cls, name, bases, body)
            fields = body["__annotations__"]
            defaults = [body.pop(field) for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults)  # noqa: PYI024  # that is slow
            for attribute, value in body.items():
                setattr(made, attribute, value)
            return made

    class NamedTuple(metaclass=_NamedTupleMeta):
        """Base of a class whose body has fields with types, and maybe defaults and methods."""


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
