"""Jaeger's own page: static files, which no registry has, so that somebody brings them."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from stack.builds import JAEGER_VERSION, MissingError, cache
from stack.web import read

VARIABLE = "JAEGER_UI"
"""The environment variable that names another folder; `jaeger.yaml` reads it, too."""

WITHOUT = "this Jaeger has its API and no page: see `make jaeger-ui`"

_ROOT = 'id="jaeger-ui-root"'
WHERE = (
    f"No registry has Jaeger's page: unpack `assets.tar.gz` of jaeger-ui's release "
    f"{JAEGER_VERSION}, and name the folder in it that has `index.html` and `static/`: "
    "make jaeger-ui UI=DIR"
)


def page() -> Path | None:
    """The folder with the page, if there is one."""
    given = os.environ.get(VARIABLE)
    folder = Path(given).resolve() if given else _kept()
    return folder if _is_page(folder) else None


def keep(folder: Path | None) -> Path:
    """Copies a page to where the stack looks for it; where that is.

    Args:
        folder: With the built page; none to ask for one that was kept before.

    Raises:
        MissingError: There is none.
    """
    kept = _kept()
    if folder is None:
        if not _is_page(kept):
            raise MissingError(WHERE)
        return kept
    if not _is_page(folder):
        raise MissingError(f"{folder} is not Jaeger's page. {WHERE}")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="build-") as name:
        copy = shutil.copytree(folder, Path(name) / kept.name)
        shutil.rmtree(kept, ignore_errors=True)
        copy.replace(kept)
    return kept


def has_page(port: int) -> bool:
    """Whether a Jaeger shows its page: one that was given to it, or one that it was built with.

    Args:
        port: Where it answers queries.
    """
    return _ROOT in read(port, "/")


def _kept() -> Path:
    return cache() / f"jaeger-ui-{JAEGER_VERSION}"


def _is_page(folder: Path) -> bool:
    index = folder / "index.html"
    return index.is_file() and _ROOT in index.read_text("utf-8") and (folder / "static").is_dir()
