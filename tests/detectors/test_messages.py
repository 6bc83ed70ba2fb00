"""What each detector says of a plain case: when it decides, what, by which rule, in which words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

import otel_loopguard
from otel_loopguard import LoopGuard, Settings, control
from otel_loopguard.core import Decision, Kind, Step

Steps = Callable[[], Iterator[Step]]


@dataclass(frozen=True)
class Case:
    """A run of steps, the settings, the decisions in short, and the words of the last one."""

    steps: Steps
    settings: Settings
    decisions: list[str]
    message: str


CASES: dict[str, Case] = {}


def shown(decisions: list[str], message: str, **settings: object) -> Callable[[Steps], Steps]:
    """Adds a case, named as the function that gives its steps."""

    def add(steps: Steps) -> Steps:
        CASES[steps.__name__] = Case(steps, Settings(**settings), decisions, message)
        return steps

    return add


def decided(case: Case) -> list[Decision]:
    """What a guard decides of the steps of a case, in replay."""
    found: list[Decision] = []
    guard = LoopGuard(case.settings, clock="replay", on_decision=lambda _, d: found.append(d))
    for step in case.steps():
        guard.observe(step, "run")
    return found


@shown(
    ["9 hint cycle"],
    "a cycle of 4 calls that ends with 'read_page' went round 2 times with equal arguments and "
    "equal outcomes",
)
def cycle() -> Iterator[Step]:
    for number in range(20):
        page = ("index", "chapter one", "chapter two", "appendix")[number % 4]
        yield Step(Kind.TOOL, "read_page", args={"page": page}, outcome=f"The text of {page}.")


@shown(
    ["3 hint similar_call", "5 steer similar_call"],
    "'search' was asked 6 times in nearly the same words",
)
def similar_repeat() -> Iterator[Step]:
    facts = ["Lisbon lies on the Tagus.", "It is the capital of Portugal.", "It is very old."]
    for number, word in enumerate("quick slow simple long deep broad early late tiny".split()):
        asked = {"query": f"what is the population of the {word} city of Lisbon in Portugal"}
        said = f"{facts[number % 3]} {facts[number % 2]}"
        yield Step(Kind.TOOL, "search", args=asked, outcome=said)


@shown(
    ["2 hint same_from_several_tools"],
    ("2 tools gave an equal 56-character answer 3 times"),
)
def outage() -> Iterator[Step]:
    said = "The service is down for maintenance, come back tomorrow."
    for tool, city in (("weather", "Paris"), ("hotels", "Paris"), ("weather", "Oslo")):
        yield Step(Kind.TOOL, tool, args={"city": city}, outcome=said)


@shown(
    ["2 hint same_refusal", "3 deny same_refusal"],
    ("'edit' refused 4 calls in the same words: it did not understand them, and did nothing"),
)
def refused_call() -> Iterator[Step]:
    for number in range(5):
        text = f"edit {number} 'import {number}'"
        yield Step(Kind.TOOL, "edit", args=text, outcome="Usage: edit <lines> <text>")


@shown(
    ["2 hint same_answer"],
    ("'grep' gave an equal 62-character answer to 3 different calls"),
)
def stagnation() -> Iterator[Step]:
    said = "The index of this project was built before the file was there."
    for word in ("parser", "lexer", "token", "grammar", "syntax", "ast"):
        yield Step(Kind.TOOL, "grep", args={"pattern": word}, outcome=said)


@shown(
    ["24 hint nothing_new"],
    ("22 of the last 24 answers were given before in this run"),
    tuning={"budget": {"checkpoint_every": 0}},
)
def nothing_new() -> Iterator[Step]:
    rooms = ("The door is shut.", "The window is shut.", "Nobody is here.")
    for number in range(25):
        yield Step(Kind.TOOL, "find", args={"at": number}, outcome=rooms[number % 3])


@shown(
    ["22 hint no_green_result"],
    ("one file was edited 12 times, and what was tried after each edit failed"),
)
def repeated_edit() -> Iterator[Step]:
    for number in range(12):
        edit = {"file_path": "/app/solve.py", "new": f"x = {number}"}
        yield Step(Kind.TOOL, "edit", args=edit, outcome="ok")
        failed = f"AssertionError: got {number * 7}"
        test = {"command": "pytest -q"}
        yield Step(Kind.TOOL, "bash", args=test, error=True, error_text=failed)


@shown(
    ["7 allow no_better_score"],
    ("a number that 'train' measures was no better in 6 tries"),
)
def no_better_score() -> Iterator[Step]:
    for rate, score in enumerate((0.71, 0.74, 0.72, 0.73, 0.74, 0.72, 0.71, 0.73)):
        train = {"rate": rate / 100}
        yield Step(Kind.TOOL, "train", args=train, outcome=f"accuracy: {score}")


@shown(
    ["2 hint echo", "6 hint revised_in_vain"],
    (
        "'revise' revised a text 6 times in a row, with hardly anything changed in what it "
        "got and what it gave"
    ),
)
def revised_in_vain() -> Iterator[Step]:
    draft = "The kettle boils a litre of water in {} minutes. " + "It keeps the water warm. " * 9
    for number, time in enumerate(
        ("two", "about two", "just two", "two short", "2", "some 2", "two")
    ):
        old, new = ({"text": draft.format(time)}, draft.format(f"{time} {number}"))
        yield Step(Kind.TOOL, "revise", args=old, outcome=new)


@shown(
    ["3 hint does_nothing", "4 deny does_nothing"],
    ("5 of the last commands of 'bash' do nothing, whatever stands behind them"),
)
def idle_command() -> Iterator[Step]:
    for command in (":", ": ls -la", "echo test", ": python3 run.py", ":", ": pwd"):
        said = "test" if command == "echo test" else ""
        yield Step(Kind.TOOL, "bash", args={"command": command}, outcome=said)


@shown(
    ["4 hint same_instruction", "6 deny same_instruction"],
    (
        "'WebSurfer' was given nearly the same instruction 4 times, and 11 % of what came "
        "back was new"
    ),
)
def handoff_repeat() -> Iterator[Step]:
    for how in ("scroll", "keep scrolling", "go on scrolling", "scroll further"):
        ask = f"Please {how} through the page and name the oldest flavor that is listed there"
        yield Step(Kind.HANDOFF, "WebSurfer", agent="Orchestrator", args=ask)
        page = "I scrolled down one page. The page shows flavors."
        yield Step(Kind.TOOL, "scrolled", args={"how": how}, outcome=page)


@shown(
    ["5 hint agent_cycle"],
    (
        "the same work went round 'planner' -> 'writer' -> 'critic' and came back 3 times to "
        "an agent that had it a turn before, and nothing new came back"
    ),
)
def exchange_ring() -> Iterator[Step]:
    team = ("planner", "writer", "critic")
    asks = (
        "write the summary again",
        "review its sources once more",
        "plan what is missing from it",
    )
    for number in range(6):
        giver, agent = (team[number % 3], team[(number + 1) % 3])
        yield Step(Kind.HANDOFF, agent, agent=giver, args=asks[number % 3])


@shown(
    ["9 hint node_cycle"],
    ("a cycle of 2 nodes with 'critic' in it went round 5 times, and nothing new came of it"),
    switched_off=frozenset({"state_convergence"}),
)
def node_cycle() -> Iterator[Step]:
    for _ in range(6):
        yield Step(Kind.NODE, "planner", outcome={"plan": "search again"})
        yield Step(Kind.NODE, "critic", outcome={"verdict": "same plan, rejected"})


@shown(
    ["3 hint state_unchanged", "5 steer state_unchanged"],
    ("'revise' left its state unchanged 5 times one after the other, and nothing else was new"),
    switched_off=frozenset({"node_cycle", "no_progress"}),
)
def state_convergence() -> Iterator[Step]:
    for _ in range(6):
        yield Step(Kind.NODE, "revise", outcome={"draft": "the same words"})


@shown(
    ["10 hint no_progress"],
    ("'plan' was visited 5 times without a new message, tool result or decision in between"),
    switched_off=frozenset({"state_convergence"}),
)
def no_progress() -> Iterator[Step]:
    for name in "plan check plan plan check check plan check plan check plan plan".split():
        yield Step(Kind.NODE, name, outcome={"next": f"after {name}"})


@shown(
    ["6 hint rapid_iteration"],
    (
        "the last 5 visits took 20.0 ms each on average, and gave nothing new; the last one "
        "was of 'check'"
    ),
    switched_off=frozenset({"state_convergence"}),
)
def rapid_iteration() -> Iterator[Step]:
    for number in range(8):
        start = 1_700_000_000_000_000_000 + number * 20_000_000
        name, end = "route" if number % 2 else "check", start + 10_000_000
        yield Step(Kind.NODE, name, outcome={"ready": False}, start=start, end=end)


@shown(
    ["7 hint iteration_warning", "9 pause iteration_limit"],
    ("'agent' was visited 10 times in one run, the limit is 10"),
    graph_iterations=10,
    budget_action="pause",
)
def graph_limit() -> Iterator[Step]:
    for number in range(12):
        yield Step(Kind.NODE, "agent", outcome={"page": number})


@shown(
    ["3 hint agent_actions_near", "4 ask agent_actions_limit"],
    ("agent 'writer' used 5 of 5 tool calls"),
    agent_limits={"writer": {"actions": 5, "action": "ask"}},
)
def own_limit() -> Iterator[Step]:
    for n in range(6):
        yield Step(Kind.TOOL, "read", agent="writer", args={"n": n}, outcome=f"page {n}")


@shown(
    ["14 hint tokens_rise"],
    ("model calls went from 1658 to 6982 to 29420 tokens each (medians of 5 calls)"),
    limits="standard",
    switched_off="spending_limit",
)
def token_rate() -> Iterator[Step]:
    tokens = 700
    for _ in range(17):
        tokens = tokens * 4 // 3
        yield Step(Kind.MODEL, "large", agent="writer", tokens_in=tokens)


@shown(
    ["24 hint checkpoint_due"],
    ("25 tool calls were made: a good moment for a checkpoint"),
    tuning={"budget": {"checkpoint_every": 25}},
)
def checkpoint_advice() -> Iterator[Step]:
    for page in range(30):
        yield Step(Kind.TOOL, "read_page", args={"page": page}, outcome=f"Page {page} of the book.")


@shown(
    ["2 allow compact_tokens"],
    ("a model call had 120000 input tokens: a good moment to compact the context"),
)
def context_size() -> Iterator[Step]:
    for tokens in (40000, 80000, 120000, 125000):
        yield Step(Kind.MODEL, "large", tokens_in=tokens)


@shown(
    ["3 hint refined_in_vain"],
    (
        "'writer' wrote nearly the same text 4 times (the last two have 94% in common), and "
        "nothing came of what was done between"
    ),
)
def refinement_spiral() -> Iterator[Step]:
    draft = "Our kettle boils a litre of water in {} minutes and keeps it warm for an hour or more."
    for time in ("two", "2", "two short", "just two"):
        yield Step(Kind.MODEL, "chat", agent="writer", text=draft.format(time))


@shown(
    ["0 hint repeating_end"],
    ("a text of 'writer' ends with the same 43 characters, 20 times or more one after the other"),
)
def text_repetition() -> Iterator[Step]:
    text = "Here is what I found. " + "The value is wrong, so I look at it again. " * 20
    yield Step(Kind.MODEL, "chat", agent="writer", text=text)


@shown(
    ["3 hint announced_again"],
    (
        "'writer' announced the same 4 times in a row, and no tool call or hand-off was seen "
        "in between"
    ),
)
def talk_without_action() -> Iterator[Step]:
    texts = (
        "I will now begin working on the task.",
        "Let me get started right away.",
        "Sure! I'll proceed with the task now.",
        "I'm going to start working on it.",
    )
    for text in texts:
        yield Step(Kind.MODEL, "chat", agent="writer", text=text)


@shown(
    ["2 hint apologies_in_a_row"],
    ("3 texts of 'writer' in a row apologise"),
)
def apologising() -> Iterator[Step]:
    texts = (
        "I apologize, the column has another name.",
        "I'm sorry, that was the wrong table.",
        "My mistake: the index begins at one.",
    )
    for text in texts:
        yield Step(Kind.MODEL, "chat", agent="writer", text=text)


@shown(
    ["4 hint doubt_in_a_row"],
    ("5 texts of 'writer' in a row speak of doubt"),
)
def hedging() -> Iterator[Step]:
    texts = (
        "I'm not sure which file is meant.",
        "Perhaps the parser reads it.",
        "It seems the cache is old.",
        "Maybe the test is wrong instead.",
        "I suspect that the path is another one.",
    )
    for text in texts:
        yield Step(Kind.MODEL, "chat", agent="writer", text=text)


@shown(
    ["4 hint plan_only_grows"],
    (
        "the plan of the model grew 4 times in a row, from 2 to 6 tasks, and no further task "
        "was done"
    ),
)
def scope_creep() -> Iterator[Step]:
    tasks = ["read it", "test it", "fix it", "measure it", "translate it", "announce it"]
    for count in range(2, 7):
        todos = [{"content": task, "status": "pending"} for task in tasks[:count]]
        call = {"todos": todos}
        yield Step(Kind.TOOL, "write_todos", args=call, outcome=f"{count} todos")


@shown(
    ["4 hint tools_tried_in_vain"],
    (
        "5 different tools were tried in a row, each 2 times at most, and each failed, found "
        "nothing, or said nothing new"
    ),
)
def tool_shopping() -> Iterator[Step]:
    said = {
        "search": "no index of that name",
        "browse": "the page is not there",
        "wiki": "title is unknown",
        "maps": "place does not exist",
        "archive": "nobody filed that",
    }
    for tool, text in said.items():
        yield Step(Kind.TOOL, tool, args={"q": "x"}, error=True, error_text=text)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_a_detector_says_what_it_found(case: Case) -> None:
    """Step, action and rule of each decision, and the message of the last one."""
    found = decided(case)
    assert [f"{d.step} {d.action} {d.reason}" for d in found] == case.decisions
    assert found[-1].message == case.message


def test_a_pair_of_agents_gets_advice() -> None:
    """It grows with the count: skip the agent, add what was tried, ask a person."""
    found: list[Decision] = []
    guard = LoopGuard(clock="replay", on_decision=lambda _, d: found.append(d))
    asks = "The summary has no sources, please add them", "There are no sources, please do without"
    for number in range(12):
        giver, agent = ("critic", "planner") if number % 2 else ("planner", "critic")
        guard.observe(Step(Kind.HANDOFF, agent, agent=giver, args=asks[number % 2]), "run")
    skip = "Skip 'planner' for now: finish this without it, or give it to another agent."
    add = (
        "Before 'planner' gets this again, add what was tried so far, what came of it and what is "
        "still missing."
    )
    stop = "Stop handing this on, and ask a human who is to finish it, and how."
    assert [(d.step, f"{d.action} {d.intervention}", d.advice) for d in found] == [
        (3, "hint break_cycle", skip),
        (5, "steer break_cycle", skip),
        (7, "ask inject_context", add),
        (11, "deny escalate_human", stop),
    ]


def test_no_milestone_for_ten_steps() -> None:
    """It says how many are done."""
    found: list[str] = []
    guard = LoopGuard(
        on_decision=lambda _, d: found.append(f"{d.step} {d.action} {d.reason}: {d.message}")
    )
    with otel_loopguard.session("run-42") as key:
        control.milestones({"data read": 20, "model built": 60, "report written": 20})
        assert control.milestone("data read") == 20.0
        for page in range(12):
            step = Step(Kind.TOOL, "read_page", args={"page": page}, outcome=f"Page {page} of it.")
            guard.observe(step, key)
    assert found == [
        "10 hint no_milestone: no milestone changed for 10 steps and 0 s; 1 of 3 are done (20 %)"
    ]
