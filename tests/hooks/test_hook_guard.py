"""What the engine of the hooks answers, event by event."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.errors import StoreError
from otel_loopguard.hooks.agents import AGENTS, EventKind, HookAnswer, HookEvent, Reply
from otel_loopguard.hooks.hook_guard import NOTHING, HookGuard
from otel_loopguard.hooks.state import HookState
from tests.hooks.exchanges import every_exchange
from tests.hooks.recorded import outcomes
from tests.hooks.running import FAILED
from tests.tables import rows

COMMAND = {"command": "pytest -q tests/test_a.py"}
SAID = {"tool": "Bash", "args": COMMAND}
SECOND = 1_000_000_000


class Agent:
    """A coding agent that makes calls, as its engine lets it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.settings = Settings(**settings)
        self.at = 1_700_000_000 * SECOND
        self.calls = 0
        self.refused = False
        self.begin()

    def begin(self) -> None:
        self.state = HookState(self.folder)
        self.engine = HookGuard(self.settings, self.state)

    def end(self) -> None:
        self.engine.close()
        self.state.close()

    def restart(self) -> None:
        """As after `kill -9`: nothing is handed on at the end."""
        self.state.close()
        self.begin()

    def tell(self, kind: EventKind, session: str = "chat", **more: Any) -> HookAnswer:
        # What it does takes a second, and it makes the next call at once: a rest weighs less.
        at_once = kind is EventKind.CALL and not self.refused
        self.at += SECOND // 1000 if at_once else SECOND
        more.setdefault("accepts_hint", kind not in (EventKind.COMPACTION, EventKind.STOP))
        event = HookEvent("claude-code", kind, session, **more)
        answer = self.engine.handle(event, self.at)
        self.refused = answer.reply in (Reply.DENY, Reply.STOP)
        return answer

    def call(
        self, args: dict[str, Any] = COMMAND, outcome: object = FAILED, **more: Any
    ) -> tuple[HookAnswer, HookAnswer | None]:
        """A call: the answer before it, and the one after it if it was made."""
        self.calls += 1
        said = {"tool": "Bash", "args": args, "call_id": f"call-{self.calls}", **more}
        before = self.tell(EventKind.CALL, **said)
        if before.reply in (Reply.DENY, Reply.STOP):
            return before, None
        return before, self.tell(EventKind.RESULT, outcome=outcome, **said)

    def steps(self, session: str = "chat") -> int:
        report = self.engine.guard.report(session)
        return 0 if report is None else report.steps

    def get_denied(self, **more: Any) -> HookAnswer:
        for _ in range(6):
            before, _ = self.call(**more)
            if before.reply is Reply.DENY:
                return before
        pytest.fail("it was never denied")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    # One call against the refusal is enough.
    agent = Agent(tmp_path, abort_after=2)
    yield agent
    agent.end()


CALLS = {
    "call": (COMMAND, FAILED),
    "passes": (COMMAND, {"stdout": "1 passed", "stderr": "", "interrupted": False}),
    "git": ({"command": "git diff"}, {"stdout": "+ a new line", "stderr": ""}),
    "make": ({"command": "make"}, FAILED),
}


def rejected(names: str) -> tuple[HookEvent, ...]:
    """The calls of a batch, by their ids."""
    one = HookEvent("claude-code", EventKind.BATCH, "chat", **SAID, error="It is wrong.")
    return tuple(replace(one, call_id=name) for name in names.split(","))


