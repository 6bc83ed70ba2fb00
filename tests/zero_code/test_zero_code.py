"""The guard works in an agent that was not changed, by variables or a configuration file."""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import semconv
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
    path: Path, text: str, *arguments: str, traceback: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Runs the agent with the file in `OTEL_CONFIG_FILE`."""
    interpreter("opentelemetry.configuration", "opentelemetry.distro")
    file = path / "otel.yaml"
    file.write_text(text, encoding="utf-8")
    variables["OTEL_CONFIG_FILE"] = str(file)
    return instrumented(*arguments, traceback=traceback, **variables)


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
    return [
        span["attributes"].get(semconv.DECISION_ACTION)
        for span in spans(output)
        if span["name"] == name
    ]


def announced(log: str) -> Counter[str]:
    """Counts the decisions that the guard logged, by action."""
    return Counter(re.findall(r"^otel-loopguard: (deny|abort)\b.*: session", log, re.MULTILINE))


def decided(output: str) -> Counter[str]:
    """Counts how many tool spans each decision is on."""
    return Counter(
        span["attributes"][semconv.DECISION_ID]
        for span in spans(output)
        if span["name"] == TOOL and semconv.DECISION_ID in span["attributes"]
    )


def test_the_instrumentor_watches_the_agent() -> None:
    """Installed is enough: the run's span carries the decision, and the flag is raised."""
    done = instrumented("flag", OTEL_TRACES_EXPORTER="console")
    assert actions(done.stdout, "invoke_agent looper") == ["abort"]
    assert "flag: abort" in done.stderr


@pytest.mark.parametrize("asking", [("flag",), ()], ids=["asks", "asks nothing"])
def test_log_events_leave_by_the_logger_provider_that_is_there(asking: tuple[str, ...]) -> None:
    """`OTEL_LOGS_EXPORTER` is enough: each decision comes out, with the trace of its span."""
    done = instrumented(*asking, OTEL_LOGS_EXPORTER="console")
    events = [one for one in spans(done.stdout) if one.get("event_name") == "loopguard.decision"]
    told = [event["attributes"][semconv.DECISION_ACTION] for event in events]
    assert told[:2] == ["hint", "deny"]
    assert told[-1] == "abort"
    assert all(int(event["trace_id"], 16) for event in events)


def test_the_instrumentor_is_switched_off_by_the_variable_of_opentelemetry() -> None:
    """`OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=loopguard` leaves the spans alone."""
    done = instrumented(
        OTEL_TRACES_EXPORTER="console", OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="loopguard"
    )
    assert len(spans(done.stdout)) == 9
    assert not any(semconv.DECISION_ACTION in span["attributes"] for span in spans(done.stdout))


def test_the_exporter_alone_annotates() -> None:
    """`OTEL_TRACES_EXPORTER=loopguard` without the live processor finds and writes the loop."""
    done = instrumented(OTEL_TRACES_EXPORTER="loopguard", LOOPGUARD_EXPORTER="console", **LIVE_OFF)
    found = actions(done.stdout)
    assert len(found) == 8
    assert found[:3] == [None, None, "hint"]
    assert "abort" in found
    assert len(spans(done.stdout)) == 9


def test_exporter_and_instrumentor_together_report_once() -> None:
    """One guard decides: the run's span and the tool spans carry the same decisions."""
    variables = {"OTEL_TRACES_EXPORTER": "loopguard", "LOOPGUARD_EXPORTER": "console"}
    alone = instrumented(**variables, **LIVE_OFF)
    both = instrumented("flag", **variables)
    assert announced(alone.stderr) == announced(both.stderr) == {"deny": 1, "abort": 1}
    assert set(decided(both.stdout)) >= {_run_decision(both.stdout)}
    assert "flag: abort" in both.stderr


def _run_decision(output: str) -> str:
    (run_span,) = (span for span in spans(output) if span["name"] == "invoke_agent looper")
    return run_span["attributes"][semconv.DECISION_ID]


