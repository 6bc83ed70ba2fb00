"""The page for people, in a real browser."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from otel_loopguard import Settings
from otel_loopguard.server import Tenants
from tests.browser import browser, needs_chromium
from tests.server.serving import call, control, post, send, serving

TOKEN = "a token of sixteen signs or more"

pytestmark = needs_chromium


_ENDS = """node => [0, node.firstChild.length - 5].map(at => {
    const range = document.createRange();
    range.setStart(node.firstChild, at);
    range.setEnd(node.firstChild, at + 3);
    return range.getBoundingClientRect().left;
})"""


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def page(started: Browser) -> Iterator[Page]:
    problems: list[str] = []
    opened = started.new_page()
    opened.on("pageerror", lambda error: problems.append(str(error)))
    yield opened
    opened.close()
    assert not problems


def test_sessions_are_listed_paused_and_resumed(page: Page) -> None:
    with serving() as server:
        send(server, 0, 1, 2, 3)
        send(server, 10, session="<img src=x onerror=alert(1)>")
        page.goto(server.url)
        expect(page.get_by_role("status")).to_have_text("2 sessions, 1 stopped")
        stopped = page.get_by_role("row").filter(has_text="chat-1")
        expect(stopped).to_contain_text("deny")
        expect(stopped).to_contain_text("exact_repeat")
        stopped.get_by_role("button", name="chat-1").click()
        expect(page.locator("#detail-decisions")).to_contain_text("deny by exact_repeat")
        expect(stopped.locator(".why")).to_contain_text("exact_repeat")
        stopped.get_by_role("button", name="Resume").click()
        expect(stopped.locator(".badge")).to_have_text("allow")
        expect(stopped.locator(".why")).to_have_text("")
        stopped.get_by_role("button", name="Pause").click()
        expect(stopped).to_contain_text("pause")
        found = control(server)
        assert (found["action"], found["by"]) == ("pause", "web page")
        # What a span says is shown as text.
        other = page.get_by_role("row").filter(has_text="<img")
        expect(other).to_be_visible()
        assert page.locator("main img").count() == 0
        page.get_by_label("Filter").fill("chat")
        expect(other).to_be_hidden()


def test_a_session_that_is_not_listed_is_found_by_its_name(page: Page) -> None:
    """Of many sessions the newest are listed; one that is gone meanwhile is said to be."""
    with serving(guard=Settings(max_sessions=1_050)) as server:
        post(server, *(call(number, f"chat-{number}") for number in range(1_001)))
        page.goto(server.url)
        expect(page.get_by_role("status")).to_contain_text("1 older ones not listed")
        page.get_by_label("Filter").fill("chat-0")
        expect(page.get_by_text("press Enter")).to_be_visible()
        page.get_by_label("Filter").press("Enter")
        expect(page.locator("#detail-title")).to_have_text("chat-0")
        post(server, *(call(number, f"chat-{number}") for number in range(2_000, 3_000)))
        gone = page.get_by_role("alert").filter(has_text="there is no session 'chat-0'")
        expect(gone).to_be_visible()
        expect(page.locator("#detail")).to_be_hidden()
        expect(page.get_by_role("status")).to_contain_text("sessions, 0 stopped")


def test_names_read_as_their_script_does_and_no_script_says_so(
    page: Page, started: Browser
) -> None:
    name = "محادثة 42 (test)"
    with serving() as server:
        send(server, 0, session=name)
        page.goto(server.url)
        page.get_by_role("button", name=name).click()
        for place in ("button.name", "#detail-title"):
            # Its first word is right of its last one.
            first, last = page.locator(place).evaluate(_ENDS)
            assert first > last, place
        without = started.new_context(java_script_enabled=False).new_page()
        without.goto(server.url)
        expect(without.get_by_text("needs JavaScript")).to_be_visible()
        expect(without.get_by_role("table")).to_be_hidden()
        without.context.close()


def test_a_question_is_answered(page: Page) -> None:
    """What a person writes reaches the model; what was typed stays while the page looks again."""
    with serving(guard=Settings(max_action="pause", pause_limit_s=600)) as server:
        send(server, 0, 1, 2, 3)
        page.goto(server.url)
        page.get_by_role("button", name="Answer").click()
        expect(page.locator("#detail-reason")).to_contain_text("called 4 times")
        page.get_by_label("Tell the model").fill("look the order up")
        failed, refused = call(4), call(5)
        failed["attributes"]["error.type"] = "timeout"
        refused["attributes"]["error.type"] = "loopguard_deny"
        post(server, failed, refused)
        ended = ["search", "search", "search", "search failed", "search refused"]
        expect(page.locator("#detail-actions li")).to_have_text(ended)
        expect(page.get_by_label("Tell the model")).to_have_value("look the order up")
        page.get_by_role("button", name="Change plan").click()
        expect(page.locator("#question")).to_be_hidden()
        found = control(server)
        assert (found["action"], found["by"]) == ("hint", "web page")
        assert found["hint"].endswith("look the order up")
        expect(page.get_by_role("button", name="Answer")).to_have_count(0)


def test_a_server_with_tokens_asks_for_one(page: Page) -> None:
    with serving(Tenants({TOKEN: "one"})) as server:
        send(server, 0, authorization=f"Bearer {TOKEN}")
        page.goto(server.url)
        expect(page.get_by_label("Token")).to_be_visible()
        expect(page.get_by_label("Filter")).to_be_hidden()
        page.get_by_label("Token").fill("not the right one")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert").filter(has_text="token")).to_be_visible()
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("row").filter(has_text="chat-1")).to_be_visible()


def test_the_keyboard_keeps_its_place_while_sessions_change(page: Page) -> None:
    with serving() as server:
        send(server, 0)
        page.goto(server.url)
        row = page.get_by_role("row").filter(has_text="chat-1")
        abort = row.get_by_role("button", name="Abort")
        abort.focus()
        for number in (1, 2):
            send(server, number, session="chat-2")
            send(server, 10 + number)
            expect(row.locator(".number")).to_have_text(str(number + 1))
            expect(abort).to_be_focused()
        row.get_by_role("button", name="chat-1").press("Enter")
        expect(page.locator("#detail-title")).to_be_focused()
        page.get_by_role("button", name="Close").press("Enter")
        expect(row.get_by_role("button", name="chat-1")).to_be_focused()
        # What could not be done is said until something else is.
        refused = {"detail": "it is over"}
        page.route("**/pause?*", lambda route: route.fulfill(status=422, json=refused))
        page.get_by_role("button", name="Pause").first.click()
        expect(page.get_by_role("alert").filter(has_text="it is over")).to_be_visible()


def test_it_works_on_a_phone(page: Page) -> None:
    """Nothing is wider than the page, and whoever is stuck can be aborted."""
    page.set_viewport_size({"width": 390, "height": 800})
    long = "order-4711-of-a-customer-with-a-long-name-and-9f1c2d3e4b5a69788796a5b4c3d2e1f0"
    with serving() as server:
        send(server, 0, 1, 2, 3, session=long)
        page.goto(server.url)
        page.get_by_role("button", name=long).click()
        expect(page.locator("#detail-decisions")).to_contain_text("step 4: deny by exact_repeat")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        box = page.get_by_role("button", name="Abort").first.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390
