"""The site, built and looked at in a real browser."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import expect

from docs.site import MOVED
from tests.browser import browser, needs_chromium
from tests.docs.markdown import ROOT

pytestmark = needs_chromium


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address on this machine, which is the one it was built for."""
    folder = tmp_path_factory.mktemp("site")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    address = f"http://127.0.0.1:{server.server_port}/"
    built = subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--site-dir", folder],
        cwd=ROOT, env={"SITE_URL": address, "NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield address
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_front_shows_what_it_is_about(
    site: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    """In the first screen: a run that is stopped, and how to see it; nothing runs off the page."""
    with browser() as opened:
        page = opened.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(site)
        expect(page).to_have_title("otel-loopguard")
        for text in ("◆ abort", "otel-loopguard demo"):
            box = page.get_by_text(text).first.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] < 800, text
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert problems == []


def test_a_link_to_it_is_shown_with_a_picture(site: str) -> None:
    """Name, sentence and picture, and addresses in the map of the site, are those of the site."""
    with browser() as opened:
        page = opened.new_page()
        page.goto(f"{site}concepts/")
        picture = page.locator("meta[property='og:image']").get_attribute("content")
        assert picture == f"{site}card.png"
        assert page.goto(picture).ok  # type: ignore[union-attr]
        page.goto(site)
        shown = page.locator("header img").first
        assert shown.evaluate("image => image.complete && image.naturalWidth > 0")
        sitemap = page.goto(f"{site}sitemap.xml")
        assert sitemap is not None
        assert f"<loc>{site}false-alarms/</loc>" in sitemap.text()


@pytest.mark.parametrize(("page", "place"), MOVED.items())
def test_an_earlier_address_leads_to_the_text(site: str, page: str, place: str) -> None:
    """Links to pages that were merged still find what they were about."""
    with browser() as opened:
        shown = opened.new_page()
        shown.goto(f"{site}{page}/")
        shown.wait_for_url(f"{site}{place}", timeout=60_000)
        expect(shown.locator(f"[id='{place.partition('#')[2]}']")).to_be_attached(timeout=60_000)
