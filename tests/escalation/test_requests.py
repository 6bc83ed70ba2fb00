"""What people ask of sessions, the same over every transport."""

import json
import secrets
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard import LoopGuard, Settings, __version__, control, set_testing
from otel_loopguard._control.flag import RESERVED
from otel_loopguard.core import Kind, Step
from otel_loopguard.escalation.mailbox import Mailboxes
from otel_loopguard.hooks.client import send
from otel_loopguard.hooks.state_folder import GREETING, StateFolder
from tests.escalation.agents import until
from tests.hooks.running import PROGRAM, Home
from tests.server.serving import call, post, serving
from tests.stores.servers import Server
from tests.tables import content, rows

SETTINGS = {"escalate_on": "pause,ask,cycle,warning", "tuning": {"admin": {"heartbeat_s": 0.2}}}
CONTENT = ("secret-argument", "nothing was found")
PLAN = [{"id": "look_up"}, {"id": "refund", "depends_on": ["look_up"]}]


class Peer(ABC):
    """A process that has sessions, each with equal calls, and replies to requests about them."""

    explains = True

    @abstractmethod
    def step(self, session: str) -> None: ...

    @abstractmethod
    def send(self, data: bytes) -> bytes: ...

    @abstractmethod
    def close(self) -> None: ...

    def ask(self, op: str, **about: object) -> dict[str, Any]:
        return json.loads(self.send(json.dumps({"op": op, **about}).encode()))


class Here(Peer):
    """A guard of this process, without a transport."""

    def __init__(self, **settings: object) -> None:
        self.guard = LoopGuard(Settings(**{**SETTINGS, **settings}))

    def step(self, session: str) -> None:
        found = f"{CONTENT[1]} for this query"
        step = Step(Kind.TOOL, "search", args={"q": CONTENT[0]}, outcome=found)
        self.guard.observe(step, session)

    def send(self, data: bytes) -> bytes:
        return self.guard.escalation().admin.answer(data, self.guard.faults)

    def close(self) -> None:
        self.guard.shutdown()


class OverSocket(Here):
    """Over its Unix socket."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "own.sock"
        super().__init__(control_socket=str(self.path))
        self.step("first")
        until(self.path.is_socket)

    def send(self, data: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(60)
            line.connect(str(self.path))
            line.sendall(data + b"\n")
            return b"".join(iter(lambda: line.recv(65_536), b""))


class OverRedis(Here):
    """Over the mailbox that it has in Redis."""

    def __init__(self, folder: Path) -> None:
        self.redis = Server(folder / "redis").start()
        super().__init__(store_url=self.redis.url)
        self.step("first")
        until(lambda: self.redis.client.zcard("loopguard:desk"))

    def send(self, data: bytes) -> bytes:
        (reply,), _ = Mailboxes(self.guard.settings).ask(json.loads(data), 60)
        return json.dumps(reply).encode()

    def close(self) -> None:
        super().close()
        self.redis.kill()


class OverHttp(Peer):
    """A guard of `serve`."""

    explains = False

    def __init__(self) -> None:
        self._serving = serving(guard=Settings(**SETTINGS))
        self.server = self._serving.__enter__()
        self.steps = 0

    def step(self, session: str) -> None:
        one = call(self.steps, session)
        one["attributes"]["gen_ai.tool.call.arguments"] = json.dumps({"q": CONTENT[0]})
        self.steps += 1
        post(self.server, one).raise_for_status()

    def send(self, data: bytes) -> bytes:
        body = json.loads(data)
        op, session = body.pop("op"), body.pop("session", "")
        path = {"sessions": "sessions", "show": "session"}.get(op, f"session/{op}")
        query = {"id": session} if session else {}
        method, given = ("GET", {}) if op in ("sessions", "show") else ("POST", {"json": body})
        url = f"{self.server.url}/v1/{path}"
        answer = httpx.request(method, url, params=query, timeout=60, **given)
        found = answer.json()
        if answer.is_success:
            return json.dumps({"ok": True, **found}).encode()
        error = "unknown" if answer.status_code == 404 else "refused"
        return json.dumps({"ok": False, "error": error, "message": found["detail"]}).encode()

    def close(self) -> None:
        self._serving.__exit__(None, None, None)


class OverHookSocket(Peer):
    """The process that judges the events of coding agents, over the socket of its events."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder)
        environment = {**self.home.environment, "LOOPGUARD_ESCALATE_ON": "pause,ask,cycle,warning"}
        self.process = subprocess.Popen([PROGRAM, "hook", "serve"], env=environment)
        until(self.home.is_up)
        self.calls = 0

    def step(self, session: str) -> None:
        self.calls += 1
        event = {
            "session_id": session, "cwd": "/app", "tool_name": "Bash",
            "tool_input": {"command": f"grep {CONTENT[0]} ."}, "tool_use_id": f"t{self.calls}",
        }  # fmt: skip
        said = {"tool_response": {"stdout": CONTENT[1], "stderr": "", "interrupted": False}}
        for name, more in (("PreToolUse", {}), ("PostToolUse", said)):
            written = json.dumps({"hook_event_name": name, **event, **more})
            self._sent(f"{GREETING} {__version__} claude-code enforce\n{written}".encode())

    def send(self, data: bytes) -> bytes:
        return self._sent(data + b"\n")

    def _sent(self, data: bytes) -> bytes:
        found = send(StateFolder(str(self.home.state)), data, 60)
        assert found is not None
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


