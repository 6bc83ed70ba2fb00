"""Jaeger's page: kept, served with its configuration, and read in a real browser."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import expect
from stack import demo, ui
from stack.builds import HERE, MissingError
from stack.programs import wait_for
from stack.stack import Stack
from stack.views import trace
from stack.web import read

from tests.browser import browser, needs_chromium
from tests.e2e.running import Agents, decisions_of

CONFIG = HERE / "jaeger" / "ui.json"
INDEX = """<html><script>JAEGER_CONFIG = DEFAULT_CONFIG;</script>
<div id="jaeger-ui-root"></div></html>"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "page"
    (made / "static").mkdir(parents=True)
    (made / "index.html").write_text(INDEX)
    (made / "static" / "index.js").write_text("// nothing")
    return made


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(ui.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "otel-loopguard"


def test_a_page_is_kept(folder: Path, cache: Path) -> None:
    """It stays until another one is brought; whoever brings none is told where there is one."""
    with pytest.raises(MissingError, match=r"^No registry has .*: make jaeger-ui UI=DIR$"):
        ui.keep(None)
    kept = ui.keep(folder)
    assert kept.parent == cache
    assert ui.page() == kept == ui.keep(None)
    (folder / "static" / "more.js").touch()
    assert (ui.keep(folder) / "static" / "more.js").exists()
    assert [path.name for path in cache.iterdir()] == [kept.name]
    (folder / "index.html").write_text("This is not the Jaeger UI you are looking for!")
    with pytest.raises(MissingError, match=r"is not Jaeger's page\. No registry has Jaeger's page"):
        ui.keep(folder)


def test_a_trace_is_shown_with_or_without_the_page(
    folder: Path, stacks: Callable[[], Stack], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Links lead to the page, which has its configuration; where none is, the tree is printed."""
    monkeypatch.setenv(ui.VARIABLE, str(folder / "none"))
    stack = stacks()
    port, jaeger = stack.ports.jaeger_query, stack.jaeger()
    stack.gateway()
    found = demo.send(stack, "loop")[-1]["trace"]
    wait_for(lambda: len(trace(port, found)) == 8, "the trace is in Jaeger, whole")
    demo.show_trace(port, found)
    said = capsys.readouterr().out
    assert "no page" in said
    assert "search?" not in said
    shown = [line.split() for line in said.splitlines() if "◆" in line]
    actions = [words[words.index("◆") + 1] for words in shown]
    assert actions == ["abort", "hint", *["deny"] * 3, "abort"]
    assert said.count("── execute_tool search") == 7

    jaeger.kill()
    monkeypatch.setenv(ui.VARIABLE, str(folder))
    stack.jaeger()
    demo.show_trace(port, found)
    assert f"/trace/{found}\n" in capsys.readouterr().out
    (served,) = re.findall("JAEGER_CONFIG = (.*);</script>", read(port, "/"))
    assert json.loads(served) == json.loads(CONFIG.read_text(encoding="utf-8"))
    assert read(port, "/static/index.js") == "// nothing"


@needs_chromium
@pytest.mark.skipif(
    ui.page() is None,
    reason="Jaeger's page is in no registry, so CI has none either: make jaeger-ui UI=DIR",
)
def test_jaegers_page_draws_the_trace_of_a_stopped_agent(stack: Stack, agents: Agents) -> None:
    """A row for each span; the last call, opened, begins with what was decided and why."""
    decisions = decisions_of(agents(stack.ports.gateway_grpc, "loop", "--service", "drawn"))
    port, found = stack.ports.jaeger_query, decisions[-1]["trace"]
    wait_for(lambda: len(trace(port, found)) == 8, "the trace is in Jaeger, whole")
    agent, *calls = trace(port, found)
    message = calls[-1].tags["loopguard.decision.message"]
    with browser() as opened:
        page = opened.new_page()
        page.goto(f"http://127.0.0.1:{port}/trace/{found}")
        rows = page.locator(".span-row .span-name")
        expect(rows).to_have_count(8)
        expect(rows.first).to_contain_text(agent.name)
        rows.last.click()
        tags = page.locator(".AccordianKeyValues--header").filter(has_text="Tags:")
        expect(tags).to_contain_text(f"decision.action=abortloopguard.decision.message={message}")
        tags.click()
        with page.expect_popup() as search:
            page.get_by_title("all traces of session").click()
        expect(search.value.get_by_text("drawn: invoke_agent researcher")).to_be_visible()
