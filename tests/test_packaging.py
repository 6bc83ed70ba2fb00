"""What a build says of its version and its repository, and what a workflow of the forge runs."""

import importlib.util
import json
import re
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import yaml

from otel_loopguard import __version__
from tests.docs.markdown import ROOT
from tests.programs import printed
from tests.tables import rows

AT = "https://forge.example/team/otel-loopguard"


@pytest.fixture
def urls(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, str]]:
    """The function of `hatch_build.py`, whose hatchling only a build has."""
    hatchling = SimpleNamespace(MetadataHookInterface=object)
    monkeypatch.setitem(sys.modules, "hatchling.metadata.plugin.interface", hatchling)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.urls


@pytest.mark.parametrize("origin", rows(__file__, "cloned"))
def test_a_build_names_the_repository_it_was_cloned_from(
    urls: Callable[[str], dict[str, str]], origin: str
) -> None:
    """Whatever way it was cloned; a name or a token in the address stays out."""
    found = urls(origin)
    assert (found.pop("Source"), found.pop("Issues")) == (AT, f"{AT}/issues")
    pages = {"Changelog": "CHANGELOG.md", "Security": "SECURITY.md"}
    assert found == {name: f"{AT}/blob/HEAD/{page}" for name, page in pages.items()}


@pytest.mark.parametrize(
    "origin", ["", "/srv/git/otel-loopguard.git", "../otel-loopguard", "file:///srv/x"]
)
def test_a_build_from_a_path_names_none(urls: Callable[[str], dict[str, str]], origin: str) -> None:
    """A path on somebody's machine is nobody else's business."""
    assert urls(origin) == {}


def test_the_package_is_imported_without_any_extra() -> None:
    """What a module at its start needs, only those who ask for it import."""
    extras = ("httpx", "isal", "redis", "rich", "tenacity", "typer", "opentelemetry.exporter")
    names = ("otel_loopguard", "otel_loopguard.control", "otel_loopguard_propagator")
    program = f"import sys; sys.modules.update(dict.fromkeys({extras})); import {', '.join(names)}"
    assert printed(program) == ""


def test_the_workflow_calls_what_is_there() -> None:
    """Every target and script that it runs exists, and it tests each Python that is declared."""
    text = (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = [name for command in commands for name in re.findall(r"\bmake (\w+)", command)]
    assert {"test", "dist"} <= set(targets)
    assert [name for name in targets if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []
    assert ".ci/run" in commands
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    assert jobs["tests"]["strategy"]["matrix"]["python"] == declared


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
