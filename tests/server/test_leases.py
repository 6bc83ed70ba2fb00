"""Several servers on one Redis: one judges a session at a time, and another goes on with it."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from otel_loopguard import LoopGuardSettingsError, Settings
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.dialects import RecordedSpan
from otel_loopguard.engine import Engine
from otel_loopguard.escalation.mailbox import Mailboxes, StoreTransport
from otel_loopguard.server import Server, ServerSettings
from otel_loopguard.server.leases import SessionLeases
from otel_loopguard.server.tenant_guard import Busy, TenantGuard
from otel_loopguard.stores.redis import RedisStore
from tests.server.serving import (
    BEGIN,
    CLIENT,
    SECOND,
    Hop,
    asking,
    call,
    control,
    log_record,
    pair,
    post,
    send,
    serving,
    sessions,
)
from tests.stores.servers import Server as Redis
from tests.stores.servers import free_port, wait_for
from tests.tables import rows

Leases = Callable[..., SessionLeases]


A, B = (1, 1), (1, 2)
SESSIONS = ("chat-1", "chat-2")


@pytest.fixture
def leases(guard: Settings) -> Iterator[Leases]:
    with ExitStack() as made:

        def make(watched_s: float = 30) -> SessionLeases:
            found = SessionLeases(RedisStore(guard), 100, 60, watched_s)
            made.callback(found.close)
            return found

        yield make


class Fleet:
    """Servers on one store, by name; each starts when something is first asked of it."""

    def __init__(self, guard: Settings, hop: Hop) -> None:
        self.guard = guard
        self.hop = hop
        self._running: dict[str, tuple[ExitStack, Server]] = {}

    def __getitem__(self, name: str) -> Server:
        if name not in self._running:
            stack = ExitStack()
            server = stack.enter_context(serving(guard=self.guard, forward=self.hop.url))
            self._running[name] = stack, server
        return self._running[name][1]

    def act(self, name: str, sign: str, kind: str, first: str, last: str, by: str) -> None:  # noqa: PLR0917
        """Does what a word of a script says."""
        numbers = list(range(int(first or 0), int(last or first or 0) + 1))
        if kind == "end":
            self.end(name)
        elif sign == "=":
            found = control(self[name])
            assert (found["action"], by or found["by"]) == (kind, found["by"]), (name, kind, by)
        elif kind == "abort":
            url = f"{self[name].url}/v1/sessions/chat-1/abort"
            CLIENT.post(url, json={"by": "ann"}).raise_for_status()
        elif kind == "prompt":
            told = pair("session.id", "chat-1")
            wrote = log_record("claude_code.user_prompt", numbers[0], told)
            post(self[name], body=wrote, path="logs").raise_for_status()
        else:
            self.hop.answers = [503] * (sign == "!")
            status = post(self[name], *spans_of(kind, numbers)).status_code
            assert status == (503 if sign == "!" else 200)

    def end(self, *names: str) -> None:
        for name in names or list(self._running):
            self._running.pop(name)[0].close()


@pytest.fixture
def fleet(guard: Settings, hop: Hop) -> Iterator[Fleet]:
    made = Fleet(guard, hop)
    yield made
    made.end()


def telling(number: int) -> dict[str, Any]:
    """A model's span, with the result of a call in its request, that asks for the same again."""

    def part(kind: str, one: int, **more: object) -> list[dict[str, object]]:
        role = "assistant" if kind == "tool_call" else "tool"
        return [{"role": role, "parts": [{"type": kind, "id": f"c{one}", **more}]}]

    def asked(one: int) -> list[dict[str, object]]:
        return part("tool_call", one, name="search", arguments={"q": "x"})

    request: list[dict[str, object]] = [{"role": "user", "content": "find x"}]
    for one in range(number):
        request += [*asked(one), *part("tool_call_response", one, response="nothing was found")]
    # Its calls take the time between two of them; a server sees only its own models think.
    end = BEGIN + number * SECOND + SECOND // 10
    return call(number, name="chat m", end_time_unix_nano=end, attributes={
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
        "gen_ai.conversation.id": "chat-1", "gen_ai.input.messages": json.dumps(request),
        "gen_ai.output.messages": json.dumps(asked(number)),
    })  # fmt: skip


