"""`hook serve`: the process that judges, as it runs."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tests.hooks.demo import played
from tests.hooks.running import PROGRAM, Home, hint_of, is_denied, told
from tests.server.serving import attributes, next_hop
from tests.stores.servers import free_port, wait_for


@contextmanager
def serving(home: Home, *options: str) -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [PROGRAM, "hook", "serve", *options], env=home.environment, stderr=subprocess.PIPE
    ) as process:
        try:
            wait_for(lambda: home.is_up() or process.poll() is not None)
            yield process
        finally:
            process.kill()


def test_a_recorded_session_through_the_installed_hooks(home: Home) -> None:
    """Of the real Claude Code, with a model that is stuck; as `make demo-hook` shows it."""
    answers = [(event["hook_event_name"], answer) for event, answer in played(home)]
    assert sum(bool(hint_of(answer)) for _, answer in answers) == 2
    assert sum(is_denied(answer) for _, answer in answers) == 2
    assert sum(answer.get("continue") is False for _, answer in answers) == 1
    assert sum(name.startswith("PostToolUse") for name, _ in answers) == 4


@pytest.mark.parametrize("told_by", ["idleness", "a signal"])
def test_it_ends(home: Home, told_by: str) -> None:
    """By itself, or by a signal; the next event starts another."""
    with serving(home, *(("--idle", "0.001") if told_by == "idleness" else ())) as process:
        if told_by == "a signal":
            process.send_signal(signal.SIGTERM)
        assert (process.wait(60) == 0) is (told_by == "idleness")
    assert (home.state / "hook.sock").exists() is (told_by == "a signal")
    home.begin()
    assert home.call() == ({}, {})


def test_there_is_one_for_a_state(home: Home) -> None:
    with serving(home) as first:
        assert home.run("hook", "serve").returncode == 0
        assert first.poll() is None
        assert home.call() == ({}, {})


def test_one_of_another_version_gives_way(home: Home) -> None:
    """After an upgrade the next event is judged by what was installed."""
    from otel_loopguard.hooks import client
    from otel_loopguard.hooks.state_folder import GREETING, StateFolder

    with serving(home) as process:
        request = f"{GREETING} 99.0.0 claude-code enforce\n".encode() + b'{"hook_event_name": "x"}'
        assert client.send(StateFolder(str(home.state)), request) == b"{}"
        assert process.wait(60) == 0


def test_only_the_user_can_read_what_it_writes(home: Home) -> None:
    with serving(home):
        home.call()
        for path in home.state.iterdir():
            assert not path.stat().st_mode & 0o077, path


@pytest.mark.parametrize("content", [False, True])
def test_calls_are_spans_where_telemetry_goes_somewhere(home: Home, content: bool) -> None:
    with next_hop() as (sink, url):
        home.environment |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_BLRP_SCHEDULE_DELAY": "50",
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true" if content else "false",
        }  # fmt: skip
        with serving(home):
            told(home, is_denied)
            wait_for(lambda: len(sink.spans()) >= home.calls)
            wait_for(lambda: any("deny" in str(log) for log in sink.records()))
    assert [span.name for span in sink.spans()] == ["execute_tool Bash"] * home.calls
    spans = [attributes(span) for span in sink.spans()]
    assert {span["gen_ai.conversation.id"] for span in spans} == {"chat"}
    assert [span["gen_ai.tool.call.id"] for span in spans][:2] == ["toolu_1", "toolu_2"]
    decided = [span.get("loopguard.decision.action") for span in spans]
    assert [action for action in decided[:-1] if action] == ["hint", "deny"]
    assert spans[-1]["error.type"] == "loopguard_deny"
    assert ("pytest" in str(spans)) is content


def test_an_endpoint_that_is_not_there_delays_no_answer_and_no_end(home: Home) -> None:
    home.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{free_port()}"
    with serving(home):
        told(home, is_denied)