@pytest.mark.parametrize(("_name", "script"), rows(__file__, "scripts"))
def test_what_an_agent_does_and_hears(agent: Agent, _name: str, script: str) -> None:
    """A word for each event, of a sub-agent behind `@`, and what is heard behind `=`."""
    for word in script.split():
        event, _, said = word.partition("=")
        event, _, who = event.partition("@")
        event, _, name = event.partition(":")
        more: dict[str, Any] = {"sub_agent": who or None}
        if event == "steps":
            assert agent.steps() == int(said)
        elif event == "open":
            assert ",".join(agent.state.calls("chat", "open")) == said
        elif event == "abort":
            assert agent.engine.ask({"op": "abort", "session": "chat", "reason": name})["ok"]
        elif event == "allow":
            reply = agent.engine.ask({"op": "allow", "session": "chat", "scope": name})
            assert reply["ok"], reply
            assert "Bash" in str(reply["setting"])
        elif event == "restart":
            agent.restart()
        elif event == "denied":
            assert "4 times" in agent.get_denied(args=CALLS[name or "call"][0], **more).reason
        elif event in CALLS:
            heard = [one for one in agent.call(*CALLS[event], **more) if one is not None]
            replies = {one.reply for one in heard} - {Reply.NOTHING}
            assert replies == ({Reply(said)} if said else set()), word
        else:
            kind = {"begin": EventKind.CALL, "end": EventKind.RESULT}.get(event)
            more |= {"calls": rejected(name)}
            if kind is not None:
                more |= SAID | {"call_id": name, "outcome": FAILED}
            more |= {"text": "On I go."} if event in ("response", "prompt") else {}
            answer = agent.tell(kind or EventKind(event), **more)
            assert answer.reply is Reply(said or "nothing"), word


@pytest.mark.parametrize("restarts", [False, True], ids=["one process", "one for each call"])
def test_what_is_to_be_done_once_is_refused(tmp_path: Path, restarts: bool) -> None:
    """Whatever succeeds in between; the user's next prompt may ask for it again."""
    agent = Agent(tmp_path, once_tools=frozenset({"pay"}))

    def pay() -> Reply:
        before, _ = agent.call({"to": "bob"}, "paid", tool="pay")
        number = agent.calls
        agent.call({"path": f"{number}"}, f"File {number} says {number * 7919}.", tool="Read")
        if restarts:
            agent.restart()
        return before.reply

    assert [pay() for _ in range(6)] == [Reply.NOTHING] * 2 + [Reply.DENY] * 4
    agent.tell(EventKind.PROMPT, text="Pay him once more.")
    assert pay() is Reply.NOTHING
    agent.end()


def test_a_guard_that_is_off_hears_and_says_nothing(tmp_path: Path) -> None:
    agent = Agent(tmp_path, enabled=False)
    answers = [agent.call() for _ in range(12)]
    agent.end()
    assert {answer for pair in answers for answer in pair} == {NOTHING}


def test_an_honest_agent_hears_nothing(agent: Agent) -> None:
    for number in range(12):
        edit = {"file_path": "a.py", "old_string": f"{number}", "new_string": f"{number + 1}"}
        done = {"stdout": f"{number} passed, {20 - number} failed", "stderr": ""}
        answers = [*agent.call(edit, "edited", tool="Edit"), *agent.call(COMMAND, done)]
        assert {answer and answer.reply for answer in answers} == {Reply.NOTHING}


@pytest.mark.parametrize("prompted", [False, True])
def test_an_agent_that_ends_its_turn_with_the_same_words_hears_of_it(
    agent: Agent, *, prompted: bool
) -> None:
    """Sent on by a hook; what a person prompts for begins anew."""
    for _ in range(6):
        agent.at += 20 * SECOND
        agent.tell(EventKind.STOP, text="I cannot go on before you say whether to drop it. " * 2)
        if prompted:
            agent.tell(EventKind.PROMPT, text="Go on.")
    before, _ = agent.call()
    assert before.reply is (Reply.NOTHING if prompted else Reply.HINT)


def test_a_question_is_put_again_after_another_wait(agent: Agent) -> None:
    """Nobody may have heard it, and a yes was for as long; calls in between go on."""
    asked: list[int] = []
    for minute in range(120):
        agent.at += 60 * SECOND
        before, _ = agent.call({"command": "gh pr checks"}, "build pending")
        asked += [minute] * (before.reply is Reply.ASK)
    assert len(asked) == 3
    assert {later - one for one, later in pairwise(asked)} == {30}


