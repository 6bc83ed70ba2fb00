"""What may come over the wire: damaged, huge, slow, and from those who may not."""

from __future__ import annotations

import gzip
import json
import random
import socket
import ssl
import subprocess
import threading
from math import inf, nan
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from google.rpc.status_pb2 import Status

from otel_loopguard import Settings
from otel_loopguard.cli import serve
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.server import Server, ServerSettings, Tenants
from tests.server.serving import PROTOBUF, call, certified, request, send, serving

if TYPE_CHECKING:
    from pathlib import Path

JSON = {"content-type": "application/json"}
GOOD = request(call(0)).SerializeToString()
TOKEN = "a token of sixteen signs or more"


@pytest.mark.parametrize(
    ("body", "headers", "status", "why"),
    [
        (b"\xff\xff\xff", PROTOBUF, 400, "not a valid protobuf message"),
        (GOOD[:-5], PROTOBUF, 400, "not a valid protobuf message"),
        (b"{", JSON, 400, "not valid OTLP JSON"),
        (b"[]", JSON, 400, "not valid OTLP JSON"),
        (b'{"resourceSpans": 7}', JSON, 400, "not valid OTLP JSON"),
        (b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"zz"}]}]}]}', JSON, 400, "valid"),
        (b"[" * 100_000, JSON, 400, "body"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, JSON, 400, "body"),
        (GOOD, {"content-type": "text/plain"}, 415, "is not supported"),
        (GOOD, {}, 415, "is not supported"),
        (GOOD, {**PROTOBUF, "content-encoding": "br"}, 415, "is not supported"),
        (GOOD, {**PROTOBUF, "content-encoding": "gzip"}, 400, "not valid gzip"),
        (gzip.compress(GOOD)[:-9], {**PROTOBUF, "content-encoding": "gzip"}, 400, "cut"),
    ],
)
def test_what_cannot_be_read_is_a_clear_error(
    body: bytes, headers: dict[str, str], status: int, why: str
) -> None:
    with serving() as server:
        answer = httpx.post(f"{server.url}/v1/traces", content=body, headers=headers)
        assert answer.status_code == status
        if headers.get("content-type") == "application/json":
            assert why in answer.json()["message"]
        else:
            assert why in Status.FromString(answer.content).message
        assert send(server, 0).is_success


def test_a_body_of_100_megabytes_is_refused() -> None:
    packed = gzip.compress(b"\0" * (100 * 1024 * 1024), 1)
    with serving() as server:
        for body, headers in (
            (b"\0" * (100 * 1024 * 1024), PROTOBUF),
            (packed, {**PROTOBUF, "content-encoding": "gzip"}),
        ):
            # Python's client reads no answer before it has sent everything.
            answer = httpx.post(f"{server.url}/v1/traces", content=body, headers=headers)
            assert answer.status_code == 413
        assert send(server, 0).is_success


def test_random_bytes_never_end_it() -> None:
    chance = random.Random(7)
    with serving() as server, httpx.Client(base_url=server.url) as client:
        for _ in range(300):
            body = bytearray(GOOD)
            for _ in range(chance.randrange(1, 20)):
                body[chance.randrange(len(body))] = chance.randrange(256)
            answer = client.post("/v1/traces", content=bytes(body), headers=PROTOBUF)
            assert answer.status_code in {200, 400}
        assert client.get("/healthz").text == "ok"


def test_a_slow_client_keeps_nobody_waiting() -> None:
    with serving() as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(b"POST /v1/traces HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 999\r\n")
            assert send(server, 0).is_success


