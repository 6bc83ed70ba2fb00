"""What the model is to be told stays until somebody has heard it."""

import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from opentelemetry.trace import Tracer

from otel_loopguard import LoopGuardAbort, control, turn
from otel_loopguard._control.flag import Flag
from otel_loopguard.core import Action
from otel_loopguard.core.report import Escalation
from tests.agents import settle, tool_call
from tests.control.messages import Run, new_name

_numbers = itertools.count()
SORRY = (
    "I apologize for the confusion, my mistake. Let me look at this once more.",
    "Sorry about that, my mistake again. I will check the other source.",
    "I apologise, that was wrong of me. Let me try something else now.",
)


def chat(tracer: Tracer, **more: str) -> None:
    """A call of the model, of 1,100 tokens."""
    known = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **more}
    spent = {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 100}
    with tracer.start_as_current_span("chat m", attributes=known | spent):
        pass


def news(**_: str) -> str:
    """An answer that nobody has seen before."""
    return " ".join(f"{next(_numbers):x}" * 9 for _ in range(9))


def nothing(**_: str) -> str:
    return "No results."


def finds(tracer: Tracer) -> None:
    """A call of a tool that finds something new."""
    tool_call(tracer, args=json.dumps({"q": next(_numbers)}), result=news())


class Loop:
    """An agent of one's own in a turn: it asks the model, which asks for calls of tools."""

    def __init__(self, now: turn, tracer: Tracer, flag: Callable[[], Flag]) -> None:
        self.now, self.tracer, self.flag = now, tracer, flag

    def model(self, **more: str) -> str:
        """What the model is told before it is called."""
        said = self.now.hint() or ""
        chat(self.tracer, **more)
        return said

    def tool(self, times: int = 1) -> None:
        """Calls of a tool that find something new."""
        for _ in range(times):
            self.now.tool("read", {"q": next(_numbers)}, news)
        settle()

    def search(self, function: Callable[..., str], times: int = 1) -> None:
        """Calls with the same arguments."""
        for _ in range(times):
            self.now.tool("search", {"q": "x"}, function)
        settle()

    def get_hint(self) -> None:
        """A loop that was not told of yet."""
        self.search(nothing, 4)
        assert "4 times" in (self.flag().control.hint or "")


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> Iterator[Loop]:
    """One in a session of its own, with the settings that the test gives."""
    with ExitStack() as stack:
        run = stack.enter_context(Run(**getattr(request, "param", {})))
        now = stack.enter_context(turn(new_name(), tracer_provider=run.provider))
        yield Loop(now, run.tracer, lambda: run.guard.flag_named(now.session))


def with_settings(**settings: object) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("agent", [settings], indirect=True, ids=[""])


@with_settings(budget_tokens=5000)
def test_a_budget_warns_before_it_aborts(agent: Loop) -> None:
    """Once, however many calls are between its decision and the next call of the model."""
    told: list[str] = []
    with pytest.raises(LoopGuardAbort):
        for _ in range(9):
            told.append(agent.model())
            agent.tool()
            assert agent.now.control.action is not Action.ABORT
            agent.tool()
    assert [bool(said) for said in told] == [False] * 4 + [True]
    assert "4400 of 5000 tokens" in told[-1]


@with_settings(budget_tokens=5000, budget_action="hint")
def test_what_was_heard_is_lowered(agent: Loop) -> None:
    """By the next call that shows no loop, and is not said again."""
    for _ in range(4):
        agent.model()
        agent.tool()
    assert agent.flag().control.action is Action.HINT
    assert agent.now.hint()
    agent.tool()
    assert agent.flag().control.action is Action.ALLOW
    assert agent.now.hint() is None


@pytest.mark.parametrize("ask", [control.check, lambda: control.refused("read")])
def test_who_is_given_the_control_has_heard_it(ask: Callable[[], object]) -> None:
    """And not who was only told whether to go on."""
    with Run(budget_tokens=5000, budget_action="hint") as run:
        for _ in range(4):
            assert control.current().hint is None
            chat(run.tracer)
            for _ in range(2):
                ask()
                finds(run.tracer)
        assert "4400 of 5000" in (control.current().hint or "")
        finds(run.tracer)
        assert control.current().hint is None


def test_an_apology_is_told_of_between_calls(agent: Loop) -> None:
    """A call that succeeds takes back nothing that is about other things."""
    told: list[str] = []
    for said in SORRY * 2:
        parts = [{"type": "text", "content": said}]
        answer = json.dumps([{"role": "assistant", "parts": parts}])
        told.append(agent.model(**{"gen_ai.output.messages": answer}))
        agent.tool()
    assert sum("apologise" in said for said in told) == 1


@with_settings(budget_tokens=5000, pause_limit_s=20)
@pytest.mark.parametrize("answer", ["modify_plan", "skip_task"])
def test_an_answer_that_a_tool_waited_for_reaches_the_model(agent: Loop, answer: str) -> None:
    """The pause falls on a call of the model, and the call of the tool after it waits."""

    def answers(found: Escalation) -> object:
        return {"answer": answer, "guidance": "shorter please", "by": "ada"}

    with ExitStack() as stack:
        stack.callback(control.on_escalation(answers))
        for _ in range(5):
            agent.model()
            agent.tool()
        assert agent.now.control.by == "ada"
        assert "shorter please" in (agent.now.hint() or "")
        agent.tool()
        assert agent.now.hint() is None


@with_settings(budget_tokens=5000, budget_action="hint")
def test_two_texts_are_told_one_after_the_other(agent: Loop) -> None:
    """Of two loops, or of a budget and a loop; the control is that of the newest."""
    for _ in range(4):
        agent.model()
    agent.get_hint()
    now, told = agent.flag().control, agent.now.hint() or ""
    assert now.decision is not None
    assert (now.action, now.decision.tool) == (Action.HINT, "search")
    assert "4400 of 5000" in told.partition("4 times")[0]
    assert agent.now.hint() is None


@with_settings(budget_tokens=5000, budget_action="hint")
def test_a_loop_that_ended_is_not_told_of(agent: Loop) -> None:
    """Its call got a new answer before anybody heard of it; what else waits is told."""
    for _ in range(4):
        agent.model()
    agent.get_hint()
    agent.search(news)
    told = agent.now.hint() or ""
    assert "4400 of 5000" in told
    assert "times" not in told


def test_success_at_something_else_does_not_end_a_loop(agent: Loop) -> None:
    """Its hint is given but once: a refusal comes next, and would come without a warning."""
    agent.model()
    agent.get_hint()
    agent.tool()
    assert "4 times" in (agent.now.hint() or "")


def test_a_person_is_heard_in_a_session_with_a_loop(agent: Loop) -> None:
    """Also by who resumes while a tool is called."""
    agent.model()
    agent.get_hint()
    assert agent.now.hint()
    assert control.resume(agent.now.session, by="ada", guidance="use the CRM instead")
    agent.tool(2)
    assert agent.now.hint() == "use the CRM instead"
