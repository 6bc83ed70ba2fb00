"""The table of what every adapter does in its real framework, from what its program printed."""

from collections.abc import Iterator
from typing import Any

from tests.docs.markdown import table
from tests.frameworks.harness import FRAMEWORKS, RESULTS, Framework

_HEADS = (
    "framework|instrumentation|hint after|in the next request|calls after deny|calls after abort|"
    "model calls after abort|the caller gets|obeyed|paused, resumed"
)
_AFTER = (("executed", "deny"), ("executed", "abort"), ("model_calls", "abort"))
_VARIANTS = ("instrumented", "bare")


def measured() -> str:
    """A line for all frameworks that do the same, with or without an instrumentation."""
    same: dict[tuple[str, ...], list[str]] = {}
    for framework in _known():
        for row in _rows(framework):
            same.setdefault(row[1:], []).append(row[0])
    return table(_HEADS, [(", ".join(titles), *found) for found, titles in same.items()])


def versions() -> str:
    rows = []
    for framework in _known():
        lines = framework.results.values()
        found = {name: number for line in lines for name, number in line["versions"].items()}
        packages = ", ".join(f"{name} {number}" for name, number in sorted(found.items()))
        rows.append((framework.title, packages))
    return table(("framework", "versions"), rows)


def _known() -> list[Framework]:
    return [one for one in FRAMEWORKS.values() if (one.folder / RESULTS).exists()]


def _rows(framework: Framework) -> Iterator[tuple[str, ...]]:
    rows = {variant: _row(framework.results, variant) for variant in _VARIANTS}
    if len(set(rows.values())) == 1:
        yield framework.title, "with or without", *rows["bare"]
        return
    yield framework.title, "with", *rows["instrumented"]
    yield framework.title, "without", *rows["bare"]


def _row(results: dict[str, dict[str, Any]], variant: str) -> tuple[str, ...]:
    stubborn = results[f"stubborn, {variant}"]
    return (
        f"{stubborn['hint_after']} calls",
        "yes" if stubborn["hint_in_next_request"] else "no",
        *(str(stubborn[f"{name}_after_{action}"]) for name, action in _AFTER),
        _end(stubborn),
        _completed(results[f"obedient, {variant}"]),
        _completed(results[f"paused, {variant}"]),
    )


def _end(line: dict[str, Any]) -> str:
    raised = line["ends"] == "LoopGuardAbort"
    what = "`LoopGuardAbort`" if raised else "a result, and the stop from the adapter"
    return f"{what}, {line['parts']} results"


def _completed(line: dict[str, Any]) -> str:
    stopped = {"deny", "pause", "abort"} & set(line["decisions"])
    done = line["ends"].startswith("result: ") and not stopped
    return f"completes, {line['executed']} calls" if done else "**no**"