def test_the_exporter_takes_options_from_a_configuration_file(tmp_path: Path) -> None:
    """A threshold of five in the file moves the hint to the fifth call."""
    text = FILE.format(
        processor="simple",
        exporter="{loopguard: {exporter: console, repeat_threshold: 5}}",
        rest="",
    )
    done = configured(tmp_path, text, **LIVE_OFF)
    assert actions(done.stdout)[:5] == [None] * 4 + ["hint"]


def test_the_instrumentor_takes_options_from_a_configuration_file(tmp_path: Path) -> None:
    """In mode `shadow` the run's span is annotated, and no flag is raised."""
    text = FILE.format(
        processor="simple",
        exporter="{console: {}}",
        rest=INSTRUMENTATION.format("{mode: shadow}"),
    )
    done = configured(tmp_path, text, "flag")
    (run_span,) = (span for span in spans(done.stdout) if span["name"] == "invoke_agent looper")
    assert run_span["attributes"][semconv.DECISION_SHADOW] is True
    assert "flag: allow" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("{enabled: false}", ""),
        (
            "{mode: shadow, repeat_threshold: often}",
            "repeat_threshold (LOOPGUARD_REPEAT_THRESHOLD)",
        ),
        ("{treshold: 3}", "treshold: there is no such setting"),
    ],
    ids=["switched off", "bad value", "unknown name"],
)
def test_what_the_file_switches_off_or_gets_wrong_stays_off(
    tmp_path: Path, options: str, said: str
) -> None:
    """`opentelemetry-instrument` starts it once more without options: no guard acts by that."""
    rest = INSTRUMENTATION.format(options)
    text = FILE.format(processor="simple", exporter="{console: {}}", rest=rest)
    done = configured(tmp_path, text, "flag", traceback=bool(said))
    assert said in done.stderr
    assert "flag: allow" in done.stderr
    assert len(spans(done.stdout)) == 9
    assert not any(semconv.DECISION_ACTION in span["attributes"] for span in spans(done.stdout))


def test_options_of_the_file_may_be_lists_maps_and_variables(tmp_path: Path) -> None:
    """A variable that is not set is as an option that is not there."""
    options = """
      repeat_threshold: ${HERE_FIVE}
      mode: ${NOT_SET_ANYWHERE}
      poll_tools: [job_status, wait_for_build]
      tools: {search: {error_threshold: 4}}
"""
    text = FILE.format(
        processor="simple",
        exporter="{console: {}}",
        rest=INSTRUMENTATION.format(options),
    )
    done = configured(tmp_path, text, "settings", HERE_FIVE="5")
    assert "settings: 5.0 guard ['job_status', 'wait_for_build'] 4.0" in done.stderr


def test_the_environment_and_the_file_of_settings(tmp_path: Path) -> None:
    """Every `LOOPGUARD_` variable counts, and goes before the file in `LOOPGUARD_SETTINGS_FILE`."""
    file = tmp_path / "loopguard.toml"
    file.write_text(
        'repeat_threshold = 4\nmode = "shadow"\npoll_tools = ["other"]\n'
        "[tools.search]\nerror_threshold = 4\n",
        encoding="utf-8",
    )
    done = instrumented(
        "settings",
        LOOPGUARD_SETTINGS_FILE=str(file),
        LOOPGUARD_REPEAT_THRESHOLD="6",
        LOOPGUARD_POLL_TOOLS="job_status,wait_for_build",
    )
    assert "settings: 6.0 shadow ['job_status', 'wait_for_build'] 4.0" in done.stderr


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("LOOPGUARD_MODE", "loud", "mode (LOOPGUARD_MODE) = 'loud'"),
        ("LOOPGUARD_SETTINGS_FILE", "nowhere.toml", "there is no such file"),
    ],
)
def test_a_wrong_variable_is_named_and_the_agent_goes_on(
    variable: str, value: str, said: str
) -> None:
    """Without a guard, with all of its spans, and with all other instrumentations."""
    done = instrumented("flag", OTEL_TRACES_EXPORTER="console", **{variable: value})
    assert said in done.stderr
    assert "Failed to auto initialize" not in done.stderr
    assert "flag: allow" in done.stderr
    assert len(spans(done.stdout)) == 9


