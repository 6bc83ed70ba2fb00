"""Objects that are not in use, as bytes.

Whoever collects garbage looks at every object of the process: with ten thousand sessions of some
350 each that takes seconds, on the thread of an agent. The bytes never leave the process.
"""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_KNOWN: Final = frozenset({"array", "builtins", "collections", "functools", "re", "types"})
_OURS: Final = "otel_loopguard."
_JUDGE: Final = "otel_loopguard.judge"
"""What asks a judge belongs to a thread."""


class Packed(NamedTuple):
    """Objects as bytes.

    Attributes:
        data: What was packed.
        shared: What it refers to and others have too; it is not packed.
    """

    data: bytes
    shared: tuple[object, ...]


def pack(things: object, common: tuple[type, ...]) -> Packed | None:
    """Packs objects of this package.

    Args:
        things: The objects.
        common: Types of objects that are not packed, but referred to.

    Returns:
        None if something among them is not of this package, and cannot be told to come back as it
        was: a detector of the user's, or a value of an adapter's.
    """
    data, shared = io.BytesIO(), list[object]()
    try:
        _Pickler(data, shared, common).dump(things)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RecursionError):
        return None
    return Packed(data.getvalue(), tuple(shared))


def unpack(packed: Packed) -> Any:
    """The objects that were packed."""
    return _Unpickler(io.BytesIO(packed.data), packed.shared).load()


def _shared(number: int) -> object:
    """Stands in the bytes for an object that is shared; see `_Unpickler.find_class`."""
    raise NotImplementedError(number)


class _Pickler(pickle.Pickler):
    def __init__(self, data: io.BytesIO, shared: list[object], common: tuple[type, ...]) -> None:
        super().__init__(data, 5)
        self._shared = shared
        self._common = common

    def reducer_override(self, thing: object) -> Any:
        if isinstance(thing, self._common):
            self._shared.append(thing)
            return _shared, (len(self._shared) - 1,)
        place = getattr(thing, "__module__", None) if _is_named(thing) else type(thing).__module__
        text = str(place)
        ours = text.startswith(_OURS) and not text.startswith(_JUDGE)
        if not (ours or text in _KNOWN):
            msg = f"something of {text} is not packed"
            raise pickle.PicklingError(msg)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: io.BytesIO, shared: Sequence[object]) -> None:
        super().__init__(data)
        self._shared = shared

    def find_class(self, module: str, name: str, /) -> Any:
        if module == __name__:
            return self._get
        return super().find_class(module, name)

    def _get(self, number: int) -> object:
        return self._shared[number]


def _is_named(thing: object) -> bool:
    """Whether it is a class or a function, which is known by its name."""
    return isinstance(thing, type) or type(thing).__name__ == "function"