def test_an_agent_is_told_only_of_calls_that_are_refused(agent: Agent) -> None:
    """Another edit may find its text; those that were made are refused, as it was said."""

    def edit(number: int) -> tuple[HookAnswer, HookAnswer | None]:
        args = {"file_path": "a.py", "old_string": f"x = {number}", "new_string": "y"}
        said = "<tool_use_error>String to replace not found in file.</tool_use_error>"
        return agent.call(args, None, tool="Edit", error=said)

    told = [answer.hint for number in range(8) for answer in edit(number) if answer is not None]
    assert "The same calls are refused" in "".join(told)
    assert edit(8)[0].reply is Reply.NOTHING
    assert edit(3)[0].reply is Reply.DENY


def test_calls_without_an_id_are_joined_by_what_they_say(agent: Agent) -> None:
    """Reported by two hooks at once a refused one is one call; made again it ends the turn."""
    for number in (1, 2):
        agent.call(call_id=None)
        assert (agent.steps(), list(agent.state.calls("chat", "open"))) == (number, [])
    denial = agent.get_denied(call_id=None)
    agent.at -= SECOND
    assert agent.call(call_id=None)[0] == denial
    assert agent.call(call_id=None)[0].reply is Reply.STOP
    assert agent.call(call_id=None)[0].reply is Reply.STOP


