"""How large the package is and how it hangs together, as a table in Markdown beside what 0.3 had.

`make house` prints it. It is a report and not a gate: the layers are held by import-linter.
"""

from __future__ import annotations

import ast
import importlib
import re
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from graphlib import TopologicalSorter
from pathlib import Path
from types import FrameType
from typing import Any

import grimp
from opentelemetry.sdk.trace import ReadableSpan, Span, TracerProvider

import otel_loopguard
from otel_loopguard import LoopGuardSpanProcessor, Settings, control, session

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
NAME = "otel_loopguard"
PACKAGE = ROOT / NAME
BESIDE = [ROOT / f"{NAME}_propagator.py", ROOT / f"{NAME}_pytest.py"]
WARM_UP, SPANS, LONGEST = 50, 21, 5
LOOKED_UP = {"reference", "features", "evaluation", "performance", "adversarial"}

Graph = dict[str, set[str]]
"""For each member what it imports; every member is a key."""


NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def code_lines(path: Path) -> int:
    """Lines with a token that is part of no comment and of no docstring."""
    texts: set[int] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            texts.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in NO_CODE:
                found.update(range(token.start[0], token.end[0] + 1))
    return len(found - texts)


def reach(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    left = list(graph[start])
    while left:
        one = left.pop()
        if one not in seen:
            seen.add(one)
            left += graph[one]
    return seen


def components(graph: Graph) -> list[frozenset[str]]:
    """The strongly connected components: members that reach each other are one."""
    reached = {one: reach(graph, one) for one in graph}
    found = {
        frozenset({one} | {other for other in reached[one] if one in reached[other]})
        for one in graph
    }
    return sorted(found, key=sorted)


def longest_chain(graph: Graph) -> list[str]:
    """The longest chain of imports from the top, where a circle counts as one member."""
    home = {one: each for each in components(graph) for one in each}
    condensed: dict[frozenset[str], set[frozenset[str]]] = {each: set() for each in home.values()}
    for one, others in graph.items():
        condensed[home[one]] |= {home[other] for other in others} - {home[one]}
    chain: dict[frozenset[str], list[str]] = {}
    for each in TopologicalSorter(condensed).static_order():
        below = max((chain[other] for other in condensed[each]), key=len, default=[])
        chain[each] = ["/".join(sorted(each)), *below]
    return max(chain.values(), key=len)


def modules_graph() -> Graph:
    """All modules of the package but `__init__`, which imports every public name."""
    built = grimp.build_graph(NAME, exclude_type_checking_imports=False, cache_dir=None)
    modules = sorted(built.modules - {NAME})
    return {one: built.find_modules_directly_imported_by(one) - {NAME} for one in modules}


def rooms_graph(modules: Graph) -> Graph:
    """The same for the names directly below the package."""
    found: Graph = {}
    for one, others in modules.items():
        room = one.split(".")[1]
        found.setdefault(room, set()).update({other.split(".")[1] for other in others} - {room})
    return found


def arrows_up(rooms: Graph) -> list[str]:
    """Imports from a lower layer of import-linter's contract to a higher one, types included."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contracts: list[Any] = tomllib.loads(text)["tool"]["importlinter"]["contracts"]
    layers: list[str] = next(each["layers"] for each in contracts if each["type"] == "layers")
    floor = {
        name.strip(" ()").rpartition(".")[2]: number
        for number, layer in enumerate(layers)
        for name in re.split(r"[|:]", layer)
    }
    return [
        f"{one} → {other}"
        for one, others in sorted(rooms.items())
        for other in sorted(others)
        if one in floor and other in floor and floor[other] < floor[one]
    ]


class Calls:
    """The package's frames that begin in one thread while it is switched on."""

    def __init__(self) -> None:
        self.modules: list[str] = []

    def _event(self, frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if (
            event == "call"
            and code.co_name[0] != "<"
            and code.co_filename.startswith(f"{PACKAGE}/")
        ):
            self.modules.append(code.co_filename)

    @contextmanager
    def counted(self) -> Generator[None]:
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(None)


class Measured(LoopGuardSpanProcessor):
    """The processor with its hooks counted, whose timer never comes by."""

    calls: Calls = Calls()

    def on_start(self, span: Span, *context: Any, **named: Any) -> None:
        with self.calls.counted():
            super().on_start(span, *context, **named)

    def on_end(self, span: ReadableSpan) -> None:
        with self.calls.counted():
            super().on_end(span)


def healthy_span() -> tuple[int, int]:
    """Modules entered and functions called for one tool span of a warm session.

    Counted are frames of named functions of the package, in both hooks and where the span is judged
    afterwards, alone; the median of several spans, each with new arguments and results.
    """
    processor = Measured()
    processor._timer.idle = False  # noqa: SLF001
    provider = TracerProvider()
    provider.add_span_processor(processor)
    tracer = provider.get_tracer("house")
    seen: list[tuple[int, int]] = []
    with session("house"), tracer.start_as_current_span("invoke_agent helper"):
        for number in range(WARM_UP + SPANS):
            processor.calls = Calls()
            asked = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "search",
                "gen_ai.tool.call.arguments": f'{{"query": "weather in city {number}"}}',
            }
            with tracer.start_as_current_span("execute_tool search", attributes=asked) as span:
                span.set_attribute("gen_ai.tool.call.result", f"{number} degrees and sunny.")
            with processor.calls.counted():
                processor.guard.backlog.settle()
            seen.append((len(set(processor.calls.modules)), len(processor.calls.modules)))
    provider.shutdown()
    measured = seen[WARM_UP:]
    return (
        statistics.median_low(modules for modules, _ in measured),
        statistics.median_low(calls for _, calls in measured),
    )


def private_functions(files: Iterable[Path]) -> tuple[int, int]:
    """Private functions and methods, and those that their own module names in one other place."""
    total = once = 0
    for path in files:
        defined: Counter[str] = Counter()
        named: Counter[str] = Counter()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                defined[node.name] += node.name.startswith("_") and not node.name.endswith("__")
            elif isinstance(node, ast.Name):
                named[node.id] += 1
            elif isinstance(node, ast.Attribute):
                named[node.attr] += 1
        total += defined.total()
        once += sum(many for name, many in defined.items() if named[name] == many)
    return total, once


def tuning_values() -> int:
    """Tuning values, those of each group counted; 0 without the module."""
    try:
        tuning = importlib.import_module(f"{NAME}.settings.tuning")
    except ModuleNotFoundError:
        return 0
    return sum(len(group.default.fields) for group in tuning.Tuning.fields.values())


def words(pages: Iterable[Path]) -> str:
    return f"{sum(len(page.read_text(encoding='utf-8').split()) for page in pages):,}"


def main() -> None:
    """Measures, and prints the table and what is behind its figures."""
    files = sorted(PACKAGE.rglob("*.py")) + BESIDE
    tests = sum(lines(path) for path in (ROOT / "tests").rglob("*.py"))
    modules = modules_graph()
    rooms = rooms_graph(modules)
    circles = [each for each in components(rooms) if len(each) > 1]
    inner = [each for each in components(modules) if len(each) > 1]
    chain, up = longest_chain(rooms), arrows_up(rooms)
    entered, called = healthy_span()
    private, once = private_functions(files)
    docs = sorted((ROOT / "docs").rglob("*.md"))
    front = [*docs, ROOT / "README.md"]
    read = [page for page in front if page.stem not in LOOKED_UP]
    rows = [
        ("files of the package", "431", len(files), "≤ 220"),
        ("lines of the package", "47,637", f"{sum(map(lines, files)):,}", ""),
        ("lines of code in it", "", f"{sum(map(code_lines, files)):,}", "≤ 32,000"),
        ("lines of tests", "46,454", f"{tests:,}", "≤ 42,000"),
        ("top-level names", "57", len(rooms), "≤ 26"),
        ("floors: top-level names in the longest chain of imports", "17", len(chain), "≤ 10"),
        ("circles of top-level names", "3", len(circles), "0"),
        ("circles of modules", "4", len(inner), "0"),
        ("arrows up: imports of a name on a higher layer", "4", len(up), "0"),
        ("modules that a healthy tool span enters", "88", entered, "≤ 28"),
        ("functions that a healthy tool span calls", "286", called, "≤ 100"),
        ("settings", "283", len(set(Settings.fields) - {"tuning"}), "≤ 70"),
        ("tuning values", "0", tuning_values(), "≤ 120"),
        ("names of `control`", "73", len(control.__all__), "25"),
        ("private functions", "1,122", f"{private:,}", ""),
        ("private functions that are named once", "742", f"{once:,}", ""),
        ("pages below `docs/`", "36", len(docs), "about 14"),
        ("words of `docs/` and the README", "69,900", words(front), ""),
        ("of these in pages that are read, not looked up", "", words(read), "≤ 30,000"),
    ]
    print(f"otel-loopguard {otel_loopguard.__version__}\n")
    print("| | 0.3 | today | aim |\n|---|---|---|---|")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")
    longest = sorted(files, key=lines, reverse=True)[:LONGEST]
    print(
        "\nLongest files:",
        ", ".join(f"`{each.relative_to(ROOT)}` {lines(each)}" for each in longest),
    )
    print("\nLongest chain:", " → ".join(chain))
    for head, found in (("top-level names", circles), ("modules", inner)):
        for each in found:
            print(f"\nCircle of {head}:", ", ".join(sorted(each)))
    if up:
        print("\nArrows up:", ", ".join(up))


if __name__ == "__main__":
    main()
