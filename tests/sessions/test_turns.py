"""A session is a conversation; each root run of an agent that begins in it is a user's turn."""

import asyncio
import json
import uuid
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from opentelemetry import trace

import otel_loopguard
from otel_loopguard import LoopGuard, LoopGuardAbort, control, set_testing
from otel_loopguard.core import Action, Kind, Step
from otel_loopguard.dialects import RecordedSpan
from otel_loopguard.integrations._adapter import Adapter
from otel_loopguard.replay import SpanReplay
from tests.agents import tool_call
from tests.calls import EPOCH, SECOND, Run, call, handle_of
from tests.hostile.rig import Rig
from tests.tables import rows

ANSWER = "No results were found for Paris, in any of the sources that were asked."
KINDS = {name: json.loads(has) for name, has in (row.values for row in rows(__file__, "kinds"))}
CHAT = {"gen_ai.operation.name": "chat"}
FOUND = {"tool.name": "search", "input.value": '{"q": "x"}', "output.value": ANSWER}


class App(Rig):
    """A traced application under a guard."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings)
        # A key of its own: the guards of other tests may still be there.
        self.key = uuid.uuid4().hex

    def session(self) -> Any:
        return otel_loopguard.session(self.key)

    def run(self, kind: str = "genai", **attributes: str | bool) -> Any:
        """An open run of an agent."""
        return self.tracer.start_as_current_span(
            "invoke_agent looper", attributes={**KINDS[kind], **attributes}
        )

    def within(self, names: str) -> ExitStack:
        """Blocks inside of each other, by name."""
        stack = ExitStack()
        for name in names.split(", ") if names else ():
            if name == "session":
                stack.enter_context(self.session())
            elif name == "a run that calls nothing":
                self.tracer.start_span("invoke_agent looper", attributes=KINDS["genai"]).end()
            elif name == "conversation":
                stack.enter_context(self.run(**{"gen_ai.conversation.id": self.key}))
            elif name == "a nested run":
                stack.enter_context(self.run(**{"gen_ai.invocation.is_nested": True}))
            elif name in KINDS:
                stack.enter_context(self.run(name))
            elif name == "an announced chain":
                chain = {"openinference.span.kind": "CHAIN"}
                tracer = self.provider.get_tracer("openinference.instrumentation.langchain")
                stack.enter_context(tracer.start_as_current_span("LangGraph", attributes=chain))
                Adapter("test").begin(None)
            else:
                tracer = self.provider.get_tracer(name)
                stack.enter_context(tracer.start_as_current_span("step"))
        return stack

    def work(self, times: int = 1) -> None:
        """Calls of a tool, each with the same answer."""
        for _ in range(times):
            control.check()
            tool_call(self.tracer, result=ANSWER)

    @property
    def said(self) -> list[str]:
        """What was decided, but notes."""
        return [one.action.value for one in self.decisions if one.action.rank]


@pytest.fixture
def app() -> App:
    return App()


@pytest.mark.parametrize(("turn", "around", "calls", "said"), rows(__file__, "turns"))
def test_what_is_a_turn(app: App, turn: str, around: str, calls: str, said: str) -> None:
    with suppress(LoopGuardAbort), app.within(around.strip("-")):
        for _ in range(12 if said else 5):
            with app.within(turn):
                app.work(int(calls))
    assert (said in app.said) if said else app.said == []


def test_one_run_per_step_is_no_chat(app: App) -> None:
    """Sixty equal calls without a pause: told at the sixth; with one text, stopped as one run."""
    # What nobody heard is said again. On a busy machine there is a pause now and then.
    for _ in range(120):
        with app.session(), app.run():
            control.current()
            app.work()
        if len(app.decisions) == 10:
            break
    assert [one.reason for one in app.decisions] == ["each_turn"] * 10
    asked = '[{"role": "user", "parts": [{"type": "text", "content": "Book the room."}]}]'
    ran = 0
    with pytest.raises(LoopGuardAbort):
        for _ in range(60):
            with app.session(), app.run(**{"gen_ai.input.messages": asked}):
                app.work()
                ran += 1
    assert ran < 20


@pytest.mark.parametrize(
    ("around", "each"),
    [
        ("session", "genai"), ("", "session, genai"), ("", "conversation"),
        # The id of a run is known while it runs, whatever its trace begins with.
        ("", "my.app, conversation"), ("", "genai, conversation"),
    ],
)  # fmt: skip
def test_a_turn_goes_on_after_the_one_before_was_stopped(app: App, around: str, each: str) -> None:
    """Every turn of a stuck agent is stopped, and none begins stopped.

    Who enters the session to look between the runs lifts no stop, nor does a question there.
    """
    with app.within(around):
        for turn in range(6):
            with pytest.raises(LoopGuardAbort), app.within(each):
                app.work()  # none begins stopped
                app.work(20)
            assert app.said.count("abort") == turn + 1
            with app.session():
                assert control.current().action is Action.ABORT
                with pytest.raises(LoopGuardAbort):
                    control.check()


@pytest.mark.parametrize("around", ["session, my.app", "session, genai"])
def test_runs_at_the_same_time_repeat_nothing_of_each_other(app: App, around: str) -> None:
    """As a batch of questions, and as sub-agents whose calls are open at the same time.

    None knows what another was told; one that goes in circles is stopped, and refuses no other.
    """
    named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "delegate"}
    with app.within(around):
        runs: list[trace.Span] = []
        for part in range(8):
            with ExitStack() as stack:
                if "genai" in around:
                    asked = {**named, "gen_ai.tool.call.arguments": f'{{"part": {part}}}'}
                    above = app.tracer.start_span("execute_tool delegate", attributes=asked)
                    stack.enter_context(trace.use_span(above))
                run = app.tracer.start_span("invoke_agent looper", attributes=KINDS["genai"])
                runs.append(run)
        for run in runs:
            with trace.use_span(run):
                app.work()
        assert app.said == []
        with trace.use_span(runs[3]):
            app.work(4)
            assert app.said == ["hint", "deny"]
            assert control.refused("search", {"q": "x"})
        with trace.use_span(runs[5]):
            assert not control.refused("search", {"q": "x"})
        with trace.use_span(runs[3]), pytest.raises(LoopGuardAbort):
            app.work(9)


class Graph:
    """A graph under OpenInference, or agents of any other framework; each branch asks its model."""

    def __init__(self, app: App, kind: str) -> None:
        self.app, self.kind = app, kind
        self.chains = app.provider.get_tracer("openinference.instrumentation.langchain")

    def span(self, name: str) -> trace.Span:
        if self.kind == "nodes":
            kind = {"openinference.span.kind": "CHAIN"}
            return self.chains.start_span(name, attributes=kind)
        return self.app.tracer.start_span("invoke_agent looper", attributes=KINDS["genai"])

    def within(self) -> ExitStack:
        """The session; but for runs in traces of their own, a run around them."""
        stack = self.app.within("session")
        if self.kind != "traces":
            stack.enter_context(trace.use_span(self.span("LangGraph"), end_on_exit=True))
        return stack

    def works(self, branch: trace.Span, times: int = 1) -> None:
        for _ in range(times):
            with trace.use_span(branch), trace.use_span(self.span("agent"), end_on_exit=True):
                self.app.tracer.start_span("chat", attributes=CHAT).end()
                self.app.work()


@pytest.mark.parametrize("kind", ["nodes", "agents", "traces"])
def test_branches_of_a_graph_repeat_nothing_of_each_other(app: App, kind: str) -> None:
    """Each ends before the next asks its model; they were open at the same time all the same."""
    graph = Graph(app, kind)
    with graph.within():
        opened = [graph.span("node") for _ in range(8)]
        stuck = opened.pop()
        for branch in opened:
            graph.works(branch)
            branch.end()
        assert app.said == []
        graph.works(stuck, 4)
        assert app.said == ["hint", "deny"]


@pytest.mark.parametrize("kind", ["nodes", "agents", "traces"])
@pytest.mark.parametrize(
    ("page", "rest", "said"), [("{id} is about {id}", 0, ["hint", "deny"]), ("empty", 10, [])]
)
def test_what_another_branch_reads_says_nothing_of_this_one(
    app: App, kind: str, page: str, rest: int, said: list[str]
) -> None:
    """Its news does not excuse one that repeats itself, nor its haste accuse one that waits."""
    graph, read = Graph(app, kind), 0
    with set_testing() as testing, graph.within():
        repeating, reading = graph.span("node"), graph.span("node")
        for _ in range(12 if rest else 4):
            graph.works(repeating)
            for _ in range(rest or 2):
                read += 1
                with trace.use_span(reading):
                    app.tracer.start_span("chat", attributes=CHAT).end()
                    text = page.format(id=uuid.uuid5(uuid.NAMESPACE_DNS, str(read)))
                    tool_call(app.tracer, "read_page", f'{{"page": {read}}}', text)
                if rest:
                    testing.advance(1)
    assert app.said == said


@pytest.mark.parametrize("kind", ["nodes", "agents", "traces"])
def test_branches_that_begin_again_are_the_same_ones(app: App, kind: str) -> None:
    """A graph that comes back to a node repeats itself, beside a branch that stays open, too."""
    graph = Graph(app, kind)
    with graph.within():
        beside = graph.span("another")
        graph.works(beside)
        for _ in range(4):
            node = graph.span("node")
            graph.works(node)
            node.end()
    assert app.said == ["hint", "deny"]


def test_parallel_calls_in_nodes_of_their_own_are_those_of_one_agent(app: App) -> None:
    """LangGraph has a node for each call of a message."""
    graph = Graph(app, "nodes")
    with graph.within():
        for number in range(8):
            nodes = [graph.span("tools") for _ in range(2)]
            for at, node in enumerate(nodes):
                with trace.use_span(node, end_on_exit=True):
                    if at == number % 2:
                        app.work()
                    else:
                        tool_call(app.tracer, args=f'{{"q": {number}}}', result=f"Page {number}")
    assert "deny" in app.said


def test_a_held_escalation_outlives_the_turn() -> None:
    """Code may start a run: only an answer, its limit or a message of the user ends the pause."""
    app = App(max_action="pause")

    def turn(calls: int) -> Action:
        with app.session(), app.run():
            begun = control.current().action
            for _ in range(calls):
                control.hint()
                tool_call(app.tracer, result=ANSWER)
            return begun

    def asked() -> list[object]:
        return [one for one in control.escalations() if one.session == app.key]

    turn(4)
    held = asked()
    assert turn(1) is Action.PAUSE
    assert asked() == held
    control.answer(held[0].id, "continue")  # type: ignore[attr-defined]
    assert turn(4) is Action.ALLOW
    assert asked()
    app.guard.observe(Step(Kind.OTHER, "user", text="go on"), app.key)
    assert not asked()
    with app.session():
        assert control.current().by == "the user's next message"


def test_what_a_person_set_stays(app: App) -> None:
    """A turn takes down what the policy said, and nothing else: neither a pause nor an abort."""
    with app.session():
        with pytest.raises(LoopGuardAbort), app.run():
            app.work(20)
        control.resume(app.key)
        control.pause(app.key)
        with app.run():
            assert control.current().action is Action.PAUSE
        control.abort(app.key, "enough")
        with app.run(), pytest.raises(LoopGuardAbort):
            app.work()
        with pytest.raises(LoopGuardAbort):
            control.check()


def test_a_person_aborts_what_the_policy_had_aborted(app: App) -> None:
    """The next turn would have lifted the policy's abort, and does not lift a person's."""
    with app.session():
        with pytest.raises(LoopGuardAbort), app.run():
            app.work(20)
        assert control.abort(app.key, "enough", by="anna")
        control.pause(app.key, by="anna")
        with app.run(), pytest.raises(LoopGuardAbort) as stop:
            control.check()
    assert (stop.value.outcome, stop.value.by) == ("aborted_by_person", "anna")


def test_what_a_person_aborted_stays_so_with_a_turn() -> None:
    """Nothing is decided of it until a person lets it go on; then the policy begins anew."""
    run = Run()
    repeat = call("search", {"q": "x"}, ANSWER)
    run.calls(repeat)
    flag = handle_of(run.guard).flag
    flag.set(Action.ABORT, reason="enough", by="anna")
    run.calls(*[repeat] * 9)
    run.calls(Step(Kind.OTHER, "user", text="go on"))
    run.calls(*[repeat] * 4)
    assert run.actions == []
    assert (flag.control.action, flag.control.by) == (Action.ABORT, "anna")
    flag.clear(by="anna")
    run.calls(*[repeat] * 4)
    assert run.actions == [Action.HINT, Action.DENY]


def test_runs_side_by_side_are_no_turns(app: App) -> None:
    """A session whose code starts agents beside each other is one turn while one of them runs."""

    async def worker(times: int) -> None:
        with app.run():
            for _ in range(times):
                tool_call(app.tracer, result=ANSWER)
                await asyncio.sleep(0.01)

    async def work() -> None:
        with app.session():
            await asyncio.gather(*(worker(times) for times in (1, 2, 9)))

    asyncio.run(work())
    assert "abort" in app.said


def test_a_task_of_the_openai_sdk_is_a_run_and_its_trace_is_none(app: App) -> None:
    """Several runs in one `trace("chat")`, as OpenInference writes them; a hand-off is no turn."""
    tracer = app.provider.get_tracer("openinference.instrumentation.openai_agents")

    def span(name: str, kind: str, **more: str) -> Any:
        return tracer.start_as_current_span(name, attributes={"openinference.span.kind": kind})

    def called() -> None:
        with span("search", "TOOL") as made:
            made.set_attributes(FOUND)

    with span("chat", "AGENT"):
        for _ in range(5):
            with span("Agent workflow", "CHAIN"), span("looper", "AGENT"):
                called()
    assert app.said == []
    with span("chat", "AGENT"), span("Agent workflow", "CHAIN"):
        for number in range(12):
            with span(f"agent{number % 2}", "AGENT"):
                called()
    assert app.said != []


def test_a_run_that_says_so_only_at_its_end(app: App) -> None:
    """LangChain under OpenInference: nothing but a name stands on a span while it is open."""
    tracer = app.provider.get_tracer("openinference.instrumentation.langchain")
    facts = f'{{"thread_id": "{app.key}", "lc_agent_name": "looper"}}'

    def turn(times: int) -> None:
        root = tracer.start_span("looper")
        try:
            for _ in range(times):
                control.check()
                made = tracer.start_span("search", trace.set_span_in_context(root))
                kind = {"openinference.span.kind": "TOOL", "session.id": app.key}
                made.set_attributes({**FOUND, **kind})
                made.end()
        finally:
            root.set_attributes({"openinference.span.kind": "CHAIN", "metadata": facts})
            root.end()

    for _ in range(5):
        with app.session():
            turn(1)
    assert app.said == []
    with app.session(), pytest.raises(LoopGuardAbort):
        turn(20)
    with app.session():
        turn(1)


@pytest.mark.parametrize("scope", ["haystack", "my.app"])
def test_a_run_that_says_so_after_its_start(app: App, scope: str) -> None:
    """Haystack: attributes come right after the start, and a hook asks in a span of its own.

    Of a scope that is not known before its first steps, the start of the first run is not seen.
    """
    tracer = app.provider.get_tracer(scope)
    call = {"haystack.tool.name": "search", "haystack.agent.step.tool.input": '{"q": "x"}'}
    call["haystack.agent.step.tool.output"] = ANSWER

    def turn(times: int) -> None:
        with app.session(), tracer.start_as_current_span("haystack.agent.run") as run:
            run.set_attribute("haystack.agent.max_steps", 60)
            for _ in range(times):
                with tracer.start_as_current_span("haystack.agent.step"):
                    with tracer.start_as_current_span("haystack.agent.hook"):
                        control.check()
                    with tracer.start_as_current_span("haystack.agent.step.tool") as made:
                        made.set_attributes(call)

    for _ in range(3):
        with pytest.raises(LoopGuardAbort):
            turn(20)
        turn(1)


def test_agents_that_take_turns_in_a_conversation_are_no_turns_of_a_user(app: App) -> None:
    """AG2 before 1.0: one agent makes the calls of another; attributes come after the start."""
    tracer = app.provider.get_tracer("opentelemetry.instrumentation.ag2")
    with pytest.raises(LoopGuardAbort), tracer.start_as_current_span("conversation user") as chat:
        chat.set_attribute("gen_ai.operation.name", "conversation")
        for _ in range(20):
            with tracer.start_as_current_span("invoke_agent user") as run:
                run.set_attributes(KINDS["genai"])
                app.work()


def test_refusals_in_place_end_per_session(app: App) -> None:
    """Where each call of the model is a trace of its own, and refusals leave no span."""
    asked = 0
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    with app.session(), pytest.raises(LoopGuardAbort, match="asked 8 times after a deny"):
        for _ in range(200):
            control.check()
            asked += 1
            app.tracer.start_span("chat m", attributes=chat).end()
            if control.refused("search", '{"q": "x"}') is None:
                tool_call(app.tracer, result=ANSWER)
    assert asked < 20


class Sent:
    """A guard that is sent spans when they have ended, so many at a time, as servers are."""

    def __init__(self, size: int) -> None:
        self.said: set[tuple[str, str]] = set()
        self.guard = LoopGuard(local=False, on_decision=self._decided)
        self._replay = SpanReplay(self.guard, self.guard.reader.read)
        self._size, self._sent, self._ids = size, 0, 0
        self.now = 0.0

    def _decided(self, _: object, decision: Any) -> None:
        if decision.action.rank:
            self.said.add((decision.reason, decision.action.value))

    def span(self, name: str, began: float, **fields: Any) -> None:
        self._ids += 1
        fields["attributes"] = {"gen_ai.conversation.id": "chat", **fields["attributes"]}
        times = (EPOCH + round(moment * SECOND) for moment in (began, self.now))
        start, end = times
        span = RecordedSpan(name, "s", span_id=fields.pop("own", self._ids), **fields)
        span.start, span.end = start, end
        self._replay.add(span)
        self._sent += 1
        if self._sent % self._size == 0:
            self._replay.finish()

    def call(self, trace: int, parent: int | None, answer: str = ANSWER) -> None:
        began, self.now = self.now, self.now + 0.5
        asked = json.dumps({"q": answer})
        said = {"gen_ai.tool.name": "search", "gen_ai.tool.call.arguments": asked}
        said |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.result": answer}
        self.span("execute_tool search", began, trace_id=trace, parent_id=parent, attributes=said)

    def finish(self) -> None:
        self._replay.finish()

    def model(self, trace: int, parent: int | None) -> None:
        began, self.now = self.now, self.now + 0.01
        said = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        self.span("chat m", began, trace_id=trace, parent_id=parent, attributes=said)

    def run(self, trace: int, own: int, began: float, parent: int | None = None) -> None:
        said = [{"role": "user", "parts": [{"type": "text", "content": f"question {own}"}]}]
        more = {**KINDS["genai"], "gen_ai.input.messages": json.dumps(said)}
        self.span(
            "invoke_agent looper", began, trace_id=trace, parent_id=parent, own=own, attributes=more
        )

    def turn(self, number: int, calls: int = 1, answer: str = ANSWER) -> None:
        began = self.now
        for _ in range(calls):
            self.call(number, 1000 + number, answer)
        self.run(number, 1000 + number, began)


SIZES = pytest.mark.parametrize("size", [1, 2, 3, 100])


@SIZES
def test_a_run_that_comes_after_its_calls_is_a_turn(size: int) -> None:
    """A call once in each turn was refused, where each span came when it had ended."""
    sent = Sent(size)
    for number in range(1, 21):
        sent.turn(number)
    sent.finish()
    assert sent.said <= {("each_turn", "hint")}


@SIZES
def test_a_stop_ends_with_a_turn_whose_run_comes_last(size: int) -> None:
    """Neither that run, which came after its calls, nor the next ones lifted it."""
    sent = Sent(size)
    sent.turn(1, calls=24)
    sent.now += 60
    for number, answer in enumerate(("Madrid is in Spain.", "Rome is in Italy."), 2):
        sent.turn(number, answer=answer)
    sent.finish()
    found = sent.guard.find("chat")
    assert found is not None
    assert ("identical_call", "abort") in sent.said
    assert not found.flag.stops


@SIZES
def test_a_run_below_one_that_is_not_there_yet_is_no_turn(size: int) -> None:
    """A server does not see that it is a sub-agent; its trace tells."""
    sent = Sent(size)
    for number in range(1, 25):
        began = sent.now
        sent.call(1, 1000 + number)
        sent.run(1, 1000 + number, began, parent=999)
    sent.finish()
    assert ("identical_call", "deny") in sent.said


def test_a_program_that_asks_its_model_by_an_agent_has_no_turns() -> None:
    sent = Sent(1)
    for number in range(1, 25):
        began = sent.now
        sent.model(number, 1000 + number)
        sent.run(number, 1000 + number, began, parent=999)
        sent.call(number, 999)
    assert ("identical_call", "deny") in sent.said
