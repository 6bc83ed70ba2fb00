"""Secrets of the settings appear in no log, no error and no print of the settings."""

import json
import logging
import traceback

import pytest
from pydantic import SecretStr

from otel_loopguard import LoopGuardSettingsError, Settings
from otel_loopguard.errors import StoreError
from otel_loopguard.stores import open_store
from otel_loopguard.stores.redis_connection import parse_redis_url
from tests.escalation.agents import stuck, until, watched
from tests.escalation.hooks import Hook, served
from tests.hostile.test_odd_redis import odd_redis
from tests.tables import rows

SECRETS = dict.fromkeys(("webhook_secret", "propagation_key", "digest_key"), "s3cret-s3cret-s3cret")
SECRETS["webhook_url"] = "https://hooks.example.com/services/s3cret-path?token=s3cret"
SECRETS["store_url"] = "redis://:s3cret@h/1?sentinel_password=s3cret"


def chained(error: BaseException) -> str:
    """All that a traceback prints of an error."""
    return "".join(traceback.format_exception(error))


def test_settings_do_not_show_them() -> None:
    """Printed, as a map, or in the message of an assignment that is refused."""
    made = Settings(**SECRETS)
    told = [repr(made), str(made), str(made.model_dump()), str(made.values())]
    with pytest.raises(ValueError, match="frozen") as error:
        made.webhook_secret = SecretStr("s3cret")
    assert "s3cret" not in "".join([*told, str(error.value)])
    for name in SECRETS:
        assert isinstance(getattr(made, name), SecretStr)
        assert "s3cret" in getattr(made, name).get_secret_value()


@pytest.mark.parametrize("name", ["propagation_key", "digest_key", "webhook_secret"])
@pytest.mark.parametrize("value", ["s3cret", "s3cret-15-bytes", "whsec_czNjcmV0"])
def test_a_short_key_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name, without its value; bytes, not characters, are counted; an empty key is none."""
    for given in ({name: value}, {}):
        with pytest.raises(LoopGuardSettingsError, match="at least 16 bytes") as error:
            Settings(**given)
        assert f"{name} (LOOPGUARD_{name.upper()}): " in str(error.value)
        assert value not in chained(error.value)
        monkeypatch.setenv(f"LOOPGUARD_{name.upper()}", value)
    monkeypatch.delenv(f"LOOPGUARD_{name.upper()}")
    long_enough = "whsec_" + "QUFB" * 6 if name == "webhook_secret" else "ü" * 8
    assert getattr(Settings(**{name: long_enough}), name)
    assert not getattr(Settings(**{name: ""}), name)


@pytest.mark.parametrize("wrong", rows(__file__, "wrong"))
def test_a_wrong_value_is_not_repeated(wrong: str) -> None:
    """The message names the setting; nor does it repeat what was meant for one of these."""
    given = json.loads(wrong)
    with pytest.raises(LoopGuardSettingsError) as error:
        Settings(**given)
    assert next(iter(given)) in str(error.value)
    assert "s3cret" not in chained(error.value)
    assert "5131313" not in chained(error.value)


@pytest.mark.parametrize("sign", ["/", "#", "?", "@", ":", "//", "/#?@", "%2", " ", "\n"])
@pytest.mark.parametrize("address", rows(__file__, "addresses"))
def test_no_password_of_a_store_is_told(address: str, sign: str) -> None:
    """Whatever signs it has, and whatever else is wrong with the address."""
    password = f"s3c{sign}r3t"
    url = address.format(password)
    try:
        store = open_store(Settings(store_url=url))
    except LoopGuardSettingsError as error:
        told = chained(error)
    else:
        told = repr(parse_redis_url(url)) + repr(store)
    for part in ("s3c", "r3t"):
        assert part not in told


@pytest.mark.parametrize(
    "reply",
    [
        b"-ERR unknown command `AUTH`, with args beginning with: `s3cret-of-many-si` \r\n",
        b"-ERR I got s3cret-of-many-signs\r\n",
    ],
    ids=["half", "whole"],
)
def test_a_server_that_repeats_the_password(reply: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Servers without AUTH write it into their error: it is not passed on, nor logged."""
    caplog.set_level(logging.DEBUG)
    with odd_redis(lambda _: reply) as url:
        store = open_store(Settings(store_url=url.replace("//", "//:s3cret-of-many-signs@")))
        with pytest.raises(StoreError, match="127") as error:
            store.ping()
    assert "s3cret" not in chained(error.value)
    assert "s3cret" not in caplog.text


def test_a_webhook_address_that_httpx_refuses_fails_at_start() -> None:
    """And not at the first escalation, with the address in a traceback."""
    for url in ("https://h:99999/s3cret", "https://h\x00/s3cret", "https://[s3cret/x", "s3cret"):
        with pytest.raises(LoopGuardSettingsError, match="webhook_url") as error:
            watched(webhook_url=url)
        assert "s3cret" not in chained(error.value)


def test_the_address_of_a_webhook_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """Neither ours nor that of httpx, whose own records of other requests stay as they are."""
    caplog.set_level(logging.DEBUG)
    with served(Hook()) as hook:
        base = hook.url.removesuffix("/hook")
        guard = watched(webhook_url=f"{base}/s3cret/path?token=s3cret-too")
        stuck(guard, "a")
        until(lambda: hook.posts)
        until(lambda: any("HTTP Request" in one.getMessage() for one in caplog.records))
        guard.shutdown()
        import httpx

        httpx.post(f"{base}/of-the-user")
    said = [one.getMessage() for one in caplog.records if one.name == "httpx"]
    told = [one for one in said if one.startswith("HTTP Request")]
    assert f'POST {base}/*** "HTTP' in told[0]
    assert any("/of-the-user" in one for one in told)
    assert "s3cret" not in caplog.text
