"""A real broker of Kafka as a source of `serve`: what is read, judged and committed."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from google.protobuf.json_format import MessageToDict
from stack.builds import BALANCER
from stack.jars import KAFKA
from stack.ports import Ports
from stack.programs import wait_for
from stack.stack import Stack

from otel_loopguard.server import KafkaSettings, Tenants
from otel_loopguard.server.kafka import properties_of
from tests.e2e.running import need
from tests.e2e.test_fleet import CALLS, SESSIONS, Sink, judged_once, span
from tests.server.serving import PROTOBUF, attributes, call, next_hop, request, serving
from tests.server.test_logs import records
from tests.stores.servers import free_port, need_redis

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from stack.programs import Program

    from otel_loopguard.server import Server
    from tests.server.serving import Hop

# A worker that was killed is missed after two seconds.
QUICK: Final = {"session.timeout.ms": "2000", "heartbeat.interval.ms": "500"}
# A broker that has just started loads its groups, or elects who does.
NOT_READY: Final = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_names = count()


def _answer(ask: Callable[[], Future[Any]]) -> Any:
    """What a broker answers, asked again while the coordinator of the group is not ready."""
    answers: list[Any] = []

    def answered() -> bool:
        try:
            answers.append(ask().result(60))
        except KafkaException as error:
            if error.args[0].code() not in NOT_READY:
                raise
        return bool(answers)

    wait_for(answered, "the coordinator of a group is ready")
    return answers[0]


class Topic:
    """A topic of its own, and the group that reads it."""

    def __init__(self, brokers: str, partitions: int = 1, name: str = "") -> None:
        self.brokers = brokers
        self.name = name or f"spans-{next(_names)}"
        self.group = f"group-of-{self.name}"
        self._written = 0
        self._partitions = [TopicPartition(self.name, number) for number in range(partitions)]
        admin = self._admin()
        admin.create_topics([NewTopic(self.name, partitions)])[self.name].result(60)

    def _admin(self) -> Any:
        """A client that knows of no broker that went away."""
        return AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})

    @property
    def settings(self) -> KafkaSettings:
        return KafkaSettings(self.brokers, self.name, group=self.group, properties=QUICK)

    def produce(self, *bodies: bytes, key: bytes | None = None) -> None:
        """Writes records; they are there when it returns."""
        producer = Producer({"bootstrap.servers": self.brokers, "log_level": 0})
        for body in bodies:
            producer.produce(self.name, body, key)
        assert producer.flush(60) == 0
        self._written += len(bodies)

    def call(self, *numbers: int) -> None:
        """Writes equal calls of one session, each a record."""
        self.produce(*(request(call(number)).SerializeToString() for number in numbers))

    def committed(self, group: str = "") -> int:
        """How many records its group, or another one, is done with."""
        group = group or self.group
        asked = [ConsumerGroupTopicPartitions(group, list(self._partitions))]
        admin = self._admin()
        found = _answer(lambda: admin.list_consumer_group_offsets(asked)[group])
        return sum(max(0, one.offset) for one in found.topic_partitions)

    def members(self) -> int:
        """How many workers read it."""
        admin = self._admin()
        found = _answer(lambda: admin.describe_consumer_groups([self.group])[self.group])
        return len(found.members)

    def done(self) -> None:
        """Waits until every record is committed."""
        wait_for(lambda: self.committed() == self._written, "all is committed")


class Broker:
    """A broker, and where it is: for everybody, and for those who have a password or a key."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.program = stack.kafka()
        self.open = f"127.0.0.1:{stack.ports.kafka}"
        self.password = f"127.0.0.1:{stack.ports.kafka_password}"
        self.certificate = f"127.0.0.1:{stack.ports.kafka_certificate}"
        self.files = stack.folder / "kafka"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    need(KAFKA)
    with Stack(tmp_path_factory.mktemp("kafka"), Ports.free()) as stack:
        yield Broker(stack)


@pytest.fixture
def topic(broker: Broker) -> Topic:
    return Topic(broker.open)


