"""A dictionary of bounded size."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class BoundedDict(OrderedDict[_Key, _Value]):
    """Keeps at most `maximum` entries: the one that was set longest ago is evicted.

    Reading moves nothing; call `move_to_end` where the least recently read one is to go.
    """

    def __init__(self, maximum: int) -> None:
        super().__init__()
        self.maximum = maximum

    def __setitem__(self, key: _Key, value: _Value) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self.maximum:
            self.popitem(last=False)

    def __reduce__(self) -> Any:
        """For pickle and copy."""
        return type(self), (self.maximum,), None, None, iter(self.items())