def test_what_several_hooks_of_an_agent_report_without_ids_is_told_once(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a user and of a project do: the second equal call is no third."""
    handle = agent.engine.handle

    def twice(event: HookEvent, at: int) -> HookAnswer:
        first = handle(event, at)
        again = handle(event, at + SECOND // 10)
        assert again == NOTHING or again.reason == first.reason
        return first

    rungs: list[list[Reply]] = []
    for ask in (handle, twice):
        monkeypatch.setattr(agent.engine, "handle", ask)
        told = [agent.call(call_id=None, session=str(ask)) for _ in range(6)]
        rungs.append([one.reply for answers in told for one in answers if one is not None])
    assert rungs[0] == rungs[1]
    assert agent.steps(str(handle)) == agent.steps(str(twice))


@pytest.mark.parametrize("name", AGENTS)
def test_a_hint_waits_for_an_event_at_which_the_agent_can_hear_it(agent: Agent, name: str) -> None:
    """Whatever else the agent reports meanwhile, except for a new turn, which begins anew."""
    told = HookAnswer(Reply.HINT, hint="Try another file.")
    for number, exchange in enumerate(each for each in every_exchange() if each.agent == name):
        known = AGENTS[name].read(exchange.payload)
        if known is None or known.kind in (EventKind.PROMPT, EventKind.OTHER):
            continue
        session = f"chat {number}"
        for call in range(3):
            said: dict[str, Any] = SAID | {"call_id": f"{call}"}
            agent.tell(EventKind.CALL, session, **said)
            agent.tell(EventKind.RESULT, session, outcome=FAILED, accepts_hint=False, **said)
        agent.at += SECOND
        outcome = FAILED if known.kind is EventKind.RESULT else None
        event = replace(known, session=session, sub_agent=None, outcome=outcome, error=None)
        if known.tool is not None:
            event = replace(event, tool="Bash", args=COMMAND, call_id="next")
        first = agent.engine.handle(event, agent.at)
        heard = first.reply is Reply.HINT
        assert heard is bool(AGENTS[name].answer(exchange.payload, told)), exchange.payload
        later = agent.tell(EventKind.RESPONSE, session, text="Where was I?")
        assert " times with the same arguments" in (first if heard else later).hint
        assert heard is (later.reply is Reply.NOTHING)


@pytest.mark.parametrize("op", ["pause", "abort"])
def test_what_a_person_stopped_names_the_way_on(agent: Agent, op: str) -> None:
    """What she stopped is no false alarm of the guard."""
    agent.call()
    ask = {"session": "chat", "reason": "let me look", "by": "Ada"}
    assert agent.engine.ask({**ask, "op": op})["ok"]
    stop, _ = agent.call()
    assert stop.reply is Reply.STOP
    assert "let me look. " in stop.reason
    assert stop.reason.endswith("otel-loopguard resume chat")
    assert agent.engine.ask({"op": "resume", "session": "chat"})["ok"]
    assert agent.call()[0].reply is Reply.NOTHING


@pytest.mark.parametrize("between", ["read", "edit there and back", "new edit"])
def test_a_stop_has_a_refusal_before_it_whatever_lowers_the_flag(
    agent: Agent, between: str
) -> None:
    """Other calls that succeed lower the flag, and the loop stays denied."""
    heard: list[Reply] = []
    for number in range(60):
        if between == "read":
            found = {"stdout": f"def part_{number}(): return {number * 7919}", "stderr": ""}
            agent.call({"file_path": f"f{number}.py"}, found, tool="Read")
        elif between == "edit there and back" or number > 3:
            back = between == "edit there and back"
            old, new = (number % 2, 1 - number % 2) if back else (number, number + 1)
            edit = {"file_path": "a.py", "old_string": f"x = {old}", "new_string": f"x = {new}"}
            agent.call(edit, "edited", tool="Edit")
        heard += [answer.reply for answer in agent.call() if answer is not None]
        if Reply.STOP in heard:
            break
    assert Reply.HINT in heard
    assert Reply.STOP not in heard or Reply.DENY in heard


@pytest.mark.parametrize("restarts", [False, True], ids=["", "each event in a new process"])
def test_calls_of_one_message_share_a_refusal(agent: Agent, restarts: bool) -> None:
    """Who asks for four equal calls at once does not insist with the second."""
    told: list[set[Reply]] = []

    def tell(kind: EventKind, **more: Any) -> HookAnswer:
        if restarts:
            agent.restart()
        return agent.tell(kind, **more)

    for message in range(8):
        agent.at += 5 * SECOND
        answers: list[HookAnswer] = []
        made: list[dict[str, Any]] = []
        for place in range(4):
            agent.at -= SECOND
            said: dict[str, Any] = SAID | {"call_id": f"{message}-{place}"}
            answers.append(tell(EventKind.CALL, **said))
            if answers[-1].reply in (Reply.NOTHING, Reply.HINT):
                made.append(said)
        answers += [tell(EventKind.RESULT, outcome=FAILED, **said) for said in made]
        told.append({answer.reply for answer in answers} - {Reply.NOTHING})
    rungs = [one for one in told if one]
    assert rungs[0] == {Reply.HINT}
    first = rungs.index({Reply.DENY})
    assert rungs[first + 1 :] == [{Reply.STOP}] * (len(rungs) - first - 1)


@pytest.mark.parametrize("times", [3, 5, 8])
def test_what_was_only_noted_is_said_once_somebody_is_to_hear_it(
    tmp_path: Path, times: int
) -> None:
    """As the README has it: observe first, then enforce. What was counted counts."""
    agent = Agent(tmp_path, mode="shadow")
    for _ in range(times):
        assert agent.call() == (HookAnswer(), HookAnswer())
    agent.end()
    agent.settings = Settings()
    agent.begin()
    answers = [answer for _ in range(7) for answer in agent.call() if answer is not None]
    agent.end()
    rungs = dict.fromkeys(answer.reply for answer in answers if answer.reply is not Reply.NOTHING)
    assert list(rungs) == [Reply.HINT, Reply.DENY, Reply.STOP]


@pytest.mark.parametrize("first", ["observer", "enforcer"])
def test_hooks_that_enforce_count_where_others_observe(
    agent: Agent, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a project's where the user's enforce; once these are gone, those count."""
    monkeypatch.setattr("otel_loopguard.hooks.state.time.time", lambda: agent.at / SECOND)
    observer, enforcer = HookGuard(Settings(mode="shadow"), agent.state), agent.engine.handle

    def both(event: HookEvent, at: int) -> HookAnswer:
        engines = (observer.handle, enforcer)[:: 1 if first == "observer" else -1]
        return next(filter(NOTHING.__ne__, [ask(event, at) for ask in engines]), NOTHING)

    with monkeypatch.context() as together:
        together.setattr(agent.engine, "handle", both)
        rungs = [answer.reply for _ in range(6) for answer in agent.call() if answer is not None]
    assert list(dict.fromkeys(rungs)) == [Reply.NOTHING, Reply.HINT, Reply.DENY, Reply.STOP]
    agent.engine.close()
    agent.engine = observer
    agent.call()
    assert not agent.steps()  # they may still come
    agent.at += 20 * SECOND
    agent.call()
    assert agent.steps() == 1


def test_nothing_that_was_read_or_written_is_stored(agent: Agent) -> None:
    secret = "hunter2hunter2"
    for _ in range(4):
        agent.call({"command": f"curl -u {secret}"}, {"stdout": f"denied {secret}", "stderr": ""})
    agent.tell(EventKind.STOP, text=f"I used {secret}")
    files = [path.read_bytes() for path in agent.folder.iterdir() if path.is_file()]
    assert files
    assert not any(secret.encode() in data for data in files)


@pytest.mark.parametrize("version", [None, 99], ids=["damaged", "another version"])
def test_a_state_that_is_not_ours_is_put_aside(tmp_path: Path, version: int | None) -> None:
    content = b"" if version else b"this is no database at all, " * 99
    (tmp_path / "hooks.sqlite").write_bytes(content)
    if version:
        with closing(sqlite3.connect(tmp_path / "hooks.sqlite")) as file:
            file.execute(f"PRAGMA user_version = {version}")
    agent = Agent(tmp_path)
    assert agent.get_denied()
    agent.end()
    assert (tmp_path / "broken-hooks.sqlite").exists()


def test_a_state_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "hooks.sqlite").mkdir()
    (tmp_path / "hooks.sqlite" / "a").touch()
    (tmp_path / "broken-hooks.sqlite").touch()
    with pytest.raises(StoreError, match=r"hooks\.sqlite"):
        HookState(tmp_path)


