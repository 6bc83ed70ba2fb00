"""The control flag over HTTP: asked, waited for, followed, and set by people."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from otel_loopguard import Action, Settings
from otel_loopguard._control.flag import Flag
from otel_loopguard.server import Server
from otel_loopguard.server.app import Changes
from tests.server.serving import CLIENT, asking, call, control, post, send, serving


def act(server: Server, action: str, session: str = "chat-1", **body: str) -> httpx.Response:
    return CLIENT.post(f"{server.url}/v1/sessions/{session}/{action}", json=body)


def test_the_control_says_what_was_decided_and_why() -> None:
    with serving() as server:
        row = control(server, "new")
        assert (row["session"], row["action"], row["stops"]) == ("new", "allow", False)
        send(server, 0, 1, 2, 3)
        row = control(server)
        assert (row["decision"]["detector"], row["decision"]["tool"]) == ("exact_repeat", "search")
        assert (row["action"], row["stops"], row["by"]) == ("deny", True, "policy")
        assert "search" in row["reason"]
        assert row["hint"]
        assert "nothing was found" not in json.dumps(row)


def test_who_asks_about_a_call_has_heard_no_hint() -> None:
    """It stays until the control is asked for, also when the call found something new."""
    with serving(guard=Settings(budget_tokens=1000, budget_action="hint")) as server:
        chat, found = asking("read"), call(1)
        chat["attributes"] |= {"gen_ai.usage.input_tokens": 900}
        found["attributes"]["gen_ai.tool.call.result"] = "Rain is expected in the north tonight."
        assert control(server)["hint"] is None
        post(server, chat)
        body = {"tool": "search", "arguments": {"q": "x"}}
        CLIENT.post(f"{server.url}/v1/sessions/chat-1/control", json=body)
        post(server, found)
        assert "900 of 1000 tokens" in control(server)["hint"]


def test_a_deny_refuses_the_calls_of_its_loop() -> None:
    """Of a tool that others need, too; also once such another call lowered the deny."""

    def refused(arguments: object, tool: str = "search") -> bool:
        body = {"tool": tool} | ({} if arguments is None else {"arguments": arguments})
        return CLIENT.post(f"{server.url}/v1/sessions/chat-1/control", json=body).json()["stops"]

    with serving() as server:
        send(server, 0, 1, 2, 3)
        assert [refused(one) for one in ({"q": "x"}, '{"q": "x"}', None)] == [True] * 3
        assert not refused({"q": "y"})
        assert not refused({"q": "x"}, tool="write")
        other = call(4)
        other["attributes"] |= {
            "gen_ai.tool.call.arguments": '{"q": "y"}',
            "gen_ai.tool.call.result": "no",
            "error.type": "NotFound",
        }
        post(server, other)
        assert control(server)["action"] == "allow"
        assert refused({"q": "x"})
        assert act(server, "abort").is_success
        assert refused({"q": "y"})


def test_the_words_of_a_refusal_are_no_result_whichever_server_was_asked() -> None:
    """A framework may make a result of what its agent was told at another one of a fleet."""
    with serving() as server:
        send(server, 0, 1, 2, 3)
        told = control(server)
        for number in (4, 5):
            refused = call(number)
            refused["attributes"]["gen_ai.tool.call.result"] = told["hint"]
            post(server, refused)
        assert (told["action"], control(server)["action"]) == ("deny", "abort")


def test_a_guard_that_is_off_judges_nothing() -> None:
    with serving(guard=Settings(enabled=False)) as server:
        assert send(server, *range(12)).is_success
        assert control(server)["action"] == "allow"
        assert CLIENT.get(f"{server.url}/v1/sessions").json()["sessions"] == []


def test_a_question_waits_for_a_change() -> None:
    """And no longer than it says."""
    with serving() as server:
        assert control(server, wait="0.1")["action"] == "allow"
        wrong = CLIENT.get(f"{server.url}/v1/sessions/a/control?wait=soon")
        assert wrong.status_code == 422
        assert wrong.json()["detail"] == "wait must be a number of seconds"
        send(server, 0)
        known = control(server)
        with ThreadPoolExecutor() as asker:
            waiting = asker.submit(control, server, wait="20", since=known["version"])
            time.sleep(0.2)
            assert not waiting.done()
            assert act(server, "pause", by="ann", reason="looking").is_success
        row = waiting.result()
        assert (row["action"], row["by"], row["reason"]) == ("pause", "ann", "looking")


def test_who_has_just_looked_hears_of_a_change_and_nobody_else() -> None:
    """Every change woke all who wait, also of other tenants, and was lost on who did not yet."""
    one, two, strange = Flag("one", 60), Flag("two", 60), Flag("two", 60)
    flags = {"ann": {"one": one, "two": two}, "bob": {"two": strange}}

    async def waited() -> None:
        engines = {tenant: SimpleNamespace(guard=Known(own)) for tenant, own in flags.items()}
        changes = Changes(cast("Any", engines))
        other = asyncio.create_task(changes.wait("ann", "two", 120))
        stranger = asyncio.create_task(changes.wait("bob", "two", 120))
        await asyncio.sleep(0)

        async def looked() -> None:
            one.set(Action.ABORT)
            await changes.wait("ann", "one", 120)

        await asyncio.wait_for(looked(), 60)
        assert not other.done()
        await asyncio.to_thread(two.set, Action.ABORT)
        await asyncio.wait_for(other, 60)
        assert not stranger.done()
        await asyncio.to_thread(strange.set, Action.ABORT)
        await asyncio.wait_for(stranger, 60)

    asyncio.run(waited())


class Known:
    """A guard that knows flags."""

    def __init__(self, flags: dict[str, Flag]) -> None:
        self.flag_of = flags.get


def test_changes_are_sent_as_events() -> None:
    with serving() as server:
        send(server, 0)
        found: list[str] = []
        with CLIENT.stream("GET", f"{server.url}/v1/sessions/chat-1/events") as events:
            assert events.headers["content-type"].startswith("text/event-stream")
            for line in events.iter_lines():
                if line.startswith("data: "):
                    found.append(json.loads(line.removeprefix("data: "))["action"])
                    if len(found) == 2:
                        break
                    act(server, "abort")
        assert found == ["allow", "abort"]


@pytest.mark.parametrize("scope", ["call", "session"])
def test_a_false_alarm_is_allowed_and_only_noted_from_then_on(scope: str) -> None:
    with serving() as server:
        send(server, 50, session="fine")
        found = act(server, "allow", "fine").json()
        assert (found["setting"], found["stopped"]) == ("", False)
        send(server, 0, 1, 2, 3)
        assert control(server)["action"] == "deny"
        allowed = act(server, "allow", scope=scope, by="ann").json()
        assert (allowed["action"], allowed["setting"]) == ("allow", 'exempt_tools = ["search"]')
        assert allowed["stopped"]
        send(server, *range(4, 12))
        assert control(server)["action"] == "allow"
        # Another loop of the session is stopped, unless all of it is allowed.
        for number in range(12, 18):
            one = call(number)
            one["attributes"]["gen_ai.tool.call.arguments"] = '{"q": "y"}'
            post(server, one).raise_for_status()
            action = control(server)["action"]  # who asks has heard it
        assert action == ("abort" if scope == "call" else "allow")


def test_the_document_describes_every_path() -> None:
    with serving() as server:
        document = CLIENT.get(f"{server.url}/v1/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    parts = ("", "/control", "/events", "/pause", "/resume", "/abort", "/answer", "/allow")
    assert set(document["paths"]) == {
        *("/livez", "/readyz", "/metrics", "/v1/sessions"),
        *(one + part for one in ("/v1/sessions/{session}", "/v1/session") for part in parts),
    }
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)


def test_the_document_has_what_a_body_may_have() -> None:
    with serving() as server:
        send(server, 0)
        document = CLIENT.get(f"{server.url}/v1/openapi.json").json()
        for path, methods in document["paths"].items():
            if "post" not in methods:
                continue
            schema = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
            assert schema["additionalProperties"] is False
            url = server.url + path.replace("{session}", "chat-1")
            for name in (*schema["properties"], "another"):
                answer = CLIENT.post(url, json={name: []}, params={"id": "chat-1"})
                assert answer.status_code == 422
                assert (f"there is no {name!r}" in answer.json()["detail"]) is (name == "another")
