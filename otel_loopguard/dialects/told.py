"""Who has told of a step already."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_LIMIT = 512


class Told:
    """The sides that have told of each step; each tells of a call once. The newest 512 are kept.

    A side is the scope of a span and whether it is the serving one: the two sides of a protocol may
    be written by one scope.
    """

    def __init__(self) -> None:
        self._sides: OrderedDict[int, set[tuple[str, bool]]] = OrderedDict()

    def by(self, step: Step, of: Step) -> bool:
        """Whether the side of `step` has told `of` the other one."""
        side = step.scope, step.server
        sides = self._sides.get(of.span_id)
        return side == (of.scope, of.server) if sides is None else side in sides

    def note(self, step: Step, of: Step) -> None:
        """Notes that `step` tells `of` the other one too."""
        sides = self._sides.setdefault(of.span_id, {(of.scope, of.server)})
        sides.add((step.scope, step.server))
        if len(self._sides) > _LIMIT:
            self._sides.popitem(last=False)

    def move(self, old: Step, new: Step) -> None:
        """From now on `new` stands for the call that `old` stood for."""
        if old is not new:
            self._sides[new.span_id] = self._sides.pop(old.span_id)
