"""The site, as it is built."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site import MOVED
from tests.docs.markdown import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder; no link of it leads nowhere."""
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [Path(sys.executable).with_name("mkdocs"), "build", "--strict", "--site-dir", folder],
        cwd=ROOT, env={"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.parametrize(("page", "place"), MOVED.items())
def test_an_earlier_address_leads_to_the_text(site: Path, page: str, place: str) -> None:
    """Links to pages that were merged still find what they were about."""
    old = site / page / "index.html"
    (to,) = re.findall(r'content="0; url=([^"#]+)', old.read_text(encoding="utf-8"))
    new = (old.parent / to / "index.html").resolve()
    assert new == site / place.partition("#")[0] / "index.html"
    assert f'id="{place.partition("#")[2]}"' in new.read_text(encoding="utf-8")