WAYS = ("here", "socket", "redis", "http", "hook")


@pytest.fixture(scope="module", params=WAYS)
def peer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    folder = tmp_path_factory.mktemp("p")
    made = {
        "here": Here, "http": OverHttp, "socket": lambda: OverSocket(folder),
        "redis": lambda: OverRedis(folder), "hook": lambda: OverHookSocket(folder),
    }[request.param]()  # fmt: skip
    yield made
    made.close()


@pytest.fixture
def session(peer: Peer, request: pytest.FixtureRequest) -> str:
    """A session of the test's own, which has made one call."""
    key = f"{request.node.name} {secrets.token_hex(4)} /ä"
    peer.step(key)
    return key


def row_of(peer: Peer, session: str) -> dict[str, Any]:
    reply = peer.ask("sessions")
    assert reply["ok"], reply
    (row,) = (row for row in reply["sessions"] if row["session"] == session)
    return row


def put_before_people(peer: Peer, session: str) -> str:
    """Has a session get stuck until it is put before people; returns the id of its escalation."""
    for _ in range(20):
        peer.step(session)
        found = row_of(peer, session)["escalation"]
        if found is not None:
            return str(found)
    pytest.fail("nobody was asked")


def test_sessions_are_listed_without_content(peer: Peer, session: str) -> None:
    row = row_of(peer, session)
    assert row["process"]
    assert (row["action"], row["steps"]) == ("allow", 1)
    assert [row[name] for name in ("by", "reason", "detector", "escalation")] == [None] * 4
    assert 0 < row["since"] <= row["last"]
    put_before_people(peer, session)
    assert row_of(peer, session)["detector"] == "exact_repeat"
    listed = json.dumps(peer.ask("sessions"))
    assert not any(content in listed for content in CONTENT)


def test_a_session_is_shown(peer: Peer, session: str) -> None:
    """Its totals, last actions, decisions, and the escalation."""
    view = peer.ask("show", session=session)["session"]
    assert view["totals"]["actions"] == len(view["actions"]) == 1
    assert view["package"] is None
    escalation = put_before_people(peer, session)
    view = peer.ask("show", session=session)["session"]
    assert view["decisions"][-1]["detector"] == "exact_repeat"
    assert (view["package"]["id"], view["package"]["ended"]) == (escalation, None)
    assert not any(content in json.dumps(view) for content in CONTENT)


def test_a_session_is_paused_resumed_and_aborted(peer: Peer, session: str) -> None:
    """With who and why; a person without a name is `by hand`."""
    for row in rows(__file__, "orders"):
        op, more, action, by, reason = (content(cell).decode() for cell in row.values)
        reply = peer.ask(op, session=session, **json.loads(more))
        assert (reply["ok"], reply["action"]) == (True, action), op
        found = row_of(peer, session)
        told = (found["action"], found["by"], found["reason"])
        assert told == (action, by, json.loads(reason)), op