def test_a_wrong_variable_loses_no_span_of_the_exporter() -> None:
    """The exporter passes them on as they are, and says why once."""
    done = instrumented(
        OTEL_TRACES_EXPORTER="loopguard", LOOPGUARD_EXPORTER="console", LOOPGUARD_MODE="loud"
    )
    assert done.stderr.count("spans go on as they are") == 1
    assert len(spans(done.stdout)) == 9


def test_the_exporter_behind_takes_options_from_a_configuration_file(tmp_path: Path) -> None:
    """The inner exporter may be a name with what it is made with."""
    text = FILE.format(
        processor="simple",
        exporter="{loopguard: {exporter: {console: {service_name: inner}}}}",
        rest="",
    )
    done = configured(tmp_path, text, **LIVE_OFF)
    assert actions(done.stdout)[:3] == [None, None, "hint"]


@pytest.mark.parametrize(("argument", "exported"), [("0", 0), ("1", 9)])
def test_the_sampler_in_a_configuration_file_takes_its_argument_from_the_variable(
    tmp_path: Path, argument: str, exported: int
) -> None:
    """Samplers get no options from the file; the guard sees what is not exported."""
    text = FILE.format(
        processor="simple", exporter="{console: {}}", rest="  sampler: {loopguard: {}}"
    )
    done = configured(tmp_path, text, "flag", OTEL_TRACES_SAMPLER_ARG=argument)
    assert len(spans(done.stdout)) == exported
    assert "flag: abort" in done.stderr


@pytest.mark.parametrize(
    ("exporter", "instrumentor", "first"),
    [
        ("{loopguard: {exporter: console}}", "{}", 3),
        ("{loopguard: {exporter: console, repeat_threshold: 5}}", "{}", 5),
        ("{loopguard: {exporter: console}}", "{repeat_threshold: 5}", 5),
        ("{loopguard: {exporter: console, span_events: true}}", "{repeat_threshold: 5}", 5),
    ],
    ids=["no options", "options on the exporter", "options on the instrumentor", "on both"],
)
def test_both_in_a_configuration_file_report_once(
    tmp_path: Path, exporter: str, instrumentor: str, first: int
) -> None:
    """Whoever has the options, one guard decides, and the hint is where they say."""
    rest = INSTRUMENTATION.format(instrumentor)
    text = FILE.format(processor="batch", exporter=exporter, rest=rest)
    done = configured(tmp_path, text)
    found = actions(done.stdout)
    assert found[:first] == [None] * (first - 1) + ["hint"]
    assert announced(done.stderr)["deny"] == 1
    assert set(decided(done.stdout)) >= {_run_decision(done.stdout)}


@pytest.mark.parametrize("argument", ["0", "parentbased_traceidratio,0", "always_off"])
def test_a_sampler_of_nothing_leaves_the_guard_its_eyes(argument: str) -> None:
    """With a ratio of 0 nothing is exported, and the loop is seen and stopped all the same."""
    done = instrumented(
        "flag",
        OTEL_TRACES_SAMPLER="loopguard",
        OTEL_TRACES_SAMPLER_ARG=argument,
        OTEL_TRACES_EXPORTER="loopguard",
        LOOPGUARD_EXPORTER="console",
    )
    assert spans(done.stdout) == []
    assert "flag: abort" in done.stderr


def test_the_same_sampler_without_the_guard_is_blind() -> None:
    """With the SDK's own ratio sampler of 0 the flag stays down: the sampler is what helps."""
    done = instrumented(
        "flag",
        OTEL_TRACES_SAMPLER="parentbased_traceidratio",
        OTEL_TRACES_SAMPLER_ARG="0",
        OTEL_TRACES_EXPORTER="console",
    )
    assert spans(done.stdout) == []
    assert "flag: allow" in done.stderr


def test_a_bad_sampler_argument_is_named_and_the_agent_goes_on() -> None:
    """The SDK logs variable, value and expectation, and uses its default sampler."""
    done = instrumented(
        OTEL_TRACES_SAMPLER="loopguard",
        OTEL_TRACES_SAMPLER_ARG="often",
        OTEL_TRACES_EXPORTER="console",
    )
    assert "OTEL_TRACES_SAMPLER_ARG is 'often'" in done.stderr
    assert len(actions(done.stdout)) == 8