def test_a_long_session_does_not_grow_without_bound(agent: Agent) -> None:
    for number in range(700):
        agent.call({"command": f"cat {number}.py"}, {"stdout": f"text {number}", "stderr": ""})
    file = sqlite3.connect(agent.folder / "hooks.sqlite")
    count = dict(file.execute("SELECT kind, count(*) FROM item GROUP BY kind"))
    file.close()
    assert count["entry"] <= 1300
    assert count["call"] <= 800


def test_no_solved_run_is_stopped_and_some_that_failed_are(shared: Path, tmp_path: Path) -> None:
    """All recorded runs of Claude Code, as the events that its hooks would have had."""
    files = [shared / "traces" / f"codetracer-{name}.jsonl.gz" for name in ("claude", "kimi")]
    found = outcomes(files, tmp_path)
    solved = [one for one in found if one.solved]
    assert len(solved) == 43
    assert [one.id for one in solved if one.stops] == []
    assert sum(bool(one.hints) for one in solved) <= 2
    assert sum(bool(one.stops) for one in found if one.solved is False) >= 4


@pytest.mark.parametrize(("tool", "denied"), [("mcp__x__search", True), ("Bash", False)])
def test_words_of_a_server_do_not_say_that_a_person_stopped_it(
    agent: Agent, tool: str, *, denied: bool
) -> None:
    """Claude Code's own tools are believed: there they are what Claude Code says."""
    said = "The user doesn't want to proceed with this tool use. The tool use was rejected."
    seen: set[Reply] = set()
    for _ in range(25):
        answers = agent.call(tool=tool, outcome=None, error=said)
        seen |= {one.reply for one in answers if one is not None}
    assert (Reply.DENY in seen) is denied