def test_an_aborted_session_is_not_paused(peer: Peer, session: str) -> None:
    """An abort is lifted by a resume only; who pauses is told that it was not done."""
    assert peer.ask("abort", session=session)["ok"]
    assert peer.ask("abort", session=session)["ok"]
    reply = peer.ask("pause", session=session, by="anna")
    assert (reply["ok"], reply["error"]) == (False, "refused")
    assert reply["message"].endswith("is aborted: resume it first")
    assert row_of(peer, session)["by"] == "by hand"


def test_a_false_alarm_is_allowed(peer: Peer, session: str) -> None:
    put_before_people(peer, session)
    for scope in ("call", "session"):
        reply = peer.ask("allow", session=session, scope=scope, by="anna")
        assert reply["ok"], reply
        assert (reply["action"], isinstance(reply["setting"], str)) == ("allow", True)
    wrong = peer.ask("allow", session=session, scope="everything")
    assert wrong["error"] == "refused"
    assert "scope must be call or session" in wrong["message"]


def test_a_session_is_explained(peer: Peer, session: str) -> None:
    if not peer.explains:
        pytest.skip("HTTP has no such path")
    put_before_people(peer, session)
    reply = peer.ask("explain", session=session)
    assert reply["explanation"]["session"] == session
    assert reply["explanation"]["loops"]
    assert session in reply["text"]


def test_an_escalation_is_answered_once(peer: Peer, session: str) -> None:
    """By the session, or its own id; what is no answer changes nothing."""
    escalation = put_before_people(peer, session)
    about = {"session": session, "by": "anna"}
    for wrong, why in (row.values for row in rows(__file__, "wrong")):
        reply = peer.ask("answer", **about, **json.loads(wrong))
        assert (reply["ok"], reply["error"]) == (False, "refused"), wrong
        assert why in reply["message"]
    assert row_of(peer, session)["escalation"] == escalation
    reply = peer.ask("answer", **about, answer="modify-plan", plan=json.dumps(PLAN), guidance="G")
    assert (reply["ok"], reply["escalation"]) == (True, escalation)
    view = peer.ask("show", session=session)["session"]
    assert (view["escalation"], view["action"]) == (None, "hint")
    ended = view["package"]["ended"]
    told = [ended[name] for name in ("answer", "by", "via", "guidance")]
    way = "http" if isinstance(peer, OverHttp) else "cli"
    assert told == ["modify_plan", "anna", way, "G"]
    assert ended["plan"] == ["look_up", "refund"]
    peer.step("another")
    other = peer.ask("answer", session="another", answer="abort", escalation=escalation)
    assert (other["error"], "of another session" in other["message"]) == ("refused", True)
    late = peer.ask("answer", **about, answer="abort", escalation=escalation)
    assert (late["error"], "anna answered modify_plan" in late["message"]) == ("refused", True)
    none_open = peer.ask("answer", **about, answer="abort")
    assert none_open["error"].startswith("unknown")
    unknown = peer.ask("answer", **about, answer="abort", escalation="nope")
    assert unknown["error"].startswith("unknown")
    assert row_of(peer, session)["action"] == "hint"


def test_an_unknown_session_is_named(peer: Peer) -> None:
    for op in ("show", "pause", "resume", "abort", "allow", "explain")[: 6 if peer.explains else 5]:
        reply = peer.ask(op, session="nobody")
        assert reply["error"].startswith("unknown")
        assert reply["message"] == "there is no session 'nobody'"


def test_nobody_takes_a_name_of_the_guard(peer: Peer, session: str) -> None:
    for by in sorted({"Policy", "TIME_LIMIT", *RESERVED}):
        for op in ("pause", "answer"):
            reply = peer.ask(op, session=session, by=by, answer="abort")
            assert (reply["ok"], reply["error"]) == (False, "refused")
            assert "the guard itself has that name" in reply["message"]
    assert row_of(peer, session)["action"] == "allow"


def test_what_is_no_text_is_refused(peer: Peer, session: str) -> None:
    for op, name in (row.values for row in rows(__file__, "texts")):
        for value in (3, None, ["x"], {"x": 1}):
            reply = peer.ask(op, session=session, **{name: value})
            assert (reply["error"], reply["message"]) == ("refused", f"{name} must be a string")
    assert row_of(peer, session)["action"] == "allow"