def turn(numbers: list[int]) -> list[dict[str, Any]]:
    """The calls that an agent makes in its trace, and its run, which comes when it ends."""
    first, *calls = numbers
    run = call(first, name="invoke_agent helper", attributes={
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper",
        "gen_ai.conversation.id": "chat-1",
    }, end_time_unix_nano=BEGIN + (calls[-1] + 1) * SECOND)  # fmt: skip
    inside = {"trace_id": run["trace_id"], "parent_span_id": run["span_id"]}
    return [*(call(number, **inside) for number in calls), run]


def spans_of(kind: str, numbers: list[int]) -> list[dict[str, Any]]:
    """What a word of a script sends."""
    if kind == "model":
        return [telling(*numbers)]
    if not kind:
        return [call(number) for number in numbers]
    made = turn(numbers)
    return {"turn": made, "calls": made[:-1], "run": made[-1:]}[kind]


WORD = re.compile(r"([ABC])([:!=])([a-z]*)(\d*)-?(\d*)/?(\w*)")


@pytest.mark.parametrize(("_name", "script"), rows(__file__, "scripts"))
def test_a_session_goes_on_at_another_server(
    fleet: Fleet, leases: Leases, _name: str, script: str
) -> None:
    """What each server is sent behind `:` and says behind `=`.

    A request with `!` is judged and stored, but not taken by the next hop. `told` are the decisions
    that the next hop has, each once, and `decided` those on its spans; `entries` are of calls.
    """
    hop = fleet.hop
    for word in script.split():
        if found := WORD.fullmatch(word):
            fleet.act(*found.groups())
            continue
        what, _, said = word.partition("=")
        if what == "entries":
            journal = leases().journal("chat-1")
            assert [value[1] for _, value in journal].count(journal[0][1][1]) == int(said)
        elif what == "spans":
            assert len(hop.spans()) == int(said)
        else:
            made = dict(zip(hop.told("id"), hop.told(), strict=True)).values()
            if what == "told":  # in any order, by several servers
                assert sorted(made) == sorted(filter(None, said.split(","))), word
            else:
                assert ",".join(one or "" for one in hop.decided()) == said, word


def test_what_is_decided_is_heard_at_a_server_that_has_seen_nothing_of_it(fleet: Fleet) -> None:
    """It answered that all is well, for as long as anybody asked."""
    judging, asked = fleet["A"], fleet["B"]
    assert control(asked)["action"] == "allow"
    assert send(judging, 0, 1, 2).is_success
    told = control(judging)
    assert told["action"] == "hint"
    wait_for(lambda: control(asked)["hint"] == told["hint"])
    # Who asks either of them takes it for one and the same.
    assert control(asked)["version"] == told["version"]
    # Another call, with news, clears it at both.
    news = call(3)
    news["attributes"] |= {
        "gen_ai.tool.call.arguments": '{"q": "y"}',
        "gen_ai.tool.call.result": "the record of 1912 names a ship, a harbour and a captain",
    }
    assert post(judging, news).is_success
    assert control(judging)["action"] == "allow"
    wait_for(lambda: control(asked)["action"] == "allow")
    # Asked for the first time once it was up; and it is judged on where it was only asked for.
    assert send(judging, *range(10, 14), session="chat-2").is_success
    wait_for(lambda: control(asked, "chat-2")["action"] == "deny")
    assert send(asked, 14, session="chat-2").is_success
    assert control(asked, "chat-2")["action"] == "abort"


