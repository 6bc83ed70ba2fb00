"""Addresses of stores, and what is said of wrong ones."""

import sys

import pytest

from otel_loopguard import LoopGuard, LoopGuardSettingsError, Settings
from otel_loopguard.stores import open_store
from otel_loopguard.stores.redis import RedisStore
from otel_loopguard.stores.redis_connection import parse_redis_url
from tests.tables import rows


@pytest.mark.parametrize(("url", "mode", "one", "hosts", "service"), rows(__file__, "addresses"))
def test_addresses(url: str, mode: str, one: str, hosts: str, service: str) -> None:
    """Each way to reach a Redis has one spelling, and all can be opened without connecting."""
    found = parse_redis_url(url)
    assert found[:2] == (mode, one)
    assert (" ".join(f"{host}:{port}" for host, port in found[2]), found[3]) == (hosts, service)
    assert isinstance(open_store(Settings(store_url=url.replace("?x=1", ""))), RedisStore)


@pytest.mark.parametrize(("told", "url"), rows(__file__, "wrong"))
def test_a_wrong_address_fails_at_start(told: str, url: str) -> None:
    """The error names the setting and what is wrong, and has no password."""
    with pytest.raises(LoopGuardSettingsError) as error:
        open_store(Settings(store_url=url))
    assert told in str(error.value)
    assert "store_url (LOOPGUARD_STORE_URL) " in str(error.value)
    assert "s3cret" not in f"{error.value} {Settings(store_url=url)!r}"


@pytest.mark.parametrize("key", ["", "the same in every process"], ids=["without", "with"])
def test_a_store_without_a_key_is_warned_of_at_start(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Before anything is lost, and with the remedy."""
    LoopGuard(Settings(store_url="redis://127.0.0.1:1/0", digest_key=key)).shutdown()
    told = [one.getMessage() for one in caplog.records if "digest_key" in one.getMessage()]
    assert len(told) == (not key)
    assert all("LOOPGUARD_DIGEST_KEY" in message for message in told)


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package works without redis-py until a Redis is wanted."""
    for name in [name for name in sys.modules if name.startswith("otel_loopguard.stores.re")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(LoopGuardSettingsError, match=r"pip install 'otel-loopguard\[redis\]'"):
        open_store(Settings(store_url="redis://h"))
