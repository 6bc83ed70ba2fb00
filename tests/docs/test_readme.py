"""What the pages show runs: every program, every command, every file."""

import json
import re
import shlex
from collections.abc import Iterator
from importlib.metadata import metadata
from pathlib import Path

import pytest
import typer
import yaml

from otel_loopguard import Settings
from otel_loopguard.cli.app import app
from otel_loopguard.settings._sources import variable_of
from otel_loopguard.settings.prices import PriceTable
from tests.docs.markdown import ROOT, Block, blocks, pages
from tests.docs.programs import page_interpreter, plain, programs
from tests.fields import fields_of
from tests.programs import Interpreter
from tests.tables import toml
from tests.zero_code.interpreter import interpreter, run

BLOCKS = [block for page in pages() for block in blocks(page)]
PROGRAMS = [program for page in pages() for program in programs(blocks(page))]
EXCERPTS = [block for block in BLOCKS if block.note.startswith("from: ")]
SHELL = [
    (block, command)
    for block in BLOCKS
    if block.lang == "sh"
    for command in block.text.replace("\\\n", " ").splitlines()
    if command.strip()
]
LANGUAGES = {"python", "sh", "text", "console", "toml", "json", "yaml"}
LANGUAGES |= {"ts", "java", "go", "sql"}  # clients of `serve` and readers of results, tested apart
TOOLS = {"pip", "git", "cd", "python", "pytest", "make", "curl", "tail", "npm"}
TOOLS |= {".venv/bin/python", "opentelemetry-instrument", "otel-loopguard"}


def place(found: object) -> object:
    block = found[0] if isinstance(found, tuple) else found
    return f"{block.page}:{block.line}" if isinstance(block, Block) else None


@pytest.fixture(scope="module")
def python() -> Iterator[Interpreter]:
    """An interpreter for all pages."""
    made = page_interpreter()
    yield made
    made.close()


@pytest.mark.parametrize("program", PROGRAMS, ids=place)
def test_a_program_runs_and_prints_what_the_page_says(
    program: tuple[Block, str, str | None], tmp_path: Path, python: Interpreter
) -> None:
    """Every Python block runs as it stands, in a process of its own, without a warning."""
    _, text, printed = program
    python.start(text, tmp_path)
    done = python.finish()
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    if printed is not None:
        assert plain(done.stdout) == plain(printed)


@pytest.mark.parametrize("block", EXCERPTS, ids=place)
def test_an_excerpt_stands_in_its_file(block: Block) -> None:
    """What a page quotes from a file is there, word for word."""
    assert block.text in (ROOT / block.note.removeprefix("from: ")).read_text(encoding="utf-8")


def test_blocks_have_a_language() -> None:
    """A block without a language, or with an unknown one, is run by no test."""
    assert [place(block) for block in BLOCKS if block.lang not in LANGUAGES] == []


@pytest.mark.parametrize("line", SHELL, ids=lambda line: f"{line[0].page}:{line[1].strip()[:50]}")
def test_a_command_exists(line: tuple[Block, str]) -> None:
    """Commands, targets, subcommands, options, extras, files and variables are there."""
    words = shlex.split(line[1], comments=True)
    if not words:
        return
    while words and re.match(r"[A-Z_]+=", words[0]):
        _variable_exists(words.pop(0).partition("=")[0])
    if words[0] == "export":
        _variable_exists(words[1].partition("=")[0])
        return
    assert words[0] in TOOLS, words
    rest = words[1:]
    if words[0] == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in rest), rest
    elif words[0] == "otel-loopguard":
        _subcommand_exists(rest)
    elif words[0] == "pip":
        _extras_exist(rest)
    elif words[0] == "python" and rest[0] == "-m":
        module = ROOT / rest[1].replace(".", "/")
        assert module.with_suffix(".py").is_file() or (module / "__main__.py").is_file(), rest
    elif words[0] in {"python", "pytest"}:
        assert rest[0] == "my_agent.py" or (ROOT / rest[0]).is_file(), rest


def _variable_exists(name: str) -> None:
    others = "SETTINGS_FILE EXPORTER WRITE_DOCS FRAMEWORKS_PYTHON".split()
    ours = {*map(variable_of, fields_of()), *(f"LOOPGUARD_{one}" for one in others)}
    assert name in ours or name.startswith(("OTEL_", "PHOENIX_")), name


def _subcommand_exists(words: list[str]) -> None:
    group = typer.main.get_command(app)
    commands = group.commands  # type: ignore[attr-defined]
    if words[0] == "--help":
        return
    assert words[0] in commands, words
    command, words = commands[words[0]], words[1:]
    if words and words[0] in getattr(command, "commands", ()):
        command, words = command.commands[words[0]], words[1:]
    options = {name for each in command.params for name in each.opts}
    given = {word for word in words if word.startswith("--")}
    assert given <= options | {"--help"}, given


def _extras_exist(words: list[str]) -> None:
    project = toml(ROOT / "pyproject.toml")["project"]
    for word in words:
        found = re.fullmatch(r"otel-loopguard\[(.+)\]", word)
        if found:
            assert set(found[1].split(",")) <= set(project["optional-dependencies"]), word


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.lang == "toml"], ids=place)
def test_a_settings_file_is_accepted(block: Block, tmp_path: Path) -> None:
    """Every TOML block is a settings file that changes something, or one of prices."""
    path = tmp_path / "loopguard.toml"
    path.write_text(block.text, encoding="utf-8")
    if block.text.startswith("[models]"):
        assert len(PriceTable.load(str(path)).models) > len(PriceTable.load().models)
    else:
        assert Settings.from_file(path) != Settings()


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.lang == "yaml"], ids=place)
def test_a_configuration_file_works(block: Block, tmp_path: Path) -> None:
    """A declarative configuration from a page watches an agent, whose tool span is annotated."""
    assert yaml.safe_load(block.text)["file_format"] == "1.0"
    python = interpreter("opentelemetry.configuration", "opentelemetry.distro")
    path = tmp_path / "otel.yaml"
    path.write_text(block.text.replace("exporter: otlp", "exporter: console"), encoding="utf-8")
    command = str(Path(python).with_name("opentelemetry-instrument"))
    agent = str(ROOT / "tests/zero_code/agent.py")
    done = run(command, python, agent, "flag", OTEL_CONFIG_FILE=str(path))
    assert done.returncode == 0, done.stderr
    assert '"loopguard.decision.action": "hint"' in done.stdout
    assert "flag: abort" in done.stderr


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.lang == "json"], ids=place)
def test_json_is_json(block: Block) -> None:
    """Every JSON block parses."""
    assert json.loads(block.text)


def test_a_registry_shows_no_link_that_leads_nowhere() -> None:
    """The long description of the package has no relative link, and names the pages by path."""
    found = metadata("otel-loopguard").get_payload()
    assert isinstance(found, str)
    assert "docs/control.md" in found
    assert re.findall(r"\]\((?!https://)[^)\s]+\)", found) == []