@pytest.mark.parametrize("agent", [{}, {"gen_ai.agent.name": "helper"}])
def test_a_server_that_judges_nothing_refuses_the_calls_of_denied_loops_only(
    fleet: Fleet, agent: dict[str, str]
) -> None:
    """It refused all calls of the session, as nothing told which ones were denied.

    Of an agent with a name it refused none: who asks names the tool and no agent.
    """

    def refused(**call: object) -> bool:
        said = {
            CLIENT.post(f"{fleet[name].url}/v1/sessions/chat-1/control", json=call).json()["stops"]
            for name in "AB"
        }
        assert len(said) == 1
        return said.pop()

    made = [call(number) for number in range(4)]
    for one in made:
        one["attributes"] |= agent
    post(fleet["A"], *made).raise_for_status()
    wait_for(lambda: control(fleet["B"])["action"] == "deny")
    for lowered in (False, True):
        assert refused(tool="search", arguments={"q": "x"})
        assert not refused(tool="search", arguments={"q": "y"})
        assert not refused(tool="write", arguments={"q": "x"})
        if not lowered:
            # Another call without news lowers the flag; the loop stays denied.
            assert control(fleet["A"])["action"] == "deny"
            other = call(4)
            other["attributes"] |= {"gen_ai.tool.call.arguments": '{"q": "y"}', **agent}
            post(fleet["A"], other).raise_for_status()
            wait_for(lambda: control(fleet["B"])["action"] == "allow")


def test_people_reach_a_session_by_whichever_server_they_ask(fleet: Fleet) -> None:
    """A load balancer sends them to any; what they do is one event."""
    home, asked, also = (fleet[name] for name in "ABC")
    assert send(home, 0, 1, 2).is_success
    one = f"{asked.url}/v1/sessions/chat-1"
    wait_for(lambda: CLIENT.get(one).is_success)
    assert CLIENT.get(one).json()["session"]["steps"] == 3
    assert CLIENT.get(f"{asked.url}/v1/sessions/other").status_code == 404
    assert control(also)["action"] == "hint"  # by now it knows the name, too
    for server in (home, asked, also):
        assert [(row["session"], row["steps"]) for row in sessions(server)] == [("chat-1", 3)]
        seen = CLIENT.get(f"{server.url}/v1/sessions/chat-1").json()["session"]
        assert (seen["steps"], len(seen["decisions"])) == (3, 1)
    (row,) = StoreTransport(fleet.guard).sessions()[0]
    assert row["steps"] == 3
    assert CLIENT.post(f"{one}/pause", json={"by": "anna"}).is_success
    for server in (home, asked, also):
        wait_for(lambda server=server: control(server)["action"] == "pause")
    wait_for(lambda: bool(fleet.hop.events("loopguard.control")))
    fleet.end()
    assert len(fleet.hop.events("loopguard.control")) == 1


def test_a_server_is_reached_by_the_command_line_before_its_first_span(fleet: Fleet) -> None:
    _ = fleet["A"], fleet["B"]
    transport = StoreTransport(fleet.guard)
    wait_for(lambda: len(transport.replies({"op": "sessions"})) == 2)
    assert "begins with the first" in transport.sessions()[1]


def test_people_reach_what_is_stopped_when_its_servers_are_gone(fleet: Fleet) -> None:
    """It was stopped for its agent, but nobody could see it, or let it go on."""
    stopped = {"chat-1": "abort", "chat-2": "pause", "chat-3": "allow"}
    assert send(fleet["A"], *range(6)).is_success
    assert send(fleet["A"], 10, session="chat-2").is_success
    assert send(fleet["A"], 20, session="chat-3").is_success
    url = f"{fleet['A'].url}/v1/sessions/chat-2/pause"
    assert CLIENT.post(url, json={"by": "anna"}).is_success
    fleet.end()
    transport, mailboxes = StoreTransport(fleet.guard), Mailboxes(fleet.guard)
    wait_for(lambda: not mailboxes.processes())
    asked, also = fleet["B"], fleet["C"]
    wait_for(lambda: len(mailboxes.processes()) == 2)
    del stopped["chat-3"]
    for rows_ in (sessions(asked), sessions(also), transport.sessions()[0]):
        assert {row["session"]: row["action"] for row in rows_} == stopped
    assert [row["by"] for row in sessions(asked)] == ["anna", "policy"]
    said = transport.ask({"op": "resume", "session": "chat-1", "by": "anna"})
    assert [one["action"] for one in said] == ["allow"]
    for session in ("chat-2", "chat-3"):
        url = f"{also.url}/v1/sessions/{session}"
        assert CLIENT.post(f"{url}/resume", json={"by": "anna"}).is_success
    assert CLIENT.post(f"{also.url}/v1/sessions/nobody/resume", json={}).status_code == 404
    assert transport.ask({"op": "resume", "session": "nobody"}) == []
    for session in ("chat-1", "chat-2"):
        wait_for(lambda session=session: control(asked, session)["action"] == "allow")
    # Each is listed once, whoever knows of it.
    listed = [row["session"] for row in transport.sessions()[0]]
    assert sorted(listed) == ["chat-1", "chat-2", "chat-3"]
    # Whoever judges it next goes on from there, whichever of both it reads first.
    assert send(fleet["D"], 6).is_success
    assert control(fleet["D"])["action"] in ("allow", "hint")


