"""What every adapter does in its real framework, with a model that goes on whatever it is told."""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from otel_loopguard.cli.app import app
from tests.frameworks.harness import FRAMEWORKS, Framework, finished, line_of, started
from tests.stores.servers import Server, wait_for
from tests.test_examples import OUTPUTS, printed
from tests.zero_code.interpreter import ROOT

EACH = [
    pytest.param(one, marks=pytest.mark.rare if one.apart else (), id=name)
    for name, one in FRAMEWORKS.items()
]


@pytest.fixture(params=EACH, scope="module")
def framework(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["instrumented", "bare"])
def variant(request: pytest.FixtureRequest) -> Any:
    """With an instrumentation that people use, and with nothing but the adapter."""
    return request.param


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.kill()


def test_a_model_that_does_not_listen_is_stopped(framework: Framework, variant: str) -> None:
    """The hint is in the next request; nothing runs after the deny; the abort ends the run."""
    line = _stopped(framework, variant)
    assert line["model_calls_after_abort"] <= 1
    first, *others, last = line["decisions"]
    assert (first, "deny" in others, last) == ("hint", True, "abort")
    _compare(framework, line)


def test_a_model_that_obeys_is_left_alone(framework: Framework, variant: str) -> None:
    """It hears the hint and answers: the run completes, and nothing was stopped."""
    line = _run(framework, "obedient", variant)
    assert line["hint_in_next_request"] is True
    assert set(line["decisions"]) == {"hint"}
    assert line["ends"].startswith("result: ")
    assert "I could not find it." in line["ends"]
    assert line["doubled"] == 0
    _compare(framework, line)


@pytest.mark.parametrize("without", ["alone", "unwatched"])
def test_without_a_processor_the_adapter_feeds_the_default_guard(
    framework: Framework, without: str
) -> None:
    """It stops a model that does not listen as with a processor, instrumented or not."""
    line = _stopped(framework, without)
    assert line["decisions"] == ["hint", "deny", "abort"]
    assert line["executed"] == 4


def test_alone_a_run_is_paused_and_goes_on(framework: Framework) -> None:
    """An adapter that feeds the default guard itself waits while its session is paused."""
    _went_on(_run(framework, "paused", "alone"))


def test_a_paused_run_waits_and_goes_on(
    framework: Framework,
    variant: str,
    redis: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Paused from another process nothing runs; resumed from another process it completes."""
    session, file = f"{framework.name}-{uuid.uuid4().hex}", tmp_path / "go"
    # Nobody waits for the reply of a run that has ended just now.
    monkeypatch.setenv("LOOPGUARD_STORE_PREFIX", session)
    running = started(
        framework,
        *("paused", "--session", session, "--paused-file", str(file), "--variant", variant),
        LOOPGUARD_STORE_URL=redis.url, LOOPGUARD_STORE_PREFIX=session,
    )  # fmt: skip
    try:
        wait_for(lambda: Path(f"{file}.reached").exists() or running.ended(), 120)
        _tell(redis, "pause", session)
        file.touch()
        _nothing_runs(file, made=2)
        _tell(redis, "resume", session)
        line = line_of(finished(running))
    except BaseException:
        running.close()
        raise
    _went_on(line)
    assert line["doubled"] == 0
    _compare(framework, line)


def test_the_example_is_stopped(framework: Framework) -> None:
    """Its model gets a hint, is refused and aborted, after four searches; as its page shows."""
    name = {"langchain": "langgraph"}.get(framework.name, framework.name)
    program = ROOT / "examples" / f"{name}_agent.py"
    lines = printed(finished(started(framework, program=program)))
    actions = [line.split()[0] for line in lines if " after " in line and " searches: " in line]
    assert actions == ["hint", "deny", "abort"]
    (end,) = (line for line in lines if line.startswith("stopped: 'search' was called "))
    assert end.endswith("(4 searches)")
    shown = [block for block in OUTPUTS if block.note.endswith(f"/{program.name}")]
    assert all(sorted(lines) == sorted(printed(block.text)) for block in shown)


def _stopped(framework: Framework, variant: str) -> dict[str, Any]:
    line = _run(framework, "stubborn", variant)
    assert (line["hint_after"], line["hint_in_next_request"]) == (3, True)
    assert (line["executed_after_deny"], line["executed_after_abort"]) == (0, 0)
    assert line["parts"] == line["executed"]
    assert line["doubled"] == 0
    return line


def _went_on(line: dict[str, Any]) -> None:
    assert (line["executed"], line["decisions"]) == (3, [])
    assert line["ends"].startswith("result: ")


def _run(framework: Framework, scenario: str, variant: str) -> dict[str, Any]:
    return line_of(finished(started(framework, scenario, "--variant", variant)))


def _compare(framework: Framework, line: dict[str, Any]) -> None:
    """With what is known of the program; `LOOPGUARD_WRITE_DOCS` makes it known."""
    key = f"{line['scenario']}, {line['variant']}"
    if os.environ.get("LOOPGUARD_WRITE_DOCS"):
        framework.keep(key, line)
    known = framework.results.get(key, {})
    changed = {name for name in known | line if known.get(name) != line.get(name)}
    # Whether a model is asked once more before the abort is heard depends on which thread judges.
    assert changed <= {"versions", "model_calls_after_abort"}, (
        "results.json is stale: run `make frameworks`"
    )


def _tell(redis: Server, *words: str) -> None:
    """Runs `otel-loopguard WORDS` here, which is another process than the agent's."""
    done = CliRunner().invoke(app, [*words, "--store", redis.url])
    assert done.exit_code == 0, done.output


def _nothing_runs(file: Path, *, made: int) -> None:
    """For half a second no call is made; `made` were before."""
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        assert len(Path(f"{file}.executed").read_text(encoding="utf-8").splitlines()) == made
        time.sleep(0.05)
