"""Debian's Chromium, for tests of pages and for pictures of them."""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

_LIMIT_MS = 60_000

needs_chromium = pytest.mark.skipif(
    _CHROMIUM is None and "CI" not in os.environ, reason="there is no chromium"
)


@contextmanager
def browser() -> Generator[Browser]:
    """A browser that reaches nothing but this machine."""
    assert _CHROMIUM is not None, "CI needs chromium"
    expect.set_options(timeout=_LIMIT_MS)
    with sync_playwright() as playwright:
        apart = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"
        options = ["--no-sandbox", "--disable-background-networking", apart]
        opened = playwright.chromium.launch(executable_path=_CHROMIUM, args=options)
        yield opened
        opened.close()