def test_what_a_person_does_fails_while_nobody_can_say_whose_it_is(
    fleet: Fleet, own_redis: Redis
) -> None:
    """It was said that there is no such session, and the order was lost."""
    home, asked = fleet["A"], fleet["B"]
    assert send(home, 0).is_success
    wait_for(lambda: [row["session"] for row in sessions(asked)] == ["chat-1"])
    assert CLIENT.get(f"{asked.url}/v1/sessions").json()["partial"] is None
    own_redis.kill()
    for server, status in ((asked, 503), (home, 200)):
        url = f"{server.url}/v1/sessions/chat-1/abort"
        answer = CLIENT.post(url, json={"by": "anna"})
        assert answer.status_code == status
    for server, rows_ in ((asked, []), (home, ["chat-1"])):
        listed = CLIENT.get(f"{server.url}/v1/sessions").json()
        assert "store" in listed["partial"]
        assert [row["session"] for row in listed["sessions"]] == rows_
    own_redis.start()
    wait_for(lambda: control(asked)["action"] == "abort")


def test_what_a_person_allows_is_allowed_where_it_is_judged(fleet: Fleet) -> None:
    """The agent asks all of them for its flag, so that each knows the session."""
    home, asked, also = (fleet[name] for name in "ABC")
    assert send(home, 0, 1, 2, 3).is_success
    for server in (asked, also):
        wait_for(lambda server=server: control(server)["action"] == "deny")
    allowed = CLIENT.post(f"{asked.url}/v1/sessions/chat-1/allow", json={"by": "anna"})
    assert "search" in allowed.json()["setting"]
    for server in (home, asked, also):
        wait_for(lambda server=server: control(server)["action"] == "allow")
    for number in range(4, 9):
        assert send(home, number).is_success
    assert control(home)["action"] == "allow"
    # Of one that nobody has seen a step of, its flag is shown.
    assert CLIENT.post(f"{home.url}/v1/sessions/later/pause", json={}).status_code == 404
    assert control(also, "later")["action"] == "allow"
    assert CLIENT.post(f"{also.url}/v1/sessions/later/pause", json={}).is_success
    wait_for(lambda: control(asked, "later")["action"] == "pause")
    shown = CLIENT.get(f"{asked.url}/v1/sessions/later").json()["session"]
    assert (shown["action"], shown["steps"]) == ("pause", 0)


def test_sessions_with_open_calls_are_found_when_nobody_watches_them(leases: Leases) -> None:
    one, gone, other = leases(watched_s=60), leases(watched_s=0.5), leases(watched_s=0.5)
    for owner, session in ((gone, "s"), (one, "t"), (one, "u")):
        owner.take({session: [A]})
        owner.call(session, b"[1]")
        owner.commit()
    one.call("u", b"")
    one.commit()
    found: set[str] = set()

    def is_found(session: str) -> bool:
        found.update(other.watch([]))
        return session in found

    wait_for(lambda: is_found("s"))
    assert found == {"s"}
    one.abandon(["t"])
    wait_for(lambda: is_found("t"))
    assert found == {"s", "t"}


