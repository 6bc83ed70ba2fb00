"""The table of conventions has the names that the code has, in versions that have them."""

import re

from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as package

from otel_loopguard.spans.dialects.genai import KINDS
from tests.docs import conventions
from tests.docs.markdown import ROOT

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
