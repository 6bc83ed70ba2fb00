"""Tasks that wait for each other in a circle."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

_SPELLED: Final = 20


def cycles(needs: Mapping[str, Sequence[str]]) -> Iterator[tuple[list[str], list[str]]]:
    """One circle for each group of tasks that all wait for each other.

    Args:
        needs: Dependencies by id; every dependency is a key, and none is its own.

    Yields:
        The shortest circle through the group's first task, that task again at its end; and all
        tasks of the group. In the order of the plan.
    """
    # graphlib stops at the first circle, and to ask it again for each is no longer linear.
    order = {name: number for number, name in enumerate(needs)}
    groups = [sorted(group, key=order.__getitem__) for group in _Components(needs).found]
    for group in sorted(groups, key=lambda group: order[group[0]]):
        yield _circle(group[0], set(group), needs), group


def spelled(circle: Sequence[str]) -> str:
    """A circle as text, `a -> b -> a`; of one of more than 20 tasks the middle is left out."""
    if len(circle) <= _SPELLED + 1:
        return " -> ".join(circle)
    head, tail = circle[: _SPELLED - 1], circle[-2:]
    left = len(circle) - len(head) - len(tail)
    return " -> ".join((*head, f"({left} more)", *tail))


def _circle(start: str, group: set[str], needs: Mapping[str, Sequence[str]]) -> list[str]:
    came: dict[str, str] = {}
    queue = deque([start])
    while start not in came:
        name = queue.popleft()
        for need in needs[name]:
            if need in group and need not in came:
                came[need] = name
                queue.append(need)
    circle = [start, came[start]]
    while circle[-1] != start:
        circle.append(came[circle[-1]])
    return circle[::-1]


class _Components:
    """Strongly connected groups of at least two, by Tarjan's algorithm without recursion.

    Attributes:
        found: The groups.
    """

    __slots__ = ("_index", "_low", "_needs", "_open", "_stack", "found")

    def __init__(self, needs: Mapping[str, Sequence[str]]) -> None:
        self.found: list[list[str]] = []
        self._needs = needs
        self._index: dict[str, int] = {}
        self._low: dict[str, int] = {}
        self._stack: list[str] = []
        self._open: set[str] = set()
        for name in needs:
            if name not in self._index:
                self._walk(name)

    def _walk(self, start: str) -> None:
        path = [(start, self._enter(start))]
        while path:
            name, left = path[-1]
            for need in left:
                if need not in self._index:
                    path.append((need, self._enter(need)))
                    break
                if need in self._open:
                    self._low[name] = min(self._low[name], self._index[need])
            else:
                path.pop()
                self._leave(name)
                if path:
                    above = path[-1][0]
                    self._low[above] = min(self._low[above], self._low[name])

    def _enter(self, name: str) -> Iterator[str]:
        self._index[name] = self._low[name] = len(self._index)
        self._stack.append(name)
        self._open.add(name)
        return iter(self._needs[name])

    def _leave(self, name: str) -> None:
        if self._low[name] != self._index[name]:
            return
        at = len(self._stack) - 1
        while self._stack[at] != name:
            at -= 1
        group = self._stack[at:]
        del self._stack[at:]
        self._open.difference_update(group)
        if len(group) > 1:
            self.found.append(group)
