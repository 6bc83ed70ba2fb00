"""What the stack does itself: builds that are kept, quickened rules, torn logs, ports."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from stack.builds import COLLECTOR, HERE, JAEGER, MissingError
from stack.ports import Ports, free_ports
from stack.programs import Program, installed, wait_for
from stack.stack import quickened
from stack.views import events


def test_a_binary_is_kept_by_what_it_is_made_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another manifest is another binary; the same one is found again; none is built unasked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text((HERE / "builder-config.yaml").read_text() + "# changed\n")
    other = replace(COLLECTOR, manifest=manifest)
    assert COLLECTOR.path() == COLLECTOR.path() != other.path()
    assert COLLECTOR.path().parent == tmp_path / "otel-loopguard"
    assert COLLECTOR.built() is None


def test_a_variable_names_another_binary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who has a Jaeger says where."""
    (tmp_path / "mine").touch()
    monkeypatch.setenv("JAEGER", str(tmp_path / "mine"))
    assert JAEGER.build() == tmp_path / "mine"


def test_what_is_missing_is_named_with_its_package() -> None:
    """The message says what to install."""
    with pytest.raises(MissingError, match=r"no-such-program is missing: apt-get .* some-package"):
        installed("no-such-program", package="some-package")


@pytest.mark.parametrize(
    ("rule", "quick"),
    [
        ("increase(a[5m]) > 0", "increase(a[9s]) > 0"),
        ("last_over_time(a[1d] offset 5m)", "last_over_time(a[1d] offset 9s)"),
        ("rate(a[10m]) > 3 * b", "rate(a[9s]) > 3 * b"),
        ('a{b="[5]"} == 1', 'a{b="[5]"} == 1'),
    ],
)
def test_rules_look_back_seconds(rule: str, quick: str) -> None:
    """Windows and offsets are shortened, and nothing else; what looks back a day still does."""
    assert quickened(rule, 9) == quick


def test_free_ports_are_free_and_different() -> None:
    """No two are the same, and each can be listened on."""
    ports = [*vars(Ports.free()).values(), *free_ports(3)]
    assert len(set(ports[:-3])) == len(ports) - 3
    with socket.socket() as one:
        one.bind(("127.0.0.1", ports[0]))


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    """The end of its log is in the error, at once and not after a minute."""
    program = Program("broken", ["sh", "-c", "echo no such option >&2; exit 3"], tmp_path, bool)
    with pytest.raises(RuntimeError, match="broken ended instead of starting:\nno such option"):
        program.start()


def test_waiting_ends() -> None:
    """What does not come true is an error that says what it was."""
    with pytest.raises(TimeoutError, match=r"the moon: not so within 0\.1 s"):
        wait_for(lambda: False, "the moon", 0.1)


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    """Of a log whose writer was killed in a line, all that is whole is read, rotated files too."""
    log = tmp_path / "decisions.jsonl"
    lines = [_line(str(number)) for number in range(4)]
    (tmp_path / "decisions-2026-01-01T00-00-00.000.jsonl").write_text(lines[0] + "\n")
    log.write_text(lines[1] + "\n" + lines[2][:40] + lines[2] + "\n" + lines[3][:-9])
    assert [event["loopguard.decision.id"] for event in events(log)] == ["0", "1", "2"]


def _line(number: str) -> str:
    pair = {"key": "loopguard.decision.id", "value": {"stringValue": number}}
    record = {"eventName": "loopguard.decision", "attributes": [pair]}
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).replace(
        " ", ""
    )
