"""The generated sections of the pages, by page and name, and what writes them."""

import inspect
import json
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast, get_args, get_origin

import typer
from pydantic import SecretStr
from pydantic.fields import FieldInfo

from otel_loopguard import Action, semconv
from otel_loopguard.cli.app import app
from otel_loopguard.core.decision import Source
from otel_loopguard.core.report import Report, RunMetrics
from otel_loopguard.execution.admission import FOLLOW_UPS
from otel_loopguard.policy import DIAGNOSES, STRATEGIES, certainty_of, follow_ups_of
from otel_loopguard.server.metrics import METRICS as OF_SERVERS
from otel_loopguard.sessions.profiler import DEFAULTS_MS
from otel_loopguard.telemetry import METRICS
from otel_loopguard.telemetry.metrics import Metric
from tests.dialects import page as dialects
from tests.docs import adapters, conventions, detectors, evaluation, measured
from tests.docs.markdown import ROOT, table
from tests.docs.programs import SAMPLE, command_line, need_shared, plain
from tests.docs.trace import replayed, tree
from tests.fields import fields_of
from tests.tables import toml

Write = Callable[[], str]
_DECEPTIONS = (ROOT / "tests/detectors/deceptions.txt").read_text(encoding="utf-8")
DECEPTIONS = re.findall(r"(?m)^## (.+)\n((?:(?!## ).*\n)+)", _DECEPTIONS)


def fenced(text: str, lang: str = "text") -> str:
    return f"```{lang}\n{text}```\n"


def shown(*arguments: str, head: int | None = None) -> Write:
    """What a command prints, below the command; of a long output the first lines."""

    def write() -> str:
        if any(word.startswith("../shared") for word in arguments):
            need_shared()
        lines = plain(command_line(*arguments)).splitlines(keepends=True)
        cut = lines[:head] + (["…\n"] if head is not None and len(lines) > head else [])
        return fenced(f"$ otel-loopguard {' '.join(arguments)}\n{''.join(cut)}", "console")

    return write


FAMILIES: dict[str, str] = toml(Path(__file__).with_suffix(".toml"))
"""Headings of the tables of settings, and how the names below them begin; others are general."""


def settings() -> str:
    heads = "setting|value|default|meaning"
    found: dict[str, list[tuple[object, ...]]] = {family: [] for family in FAMILIES}
    for name, field in fields_of().items():
        if not name.startswith("tuning."):
            families = (each for each, start in FAMILIES.items() if re.match(start, name))
            row = (f"`{name}`", _value(field), _default(field), _about(field))
            found[next(families, "General")].append(row)
    return "\n".join(f"### {family}\n\n{table(heads, found[family])}" for family in FAMILIES)


def _about(field: FieldInfo) -> str:
    """The description, with an example where the field has one, without marks of features."""
    marks = r" \([A-Z]\d+(?:(?:, | to )[A-Z]\d+)*\)| \(JSON in the variable\)"
    text = re.sub(marks, "", field.description or "")
    example = f" Example: `{field.examples[0]}`." if field.examples else ""
    return (text + example).replace("|", "\\|")


def _value(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return named(filter(None, get_args(field.annotation)))
    names: dict[object, str] = {
        bool: "boolean", int: "integer", float: "number", str: "text", SecretStr: "secret",
    }  # fmt: skip
    kind = names.get(field.annotation, "mapping" if field.default == {} else "names")
    if isinstance(field.default, bool) and field.annotation is not bool:
        (words,) = (each for each in get_args(field.annotation) if each is not bool)
        kind = f"boolean, {named(get_args(words))}"
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    bounds = [
        f"{sign} {getattr(rule, name):g}"
        for name, sign in signs.items()
        for rule in field.metadata
        if getattr(rule, name, None) is not None
    ]
    return " ".join([kind, ", ".join(bounds)]).strip()


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True)
    if isinstance(value, SecretStr) or value in ("", (), [], {}, frozenset()):
        return ""
    if isinstance(value, frozenset):
        return named(sorted(cast("frozenset[str]", value)))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f"`{json.dumps(value)}`"


def commands() -> str:
    """The commands, and below them their arguments and options, each once."""
    group: Any = typer.main.get_command(app)
    options: dict[tuple[str, str], list[str]] = {}
    for name, command in group.commands.items():
        for given in command.params:
            option = given.opts[0] if given.opts[0].startswith("-") else given.metavar
            options.setdefault((option, given.help), []).append(f"`{name}`")
    about = ((f"`{name}`", command.help) for name, command in group.commands.items())
    used = ((f"`{name}`", text, ", ".join(by)) for (name, text), by in options.items())
    known = table("command|what it does", about)
    return f"{known}\n{table('argument or option|meaning|commands', used)}"


def attributes() -> str:
    """The table of every name in `semconv.py`, with what its docstring says."""
    said = re.findall(r'(?m)^(\w+): .+?\n"""(.+?)"""', inspect.getsource(semconv), re.DOTALL)
    rows = (
        (f"`{getattr(semconv, name)}`", " ".join(text.split()))
        for name, text in said
        if not name.startswith("METRIC_")
    )
    return table("name|what it is", rows)


def metrics(those: Iterable[Metric]) -> str:
    rows = ((f"`{m.name}`", m.type, f"`{m.unit}`", named(m.attributes), m.about) for m in those)
    return table("metric|type|unit|attributes|meaning", rows)


def report() -> str:
    """The table of the fields of a report, with what the docstrings say."""
    field = re.compile(r"(?ms)^    (\w+): (.+?)(?=^    \w+: |\Z)")
    rows = (
        (f"`{before}{name}`", " ".join(meaning.split()))
        for kind, before in ((Report, ""), (RunMetrics, "run."))
        for name, meaning in field.findall(
            inspect.cleandoc(kind.__doc__).partition("Attributes:")[2]
        )
        if (before, name) != ("", "run")
    )
    return table("field|meaning", rows)


