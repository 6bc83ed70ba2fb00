"""The sections of docs/detectors.md, from the docstrings and attributes of the detectors."""

import inspect
import json
import re
from typing import Any, Final

from otel_loopguard.detectors import DETECTORS
from otel_loopguard.detectors.budget import StallDetector
from otel_loopguard.detectors.llm_judge import JudgeDetector
from tests.fields import fields_of

CLASSES: Final[tuple[Any, ...]] = (*DETECTORS, StallDetector, JudgeDetector)
FAMILIES: Final = tuple(dict.fromkeys(each.family for each in CLASSES))
PARTS: Final = ("Counts", "Leaves alone", "Cannot see")
_PART: Final = re.compile(
    rf"^({'|'.join(PARTS)}): (.+?)(?=^[A-Z][a-z ]+: |\Z)", re.MULTILINE | re.DOTALL
)


def question(detector: Any) -> str:
    """What a detector asks: the first line of its docstring."""
    return inspect.cleandoc(detector.__doc__).partition("\n\n")[0]


def parts(detector: Any) -> dict[str, str]:
    """What it counts, leaves alone and cannot see."""
    found = _PART.findall(inspect.cleandoc(detector.__doc__))
    return {label: " ".join(text.split()) for label, text in found}


def section(family: str) -> str:
    """What the detectors of a family do, in the order in which they are asked."""
    return "\n".join(_section(each) for each in CLASSES if each.family == family)


def _section(detector: Any) -> str:
    said = "".join(f"**{label}:** {text}\n" for label, text in parts(detector).items())
    rules = ", ".join(f"`{name}`" for name in detector.rules)
    fields = fields_of()
    tuned = [f"`{name}`" + _default(fields[name].default) for name in detector.tuned_by]
    return (
        f"### {detector.name}\n\n*{question(detector)}*\n\n{said}\n"
        f"`{detector.strongest or detector.max_action}`: {rules}.\n"
        f"{'Settings ' + ', '.join(tuned) + '.' if tuned else ''}\n"
    )


def _default(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return f" {json.dumps(value)}" if isinstance(value, int | float | str) and value != "" else ""