def test_more_than_it_may_hold_is_answered_with_busy(caplog: pytest.LogCaptureFixture) -> None:
    with serving(most_held_bytes=1, lateness_s=0.5) as server:
        answers: list[httpx.Response] = []

        threads = [
            threading.Thread(target=lambda n=number: answers.append(send(server, n)))
            for number in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        codes = sorted(answer.status_code for answer in answers)
        assert codes[0] == 200
        assert codes[-1] == 503
        assert all("retry-after" in one.headers for one in answers if one.status_code == 503)
    why = "requests are refused: more than 1 bytes of requests would be held (busy; told again"
    assert sum(why in one for one in caplog.messages) == 1


def test_without_the_right_token_nothing_is_answered() -> None:
    with serving(Tenants({TOKEN: "one"})) as server:
        for authorization in ("", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x"):
            headers = {"authorization": authorization} if authorization else {}
            for method, path in (
                ("GET", "/v1/sessions"), ("GET", "/v1/sessions/a/control"),
                ("POST", "/v1/sessions/a/abort"), ("POST", "/v1/traces"),
            ):  # fmt: skip
                answer = httpx.request(method, server.url + path, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert httpx.get(server.url).is_success


@pytest.mark.parametrize(
    "headers", [{"host": "attacker.test"}, {"origin": "http://attacker.test"}, {"origin": "null"}]
)
def test_pages_of_other_sites_neither_read_nor_steer(headers: dict[str, str]) -> None:
    with serving() as server:
        answer = httpx.get(f"{server.url}/v1/sessions", headers=headers)
        assert answer.status_code in {403, 421}
        forged = httpx.post(
            f"{server.url}/v1/sessions/a/abort", content=b"{}",
            headers={"content-type": "text/plain"},
        )  # fmt: skip
        assert forged.status_code == 415


@pytest.mark.parametrize("body", [b"[]", b"{", b'"x"', b'{"by": 7}', b'{"reason": []}'])
def test_bodies_of_other_forms_are_refused(body: bytes) -> None:
    with serving() as server:
        send(server, 0)
        url = f"{server.url}/v1/sessions/chat-1/pause"
        answer = httpx.post(url, content=body, headers=JSON)
        assert answer.status_code in {400, 422}
        assert answer.headers["content-type"] == "application/problem+json"
        assert json.loads(answer.content)["detail"]


FORWARDS = (
    "ftp://x", "http://", "localhost:4317", "grpc://", "ftp://me:hunter2@x", "http://me:hunter2@",
    "http://me:hunter2/x@y", "http://[::1", "grpc://h:99999",
)  # fmt: skip
HEADERS = (("a b", "x"), ("a", "x\r\ny: z"), ("a", "€"), ("", "x"))
UNUSABLE: list[tuple[dict[str, Any], str]] = [
    ({"http": "0.0.0.0:0"}, "without tokens only loopback is served"),
    ({"grpc": "192.0.2.1:4317"}, "without tokens only loopback is served"),
    ({"http": "4318"}, "http = '4318': expected host:port"),
    ({"http": "127.0.0.1:99999"}, "expected host:port"),
    *(({"lateness_s": value}, f"lateness_s = {value}: expected") for value in (-1, nan, inf)),
    *(({"forward": url}, "forward = ") for url in FORWARDS),
    *(({"forward": "http://h", "headers": dict([header])}, "headers: ") for header in HEADERS),
]


@pytest.mark.parametrize(("settings", "why"), UNUSABLE)
def test_what_cannot_be_used_is_an_error_at_start(settings: dict[str, Any], why: str) -> None:
    """Told without a password."""
    with pytest.raises(LoopGuardSettingsError, match=why) as raised:
        Server(ServerSettings(**settings))
    assert "hunter2" not in str(raised.value)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return certified(tmp_path_factory.mktemp("tls"))


def test_tls(pair: tuple[str, str]) -> None:
    certificate, key = pair
    with serving(certificate=certificate, key=key) as server:
        trusted = ssl.create_default_context(cafile=certificate)
        assert httpx.get(f"{server.url}/healthz", verify=trusted).text == "ok"


@pytest.mark.parametrize(
    ("certificate", "key"), [(True, False), (False, True), ("none.pem", True), (True, "none.pem")]
)
def test_a_certificate_that_cannot_be_used_is_an_error_at_start(
    pair: tuple[str, str], certificate: bool | str, key: bool | str
) -> None:
    """The server neither listened nor ended."""
    files = [made if given is True else given or "" for made, given in
             zip(pair, (certificate, key), strict=True)]  # fmt: skip
    with pytest.raises(LoopGuardSettingsError, match=r"key = "):
        Server(ServerSettings(certificate=files[0], key=files[1]))


def test_an_encrypted_key_is_not_asked_for(pair: tuple[str, str], tmp_path: Path) -> None:
    key = str(tmp_path / "encrypted.pem")
    command = f"openssl rsa -aes256 -passout pass:secret -in {pair[1]} -out {key}"
    subprocess.run(command.split(), check=True, capture_output=True)
    with pytest.raises(LoopGuardSettingsError, match="TLS cannot use them"):
        Server(ServerSettings(certificate=pair[0], key=key))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, r"expected a file ending in \.toml"),
        ("", r"expected a table \[tokens\]"),
        ("tokens = 7", r"expected a table \[tokens\]"),
        ("[tokens]\none = 'short'", "has 5 characters, expected 16 or more"),
        (f"[tokens]\none = '{TOKEN}'\ntwo = '{TOKEN}'", "is another's"),
        ("[tokens]\none = [7]", "is no token"),
        ("[tokens", "cannot be read"),
    ],
)
def test_tokens_that_cannot_be_used_are_an_error(
    tmp_path: Path, text: str | None, why: str
) -> None:
    file = tmp_path / ("tokens" if text is None else "tokens.toml")
    file.write_text(text or "")
    with pytest.raises(LoopGuardSettingsError, match=why) as raised:
        Tenants.from_file(file)
    assert TOKEN not in str(raised.value)


def test_a_token_that_is_too_short_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(serve.TOKEN, "short")
    with pytest.raises(
        LoopGuardSettingsError,
        match=r"LOOPGUARD_SERVE_TOKEN: .* has 5 characters, expected 16 or more",
    ):
        serve.run(Settings(), None, [])