@pytest.mark.parametrize(("op", "name"), rows(__file__, "strange"))
def test_what_a_request_does_not_take_is_refused(
    peer: Peer, session: str, op: str, name: str
) -> None:
    """Misspelt, it did nothing in silence, and the rest was done."""
    name = content(name).decode()
    reply = peer.ask(op, session=session, **{name: "enough"})
    assert reply["error"] == "refused"
    assert name[:90] in reply["message"]
    assert row_of(peer, session)["action"] == "allow"


def test_long_texts_are_cut(peer: Peer, session: str) -> None:
    """What a person says at 2,000 characters; a list shows 200."""
    assert peer.ask("pause", session=session, reason="x" * 5000)["ok"]
    assert row_of(peer, session)["reason"] == "x" * 200


def test_what_is_no_request_is_refused(peer: Peer) -> None:
    if isinstance(peer, OverHttp):
        pytest.skip("there the path says what is asked")
    for data, error in (row.values for row in rows(__file__, "no_requests")):
        assert json.loads(peer.send(content(data)))["error"] == error, data


@pytest.mark.parametrize("data", [b"", b"[1, 2]", b"{", b"\xff\xfe", b'"x"', b"x" * 100_000])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    """Whatever a transport hands on."""
    reply = json.loads(Here().send(data))
    assert reply["error"] == ("unknown_request" if len(data) < 10 else "too_long")


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_OPS = {
    "sessions": (), "show": ("session",), "explain": ("session",),
    "pause": ("session", "by", "reason"), "abort": ("session", "by", "reason"),
    "resume": ("session", "by", "guidance"), "allow": ("session", "by", "scope"),
    "answer": ("session", "by", "escalation", "answer", "guidance", "plan", "limit"),
}  # fmt: skip
_HERE = Here()


def _asked(op: str) -> st.SearchStrategy[dict[str, object]]:
    return st.fixed_dictionaries({"op": st.just(op)}, optional=dict.fromkeys(_OPS[op], _ANYTHING))


@given(st.sampled_from([*_OPS]).flatmap(_asked) | st.dictionaries(st.text(), _ANYTHING))
def test_any_request_gets_a_reply(asked: dict[str, object]) -> None:
    """Nothing is raised for what a request holds."""
    reply = json.loads(_HERE.send(json.dumps(asked).encode()))
    assert reply["ok"] is True or {"error", "message"} <= set(reply)
    assert _HERE.guard.faults.counts == {}


def test_the_newest_sessions_are_listed_and_those_that_wait_for_somebody() -> None:
    """The newest `admin.sessions`; not those that were idle for long, unless they are stopped."""
    with set_testing(True) as clock:
        peer = Here(tuning={"admin": {"sessions": 3, "idle_s": 60}})
        for key in "abcd":
            peer.step(key)
        assert [row["session"] for row in peer.ask("sessions")["sessions"]] == ["d", "c", "b"]
        assert peer.ask("sessions")["omitted"] == 1
        control.pause("b")
        clock.advance(61)
        peer.step("e")
        assert sorted(row["session"] for row in peer.ask("sessions")["sessions"]) == ["b", "e"]


def test_an_answer_may_raise_a_budget() -> None:
    """As the command line sends it, as text."""
    peer = Here(budget_cost=1, budget_action="pause", escalate_on="pause,ask,cycle")
    for _ in range(2):
        peer.guard.observe(Step(Kind.MODEL, "m", cost=0.6), "spends-by-hand")
    asked = {"session": "spends-by-hand", "by": "anna", "answer": "continue"}
    refused = peer.ask("answer", **asked, limit="1.2")
    assert (refused["error"], "above the 1.2 spent" in refused["message"]) == ("refused", True)
    assert peer.ask("answer", **asked, limit="2")["ok"]
    peer.guard.observe(Step(Kind.MODEL, "m", cost=0.6), "spends-by-hand")
    assert [one.threshold for one in peer.guard.report("spends-by-hand").alerts][-1] == 1.6


def test_a_list_says_who_is_at_what() -> None:
    peer = Here()
    model = Step(Kind.MODEL, "gpt", agent="writer", tokens_in=30, tokens_out=12)
    peer.guard.observe(model, "well")
    row = row_of(peer, "well")
    assert (row["agent"], row["step"], row["tokens"]) == ("writer", "gpt", 42)
