"""The pages hang together: links lead somewhere, generated parts are fresh, nothing leaks."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as package

from bench.house import LOOKED_UP
from otel_loopguard import LoopGuardError, Settings, semconv
from otel_loopguard.server.metrics import METRICS as OF_SERVERS
from otel_loopguard.settings._sources import variable_of
from otel_loopguard.spans.dialects.genai import KINDS
from otel_loopguard.telemetry import METRICS
from tests.docs import conventions, evaluation
from tests.docs.detectors import CLASSES, PARTS, parts, question
from tests.docs.generated import SECTIONS
from tests.docs.markdown import ROOT, anchors, links, name_of, pages, rewrite, sections
from tests.docs.programs import need_shared
from tests.fields import fields_of

PAGES = pages()


def measured(page: str, name: str) -> bool:
    """Whether a section is made by an evaluation of all recorded runs, which takes minutes."""
    quick = {"captures", "adapters", "versions"}
    return name == "measured" or (page == "docs/project/evaluation.md" and name not in quick)


@pytest.mark.parametrize(
    ("page", "name"),
    [
        pytest.param(*place, marks=pytest.mark.rare if measured(*place) else (), id=":".join(place))
        for place in SECTIONS
    ],
)
def test_a_generated_section_is_fresh(page: str, name: str) -> None:
    """What a page shows is what the code gives; `make docs` writes it anew."""
    if measured(page, name):
        need_shared()
    path = ROOT / page
    written = SECTIONS[page, name]()
    if os.environ.get("LOOPGUARD_WRITE_DOCS"):
        rewrite(path, name, written)
    assert sections(path).get(name) == written, f"{page} is stale: run `make docs`"


def test_every_generated_section_is_known() -> None:
    """A section that nothing writes would grow old unseen."""
    found = {(name_of(page), name) for page in PAGES for name in sections(page)}
    assert found == set(SECTIONS)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """Links between pages, and to their headings, resolve."""
    for link in links(page):
        if re.match(r"https?://", link):
            continue
        path, _, anchor = link.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), link
        assert not anchor or anchor in anchors(to), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_place_on_somebodys_machine(page: Path) -> None:
    """No path of a machine, and no note to ourselves."""
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"(?<![\w.])/(?:work|tmp/w|home|root|Users)/\S*", text) == []
    assert re.findall(r"\b(?:TODO|TBD|FIXME|XXX|lorem)\b", text) == []


def test_pages_can_be_read() -> None:
    """Pages that are read, and not looked up, have at most 31,000 words, as `make house` counts."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    words = [len(page.read_text("utf-8").split()) for page in pages if page.stem not in LOOKED_UP]
    assert len(words) <= 18
    assert sum(words) <= 31_000


def test_every_attribute_is_explained() -> None:
    """docs/reference.md has every name of `semconv.py`, where every metric has one."""
    text = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    names = {name: value for name, value in vars(semconv).items() if name.isupper()}
    assert len(names) > 15
    assert [name for name in names.values() if f"`{name}`" not in text] == []
    metrics = sorted(names[name] for name in names if name.startswith("METRIC_"))
    assert metrics == sorted(metric.name for metric in (*METRICS, *OF_SERVERS))
    events = sorted(names[name] for name in names if name.startswith("EVENT_"))
    table = text.partition("\n## Log events\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"(?m)^\| `([^`]+)` \|", table)) == events


def test_every_room_is_named() -> None:
    """docs/project/architecture.md has every module and package of the top level."""
    text = (ROOT / "docs/project/architecture.md").read_text(encoding="utf-8")
    places = [
        f"`{path.name}/`" if path.is_dir() else f"`{path.name}`"
        for path in (ROOT / "otel_loopguard").iterdir()
        if not path.name.startswith("__") and path.name != "py.typed"
    ]
    assert len(places) > 15
    assert [place for place in places if place not in text] == []


def test_every_name_in_the_prose_is_a_setting() -> None:
    """What pages call a variable or tuning value of ours is one; of changes some were one."""
    # Before a tuning value; of clients in other languages; of tests; the setting that
    # CONTRIBUTING.md adds; and the error code of a run of Google ADK that was stopped.
    others = """
    SETTINGS_FILE TUNING EXPORTER SERVE_TOKEN TOKEN URL WRITE_DOCS FRAMEWORKS_DIR FRAMEWORKS_PYTHON
    FUZZ_SPANS LONG_ANSWER_CHARS STOP
    """
    known = {f"LOOPGUARD_{name}" for name in others.split()}
    known |= set(map(variable_of, fields_of()))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert set(re.findall(r"LOOPGUARD_[A-Z_]+[A-Z]", text)) <= known, page
        tuned = set(re.findall(r"`(tuning\.[a-z_]+\.\w+)", text))
        assert tuned <= set(fields_of()) or page.name == "CHANGELOG.md", page


