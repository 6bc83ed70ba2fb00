"""One version, everywhere."""

from __future__ import annotations

import json
from pathlib import Path

from otel_loopguard import __version__

ROOT = Path(__file__).parents[1]


def test_the_clients_have_the_version_of_the_package() -> None:
    """In npm's form, also where its lock file repeats it, and in Maven's."""
    number, _, dev = __version__.partition(".dev")
    named = f"{number}-dev.{dev}" if dev else number
    package = json.loads((ROOT / "clients/typescript/package.json").read_text())
    locked = json.loads((ROOT / "clients/typescript/package-lock.json").read_text())
    assert {package["version"], locked["version"], locked["packages"][""]["version"]} == {named}
    java = f"<version>{number}{'-SNAPSHOT' if dev else ''}</version>"
    for text in ("clients/java/pom.xml", "docs/other-languages.md"):
        assert java in (ROOT / text).read_text(encoding="utf-8")
