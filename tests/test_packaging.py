"""What a build says of itself, what a workflow of the forge runs, and what a process imports."""

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


PROGRAM = """
import json, sys
from opentelemetry.sdk.trace import TracerProvider
provider = TracerProvider()
before = set(sys.modules)
import otel_loopguard
face = set(sys.modules) - before
from otel_loopguard import LoopGuardSpanProcessor
provider.add_span_processor(LoopGuardSpanProcessor())
call = {"gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": '{"query": "weather"}'}
with provider.get_tracer("my.agent").start_as_current_span("execute_tool search", attributes=call):
    pass
print(json.dumps([sorted(face), sorted(set(sys.modules) - before)]))
"""
SPANS = """
from types import SimpleNamespace
from opentelemetry.sdk.trace import TracerProvider
from otel_loopguard import LoopGuardSpanProcessor
from otel_loopguard.evidence import normalize
provider = TracerProvider()
provider.add_span_processor(LoopGuardSpanProcessor())
compiled = []
compile_python, compile_rust = normalize.re.compile, normalize.prefilter
normalize.re = SimpleNamespace(**vars(normalize.re))
normalize.re.compile = lambda *given: compiled.append(given) or compile_python(*given)
normalize.prefilter = lambda *given, of_bytes: (
    compiled.append(given) or compile_rust(*given, of_bytes=of_bytes)
)
call = {"gen_ai.tool.name": "run"}
for words in ("status: pending", "no results found", "3 of 9 tests failed", "try again", "0 rows"):
    call["gen_ai.tool.call.result"] = f"{words}. " + 99 * "All is well. "
    with provider.get_tracer("my.agent").start_as_current_span("execute_tool run", attributes=call):
        pass
print(compiled)
"""
UNUSED = {row.values[0] for row in rows(__file__, "unused")}


def test_a_tool_span_imports_what_it_needs() -> None:
    """With default settings: few modules of ours, and none of what is not configured."""
    face, used = (set(names) for names in json.loads(printed(PROGRAM)))
    assert used & UNUSED == set()
    assert len([name for name in face if name.startswith("otel_loopguard")]) <= 6
    assert len([name for name in used if name.startswith("otel_loopguard")]) <= 146


def test_no_span_waits_until_patterns_are_compiled() -> None:
    """What is looked for in outcomes was compiled when the processor was made."""
    assert printed(SPANS).splitlines()[0] == "[]"


def test_the_list_of_commands_loads_no_guard() -> None:
    """Who asks which commands there are, or installs hooks, does not wait for what judges."""
    program = "import json, sys; import otel_loopguard.cli.app; print(json.dumps([*sys.modules]))"
    loaded = set(json.loads(printed(program)))
    judging = {"evidence", "detectors", "guard", "settings", "stores", "telemetry"}
    assert loaded & {f"otel_loopguard.{room}" for room in judging} == set()
