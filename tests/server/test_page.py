"""The page for people, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Page, expect

from otel_loopguard.server import Tenants
from tests.browser import browser, needs_chromium
from tests.server.serving import PROTOBUF, call, request, serving

TOKEN = "a token of sixteen signs or more"

pytestmark = needs_chromium


@pytest.fixture
def page() -> Iterator[Page]:
    problems: list[str] = []
    with browser() as started:
        opened = started.new_page()
        opened.on("pageerror", lambda error: problems.append(str(error)))
        yield opened
    assert not problems


def send(url: str, *numbers: int, session: str = "chat-1", **headers: str) -> None:
    made = request(*(call(number, session) for number in numbers)).SerializeToString()
    httpx.post(f"{url}/v1/traces", content=made, headers={**PROTOBUF, **headers}).raise_for_status()


def test_sessions_are_listed_paused_and_resumed(page: Page) -> None:
    with serving() as server:
        send(server.url, 0, 1, 2, 3)
        send(server.url, 10, session="<img src=x onerror=alert(1)>")
        page.goto(server.url)
        expect(page.get_by_role("status")).to_have_text("2 sessions, 1 stopped")
        stopped = page.get_by_role("row").filter(has_text="chat-1")
        expect(stopped).to_contain_text("deny")
        expect(stopped).to_contain_text("exact_repeat")
        stopped.get_by_role("button", name="chat-1").click()
        expect(page.locator("#detail-decisions")).to_contain_text("deny by exact_repeat")
        stopped.get_by_role("button", name="Resume").click()
        expect(stopped).to_contain_text("allow")
        stopped.get_by_role("button", name="Pause").click()
        expect(stopped).to_contain_text("pause")
        control = httpx.get(f"{server.url}/v1/sessions/chat-1/control").json()
        assert (control["action"], control["by"]) == ("pause", "web page")
        # What a span says is shown as text.
        other = page.get_by_role("row").filter(has_text="<img")
        expect(other).to_be_visible()
        assert page.locator("main img").count() == 0
        page.get_by_label("Filter").fill("chat")
        expect(other).to_be_hidden()


def test_a_server_with_tokens_asks_for_one(page: Page) -> None:
    with serving(Tenants({TOKEN: "one"})) as server:
        send(server.url, 0, authorization=f"Bearer {TOKEN}")
        page.goto(server.url)
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("row").filter(has_text="chat-1")).to_be_visible()
