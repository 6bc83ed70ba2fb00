"""What `serve` says of settings for Kafka that cannot be used; `tests/e2e` has a broker."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

from otel_loopguard.cli import main
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.server import KafkaSettings, Server, ServerSettings, Tenants
from otel_loopguard.server.kafka import properties_of
from tests.server.serving import serving

if TYPE_CHECKING:
    from pathlib import Path


def test_properties_are_lines_of_names_and_values(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("# who we are\n\nsasl.username = worker\nsasl.password=a=b # c\n")
    assert properties_of(file) == {"sasl.username": "worker", "sasl.password": "a=b # c"}


def test_a_line_that_is_no_property_is_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "kafka.properties"
    file.write_text("sasl.username=worker\nhunter2\n")
    with pytest.raises(LoopGuardSettingsError, match=r"properties:2: expected name=value$"):
        properties_of(file)


def test_passwords_are_not_shown() -> None:
    settings = KafkaSettings("broker:9092", properties={"sasl.password": "hunter2"})
    assert "hunter2" not in repr(ServerSettings(kafka=settings))


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"enable.auto.commit": "true"}, "enable.auto.commit is no property to be set"),
        ({"fetch.speed": "fast"}, 'No such configuration property: "fetch.speed"'),
        ({"session.timeout.ms": "soon"}, "session.timeout.ms"),
    ],
)
def test_a_property_that_cannot_be_used_is_named(properties: dict[str, str], message: str) -> None:
    kafka = KafkaSettings("127.0.0.1:1", properties=properties)

    async def start() -> None:
        await Server(ServerSettings(http="127.0.0.1:0", grpc="", kafka=kafka)).__aenter__()

    with pytest.raises(LoopGuardSettingsError, match=message):
        asyncio.run(start())


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        ({}, r"topics \['otlp_spans'\] of 2 tenants: expected one of its own for each signal, and"),
        ({"topic": "same", "logs_topic": "same"}, "expected one of its own for each signal"),
        ({"topic": ""}, "expected one of its own"),
        ({"topic": "all of {tenant}"}, "topic 'all of one': expected letters, digits"),
        ({"topic": "^otlp_.*"}, "expected letters, digits"),
    ],
)
def test_topics_that_cannot_be_told_apart_or_read_are_refused(
    topics: dict[str, str], message: str
) -> None:
    tenants = Tenants({"a token of sixteen": "one", "another of sixteen": "two"})
    kafka = KafkaSettings("127.0.0.1:1", **topics)
    with pytest.raises(LoopGuardSettingsError, match=message):
        Server(ServerSettings(kafka=kafka), tenants=tenants)


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    command = ["serve", "--http", "127.0.0.1:0", "--grpc", "", "--kafka", "127.0.0.1:1"]
    monkeypatch.setattr(sys, "argv", ["otel-loopguard", *command])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = "kafka = '127.0.0.1:1' needs: pip install 'otel-loopguard[kafka]'"
    assert told in capsys.readouterr().err


def test_a_server_stops_while_no_broker_answers() -> None:
    with serving(kafka=KafkaSettings("127.0.0.1:1")) as server:
        assert server.url
