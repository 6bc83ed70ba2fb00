"""The page that sums a backtest up, and two settings compared."""

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from otel_loopguard import Settings
from otel_loopguard.backtest.run import run, settings_hash
from otel_loopguard.cli.app import app
from otel_loopguard.cli.backtest import write_summary
from tests.programs import printed
from tests.server.process import PROGRAM

HOSTILE = "<script>alert('x')</script>\"&"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two stuck sessions and two healthy ones; names of one are not to be trusted."""
    path = tmp_path / "steps.jsonl"
    runs = [
        {"id": f"{name}-{HOSTILE}", "loop": stuck if labelled else None, "steps": [
            {"kind": "tool", "tool": f"find {HOSTILE}", "args": '{"q": "x"}',
             "output": "no rows found" if index < 7 and stuck else f"row {index}",
             "t_start": float(index), "t_end": index + 1.0}
            for index in range(8)
        ]}
        for name, stuck, labelled in (
            ("a", True, True), ("b", True, False), ("c", False, True), ("d", False, True),
        )
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, runs)))
    return path


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_says_what_was_found_and_loads_nothing(source: Path, tmp_path: Path) -> None:
    """Steps count from 1; there is nothing of arguments or results."""
    found = run(str(source), Settings(), tmp_path / "out", jobs=1)
    assert write_summary(found, None, tmp_path / "summary.html") == 2
    page = (tmp_path / "summary.html").read_text("utf-8")
    assert HOSTILE not in page
    assert "&lt;script&gt;" in page
    tags = Tags(page).found
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in tags}
    assert not any(name in attributes for _, attributes in tags for name in ("src", "href"))
    assert sum(tag == "meter" for tag, _ in tags) >= 6
    words = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", page))
    for part in (
        "4 sessions, 32 steps", "exact_repeat", "2 would have been stopped",
        "healthy 2 0 0 0", "stuck 1 1 1 100", "not labelled 1 1 1 100",
        "seconds 14 8 57 2 tool calls 16 8 50 2 USD 0",
    ):  # fmt: skip
        assert part in words, part
    listed = re.findall(r"<tr><td>([ab])-.*?</td><td>steps.jsonl</td><td>(.*?)</tr>", page)
    assert [name for name, _ in listed] == ["a", "b"]
    for _, stop in listed:
        assert re.match(r'deny</td><td class="n">\d</td><td class="n">8</td><td>find &lt;', stop)
        assert "with the same arguments and gave the same" in stop
    assert "no rows found" not in page


def test_two_settings_are_compared(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPGUARD_SETTINGS_FILE", "")
    late = tmp_path / "late.toml"
    late.write_text("deny_after = 20\nabort_after = 30\n")
    out = tmp_path / "out"
    arguments = ["backtest", str(source), "--out", str(out), "--jobs", "1"]
    told = CliRunner().invoke(app, [*arguments, "--compare", str(late)])
    assert told.exit_code == 0, told.output
    assert told.stdout.count("decisions: ") == 2
    page = re.sub("<[^>]*>", " ", (out / "summary.html").read_text("utf-8"))
    assert re.search(r"Two settings compared\s.*abort +ask +\d", page, re.DOTALL)
    assert len(re.findall(r"steps.jsonl +abort", page)) == 2
    monkeypatch.setenv("LOOPGUARD_SETTINGS_FILE", "")
    same = CliRunner().invoke(app, arguments)
    assert same.exit_code == 0
    assert "settings compared" not in (out / "summary.html").read_text("utf-8")


def test_the_digest_is_the_same_in_every_process() -> None:
    code = (
        "from otel_loopguard.backtest.run import settings_hash as h\n"
        "from otel_loopguard.settings import Settings; print(h(Settings()))"
    )
    for seed in ("1", "2"):
        assert printed(code, PYTHONHASHSEED=seed).strip() == settings_hash(Settings())


def test_a_full_disk_is_told_with_its_folder(source: Path, tmp_path: Path) -> None:
    """Of what cannot be written pyarrow names no file."""
    resource = pytest.importorskip("resource")
    command = [PROGRAM, "backtest", str(source), "--out", str(tmp_path / "out"), "--jobs", "1"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )  # fmt: skip
    (line,) = (one for one in done.stderr.splitlines() if "otel-loopguard: " in one)
    assert done.returncode == 2
    assert line.startswith(f"otel-loopguard: {tmp_path / 'out'}: ")
