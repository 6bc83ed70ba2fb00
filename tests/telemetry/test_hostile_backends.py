"""Backends that answer with a bomb, slowly or without end; and what is logged of their address."""

from __future__ import annotations

import gzip
import logging

import pytest

from otel_loopguard._util.worker import DeliveryError
from otel_loopguard.telemetry.backends import Backend, MLflow
from tests.escalation.hooks import Hook, served

PACKED = gzip.compress(gzip.compress(b"[" + b" " * 100_000_000 + b"]"))


def backend(hook: Hook, limit_s: float = 60) -> Backend:
    address = hook.url.replace("://", "://me:hunter2@")
    return MLflow({"MLFLOW_TRACKING_URI": address}, limit_s)


def test_a_reply_is_not_unpacked_and_the_address_not_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with served(Hook(lambda _: (200, PACKED), sent={"content-encoding": "gzip, gzip"})) as hook:
        assert backend(hook).call("POST", "/the-path", {"a": 1}) is None
    ((headers, body),) = hook.posts
    assert (headers["authorization"], headers["accept-encoding"], body) == (
        "Basic bWU6aHVudGVyMg==", "identity", b'{"a":1}',
    )  # fmt: skip
    assert "hunter2" not in caplog.text
    assert "the-path" not in caplog.text


def test_a_reply_without_end_is_no_reply() -> None:
    """A mebibyte is read of it."""
    with served(Hook(lambda _: (200, b"[" + b"1," * 5_000_000 + b"1]"))) as hook:
        assert backend(hook).call("POST", "/api", {}) is None


@pytest.mark.parametrize("how", [{"drip_s": 0.05}, {"drip_headers_s": 0.05}], ids=str)
def test_a_reply_that_drips_is_left_at_the_limit(how: dict[str, float]) -> None:
    """The limit is one of the whole request, and not of each piece."""
    with (
        served(Hook(lambda _: (200, b" " * 10_000), **how)) as hook,
        pytest.raises(DeliveryError, match=r"no whole reply within 0\.3 s") as failed,
    ):
        backend(hook, 0.3).call("POST", "/api", {})
    assert failed.value.again
