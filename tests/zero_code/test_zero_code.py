"""The guard works in an agent that was not changed, by variables or a configuration file."""

import json
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from otel_loopguard import semconv
from tests.tables import toml
from tests.zero_code.interpreter import interpreter, run

AGENT = str(Path(__file__).with_name("agent.py"))
TOOL = "execute_tool search"
OTHERS = ",".join(
    found.name
    for found in entry_points(group="opentelemetry_instrumentor")
    if found.name != "loopguard"
)
QUIET = {
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
    "OTEL_TRACES_EXPORTER": "none",
    # logfire reads OTEL_TRACES_SAMPLER_ARG as a number where it is installed, unless this is set;
    # pydantic loads it as a plugin.
    "LOGFIRE_TRACE_SAMPLE_RATE": "1",
    # They import their frameworks, which takes seconds.
    "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": OTHERS,
}
LIVE_OFF = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*"}

FILE = """
file_format: "1.0"
tracer_provider:
  processors: [{{{processor}: {{exporter: {exporter}}}}}]
{rest}
"""
INSTRUMENTATION = """
instrumentation/development:
  python:
    loopguard: {}
"""


def instrumented(
    *arguments: str, traceback: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs the agent under `opentelemetry-instrument`, which logs a traceback of mistakes only."""
    python = interpreter("opentelemetry.instrumentation", "opentelemetry.distro")
    command = str(Path(python).with_name("opentelemetry-instrument"))
    done = run(command, python, AGENT, *arguments, **{**QUIET, **variables})
    assert done.returncode == 0, done.stderr
    assert ("Traceback" in done.stderr) is traceback
    return done


def configured(
    path: Path, exporter: str, rest: str = "", processor: str = "simple"
) -> dict[str, str]:
    """The variable that has a configuration file read, which is written."""
    interpreter("opentelemetry.configuration", "opentelemetry.distro")
    file = path / "otel.yaml"
    text = FILE.format(processor=processor, exporter=exporter, rest=rest)
    file.write_text(text, encoding="utf-8")
    return {"OTEL_CONFIG_FILE": str(file)}


def spans(output: str) -> list[dict[str, Any]]:
    """Reads what the console exporter printed."""
    decoder, found = json.JSONDecoder(), []
    text = output.strip()
    while text:
        span, end = decoder.raw_decode(text)
        found.append(span)
        text = text[end:].lstrip()
    return found


def actions(output: str, name: str = TOOL) -> list[str | None]:
    """Returns the action on each span of that name, in order of export."""
    named = [span["attributes"] for span in spans(output) if span["name"] == name]
    return [attributes.get(semconv.DECISION_ACTION) for attributes in named]


def announced(log: str) -> Counter[str]:
    """Counts the decisions that the guard logged, by action; the agent prints meanwhile."""
    return Counter(re.findall(r"otel-loopguard: (deny|abort)\b.*: session", log))


def decided(output: str) -> Counter[str]:
    """Counts how many tool spans each decision is on."""
    return Counter(
        span["attributes"][semconv.DECISION_ID]
        for span in spans(output)
        if span["name"] == TOOL and semconv.DECISION_ID in span["attributes"]
    )


OURS = {"OTEL_TRACES_EXPORTER": "loopguard", "LOOPGUARD_EXPORTER": "console"}
SETS = {"console": {"OTEL_TRACES_EXPORTER": "console"}, "ours": OURS, "live off": LIVE_OFF}
SAMPLER = "  sampler: {loopguard: {}}"


class Case(NamedTuple):
    """What is set, and what comes of it."""

    set: str = ""  # variables that many cases have
    variables: Mapping[str, str] = {}  # and more of them
    exporter: str = ""  # in a configuration file, if there is one
    processor: str = "simple"
    instrumentor: str = ""
    sampler: bool = False
    hint: int | None = None  # the call whose exported span has it; 0: no span has any decision
    run: str | None = None  # the action on its span
    flag: str = "allow"  # what the agent finds when it asks
    spans: int = 9  # that are exported
    said: str = ""  # a part of the log
    traceback: bool = False  # `opentelemetry-instrument` logs one, of its own first try
    once: bool = False  # exporter and instrumentor are both there, and one guard decides

    def environment(self, folder: Path) -> dict[str, str]:
        """The variables, also that of the file."""
        known: dict[str, str] = {}
        for name in filter(None, self.set.split(", ")):
            known |= SETS[name]
        known |= self.variables
        if self.exporter:
            rest = SAMPLER if self.sampler else ""
            rest += INSTRUMENTATION.format(self.instrumentor) if self.instrumentor else ""
            known |= configured(folder, self.exporter, rest, self.processor)
        return known


CASES = toml(Path(__file__).with_suffix(".toml"))


@pytest.mark.parametrize("name", CASES)
def test_an_agent_that_was_not_changed_is_watched_as_is_set(name: str, tmp_path: Path) -> None:
    """Whatever is wrong is named once, and all spans and other instrumentations go on."""
    case = Case(**CASES[name])
    done = instrumented("flag", traceback=case.traceback, **case.environment(tmp_path))
    assert f"flag: {case.flag}" in done.stderr
    assert done.stderr.count(case.said) == 1 or case.traceback or not case.said
    assert case.said in done.stderr
    assert case.traceback or "Failed to auto initialize" not in done.stderr
    found = spans(done.stdout)
    assert len(found) == case.spans
    if case.hint == 0:
        assert not any(semconv.DECISION_ACTION in span["attributes"] for span in found)
    elif case.hint:
        assert actions(done.stdout)[: case.hint] == [None] * (case.hint - 1) + ["hint"]
        assert ("abort" in actions(done.stdout)) is (case.hint == 3)
    if case.run:
        assert actions(done.stdout, "invoke_agent looper") == [case.run]
    if case.once:
        assert announced(done.stderr)["deny"] == 1
        assert set(decided(done.stdout)) >= {_run_decision(done.stdout)}


@pytest.mark.parametrize("asking", [("flag",), ()], ids=["asks", "asks nothing"])
def test_log_events_leave_by_the_logger_provider_that_is_there(asking: tuple[str, ...]) -> None:
    """`OTEL_LOGS_EXPORTER` is enough: each decision comes out, with the trace of its span."""
    done = instrumented(*asking, OTEL_LOGS_EXPORTER="console")
    events = [one for one in spans(done.stdout) if one.get("event_name") == "loopguard.decision"]
    told = [event["attributes"][semconv.DECISION_ACTION] for event in events]
    assert told[:2] == ["hint", "deny"]
    assert told[-1] == "abort"
    assert all(int(event["trace_id"], 16) for event in events)


def test_exporter_and_instrumentor_together_report_once() -> None:
    """One guard decides: the run's span and the tool spans carry the same decisions."""
    alone, both = instrumented(**OURS, **LIVE_OFF), instrumented("flag", **OURS)
    assert announced(alone.stderr) == announced(both.stderr) == {"deny": 1, "abort": 1}
    assert set(decided(both.stdout)) >= {_run_decision(both.stdout)}
    assert "flag: abort" in both.stderr


def _run_decision(output: str) -> str:
    (run_span,) = (span for span in spans(output) if span["name"] == "invoke_agent looper")
    return run_span["attributes"][semconv.DECISION_ID]


def test_options_of_the_file_may_be_lists_maps_and_variables(tmp_path: Path) -> None:
    """A variable that is not set is as an option that is not there."""
    options = """
      repeat_threshold: ${HERE_FIVE}
      mode: ${NOT_SET_ANYWHERE}
      poll_tools: [job_status, wait_for_build]
      tools: {search: {error_threshold: 4}}
"""
    file = configured(tmp_path, "{console: {}}", INSTRUMENTATION.format(options))
    done = instrumented("settings", HERE_FIVE="5", **file)
    assert "settings: 5.0 guard ['job_status', 'wait_for_build'] 4.0" in done.stderr


def test_the_environment_and_the_file_of_settings(tmp_path: Path) -> None:
    """Every `LOOPGUARD_` variable counts, and goes before the file in `LOOPGUARD_SETTINGS_FILE`."""
    file = tmp_path / "loopguard.toml"
    text = 'repeat_threshold = 4\nmode = "shadow"\npoll_tools = ["other"]\n'
    file.write_text(text + "[tools.search]\nerror_threshold = 4\n", encoding="utf-8")
    done = instrumented(
        "settings", LOOPGUARD_SETTINGS_FILE=str(file), LOOPGUARD_REPEAT_THRESHOLD="6",
        LOOPGUARD_POLL_TOOLS="job_status,wait_for_build",
    )  # fmt: skip
    assert "settings: 6.0 shadow ['job_status', 'wait_for_build'] 4.0" in done.stderr