def test_what_comes_with_a_lower_number_is_refused(leases: Leases) -> None:
    """Who never took a lease stores only what is new."""
    one, other = leases(), leases()
    one.take({"s": [A], "t": [B]})
    one.submit("s", [("1-a", b"entry")])
    one.judged("s", A, None)
    one.decided("s", "d1", b"record")
    one.judged("t", B, None)
    other.take({"s": [A]})
    assert one.commit() == ({}, ["s"])
    one.forgotten("s")
    assert one.commit() == ({}, [])
    assert other.journal("s") == []
    assert other.take({"s": [A], "t": [B]})["t"].known == {B: None}
    third = leases()
    third.submit("s", [("1-a", b"entry")])
    third.submit("u", [("1-a", b"entry")])
    assert third.commit() == ({}, ["s"])
    assert third.journal("u") == [("1-a", b"entry")]


def test_what_is_kept_has_an_end(leases: Leases, own_redis: Redis) -> None:
    """A lease that the store lost is held on."""
    one = leases()
    one.take({"s": [A]})
    with own_redis.client as client:
        client.flushall()
    one.judged("s", A, None)
    assert one.commit() == ({}, [])
    assert not one.take({"s": [A]})["s"].is_new
    one.submit("s", [("1-a", b"entry")])
    one.judged("s", A, None)
    one.decided("s", "d1", b"record")
    one.call("s", b"[1]")
    one.commit()
    with own_redis.client as client:
        keys = client.keys("*")
        assert len(keys) >= 6
        assert all(client.pttl(key) > 0 for key in keys)


def test_a_session_that_had_to_make_room_goes_on(guard: Settings) -> None:
    with serving(guard=guard.model_copy(update={"max_sessions": 1})) as server:
        send(server, 0, 1).raise_for_status()
        send(server, 10, session="chat-2").raise_for_status()
        send(server, 2, 3).raise_for_status()
        assert control(server)["action"] == "deny"


def test_a_span_without_an_id_stays_with_its_trace(fleet: Fleet) -> None:
    """Also when another server takes over."""
    *calls, last = (call(number, trace_id=bytes(15) + b"a") for number in range(4))
    del last["attributes"]["gen_ai.conversation.id"]
    post(fleet["A"], *calls).raise_for_status()
    post(fleet["B"], last).raise_for_status()
    (row,) = sessions(fleet["B"])
    assert (row["session"], row["action"]) == ("chat-1", "deny")


def test_calls_inside_a_span_without_an_end_are_stored_once_they_are_acknowledged(
    fleet: Fleet, leases: Leases
) -> None:
    """The span around a call could tell its result, but its end is missing, and not to come."""
    around = call(0, end_time_unix_nano=0)
    inside = call(1, trace_id=around["trace_id"], parent_span_id=around["span_id"])
    for name in ("arguments", "result"):
        del around["attributes"][f"gen_ai.tool.call.{name}"]
    del inside["attributes"]["gen_ai.tool.call.result"]
    post(fleet["A"], around, inside).raise_for_status()
    assert len(leases().journal("chat-1")) == 2


def test_a_call_that_hangs_is_a_stall_though_its_server_is_gone(fleet: Fleet) -> None:
    fleet.guard = fleet.guard.model_copy(update={"step_timeout_s": 4.0})
    other = fleet["B"]
    post(fleet["A"], asking("deploy")).raise_for_status()
    fleet.end("A")
    assert not fleet.hop.told()
    wait_for(fleet.hop.told)
    decision = control(other)["decision"]
    assert (decision["detector"], decision["tool"]) == ("stall", "deploy")
    # With its result, wherever it comes, it is over.
    send(other, 1).raise_for_status()
    assert not other.engines["default"].guard.active.by_id


def test_who_takes_a_session_over_watches_its_calls_and_says_nothing_twice(fleet: Fleet) -> None:
    fleet.guard = fleet.guard.model_copy(update={"step_timeout_s": 1.0})
    post(fleet["A"], asking("deploy")).raise_for_status()
    wait_for(lambda: "step_timeout" in fleet.hop.told("reason"))
    made = fleet.hop.told("id")
    # An exporter that heard no answer sends the same to another.
    post(fleet["B"], asking("deploy")).raise_for_status()
    (watched,) = fleet["B"].engines["default"].guard.active
    assert watched.said == {"step_timeout", "step_timeout_near"}
    assert set(fleet.hop.told("id")) == set(made)


