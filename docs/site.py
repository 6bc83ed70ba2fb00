"""Hooks of mkdocs: pages from elsewhere in the repository, and links to files that are no pages."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {
    "README.md": "index.md",
    "examples/README.md": "examples.md",
    "collector-config/README.md": "collector.md",
    "CHANGELOG.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/reporting.md",
}
"""Pages of the site by their files in the repository, where these are not below docs/."""

MOVED = {
    "backtests": "false-alarms/#backtests",
    "execution": "resilience/#admission",
    "fleet": "multi-process/#a-fleet-of-servers",
    "project/calibration": "false-alarms/#calibration",
    "project/development": "project/contributing/#commands",
    "testing": "false-alarms/#test-your-agent",
}
"""Where the pages of earlier versions are now, by their addresses; those lead there."""

_LINK = re.compile(
    r"(?P<text>!?\[[^\]]*\])\((?P<to>(?!https?://|#|mailto:)[^)\s#]+)(?P<at>#[^)\s]*)?\)"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages from elsewhere."""
    for source, page in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links to where the pages are on the site; other files are named by their path."""
    here = page.file.src_uri
    sources = {place: source for source, place in ELSEWHERE.items()}
    folder = posixpath.dirname(sources.get(here, f"docs/{here}"))

    def lead(link: re.Match[str]) -> str:
        to = posixpath.normpath(posixpath.join(folder, link["to"]))
        place = ELSEWHERE.get(to, to.removeprefix("docs/") if to.startswith("docs/") else None)
        if place is None:
            return f"{link['text'][1:-1]} (`{to}`)"
        place = posixpath.relpath(place, posixpath.dirname(here) or ".")
        return f"{link['text']}({place}{link['at'] or ''})"

    return _LINK.sub(lead, markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Writes a page at each earlier address that leads to where its text is now."""
    for page, place in MOVED.items():
        to = "../" * (page.count("/") + 1) + place
        file = Path(config.site_dir, page, "index.html")
        file.parent.mkdir(parents=True)
        file.write_text(
            f'<!doctype html><meta charset="utf-8"><title>Moved</title>\n'
            f'<meta http-equiv="refresh" content="0; url={to}"><a href="{to}">Moved</a>\n',
            encoding="utf-8",
        )
