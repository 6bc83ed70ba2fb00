"""The pages that people read, taken apart: code blocks, links, generated sections.

A comment in the line before a block says what it is:

* `<!-- continues -->`: runs after the block before it, in one program;
* `<!-- from: FILE -->`: stands in that file word for word, which has a test of its own;
* `<!-- prints -->`: is what the program before it prints;
* `<!-- of: FILE -->`: is what that example prints.

What stands between `<!-- generated: NAME -->` and `<!-- end -->` is written by `generated.py`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_BLOCK = re.compile(
    r"(?ms)(?:^<!-- (?P<note>[^\n]+?) -->\n+)?^```(?P<lang>\w*)\n(?P<text>.*?)^```$"
)
_SECTION = re.compile(
    r"(?s)(?P<open><!-- generated: (?P<name>[\w-]+) -->\n)(?P<text>.*?)(?P<close><!-- end -->)"
)
_LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\((?P<to>[^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page, the line where its text begins, and the comment before it."""

    page: str
    line: int
    lang: str
    text: str
    note: str


def pages() -> list[Path]:
    names = ("README", "AGENTS", "CONTRIBUTING", "SECURITY", "CHANGELOG")
    folders = ("collector-config", "examples")
    found = [ROOT / f"{name}.md" for name in names]
    found += [ROOT / folder / "README.md" for folder in folders]
    return [*found, *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """Path of a page below the root, as tests are named."""
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            name_of(page),
            text.count("\n", 0, found.start("text")) + 1,
            found["lang"],
            found["text"],
            found["note"] or "",
        )
        for found in _BLOCK.finditer(text)
    ]


def sections(page: Path) -> dict[str, str]:
    found = _SECTION.finditer(page.read_text(encoding="utf-8"))
    return {section["name"]: section["text"] for section in found}


def rewrite(page: Path, name: str, text: str) -> None:
    def put(section: re.Match[str]) -> str:
        new = text if section["name"] == name else section["text"]
        return section["open"] + new + section["close"]

    page.write_text(_SECTION.sub(put, page.read_text(encoding="utf-8")), encoding="utf-8")


def links(page: Path) -> Iterator[str]:
    """Where the links of a page lead, without those inside code."""
    text = re.sub(r"`[^`\n]*`", "", _BLOCK.sub("", page.read_text(encoding="utf-8")))
    for found in _LINK.finditer(text):
        yield found["to"]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def table(heads: Sequence[object] | str, rows: Iterable[Sequence[object]]) -> str:
    """A table; heads in a text have `|` between them."""
    heads = heads.split("|") if isinstance(heads, str) else heads
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