def test_a_call_whose_result_another_server_got_is_no_stall(fleet: Fleet) -> None:
    fleet.guard = fleet.guard.model_copy(update={"step_timeout_s": 2.0})
    judging = fleet["A"].engines["default"].guard
    post(fleet["A"], asking("deploy")).raise_for_status()
    send(fleet["B"], 1).raise_for_status()
    wait_for(lambda: not judging.active.by_id)
    assert not fleet.hop.told()
    assert control(fleet["A"])["action"] == "allow"


def test_what_another_server_left_damaged_is_left_out(fleet: Fleet, own_redis: Redis) -> None:
    """Of an error of the server's own, senders drop their spans."""
    send(fleet["A"], *range(4)).raise_for_status()
    begin = "loopguard:{chat-1}:"
    with own_redis.client as client:
        client.hset(f"{begin}outbox", b"\xff", b"no record")
        client.hset(f"{begin}lease", "calls", b"[[1")
        for span in client.zrange(f"{begin}spans", 0, -1):
            client.hset(f"{begin}notes", span, b"[{}, null")
    raise_faults(False)
    send(fleet["B"], *range(4)).raise_for_status()  # again: they count once
    (row,) = sessions(fleet["B"])
    assert (row["steps"], row["action"]) == (4, "deny")
    assert set(fleet["B"].engines["default"].guard.faults.counts.values()) == {1}


def test_a_store_needs_the_key_that_its_journals_are_read_with(own_redis: Redis) -> None:
    with pytest.raises(LoopGuardSettingsError, match="digest_key"):
        Server(ServerSettings(), Settings(store_url=own_redis.url))


def test_a_server_ends_though_its_store_is_gone() -> None:
    """With spans that it could not judge any more: they end neither its shutdown nor others'."""
    nowhere = Settings(store_url=f"redis://127.0.0.1:{free_port()}/0", digest_key="k" * 32)
    spans = [RecordedSpan("x", trace_id=1, span_id=1, start=1, end=2)]

    async def ended() -> list[object]:
        leases = SessionLeases(RedisStore(nowhere), 100, 60)
        judging = TenantGuard(Engine(local=False), 0.05, leases=leases)
        return await asyncio.gather(judging.judge(spans), judging.close(), return_exceptions=True)

    told, closed = asyncio.run(ended())
    assert isinstance(told, Busy)
    assert closed is None


@pytest.mark.parametrize(
    "name", ["lease", "spans", "notes", "made", "outbox", "journal", "ids:0", "session"]
)
def test_a_key_of_somebody_else_costs_its_session_only(
    fleet: Fleet, leases: Leases, own_redis: Redis, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """It cost all sessions of the tenant, until the server was started again."""
    place = call(0)["trace_id"].hex() if name == "session" else "chat-1"
    key = f"loopguard:{{{place}}}:{name}"
    with own_redis.client as client:
        client.pfadd(key, "theirs")
        if name == "session":  # a string is what ours are, too
            client.delete(key)
            client.lpush(key, "theirs")
    for numbers in ((0, 1), (2, 3), (4, 5)):
        both = (call(one + 10 * (at == "chat-2"), at) for one in numbers for at in SESSIONS)
        post(fleet["A"], *both).raise_for_status()
    assert {control(fleet["A"], one)["action"] for one in SESSIONS} == {"abort"}
    assert {one["session"]: one["steps"] for one in sessions(fleet["A"])} == dict.fromkeys(
        SESSIONS, 6
    )
    assert len(leases().journal("chat-2")) > 6
    assert sorted(fleet.hop.told()) == sorted(["hint", "deny", "abort"] * 2)
    # Of each key that a script names once: the first of its keys.
    assert sum("goes unused" in one for one in caplog.messages) == 1 + (name == "outbox")
    with own_redis.client as client:
        client.delete(key)
    send(fleet["A"], 6).raise_for_status()
    assert "chat-1" in {one["session"] for one in sessions(fleet["A"])}
