"""What the stack does itself: builds that are kept, torn logs, clear errors."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from stack.builds import COLLECTOR, HERE, MissingError
from stack.programs import Program, installed
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


def test_what_is_missing_or_fails_is_named(tmp_path: Path) -> None:
    """With its package, or the end of its log, at once and not after a minute."""
    with pytest.raises(MissingError, match=r"no-such-program is missing: apt-get .* some-package"):
        installed("no-such-program", package="some-package")
    program = Program("broken", ["sh", "-c", "echo no such option >&2; exit 3"], tmp_path, bool)
    with pytest.raises(RuntimeError, match="broken ended instead of starting:\nno such option"):
        program.start()


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    """Of a log whose writer was killed in a line, all that is whole is read, rotated files too."""
    log = tmp_path / "decisions.jsonl"
    lines = [_line(str(number)) for number in range(4)]
    (tmp_path / "decisions-2026-01-01T00-00-00.000.jsonl").write_text(lines[0] + "\n")
    log.write_text(lines[1] + "\n" + lines[2][:40] + lines[2] + "\n" + lines[3][:-9])
    assert [event["loopguard.decision.id"] for event in events(log)] == ["0", "1", "2"]


def _line(number: str) -> str:
    pair = {"key": "loopguard.decision.id", "value": {"stringValue": number}}
    logs = [{"logRecords": [{"eventName": "loopguard.decision", "attributes": [pair]}]}]
    return json.dumps({"resourceLogs": [{"scopeLogs": logs}]}, separators=(",", ":"))