def named(names: Iterable[object]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def follow_ups() -> str:
    """What a runtime does next, by what was decided."""
    found: dict[str, list[Action]] = {}
    for action in Action:
        found.setdefault(named(follow_ups_of(action, None)), []).append(action)
    return table("action|follow-ups", ((named(found[steps]), steps) for steps in found))


_FROM = {
    Source.GRAPH_LOOP: "families `graph` and `exchange`",
    Source.TOOL_LOOP: "everything else that one agent does",
    Source.RESOURCES: "family `budget`",
    Source.EXECUTION_CHOICE: "[`execution.admit`](resilience.md#admission)",
}


def sources() -> str:
    """Where decisions come from, in the order in which they are heard."""
    levels = (Action.ABORT, Action.HINT)
    rows = (
        (f"`{one}`", _FROM[one], *(certainty_of(one, level, 0) or "its own" for level in levels))
        for one in Source
    )
    return table("source|from|certainty of a stop|of anything milder", rows)


def choices() -> str:
    """What a runtime does next, by the answer of `execution.admit`."""
    rows = ((f"`{choice}`", named(steps)) for choice, steps in FOLLOW_UPS.items())
    return table("choice|follow-ups", rows)


def attacks(runs: str) -> str:
    """What comes of one kind of runs that were made to deceive, of their tables."""
    found = re.findall(r"^\[(.+)\]\n# (.+)\n(?:.+\n)*?= (.+)$", runs, re.MULTILINE)
    rows = ((name, "none" if told == "nothing" else
             "stopped" if re.search("deny|pause|abort", told) else "hint", why)
            for name, why, told in found)  # fmt: skip
    return table(("what is done", "outcome", "why"), rows)


SECTIONS: dict[tuple[str, str], Write] = {
    ("README.md", "run"): lambda: fenced(replayed()),
    ("README.md", "measured"): evaluation.beside,
    ("docs/opentelemetry.md", "trace"): lambda: fenced(tree()),
    ("docs/reference.md", "metrics"): partial(metrics, METRICS),
    ("docs/reference.md", "server-metrics"): partial(metrics, OF_SERVERS),
    ("docs/reference.md", "attributes"): attributes,
    ("docs/reference.md", "dialects"): dialects.dialects,
    ("docs/reference.md", "keys"): dialects.keys,
    ("docs/reference.md", "conventions"): conventions.names,
    ("docs/reference.md", "operations"): conventions.operations,
    ("docs/reference.md", "settings"): settings,
    ("docs/reference.md", "commands"): commands,
    ("docs/reference.md", "report"): report,
    ("docs/reference.md", "signatures"): lambda: f"{named(DIAGNOSES)}.\n",
    ("docs/reference.md", "kinds"): lambda: f"{', '.join(STRATEGIES)}.\n",
    ("docs/reference.md", "follow-ups"): follow_ups,
    ("docs/reference.md", "sources"): sources,
    ("docs/reference.md", "choices"): choices,
    ("docs/reference.md", "durations"): lambda: table(
        ("tool", "seconds"), ((f"`{tool}`", f"{ms / 1000:g}") for tool, ms in DEFAULTS_MS.items())
    ),
    ("docs/reference.md", "doctor"): shown("doctor", SAMPLE),
    ("docs/reference.md", "steps"): shown("steps", SAMPLE, head=8),
    ("docs/reference.md", "replay"): shown("replay", SAMPLE, "--tree"),
    ("docs/reference.md", "learned"): shown("learn", "../shared/traces/trail.jsonl.gz"),
    ("docs/reference.md", "calibrate"): shown(
        "calibrate", "../shared/traces/miniswe.jsonl.gz", "--false-stops", "0.01"
    ),
    **{("docs/detectors.md", one): partial(detectors.section, one) for one in detectors.FAMILIES},
    **{
        ("docs/project/adversarial.md", re.sub(r"\W+", "-", kind.lower())): partial(attacks, runs)
        for kind, runs in DECEPTIONS
    },
    ("docs/project/evaluation.md", "targets"): evaluation.targets,
    ("docs/project/evaluation.md", "detectors"): evaluation.detectors,
    ("docs/project/evaluation.md", "detectors-written"): evaluation.detectors_written,
    ("docs/project/evaluation.md", "peers"): evaluation.peers,
    ("docs/project/evaluation.md", "models"): evaluation.models,
    ("docs/project/evaluation.md", "weak-labels"): evaluation.weak_labels,
    ("docs/project/evaluation.md", "intervals"): evaluation.intervals,
    ("docs/project/evaluation.md", "failed"): evaluation.failed,
    ("docs/project/evaluation.md", "robustness"): evaluation.robustness,
    ("docs/project/evaluation.md", "curve"): evaluation.curve,
    ("docs/project/evaluation.md", "left-out"): evaluation.left_out,
    ("docs/project/evaluation.md", "cost"): evaluation.cost,
    ("docs/project/evaluation.md", "false-notices"): evaluation.false_notices,
    ("docs/project/evaluation.md", "missed"): evaluation.missed,
    ("docs/project/evaluation.md", "captures"): dialects.recovered,
    ("docs/project/evaluation.md", "effect"): measured.effect,
    ("docs/project/performance.md", "aims"): measured.aims,
    ("docs/project/performance.md", "results"): measured.figures,
    ("docs/project/evaluation.md", "adapters"): adapters.measured,
    ("docs/project/evaluation.md", "versions"): adapters.versions,
    ("docs/project/performance.md", "workers"): measured.workers,
}
