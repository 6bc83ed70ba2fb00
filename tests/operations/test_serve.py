"""A real Prometheus scrapes a real server, and the questions of the page have answers."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.operations import boards
from tests.operations.programs import OPERATIONS, ROOT
from tests.operations.servers import Prometheus
from tests.server.process import Serve
from tests.server.serving import CLIENT, PROTOBUF, next_hop
from tests.stores.servers import wait_for

TOKEN, SCRAPES = "the token of a tenant", "the token of Prometheus"


def questions() -> list[str]:
    """The expressions of the reference about servers."""
    page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    section = page.partition("### Queries about servers\n")[2].partition("\n##")[0]
    return re.findall(r"^\| [^|`]+ \| `([^`]+)` \|$", section, re.MULTILINE)


def panels() -> list[str]:
    """The expressions of the dashboard about servers."""
    return [
        boards.filled(target["expr"])
        for _, target in boards.queries(boards.board("health"))
        if "loopguard_server_" in target["expr"]
    ]


def test_the_questions_of_the_page_name_metrics_that_there_are() -> None:
    assert len(questions()) == 8
    assert {name for one in questions() for name in boards.unknown(one)} == set()


def test_prometheus_reads_a_server(tmp_path: Path) -> None:
    """As the page configures it; and what is asked there, and by panels, has an answer."""
    tokens = tmp_path / "tokens.toml"
    tokens.write_text(f'metrics = "{SCRAPES}"\n[tokens]\none = "{TOKEN}"\n', encoding="utf-8")
    with (
        next_hop() as (hop, url),
        Serve(tmp_path / "log", "--tokens", str(tokens), "--forward", url) as server,
    ):
        page = OPERATIONS.read_text(encoding="utf-8")
        (block,) = re.findall(r"```text\n(scrape_configs:.*?)```", page, re.DOTALL)
        config: dict[str, Any] = yaml.safe_load(block)
        (job,) = config["scrape_configs"]
        secret = tmp_path / "scrape-token"
        secret.write_text(SCRAPES, encoding="utf-8")
        job["authorization"]["credentials_file"] = str(secret)
        job["static_configs"] = [{"targets": [server.url.partition("//")[2]]}]
        config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        prometheus = Prometheus(tmp_path / "prometheus", "# EOF\n", config)
        prometheus.start()
        try:
            assert server.send(0, TOKEN) == 200
            hop.answers = [503]
            assert server.send(1, TOKEN) == 503
            assert CLIENT.post(f"{server.url}/v1/traces", headers=PROTOBUF).status_code == 401
            assert server.ready() == (200, {})  # the next hop is well again

            def answered() -> list[str]:
                """The questions that have no answer yet."""
                return [one for one in asked if not prometheus.newest(one)]

            asked = (*questions(), *panels())
            # All is ready, and there is no store.
            without = ("ready == 0", "_store_", "_server_leases")
            silent = [one for one in asked if any(name in one for name in without)]
            wait_for(lambda: answered() == silent)
        finally:
            prometheus.kill()