@pytest.fixture
def hop() -> Iterator[tuple[Hop, str]]:
    with next_hop() as made:
        yield made


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Callable[[Topic, str], Program]]:
    """Starts workers on one Redis that read a topic."""
    need_redis()
    properties = tmp_path / "kafka.properties"
    properties.write_text("".join(f"{name} = {value}\n" for name, value in QUICK.items()))
    with Stack(tmp_path, Ports.free()) as stack:
        stack.redis()

        def start(topic: Topic, forward: str) -> Program:
            options = {
                "--kafka": topic.brokers, "--kafka-topic": topic.name,
                "--kafka-group": topic.group, "--kafka-config": str(properties),
            }  # fmt: skip
            words = [word for option in options.items() for word in option]
            name = f"worker-{next(_names)}"
            return stack.worker(name, free_port(), free_port(), forward, *words)

        yield start


def action(server: Server, session: str = "chat-1", token: str = "") -> str:
    """Asks for the flag; from then on a rung of the session waits until it was read."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    url = f"{server.url}/v1/sessions/{session}/control"
    return httpx.get(url, headers=headers).json()["action"]


def decisions(hop: Hop) -> list[str]:
    return [attributes(one)["loopguard.decision.id"] for one in hop.records()]


def as_json(number: int) -> bytes:
    """The same call in OTLP's JSON, which has ids in hex."""
    made = MessageToDict(request(call(number)))
    (one,) = made["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for name in ("traceId", "spanId"):
        one[name] = base64.b64decode(one[name]).hex()
    return json.dumps(made).encode()


def test_records_are_judged_sent_on_and_committed(topic: Topic, hop: tuple[Hop, str]) -> None:
    taken, url = hop
    with serving(kafka=topic.settings, forward=url) as server:
        topic.call(0, 1, 2, 3)
        topic.done()
        assert action(server) == "deny"
        assert topic.members() == 1
    assert len(taken.spans()) == 4
    assert len(decisions(taken)) == len(set(decisions(taken))) == 2
    assert topic.members() == 0


def test_records_may_be_json(topic: Topic) -> None:
    with serving(kafka=topic.settings) as server:
        topic.produce(*map(as_json, range(4)))
        topic.done()
        assert action(server) == "deny"


def test_records_and_requests_are_judged_together(topic: Topic) -> None:
    with serving(kafka=topic.settings) as server:
        topic.call(0, 1)
        topic.done()
        body = request(call(2), call(3)).SerializeToString()
        httpx.post(f"{server.url}/v1/traces", content=body, headers=PROTOBUF).raise_for_status()
        assert action(server) == "deny"


def test_a_record_that_is_no_request_is_skipped(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(kafka=topic.settings) as server:
        topic.call(0, 1)
        topic.produce(b"\xffsecret", b'{"secret', b"")
        topic.call(2, 3)
        topic.done()
        assert action(server) == "deny"
        faults = server.engines["default"].guard.faults
        assert faults.counts == {"kafka:BadRequest": 2}
    told = [record for record in caplog.records if "kafka:BadRequest" in record.getMessage()]
    assert len(told) == 1
    assert f"{topic.name}[0]" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize("code", [401, 503])
def test_what_the_next_hop_does_not_take_comes_again(
    topic: Topic, hop: tuple[Hop, str], code: int
) -> None:
    taken, url = hop
    taken.answers = [code] * 1000
    with serving(kafka=topic.settings, forward=url):
        topic.call(0, 1, 2, 3)
        wait_for(lambda: len(taken.answers) < 990, "it was tried again")
        assert topic.committed() == 0
        taken.answers = []
        topic.done()
    assert len({span.span_id for span in taken.spans()}) == 4
    assert len(set(decisions(taken))) == 2


def test_what_the_next_hop_calls_a_bad_request_is_skipped(
    topic: Topic, hop: tuple[Hop, str]
) -> None:
    taken, url = hop
    taken.answers = [400]
    with serving(kafka=topic.settings, forward=url) as server:
        topic.call(0)
        topic.done()
        assert server.engines["default"].guard.faults.counts == {"kafka:BadRequest": 1}
        topic.call(1)
        topic.done()
    assert len(taken.spans()) == 1


def test_what_was_held_back_is_read_again_by_the_next(topic: Topic, hop: tuple[Hop, str]) -> None:
    taken, url = hop
    taken.answers = [503] * 1000
    with serving(kafka=topic.settings, forward=url):
        topic.call(0, 1)
        wait_for(lambda: len(taken.answers) < 995, "it was tried")
    assert topic.committed() == 0
    taken.answers = []
    with serving(kafka=topic.settings, forward=url):
        topic.done()
    assert len(taken.spans()) == 2


def test_a_worker_that_is_killed_before_it_commits_loses_and_repeats_nothing(
    topic: Topic, workers: Callable[[Topic, str], Program], hop: tuple[Hop, str]
) -> None:
    taken, url = hop
    taken.answers = [200, *[503] * 1000]  # decisions are told of, spans are not taken
    topic.call(0, 1, 2, 3)
    killed = workers(topic, url)
    wait_for(lambda: len(taken.answers) < 998, "it was judged and held back")
    assert topic.committed() == 0
    killed.kill()
    assert not taken.spans()
    made = decisions(taken)
    assert len(made) == 2
    taken.answers = []
    workers(topic, url)
    topic.done()
    assert sorted(span.span_id[-1] for span in taken.spans()) == [1, 2, 3, 4]
    assert decisions(taken) == made
    annotated = [attributes(span).get("loopguard.decision.id") for span in taken.spans()]
    assert set(made) <= set(annotated)


@pytest.mark.rare
def test_workers_come_and_go_and_die_under_load(
    broker: Broker, workers: Callable[[Topic, str], Program]
) -> None:
    topic, sink = Topic(broker.open, partitions=4), Sink()

    def send() -> None:
        for number in range(CALLS):
            for session in range(SESSIONS):
                made = span(number, session)
                # By trace, as the Collector does it: the calls of a session are everywhere.
                topic.produce(request(made).SerializeToString(), key=made["trace_id"])

    def came(rounds: int) -> None:
        wait_for(lambda: len(sink.ids()) >= rounds * SESSIONS, f"{rounds} rounds came")

    try:
        hop = f"grpc://127.0.0.1:{sink.port}"
        first, second = workers(topic, hop), workers(topic, hop)
        sending = threading.Thread(target=send)
        sending.start()
        came(1)
        first.kill()
        third = workers(topic, hop)
        came(4)
        second.stop()
        came(8)
        workers(topic, hop)
        sending.join()
        judged_once(sink)
        topic.done()
        third.stop()
        assert topic.members() == 1
    finally:
        sink.stop()


def reading(topic: Topic, brokers: str, file: Path, **properties: str) -> KafkaSettings:
    """Reads a topic with properties out of a file."""
    named = {name.replace("_", "."): value for name, value in properties.items()}
    lines = (f"{name} = {value}\n" for name, value in named.items())
    file.write_text("# of this worker\n\n" + "".join(lines))
    return KafkaSettings(brokers, topic.name, group=topic.group, properties=properties_of(file))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_password_comes_from_a_file(
    broker: Broker, topic: Topic, tmp_path: Path, caplog: pytest.LogCaptureFixture, mechanism: str
) -> None:
    def with_password(password: str) -> KafkaSettings:
        return reading(
            topic, broker.password, tmp_path / "kafka.properties", security_protocol="SASL_SSL",
            ssl_ca_location=str(broker.files / "certificate.pem"), sasl_mechanism=mechanism,
            sasl_username="worker", sasl_password=password,
        )  # fmt: skip

    topic.call(0, 1, 2, 3)
    with serving(kafka=with_password("guessed")):
        wait_for(lambda: "uthentication failed" in caplog.text, "it was said", 60)
    assert "guessed" not in caplog.text
    assert topic.committed() == 0
    with serving(kafka=with_password("a password")) as server:
        topic.done()
        assert action(server) == "deny"


def test_a_certificate_stands_for_a_password(
    broker: Broker, topic: Topic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, certificate = tmp_path / "kafka.properties", str(broker.files / "certificate.pem")
    trusting = {"security_protocol": "SSL", "ssl_ca_location": certificate}
    known = {
        "ssl_certificate_location": certificate, "ssl_key_location": str(broker.files / "key.pem"),
    }  # fmt: skip
    topic.call(0, 1, 2, 3)
    with serving(kafka=reading(topic, broker.certificate, file, **trusting)):
        wait_for(lambda: "Kafka: " in caplog.text, "it was said", 60)
    assert topic.committed() == 0
    with serving(kafka=reading(topic, broker.certificate, file, **trusting, **known)) as server:
        topic.done()
        assert action(server) == "deny"


def test_a_broker_that_is_not_trusted_is_not_read(
    broker: Broker, topic: Topic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "kafka.properties"
    topic.call(0, 1, 2, 3)
    with serving(kafka=reading(topic, broker.certificate, file, security_protocol="SSL")):
        wait_for(lambda: "certificate verify failed" in caplog.text, "it was said", 60)
    assert topic.committed() == 0


def test_log_records_have_a_topic_of_their_own(
    broker: Broker, topic: Topic, hop: tuple[Hop, str]
) -> None:
    taken, url = hop
    logs = Topic(broker.open)
    with serving(kafka=replace(topic.settings, logs_topic=logs.name), forward=url) as server:
        topic.call(0)
        logs.produce(*(records("codex.tool_result", number) for number in range(4)))
        wait_for(lambda: logs.committed(topic.group) == 4, "the records were read")
        # Nobody asks for the flag meanwhile, so that each rung counts at once.
        assert action(server, "run-1") in {"deny", "abort"}
        topic.done()
    assert len(taken.spans()) == 1
    names = [attributes(one).get("call_id") for one in taken.records()]
    assert [name for name in names if name] == [f"call-{number}" for number in range(4)]


def test_each_tenant_has_topics_of_its_own(broker: Broker) -> None:
    tokens = {"a token of sixteen": "one", "another of sixteen": "two"}
    name = f"spans-{next(_names)}"
    one, two = (Topic(broker.open, name=f"{tenant}.{name}") for tenant in tokens.values())
    kafka = KafkaSettings(broker.open, "{tenant}." + name, group=name, properties=QUICK)
    with serving(Tenants(tokens), kafka=kafka) as server:
        one.call(0, 1, 2, 3)
        two.call(0)
        wait_for(lambda: one.committed(name) == 4, "the one was read")
        assert action(server, token="a token of sixteen") == "deny"
        wait_for(lambda: two.committed(name) == 1, "the other was read")
        assert action(server, token="another of sixteen") == "allow"


def test_small_records_are_sent_on_together(topic: Topic, hop: tuple[Hop, str]) -> None:
    taken, url = hop
    topic.produce(*(request(call(n, f"chat-{n}")).SerializeToString() for n in range(100)))
    with serving(kafka=topic.settings, forward=url):
        topic.done()
    assert len({span.span_id for span in taken.spans()}) == 100
    assert len(taken.traces) < 100


def test_one_bad_record_among_many_is_skipped_alone(topic: Topic, hop: tuple[Hop, str]) -> None:
    taken, url = hop
    topic.produce(*(request(call(n, f"chat-{n}")).SerializeToString() for n in range(10)))
    taken.answers = [400, 400]  # of the request that they make together, then of one of them
    with serving(kafka=topic.settings, forward=url) as server:
        topic.done()
        faults = server.engines["default"].guard.faults
        assert faults.counts == {"kafka:BadRequest": 1}
    assert len(taken.spans()) == 9


def test_spans_come_by_way_of_the_collector(broker: Broker, topic: Topic) -> None:
    need(BALANCER)
    broker.stack.producer(topic.name)
    with serving(kafka=topic.settings) as server:
        for number in range(4):
            body = request(call(number)).SerializeToString()
            url = f"http://127.0.0.1:{broker.stack.ports.gateway_http}/v1/traces"
            httpx.post(url, content=body, headers=PROTOBUF).raise_for_status()
        wait_for(lambda: topic.committed() == 4, "all is committed")
        assert action(server) == "deny"


def test_a_broker_goes_away_and_comes_back(
    broker: Broker, topic: Topic, hop: tuple[Hop, str]
) -> None:
    taken, url = hop
    with serving(kafka=topic.settings, forward=url) as server:
        topic.call(0, 1)
        topic.done()
        broker.program.kill()
        assert action(server, "another") == "allow"
        broker.program.start()
        topic.call(2, 3)
        topic.done()
        assert action(server) == "deny"
    assert len(taken.spans()) == 4
