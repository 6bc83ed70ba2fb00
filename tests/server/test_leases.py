"""Several servers on one Redis: one judges a session at a time, and another goes on with it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_loopguard import Settings
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.server import Server, ServerSettings
from otel_loopguard.server.leases import SessionLeases
from otel_loopguard.stores.redis import RedisStore
from tests.server.serving import (
    BEGIN,
    SECOND,
    Hop,
    asking,
    attributes,
    call,
    control,
    pair,
    post,
    send,
    serving,
    sessions,
)
from tests.stores.servers import Server as Redis
from tests.stores.servers import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Leases = Callable[..., SessionLeases]

A, B = (1, 1), (1, 2)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    started = Redis(tmp_path / "redis").start()
    yield started
    started.kill()


@pytest.fixture
def guard(redis: Redis) -> Settings:
    return Settings(
        abort_after=2,
        store_url=redis.url,
        digest_key="a key of all workers",
        tuning={"stores": {"timeout_s": 0.5}},
    )


@pytest.fixture
def leases(guard: Settings) -> Iterator[Leases]:
    made: list[SessionLeases] = []

    def make(watched_s: float = 30) -> SessionLeases:
        made.append(SessionLeases(RedisStore(guard), 100, 60, watched_s))
        return made[-1]

    yield make
    for each in made:
        each.close()


def prompt(server: Server, number: int) -> httpx.Response:
    """A record that says that the user wrote."""
    made = ExportLogsServiceRequest()
    record = made.resource_logs.add().scope_logs.add().log_records.add(
        time_unix_nano=BEGIN + number * SECOND, event_name="claude_code.user_prompt"
    )  # fmt: skip
    record.attributes.append(pair("session.id", "chat-1"))
    return post(server, body=made.SerializeToString(), path="logs")


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


def turn(first: int, *numbers: int) -> list[dict[str, Any]]:
    """A run of an agent, and the calls that it makes in its trace."""
    run = call(first, name="invoke_agent helper", attributes={
        "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper",
        "gen_ai.conversation.id": "chat-1",
    }, end_time_unix_nano=BEGIN + (max(numbers) + 1) * SECOND)  # fmt: skip
    made = [
        call(number, trace_id=run["trace_id"], parent_span_id=run["span_id"]) for number in numbers
    ]
    return [*made, run]


def decisions(hop: Hop) -> list[str]:
    told = (attributes(one) for one in hop.records())
    return [each["loopguard.decision.id"] for each in told if "loopguard.decision.id" in each]


def test_what_is_decided_is_heard_at_a_server_that_has_seen_nothing_of_it(guard: Settings) -> None:
    """It answered that all is well, for as long as anybody asked."""
    with serving(guard=guard) as judging, serving(guard=guard) as asked:
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


@pytest.mark.parametrize("by", ["policy", "ann"])
def test_a_server_that_is_new_says_at_once_what_was_decided(guard: Settings, by: str) -> None:
    """Its first answer let an aborted agent make one more step."""
    with serving(guard=guard) as before:
        url = f"{before.url}/v1/sessions/chat-1"
        assert send(before, *range(1 if by == "ann" else 6)).is_success
        if by == "ann":
            assert httpx.post(f"{url}/abort", json={"by": by}).is_success
        assert control(before)["action"] == "abort"
    with serving(guard=guard) as after:
        said = control(after)
        assert (said["action"], said["by"]) == ("abort", by)


def test_what_was_stored_is_known_to_who_takes_the_session_over(leases: Leases) -> None:
    one, other = leases(), leases()
    taken = one.take({"s": [A]})["s"]
    assert taken == (True, False, {}, {}, b"")
    one.submit("s", [("1-a", b"entry")])
    one.judged("s", A, None)
    one.decided("s", "d1", b"record")
    assert one.commit() == ({"d1": ("s", b"record")}, [])
    taken = other.take({"s": [A, B]})["s"]
    assert (taken.is_new, taken.known, taken.unsent) == (True, {A: None}, {"d1": b"record"})
    assert other.journal("s") == [("1-a", b"entry")]
    other.sent({"s": ["d1"]})
    other.decided("s", "d1", b"again")
    assert other.commit() == ({}, [])  # a decision is made once
    assert one.take({"s": []})["s"].unsent == {}
    one.call("s", b"[1]")
    one.commit()
    one.judged("s", B, None)
    one.commit()
    assert other.take({"s": []})["s"].calls == b"[1]"
    other.call("s", b"")
    assert other.commit() == ({}, [])
    assert one.take({"s": []})["s"].calls == b""


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


def test_who_never_took_a_lease_stores_only_what_is_new(leases: Leases) -> None:
    one, other = leases(), leases()
    one.take({"s": []})
    other.submit("s", [("1-a", b"entry")])
    other.submit("t", [("1-a", b"entry")])
    assert other.commit() == ({}, ["s"])
    assert other.journal("t") == [("1-a", b"entry")]


def test_what_is_kept_has_an_end(leases: Leases, redis: Redis) -> None:
    """A lease that the store lost is held on."""
    one = leases()
    one.take({"s": [A]})
    with redis.client as client:
        client.flushall()
    one.judged("s", A, None)
    assert one.commit() == ({}, [])
    assert not one.take({"s": [A]})["s"].is_new
    one.submit("s", [("1-a", b"entry")])
    one.judged("s", A, None)
    one.decided("s", "d1", b"record")
    one.call("s", b"[1]")
    one.commit()
    with redis.client as client:
        keys = client.keys("*")
        assert len(keys) >= 6
        assert all(client.pttl(key) > 0 for key in keys)


def test_a_session_goes_on_at_another_server(guard: Settings, hop: tuple[Hop, str]) -> None:
    """Two equal calls at each of two servers are as many as four at one; each decision is one."""
    taken, url = hop
    with serving(guard=guard, forward=url) as one, serving(guard=guard, forward=url) as other:
        send(one, 0, 1).raise_for_status()
        assert control(one)["action"] == "allow"
        send(other, 2, 3).raise_for_status()
        assert control(other)["action"] == "deny"
        ids = decisions(taken)
        send(one, 3, 2, 1).raise_for_status()
        assert control(one)["action"] == "deny"
        assert decisions(taken) == ids
    with serving(guard=Settings(), forward=url) as alone:
        before = len(taken.records())
        send(alone, 0, 1, 2, 3).raise_for_status()
        told = [attributes(one)["loopguard.decision.action"] for one in taken.records()]
        assert told[before:] == told[:before]


def test_a_turn_after_an_abort_goes_on_at_whichever_server(guard: Settings) -> None:
    first, next_one = turn(0, 1, 2, 3, 4, 5, 6), turn(20, 21)
    with serving() as alone, serving(guard=guard) as one, serving(guard=guard) as other:
        for turns, server in ((first, one), (next_one, other)):
            for each in (alone, server):
                post(each, *deepcopy(turns)).raise_for_status()
            assert control(server)["action"] == control(alone)["action"]
        assert control(other)["action"] == "hint"


def test_an_abort_outlives_what_was_begun_before_it(guard: Settings, hop: tuple[Hop, str]) -> None:
    """The span of a run comes when it ends, and the record of a prompt may come late, wherever."""
    taken, url = hop
    *calls, run = turn(1, 2, 3, 4, 5, 6)
    with ExitStack() as stack:
        one, other, third = (
            stack.enter_context(serving(guard=guard, forward=url)) for _ in range(3)
        )
        post(one, *calls).raise_for_status()
        made = set(decisions(taken))
        assert control(one)["action"] == "abort"
        post(other, run).raise_for_status()
        prompt(other, 0).raise_for_status()
        assert control(other)["action"] == "abort"
        send(third, 40).raise_for_status()
        assert control(third)["action"] == "abort"
        assert set(decisions(taken)) == made


def test_an_abort_outlives_the_prompt_before_it_at_whichever_server(
    guard: Settings, hop: tuple[Hop, str]
) -> None:
    """Of a prompt and the calls after it, the prompt may be judged when the calls have ended."""
    taken, url = hop
    with (
        serving(guard=guard, forward=url) as one,
        serving(guard=guard, forward=url) as other,
    ):
        send(one, 0).raise_for_status()
        prompt(one, 1).raise_for_status()
        send(one, 2, 3, 4, 5, 6, 7).raise_for_status()
        made = set(decisions(taken))
        assert control(one)["action"] == "abort"
        send(other, 8).raise_for_status()
        assert set(decisions(taken)) == made


def test_a_session_that_had_to_make_room_goes_on(guard: Settings) -> None:
    with serving(guard=guard.model_copy(update={"max_sessions": 1})) as server:
        send(server, 0, 1).raise_for_status()
        send(server, 10, session="chat-2").raise_for_status()
        send(server, 2, 3).raise_for_status()
        assert control(server)["action"] == "deny"


def test_a_span_without_an_id_stays_with_its_trace_when_another_server_takes_over(
    guard: Settings,
) -> None:
    *calls, last = (call(number, trace_id=bytes(15) + b"a") for number in range(4))
    del last["attributes"]["gen_ai.conversation.id"]
    with serving(guard=guard) as one, serving(guard=guard) as other:
        post(one, *calls).raise_for_status()
        post(other, last).raise_for_status()
        (row,) = sessions(other)
        assert (row["session"], row["action"]) == ("chat-1", "deny")


def test_spans_that_come_again_elsewhere_count_once(
    guard: Settings, leases: Leases, hop: tuple[Hop, str]
) -> None:
    taken, url = hop
    with serving(guard=guard, forward=url) as one, serving(guard=guard, forward=url) as other:
        taken.answers = [503]  # judged and stored, but not acknowledged
        assert send(one, 0, 1, 2).status_code == 503
        send(other, 0, 1, 2).raise_for_status()
        send(one, 0, 1, 2).raise_for_status()
        journal = leases().journal("chat-1")
        assert len(taken.spans()) == 6
        # One entry for each call, and what was decided about them.
        calls = [value for _, value in journal if value[1] == journal[0][1][1]]
        assert len(calls) == 3
        # Who judged it may tell the next hop of it too, with the same id.
        assert len(set(decisions(taken))) == 1


def test_calls_inside_a_span_without_an_end_are_stored_once_they_are_acknowledged(
    guard: Settings, leases: Leases
) -> None:
    """The span around a call could tell its result, but its end is missing, and not to come."""
    around = call(0, end_time_unix_nano=0)
    inside = call(1, trace_id=around["trace_id"], parent_span_id=around["span_id"])
    for name in ("arguments", "result"):
        del around["attributes"][f"gen_ai.tool.call.{name}"]
    del inside["attributes"]["gen_ai.tool.call.result"]
    with serving(guard=guard) as server:
        post(server, around, inside).raise_for_status()
        assert len(leases().journal("chat-1")) == 2


def test_a_span_that_comes_again_has_its_decision_on_it(
    guard: Settings, hop: tuple[Hop, str]
) -> None:
    taken, url = hop
    with serving(guard=guard, forward=url) as one, serving(guard=guard, forward=url) as other:
        send(one, 0, 1, 2, 3).raise_for_status()
        first = [attributes(span) for span in taken.spans()]
        send(other, 0, 1, 2, 3).raise_for_status()
        again = [attributes(span) for span in taken.spans()][len(first) :]
        assert again == first
        assert any("loopguard.decision.id" in each for each in first)


def test_a_decision_that_nobody_was_told_of_is_told_by_the_next(
    guard: Settings, hop: tuple[Hop, str]
) -> None:
    taken, url = hop
    with serving(guard=guard, forward=url) as one, serving(guard=guard, forward=url) as other:
        taken.answers = [503]
        assert send(one, 0, 1, 2, 3).status_code == 503
        assert not taken.records()
        send(other, 4).raise_for_status()
        assert decisions(taken)


def test_a_call_that_hangs_is_a_stall_though_its_server_is_gone(
    guard: Settings, hop: tuple[Hop, str]
) -> None:
    taken, url = hop
    guard = guard.model_copy(update={"step_timeout_s": 4.0})
    with serving(guard=guard, forward=url) as other:
        with serving(guard=guard, forward=url) as one:
            post(one, asking("deploy")).raise_for_status()
        assert not decisions(taken)
        wait_for(lambda: decisions(taken))
        decision = control(other)["decision"]
        assert (decision["detector"], decision["tool"]) == ("stall", "deploy")
        # With its result, wherever it comes, it is over.
        send(other, 1).raise_for_status()
        assert not other.engines["default"].guard.active.by_id


def test_who_takes_a_session_over_watches_its_calls_and_says_nothing_twice(
    guard: Settings, hop: tuple[Hop, str]
) -> None:
    taken, url = hop
    guard = guard.model_copy(update={"step_timeout_s": 1.0})
    asked = asking("deploy")
    with serving(guard=guard, forward=url) as one, serving(guard=guard, forward=url) as other:
        post(one, deepcopy(asked)).raise_for_status()
        reason = "loopguard.decision.reason"
        wait_for(lambda: "step_timeout" in (attributes(one).get(reason) for one in taken.records()))
        made = decisions(taken)
        # An exporter that heard no answer sends the same to another.
        post(other, deepcopy(asked)).raise_for_status()
        (watched,) = other.engines["default"].guard.active
        assert watched.said == {"step_timeout", "step_timeout_near"}
        assert set(decisions(taken)) == set(made)


def test_a_call_whose_result_another_server_got_is_no_stall(guard: Settings) -> None:
    guard = guard.model_copy(update={"step_timeout_s": 2.0})
    made: list[object] = []
    with serving(guard=guard) as one, serving(guard=guard) as other:
        judging = one.engines["default"].guard
        judging.subscribers.decisions.append(("test", made.append))
        post(one, asking("deploy")).raise_for_status()
        send(other, 1).raise_for_status()
        wait_for(lambda: not judging.active.by_id)
        assert not made
        assert control(other)["action"] == "allow"


def test_calls_that_only_messages_tell_of_count_at_whichever_server(guard: Settings) -> None:
    """Each request shows the result of what was asked for at another server."""
    with serving() as alone, serving(guard=guard) as one, serving(guard=guard) as other:
        said: list[str] = []
        for number in range(7):
            here = (one, other)[number % 2]
            for each in (alone, here):
                post(each, telling(number)).raise_for_status()
            assert control(here)["action"] == control(alone)["action"], number
            said.append(control(here)["action"])
        assert said == ["allow"] * 3 + ["hint", "deny", "abort", "abort"]


def test_without_its_store_a_server_acknowledges_nothing(guard: Settings, redis: Redis) -> None:
    with serving(guard=guard) as server:
        send(server, 0).raise_for_status()
        redis.freeze()
        refused = send(server, 1, 2, 3)
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        redis.thaw()
        send(server, 1, 2, 3).raise_for_status()
        assert control(server)["action"] == "deny"


def test_a_store_needs_the_key_that_its_journals_are_read_with(redis: Redis) -> None:
    with pytest.raises(LoopGuardSettingsError, match="digest_key"):
        Server(ServerSettings(), Settings(store_url=redis.url))
