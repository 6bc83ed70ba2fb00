"""One version, everywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from otel_loopguard import __version__
from otel_loopguard._util.moved import warn_moved

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


def test_what_has_moved_has_done_so_in_this_version() -> None:
    """A warning that names a later one would speak of what is not there yet."""
    since = ".".join(__version__.split(".")[:2])
    with pytest.warns(DeprecationWarning, match=f"from otel-loopguard {since} on"):
        warn_moved("a", "b", 2)
