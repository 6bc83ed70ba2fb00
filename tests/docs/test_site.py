"""The site, as it is built."""

import re
import sys
from pathlib import Path

import pytest

from docs.site import MOVED
from tests.docs.markdown import ROOT
from tests.programs import ran


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder; no link of it leads nowhere."""
    folder = tmp_path_factory.mktemp("site")
    mkdocs = Path(sys.executable).with_name("mkdocs")
    environment = {"NO_MKDOCS_2_WARNING": "1", "PATH": "/usr/bin:/bin"}
    ran(mkdocs, "build", "--strict", "--site-dir", folder, cwd=ROOT, env=environment)
    return folder


@pytest.mark.parametrize(("page", "place"), MOVED.items())
def test_an_earlier_address_leads_to_the_text(site: Path, page: str, place: str) -> None:
    """Links to pages that were merged still find what they were about."""
    old = site / page / "index.html"
    (to,) = re.findall(r'content="0; url=([^"#]+)', old.read_text(encoding="utf-8"))
    new = (old.parent / to / "index.html").resolve()
    assert new == site / place.partition("#")[0] / "index.html"
    assert f'id="{place.partition("#")[2]}"' in new.read_text(encoding="utf-8")
