"""The control flag over HTTP: asked, waited for, followed, and set by people."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx
import pytest

from otel_loopguard import Settings
from otel_loopguard._control.flag import Flag
from otel_loopguard.core import Action
from otel_loopguard.server.api import Changes
from tests.server.serving import PROTOBUF, call, request, serving

if TYPE_CHECKING:
    from otel_loopguard.server import Server


def send(server: Server, *numbers: int, session: str = "chat-1") -> None:
    made = request(*(call(number, session) for number in numbers)).SerializeToString()
    httpx.post(f"{server.url}/v1/traces", content=made, headers=PROTOBUF).raise_for_status()


def post(server: Server, action: str, session: str = "chat-1", **body: str) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/sessions/{session}/{action}", json=body)


def control(server: Server, session: str = "chat-1", **query: str) -> dict[str, object]:
    answer = httpx.get(f"{server.url}/v1/sessions/{session}/control", params=query, timeout=30)
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


def test_a_session_that_is_not_known_yet_is_allowed() -> None:
    with serving() as server:
        row = control(server, "new")
        assert (row["session"], row["action"], row["stops"]) == ("new", "allow", False)


def test_the_control_says_what_was_decided_and_why() -> None:
    with serving() as server:
        send(server, 0, 1, 2, 3)
        row = control(server)
        decision = row.pop("decision")
        assert isinstance(decision, dict)
        assert (decision["detector"], decision["tool"]) == ("exact_repeat", "search")
        assert (row["action"], row["stops"], row["by"]) == ("deny", True, "policy")
        assert "search" in str(row["reason"])
        assert row["hint"]
        assert "nothing was found" not in json.dumps(row)


def test_a_question_waits_for_a_change() -> None:
    with serving() as server:
        send(server, 0)
        known = control(server)
        rows: list[dict[str, object]] = []
        waiting = threading.Thread(
            target=lambda: rows.append(control(server, wait="20", since=str(known["version"])))
        )
        waiting.start()
        time.sleep(0.2)
        assert not rows
        assert post(server, "pause", by="ann", reason="looking").is_success
        waiting.join()
        assert (rows[0]["action"], rows[0]["by"], rows[0]["reason"]) == ("pause", "ann", "looking")


def test_who_has_just_looked_hears_of_a_change_and_nobody_else() -> None:
    """Every change woke all who wait, and was lost on who did not wait yet."""
    one, two = Flag("one", 60), Flag("two", 60)

    async def waited() -> None:
        changes = Changes()
        other = asyncio.create_task(changes.wait("two", 120))
        await asyncio.sleep(0)

        async def looked() -> None:
            one.set(Action.ABORT)
            await changes.wait("one", 120)

        await asyncio.wait_for(looked(), 60)
        assert not other.done()
        await asyncio.to_thread(two.set, Action.ABORT)
        await asyncio.wait_for(other, 60)

    asyncio.run(waited())


def test_a_question_waits_no_longer_than_it_says() -> None:
    with serving() as server:
        assert control(server, wait="0.1")["action"] == "allow"
        wrong = httpx.get(f"{server.url}/v1/sessions/a/control?wait=soon")
        assert (wrong.status_code, wrong.json()["detail"]) == (
            422, "wait must be a number of seconds",
        )  # fmt: skip


def test_changes_are_sent_as_events() -> None:
    with serving() as server:
        send(server, 0)
        found: list[str] = []
        with httpx.stream("GET", f"{server.url}/v1/sessions/chat-1/events", timeout=60) as events:
            assert events.headers["content-type"].startswith("text/event-stream")
            for line in events.iter_lines():
                if line.startswith("data: "):
                    found.append(json.loads(line.removeprefix("data: "))["action"])
                    if len(found) == 1:
                        post(server, "abort")
                    if len(found) == 2:
                        break
        assert found == ["allow", "abort"]


def test_people_pause_resume_and_abort() -> None:
    with serving() as server:
        send(server, 0)
        for action, body, found in (
            ("pause", {"by": "ann"}, "pause"),
            ("resume", {"by": "ann", "guidance": "look in b.py"}, "hint"),
            ("abort", {"by": "ann", "reason": "enough"}, "abort"),
            ("resume", {}, "allow"),
        ):
            answer = post(server, action, **body)
            assert (answer.status_code, answer.json()["action"]) == (200, found)
        assert post(server, "pause", "unknown").status_code == 404


def test_an_allow_says_what_makes_it_last() -> None:
    """The setting of what was stopped; empty where nothing was."""
    with serving() as server:
        send(server, 0)
        assert post(server, "allow").json()["setting"] == ""
        send(server, 1, 2, 3, 4, 5)
        row = control(server)
        assert row["action"] in {"deny", "abort"}
        assert post(server, "allow").json()["setting"] == 'exempt_tools = ["search"]'


def test_session_keys_may_hold_any_sign() -> None:
    for session in ("a/b", "ä ö", "%2e%2e", "x?y#z", "control"):
        with serving() as server:
            send(server, 0, session=session)
            quoted = quote(session, safe="")
            assert post(server, "pause", quoted).is_success, session
            assert control(server, quoted)["session"] == session
            assert control(server, quoted)["action"] == "pause"


def test_the_document_describes_every_path() -> None:
    with serving() as server:
        document = httpx.get(f"{server.url}/v1/openapi.json").json()
        assert document["openapi"] == "3.1.0"
        parts = ("", "/control", "/events", "/pause", "/resume", "/abort", "/answer", "/allow")
        assert set(document["paths"]) == {
            "/livez",
            "/readyz",
            "/metrics",
            "/v1/sessions",
            *(one + part for one in ("/v1/sessions/{session}", "/v1/session") for part in parts),
        }
        operations = [one for path in document["paths"].values() for one in path.values()]
        names = {operation["operationId"] for operation in operations}
        assert len(names) == len(operations)


def test_a_call_that_was_asked_for_and_never_ends_is_a_stall() -> None:
    guard = Settings(step_timeout_s=1)
    asked = {"type": "tool_call", "id": "c1", "name": "deploy", "arguments": {}}
    answer = json.dumps([{"role": "assistant", "parts": [asked]}])
    model = call(0, attributes={
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
        "gen_ai.conversation.id": "chat-1", "gen_ai.output.messages": answer,
    }, name="chat m")  # fmt: skip
    with serving(guard=guard) as server:
        made = request(model).SerializeToString()
        httpx.post(f"{server.url}/v1/traces", content=made, headers=PROTOBUF).raise_for_status()
        row = control(server, wait="20")
        decision = row["decision"]
        assert isinstance(decision, dict)
        assert (row["action"], decision["detector"], decision["tool"]) == (
            "hint", "stall", "deploy",
        )  # fmt: skip


@pytest.mark.parametrize("scope", ["call", "session"])
def test_a_false_alarm_is_allowed_and_only_noted_from_then_on(scope: str) -> None:
    with serving() as server:
        send(server, 0, 1, 2, 3)
        assert control(server)["action"] == "deny"
        assert post(server, "allow", scope=scope, by="ann").json()["action"] == "allow"
        send(server, *range(4, 12))
        assert control(server)["action"] == "allow"
        # Another loop of the session is stopped, unless all of it is allowed.
        said: list[object] = []
        for number in range(12, 18):
            one = call(number)
            one["attributes"]["gen_ai.tool.call.arguments"] = '{"q": "y"}'
            made = request(one).SerializeToString()
            httpx.post(f"{server.url}/v1/traces", content=made, headers=PROTOBUF).raise_for_status()
            said.append(control(server)["action"])
        assert said[-1] == ("abort" if scope == "call" else "allow")
        assert post(server, "allow", scope="everything").status_code == 422
