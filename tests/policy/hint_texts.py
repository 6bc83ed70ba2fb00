"""Hints as a model of the process gets them.

`python -m tests.policy.hint_texts` writes them to `hint_texts.md`; read the diff aloud.
"""

from pathlib import Path
from textwrap import wrap
from typing import Final

from lab import tables
from otel_loopguard import Settings
from tests.calls import Run
from tests.detectors.alone import steps_of

GOLDEN: Final = Path(__file__).with_suffix(".md")
_HEAD: Final = "# What a model is told\n\nWritten by `python -m tests.policy.hint_texts`.\n"


def _told(table: tables.Table) -> tuple[str, str]:
    """The last action of a case, and its hint."""
    run, said, action = Run(Settings(**table.settings)), "nothing is said", "allow"
    for step in steps_of(table):
        run.calls(step)
        flag = run.guard.flag_of("run")
        if flag is not None and (hint := flag.take_hint()) is not None:
            said, action = hint, flag.control.action.value
            flag.asked = False  # judged as if nobody asked: what is decided does not wait
    return action, said


def page() -> str:
    """All of them as Markdown."""
    parts = [_HEAD.rstrip()]
    for table in tables.load(GOLDEN.with_suffix(".txt")):
        action, said = _told(table)
        hint = "\n".join(wrap(said, 98, break_long_words=False))
        parts.append(f"## {table.name}\n\n**{action}:**\n{hint}")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    GOLDEN.write_text(page(), encoding="utf-8")
