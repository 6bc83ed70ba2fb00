"""The generated sections of the pages, by page and name, and what writes them."""

from __future__ import annotations

import ast
import itertools
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import typer
from pydantic import SecretStr

from otel_loopguard import semconv
from otel_loopguard.cli.app import app
from otel_loopguard.settings import all_fields
from otel_loopguard.settings._names import variable_of
from otel_loopguard.telemetry import METRICS
from tests.docs import adapters, detectors, evaluation, performance
from tests.docs.programs import SAMPLE, command_line, need_shared, plain
from tests.docs.trace import tree

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Write = Callable[[], str]
SCENARIOS = "../shared/eval/scenarios.jsonl"
GOOD = "../shared/traces/miniswe.jsonl.gz"
TIMED = "../shared/traces/trail.jsonl.gz"


def table(heads: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    """A Markdown table."""
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "".join(f"| {' | '.join(str(cell) for cell in line)} |\n" for line in lines)


def fenced(text: str, lang: str = "text") -> str:
    """A fenced block."""
    return f"```{lang}\n{text}```\n"


def shown(*arguments: str, head: int | None = None) -> Write:
    """What a command prints, below the command; of a long output the first lines."""

    def write() -> str:
        lines = plain(command_line(*arguments)).splitlines(keepends=True)
        cut = lines[:head] + (["…\n"] if head is not None and len(lines) > head else [])
        return fenced(f"$ otel-loopguard {' '.join(arguments)}\n{''.join(cut)}", "console")

    return write


def calibrated() -> str:
    """What `calibrate` says of runs that went well."""
    need_shared()
    return shown("calibrate", GOOD, "--false-stops", "0.01")()


def learned() -> str:
    """What `learn` says of the real durations of TRAIL."""
    need_shared()
    return shown("learn", TIMED)()


def settings() -> str:
    """The table of all settings, and that of the tuning values."""
    rows = [
        (
            f"`{name}`",
            f"`{variable_of(name)}`",
            _value(field),
            _default(field.default),
            (field.description or "").replace("|", "\\|"),
        )
        for name, field in all_fields().items()
    ]
    heads = ("setting", "variable", "value", "default", "what it does")
    front = [row for row in rows if not row[0].startswith("`tuning.")]
    tuned = [(name, *rest) for name, _, *rest in rows[len(front) :]]
    return (
        f"{table(heads, iter(front))}\n### Tuning values\n\nThey may change with any release. "
        "`tuning.text.tail_period` is\n`tail_period` below `[tuning.text]` in the file, and "
        "`LOOPGUARD_TUNING__TEXT__TAIL_PERIOD` in the\nenvironment.\n\n"
        f"{table(('tuning value', *heads[2:]), iter(tuned))}"
    )


def _value(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{each}`" for each in get_args(field.annotation))
    names = {
        bool: "true or false", int: "whole number", float: "number", str: "text", SecretStr: "text",
    }  # fmt: skip
    kind = names.get(field.annotation, "names, with commas between")  # type: ignore[arg-type]
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [
        f"{sign} {getattr(rule, name):g}"
        for name, sign in signs.items()
        for rule in field.metadata
        if getattr(rule, name, None) is not None
    ]
    return ", ".join([kind, *bounds])


def _default(value: object) -> str:
    if isinstance(value, frozenset):
        return "none"
    if isinstance(value, SecretStr):
        return "empty"
    return f"`{json.dumps(value)}`" if value != "" else "empty"


def commands() -> str:
    """The table of all commands with their options."""
    group: Any = typer.main.get_command(app)
    return table(
        ("command", "what it does", "arguments and options"),
        (
            (f"`{name}`", command.help, "; ".join(_options(command)) or "none")
            for name, command in group.commands.items()
        ),
    )


def _options(command: Any) -> Iterator[str]:
    for given in command.params:
        name = given.opts[0] if given.opts[0].startswith("-") else given.metavar
        yield f"`{name}`: {given.help.rstrip('.')}"


def attributes() -> str:
    """The table of every name in `semconv.py`, with what its docstring says."""
    with open(semconv.__file__, encoding="utf-8") as file:  # noqa: PTH123
        body = ast.parse(file.read()).body
    rows: list[tuple[object, ...]] = []
    for node, after in itertools.pairwise(body):
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr):
            assert isinstance(node.target, ast.Name)
            assert isinstance(after.value, ast.Constant)
            said = " ".join(str(after.value.value).split())
            if node.target.id.startswith("METRIC_"):
                continue
            rows.append((f"`{getattr(semconv, node.target.id)}`", said))
    return table(("name", "what it is"), iter(rows))


def metrics() -> str:
    """The table of all metrics."""
    return table(
        ("metric", "type", "unit", "attributes", "when", "in Prometheus"),
        (
            (
                f"`{metric.name}`",
                metric.type,
                f"`{metric.unit}`",
                ", ".join(f"`{name}`" for name in metric.attributes) or "none",
                metric.about,
                f"`{metric.prometheus}`",
            )
            for metric in METRICS
        ),
    )


def all_detectors() -> str:
    """The table of all detectors."""
    heads = ("detector", "family", "looks at", "strongest", "main settings and defaults")
    return table(heads, detectors.rows())


SECTIONS: dict[tuple[str, str], Write] = {
    ("docs/detectors.md", "detectors"): all_detectors,
    ("docs/execution.md", "learned"): learned,
    ("docs/telemetry.md", "metrics"): metrics,
    ("README.md", "measured"): evaluation.summary,
    ("docs/spans.md", "trace"): lambda: fenced(tree()),
    ("docs/spans.md", "attributes"): attributes,
    ("docs/settings.md", "settings"): settings,
    ("docs/command-line.md", "commands"): commands,
    ("docs/command-line.md", "demo"): shown("demo", head=24),
    ("docs/command-line.md", "steps"): shown("steps", SAMPLE, head=5),
    ("docs/command-line.md", "steps-json"): shown("steps", SAMPLE, "--format", "json", head=1),
    ("docs/command-line.md", "replay"): shown("replay", SAMPLE),
    ("docs/command-line.md", "replay-tree"): shown("replay", SAMPLE, "--tree"),
    ("docs/command-line.md", "replay-json"): shown("replay", SAMPLE, "--format", "json"),
    ("docs/command-line.md", "eval"): shown("eval", SCENARIOS),
    ("docs/calibration.md", "calibrate"): calibrated,
    ("docs/evaluation.md", "targets"): evaluation.targets,
    ("docs/evaluation.md", "noticed"): evaluation.noticed,
    ("docs/evaluation.md", "stopped"): evaluation.stopped,
    ("docs/evaluation.md", "intervals"): evaluation.intervals,
    ("docs/evaluation.md", "sources"): evaluation.sources,
    ("docs/evaluation.md", "failed"): evaluation.failed,
    ("docs/evaluation.md", "robustness"): evaluation.robustness,
    ("docs/evaluation.md", "curve"): evaluation.curve,
    ("docs/evaluation.md", "left-out"): evaluation.left_out,
    ("docs/evaluation.md", "cost"): evaluation.cost,
    ("docs/evaluation.md", "rules"): evaluation.rules,
    ("docs/evaluation.md", "false-notices"): evaluation.false_notices,
    ("docs/evaluation.md", "missed"): evaluation.missed,
    ("docs/performance.md", "results"): performance.results,
    ("docs/frameworks.md", "adapters"): adapters.measured,
    ("docs/frameworks.md", "versions"): adapters.versions,
}