def test_every_error_is_named() -> None:
    """A page names every error that users may catch."""
    text = "".join(page.read_text("utf-8") for page in PAGES if page.name != "CHANGELOG.md")
    kinds = [LoopGuardError, *LoopGuardError.__subclasses__()]
    ours = {kind.__name__ for kind in kinds if kind.__module__ == "otel_loopguard.errors"}
    assert {name for name in ours if name not in text} == set()


def test_the_schema_of_the_settings_has_every_setting() -> None:
    """`Settings.model_json_schema()` is what docs/reference.md says: name, bounds, description."""
    schema = Settings.model_json_schema()
    groups = schema["$defs"]["Tuning"]["properties"]
    tuned = {
        f"tuning.{group}.{name}": entry
        for group, place in groups.items()
        for name, entry in schema["$defs"][place["$ref"].rpartition("/")[2]]["properties"].items()
    }
    entries = {**schema["properties"], **tuned}
    assert set(entries) == {*fields_of(), "tuning"}
    assert [name for name, entry in entries.items() if not entry.get("description")] == []
    assert schema["additionalProperties"] is False


PICTURE = ROOT / "docs/project/evaluation.svg"


@pytest.mark.rare
def test_the_curve_is_fresh() -> None:
    """It is what bench/curve.py draws of `lab.evaluate --curve`; `make docs` draws it anew."""
    need_shared()
    if os.environ.get("LOOPGUARD_WRITE_DOCS"):
        PICTURE.write_text(evaluation.picture(), encoding="utf-8")
    assert PICTURE.read_text(encoding="utf-8") == evaluation.picture(), "run `make docs`"


@pytest.mark.rare
def test_every_false_notice_was_read() -> None:
    """Of every healthy run that is noticed, somebody read and wrote down what happened."""
    need_shared()
    assert {wrong["id"] for wrong in evaluation.alarms()} <= set(evaluation.READ)


KNOWN = {value for name, value in vars(package).items() if name.startswith("GEN_AI_")}
EVENTS = {"gen_ai.client.inference.operation.details", "gen_ai.evaluation.result"}


def test_every_name_in_the_code_is_in_the_table_and_none_else() -> None:
    """Nobody reads a name that no version has, unless some instrumentation made it up."""
    others = set(conventions.TABLE["others"]["names"])
    assert conventions.in_code() == conventions.named() | others
    assert not conventions.named() & others


def test_every_operation_has_a_version() -> None:
    """The values of `gen_ai.operation.name` that are told apart."""
    given = [name for names in conventions.TABLE["operations"].values() for name in names]
    assert sorted(given) == sorted(KINDS)


def test_versions_are_those_of_the_package() -> None:
    """OpenTelemetry's own constants, of the last version before v0.1.0, say so."""
    assert conventions.named("current") - EVENTS <= KNOWN
    values = {one.value for one in package.GenAiOperationNameValues}
    assert set(conventions.TABLE["operations"]["current"]) == values
    newer = conventions.named("newest") | conventions.named("proposed")
    assert newer & KNOWN <= conventions.named("current")


def test_no_query_uses_a_metric_of_the_conventions() -> None:
    """As the page says: v0.1.0 renames them, and dashboards and alerts have none."""
    folder = ROOT / "collector-config"
    files = [file for kind in ("json", "yaml") for file in folder.rglob(f"*.{kind}")]
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    assert {"operators.json", "health.json", "gateway.yaml"} <= texts.keys()
    metric = re.compile(r"gen_ai_(?:client|server|invoke|execute|workflow)_\w+")
    assert [name for name, text in texts.items() if metric.search(text)] == []


@pytest.mark.parametrize("detector", CLASSES, ids=lambda each: each.name)
def test_a_detector_says_all_of_itself(detector: Any) -> None:
    """A question, what counts and what does not, its rules, and settings that exist."""
    assert re.fullmatch(r"[^\n]+\?", question(detector))
    assert tuple(parts(detector)) == PARTS
    assert detector.rules
    assert set(detector.tuned_by) <= set(fields_of())


def test_every_rule_is_told() -> None:
    """What the code of the detectors gives as a reason is a rule of one of them."""
    places = (ROOT / "otel_loopguard/detectors").rglob("*.py")
    code = "".join(path.read_text(encoding="utf-8") for path in places)
    rules = {rule for detector in CLASSES for rule in detector.rules}
    assert set(re.findall(r'reason ?= ?"(\w+)"', code)) <= rules
    assert len(rules) > 40
