"""The trace tree: agent spans as they hung together, with the guard's decisions on them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.text import Text
from rich.tree import Tree

from otel_loopguard.cli.output import cell, line

if TYPE_CHECKING:
    from otel_loopguard.cli.accounts import Account
    from otel_loopguard.core import Decision, Step
    from otel_loopguard.dialects.view import RecordedSpan, SpanView

_STYLES: Final = {"hint": "yellow", "steer": "yellow", "ask": "yellow"}
_STOP: Final = "bold red"
_DEPTH: Final = 40
_SPANS: Final = 100_000


@dataclass(slots=True)
class _Node:
    """What is shown of a span."""

    span_id: int
    parent_id: int | None
    name: str
    start: int
    args: str
    error: str


class Forest:
    """The trees of many traces.

    Keeps names, parents and the beginnings of arguments and errors of the latest 100,000 spans, by
    whole traces.

    Args:
        read: Reads a span as a step.
    """

    def __init__(self, read: Callable[[SpanView], Step | None]) -> None:
        self._read = read
        self._traces: OrderedDict[int, dict[int, _Node]] = OrderedDict()
        self._count = 0

    def add(self, span: RecordedSpan) -> None:
        """Takes a span in."""
        trace = self._traces.setdefault(span.trace_id, {})
        self._count += span.span_id not in trace
        step = self._read(span)
        trace[span.span_id] = _Node(
            span.span_id,
            span.parent_id,
            line(span.name, 60),
            span.start,
            args=line(step.args, 90) if step else "",
            error=line(span.description or "error", 90) if span.status == "error" else "",
        )
        while self._count > _SPANS and len(self._traces) > 1:
            _, gone = self._traces.popitem(last=False)
            self._count -= len(gone)

    def tree(self, account: Account) -> Tree | None:
        """The trees of the traces that an account's decisions are about; None if none is known."""
        marks: defaultdict[int, defaultdict[int, list[Decision]]]
        marks = defaultdict(lambda: defaultdict(list))
        for decision in account.decisions:
            marks[decision.trace_id][decision.span_id].append(decision)
        top = Tree(Text.assemble("session ", cell(account.session, 80)), guide_style="dim")
        for trace_id, decisions in marks.items():
            nodes = self._traces.get(trace_id)
            if nodes:
                _grow(top, nodes, decisions)
        return top if top.children else None


def _grow(top: Tree, nodes: dict[int, _Node], marks: dict[int, list[Decision]]) -> None:
    """Hangs spans below their parents in order of start; orphans hang at the top."""
    seen: set[int] = set()
    children: defaultdict[int | None, list[_Node]] = defaultdict(list)
    for node in sorted(nodes.values(), key=lambda node: node.start):
        children[node.parent_id if node.parent_id in nodes else None].append(node)
    # Whatever hangs below no root (a circle of parents) is shown all the same, after the rest.
    waiting = [(node, top, 0) for node in reversed([*children[None], *nodes.values()])]
    while waiting:
        node, parent, depth = waiting.pop()
        if node.span_id in seen:
            continue
        branch = parent.add(_label(node, marks.get(node.span_id, [])))
        seen.add(node.span_id)
        under, deeper = (branch, depth + 1) if depth < _DEPTH else (parent, depth)
        waiting.extend((child, under, deeper) for child in reversed(children[node.span_id]))


def _label(node: _Node, decisions: list[Decision]) -> Text:
    label = Text(node.name)
    if node.args:
        label.append(f"  {node.args}", style="dim")
    if node.error:
        label.append(f"\n✗ {node.error}", style="red")
    for decision in decisions:
        style = _STYLES.get(decision.action.value, _STOP)
        label.append(f"\n◆ {decision.action}", style=style)
        label.append(f"  {line(decision.message, 160)}")
    return label
