"""Model texts that go in circles."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from tests.calls import EPOCH, SECOND, Run, call
from tests.detectors.alone import STEPS, alone, case, cases, told_of

ANSWER = (
    "The table has four columns, and the third of them holds the price in euros without tax, so "
    "that the total has to be worked out by hand."
)
OTHER = "A second look at the first column shows that names are written in capitals all over it."
STUCK = "The result is not what I expected, so I have to look at it again. "
ENDS = {
    "a sentence": STUCK * 12,
    "a word": "the " * 200,
    "two lines": "I check the value.\nIt is wrong.\n" * 20,
    "a bullet": "- check the value of it\n" * 30,
    "cut in the middle": (STUCK * 20)[:-30],
    "after a healthy beginning": "An answer begins well, as they do. " + STUCK * 12,
    "after a block of code": "```\nx = 1\n```\n" + STUCK * 12,
}
DATA = {
    "JSON": json.dumps([{"text": "not translated"}] * 40),
    "JSON, cut": json.dumps([{"text": "not translated"}] * 40)[:-40],
    "a table": "| a cell | another cell |\n" * 40,
    "a block of code": "```\n" + "call the function\n" * 60,
    "a block of code, closed": "```\n" + "call the function\n" * 60 + "```",
    "a line": "-" * 2000,
    "zeros": "0, " * 500,
    "an exploit": "Send this: " + "A" * 2000,
    "markup": "<li> the item </li>\n" * 60,
    "spaces": "done" + " " * 5000,
}
LISTS = {
    "a numbered list": "".join(f"{n}. check the value\n" for n in range(60)),
    "a poem with a refrain": ("It rains on the hill. " * 3 + "And the wind blows on. ") * 2,
    "nine times": "I check. " * 9,
}


def say(text: str, agent: str = "writer") -> Step:
    return Step(Kind.MODEL, "chat", agent=agent, model="m", text=text)


def test_the_same_text_is_noticed_though_others_stand_between() -> None:
    """Four times of eight."""
    run = Run()
    for number in range(4):
        run.calls(say(ANSWER), say(f"{OTHER} {'abcdefgh'[number] * 90}"))
    assert [decision.reason for decision in run.decisions] == ["same_text"]
    assert run.decisions[0].step == 6
    assert "euros" not in run.decisions[0].message


def test_the_same_text_after_new_answers_is_healthy() -> None:
    """Nothing was wrong in any of the files."""
    run = Run()
    for number in range(8):
        content = " ".join(f"word{number}x{place}" for place in range(60))
        run.calls(call("read", {"path": f"f{number}"}, content), say(ANSWER))
    assert run.actions == []


@pytest.mark.parametrize("text", ENDS.values(), ids=ENDS.keys())
def test_a_text_that_does_not_end_is_noticed(text: str) -> None:
    """One text is enough: it says the same ten times at its end."""
    run = Run()
    run.calls(say(text))
    assert [decision.reason for decision in run.decisions] == ["repeating_end"]
    assert run.actions == ["hint"]


@pytest.mark.parametrize("text", (DATA | LISTS).values(), ids=(DATA | LISTS).keys())
def test_data_and_lists_may_repeat_themselves(text: str) -> None:
    """JSON, tables, code, markup, and texts of which each line differs (F11)."""
    run = Run()
    run.calls(say(text))
    assert run.actions == []


def test_the_same_end_is_one_loop() -> None:
    """It is said once, wherever the text was cut; then another way is asked for."""
    run = Run()
    run.calls(*(say((STUCK * 20)[: -7 * number - 1]) for number in range(12)))
    assert len({found.loop for found in run.decisions if found.reason == "repeating_end"}) == 1
    assert set(run.actions) <= {"allow", "hint", "steer"}


VERSE = "Let me check the value of the second column once more. "
CHANTS = {
    "a sentence, and then an end": VERSE * 8 + "Well, that is enough of it.",
    "two sentences": (VERSE + "It is not what I thought! ") * 7 + "So be it.",
    "a paragraph": ("I look at it.\nThe column holds names.\n" + VERSE + "\n\n") * 6 + "And so on.",
    "in other case and spaces": (VERSE + VERSE.upper() + "  ") * 5 + "Enough.",
    "between healthy parts": ANSWER + " " + VERSE * 9 + " " + OTHER,
    "after a block of code": "```\nx = 1\n```\n" + VERSE * 9 + "Done with it.",
}
SONG = "The river runs down to the sea\nAnd carries all my words from me\n"
NO_CHANTS = {
    "a song with its refrain": "".join(
        f"Verse {n}: the {word} is far away\n" + SONG * 2
        for n, word in enumerate(["hill", "moon", "house", "road"])
    ),
    "answers that are alike": "".join(
        f"Question {word}?\nThe context does not say anything about it.\n"
        for word in ["who", "when", "where", "why", "how", "which", "whose", "what for"] * 2
    ),
    "a numbered list": "".join(f"{n}. check the value of the column\n" for n in range(60)),
    "steps of a plan": "".join(
        f"- write the module number {n}\n- run all of the tests\n" for n in range(30)
    ),
    "a table": "| the same cell | the same other cell of the table |\n" * 30 + "That is all.",
    "a table, with prose": "Here it is.\n" + "| one cell | another cell |\n" * 9 + OTHER * 5,
    "a block of code": "Here it is.\n```\n"
    + "call the function with the value\n" * 30
    + "```\nOk.",
    "JSON": json.dumps([{"text": "the very same text. " * 3}] * 30),
    "records": "name: a value of it\ntype: string\n" * 5
    + "That is all of the schema. "
    + OTHER * 3,
    "a short cry": "Ho! " * 200 + "And that was that.",
    "a long answer": " ".join(f"{OTHER} {n}." for n in range(100)),
}


@pytest.mark.parametrize("text", CHANTS.values(), ids=CHANTS)
def test_sentences_said_over_and_over_are_noticed(text: str) -> None:
    """Six times in a row, anywhere in one text, whatever follows."""
    run = Run()
    run.calls(say(text))
    assert [decision.reason for decision in run.decisions] == ["chanting"]
    assert run.decisions[0].action == "hint"
    assert "column" not in run.decisions[0].message


@pytest.mark.parametrize("text", NO_CHANTS.values(), ids=NO_CHANTS)
def test_what_repeats_itself_for_a_reason_is_no_chant(text: str) -> None:
    """Refrains, lists, tables, code, data, and forms that are filled in."""
    run = Run()
    run.calls(say(text))
    assert run.decisions == []


DRAFT = (
    "Our new kettle boils a litre of water in two minutes, keeps it warm for an hour, and comes in "
    "{} colours that go with every kitchen. Order it today and get the {} cup free of charge."
)
CHANGES = [("five", "first"), ("fine", "first"), ("five", "finest"), ("great", "first")]


def drafts() -> list[Step]:
    return [say(DRAFT.format(*change)) for change in CHANGES]


def test_a_spiral_is_noticed() -> None:
    """The fourth draft is like the third, as that was like the second, and that like the first."""
    run = Run()
    run.calls(*drafts())
    assert run.actions == ["hint"]
    found = run.decisions[0]
    assert (found.detector, found.reason, found.step) == ("refinement_spiral", "refined_in_vain", 3)
    assert "kettle" not in found.message


def test_a_spiral_that_goes_on_leads_to_a_steer_and_no_further() -> None:
    """It is weak evidence, however long it goes on."""
    run = Run()
    run.calls(*(drafts() * 10))
    assert {"hint", "steer"} <= set(run.actions) <= {"allow", "hint", "steer"}


def test_a_batch_with_a_template_is_healthy() -> None:
    """Every customer gets the same letter, after a look at his account (F5)."""
    run = Run()
    for number, name in enumerate(("Ann", "Bob", "Cem", "Dov", "Eve", "Fay")):
        account = " ".join(f"entry{number}x{place}" for place in range(40))
        run.calls(
            call("account", {"name": name}, account),
            say(
                f"Dear {name}, your account was checked; all entries are in order. Yours, the bank"
            ),
        )
    assert run.actions == []


def test_refinement_the_numbers_are_settings() -> None:
    """`tuning.text.refine_times` and `tuning.text.alike`."""
    run = Run(Settings(tuning={"text": {"refine_times": 2}}))
    run.calls(*drafts()[:3])
    assert run.actions == ["hint"]
    run = Run(Settings(tuning={"text": {"alike": 1.0}}))
    run.calls(*drafts())
    assert run.actions == []


OBJECTS = ["the weather", "the hotel list", "the flight table", "the invoice", "the test log"]
BEGINNINGS = [
    "I will now begin working on the task.",
    "Let me get started on this right away.",
    "I'm going to start with the task you gave me.",
    "Sure! I'll proceed with the assigned work now.",
    "Okay, I am ready to begin the task.",
    "I\u2019ll start working on it immediately.",
]
TALK = {
    "the same, numbered": [f"I will now begin working on the task ({n})." for n in range(8)],
    "the same, word by word": ["I'll look up the weather in Oslo now."] * 8,
    "to begin, in other words": BEGINNINGS,
    "one thing, in other words": [
        "Let me search for the weather in Oslo.",
        "I'll check the weather in Oslo first.",
        "I am going to look at the weather in Oslo.",
        "Next, I will fetch the weather in Oslo.",
        "I need to query the weather in Oslo now.",
    ],
    "at work": ["Working on the task now, please wait."] * 8,
    "still at it": [f"I am still working on your request (attempt {n})." for n in range(8)],
    "nothing announced": [f"I understand the task, thank you. ({n})" for n in range(8)],
}
HEALTHY = {
    "a chat": [
        "Paris is the capital of France.",
        "I think you mean Lyon, which lies further south.",
        "Its old town is a world heritage site. I can tell you more about it.",
        "My favourite dish from there is quenelles. Let me know if you want a recipe.",
        "You need flour, butter and pike. I would begin with the dough.",
        "It takes about an hour in all. Enjoy!",
        "You are welcome. I am happy to help.",
    ],
    "explanations": [f"Let me now explain the {thing} to you." for thing in OBJECTS * 2],
    "verdicts of a batch": ["The document is relevant to the question."] * 20,
    "labels of a batch": ["billing"] * 20,
    "records of a batch": ['{"label": "I will begin", "score": 1}'] * 20,
    "a pipeline": [
        "I will answer in three steps: the facts, their causes, what follows.",
        "The facts: sales fell by a tenth, costs rose by a fifth.",
        "The causes are the new tariff and the strike in May.",
        "It follows that prices have to rise. I would wait until autumn.",
        "A reviewer would ask for numbers by region; I have none.",
        "In short: wait until autumn, then raise prices.",
    ],
    "different announcements, tools out of sight": [
        "Let me read the configuration file.",
        "Now I'll run the tests.",
        "I need to fix the import in the parser.",
        "Let me check the changelog.",
        "I'll update the version number.",
        "Let's open a pull request.",
        "I will write the release notes.",
        "Let me build the package.",
        "I'll upload the wheel.",
        "Let me verify the download page.",
        "I will send a mail to the team.",
    ],
}


def tell(text: str | None, agent: str = "writer") -> Step:
    return Step(Kind.MODEL, "chat", agent=agent, model="m", text=text)


@pytest.mark.parametrize("texts", TALK.values(), ids=TALK.keys())
def test_talk_without_action_is_noticed(texts: list[str]) -> None:
    """Text after text announces the same, or says the same of itself, and nothing is done."""
    run = Run()
    run.calls(*map(tell, texts))
    assert run.actions == ["hint"]
    assert run.decisions[0].detector == "talk_without_action"


@pytest.mark.parametrize("texts", HEALTHY.values(), ids=HEALTHY.keys())
def test_texts_that_promise_nothing_again_are_left_alone(texts: list[str]) -> None:
    """A chat, a batch and a pipeline are made of texts only."""
    run = Run()
    run.calls(*map(tell, texts))
    assert run.actions == []


def test_a_failed_model_call_does_nothing() -> None:
    """A rate limit in between is not an action."""
    run = Run()
    failed = Step(Kind.MODEL, "chat", agent="writer", model="m", error=True)
    for text in TALK["the same, numbered"]:
        run.calls(tell(text), failed)
    assert run.actions == ["hint"]


@pytest.mark.parametrize(
    ("gap", "actions"), [(30, []), (0.5, ["hint"])], ids=["a user's pause", "at once"]
)
def test_a_trace_after_a_pause_may_answer_a_user(gap: float, actions: list[str]) -> None:
    """Nobody types within a second; after a pause in another trace somebody may have."""
    run = Run()
    for number, text in enumerate(TALK["the same, numbered"]):
        step = tell(text)
        step.start = EPOCH + round(number * (gap + 1) * SECOND)
        step.end = step.start + SECOND
        step.trace_id = number + 1
        run.calls(step)
    assert run.actions == actions


def test_samples_taken_beside_each_other_are_one() -> None:
    """Eight answers to one question, asked at once."""
    run = Run()
    for number, text in enumerate(TALK["the same, numbered"]):
        step = tell(text)
        step.start, step.end = EPOCH + number, EPOCH + SECOND + number
        run.calls(step)
    assert run.actions == []


def test_the_message_holds_no_content() -> None:
    """What was measured, and nothing of what was written."""
    run = Run()
    run.calls(*(tell("I'll look up the secret of Oslo now.") for _ in range(4)))
    assert "Oslo" not in run.decisions[0].message
    assert run.decisions[0].message == (
        "'writer' announced the same 4 times in a row, and no tool call or hand-off was seen in "
        "between"
    )


DOUBTS = [
    "I'm not sure which of the files is meant.",
    "Perhaps the parser reads it.",
    "It seems the cache is old.",
    "Maybe the test is wrong instead.",
    "I suspect that the path is another one.",
    "It is unclear who writes this value.",
]
APOLOGIES = [
    "I apologize for the confusion, the column has another name.",
    "I'm sorry, that was the wrong table.",
    "My mistake: the index begins at one.",
    "Sorry about that, here is the right query.",
]


@pytest.mark.parametrize("texts", [DOUBTS, APOLOGIES], ids=["doubt", "apologies"])
def test_one_plain_text_in_between_ends_the_row(texts: list[str]) -> None:
    """One doubt, or one apology, says nothing (F12)."""
    run = Run()
    for text in texts * 2:
        run.calls(say(text), say(f"The value of {text[-9:]} is written by the loader."))
    assert run.actions == []


@pytest.mark.parametrize("texts", [DOUBTS, APOLOGIES], ids=["doubt", "apologies"])
def test_a_conversation_may_be_polite(texts: list[str]) -> None:
    """A user who complains gets an apology each time."""
    run = Run()
    for text in texts * 2:
        run.calls(say(text), Step(Kind.OTHER, "user", text="that is wrong"))
    assert run.actions == []


@pytest.mark.parametrize("texts", [DOUBTS, APOLOGIES], ids=["doubt", "apologies"])
def test_phrases_agents_are_different_speakers(texts: list[str]) -> None:
    """Each agent says it once."""
    run = Run()
    run.calls(*(say(text, f"agent {number}") for number, text in enumerate(texts)))
    assert run.actions == []


def test_a_long_text_with_one_doubt_is_not_full_of_it() -> None:
    """One phrase in 200 words is careful writing."""
    run = Run()
    for number in range(8):
        words = " ".join(str(hash((number, place)))[1:8] for place in range(200))
        run.calls(say(f"{words} perhaps"))
    assert run.actions == []


ONLY = Settings(switched_off=frozenset({"refinement_spiral"}))
TASKS = [
    "read the parser", "write a test", "fix the lexer", "check the docs", "ask for a review",
    "measure the speed", "rename the module", "add a cache", "translate the page", "tell the team",
]  # fmt: skip

BAD: list[object] = [
    None,
    "",
    "[",
    "no list",
    {"todos": None},
    {"todos": [1, None, {}]},
    {"todos": {"a": 1}},
    [1],
]
"""What may stand where a list of tasks should."""


def say_scope(text: str, agent: str = "planner") -> Step:
    return Step(Kind.MODEL, "chat", agent=agent, model="m", text=text)


def boxes(count: int, done: int = 0) -> Step:
    lines = [f"- [{'x' if n < done else ' '}] {task}" for n, task in enumerate(TASKS[:count])]
    return say_scope(f"{TASKS[count - 1]} is needed too.\n" + "\n".join(lines))


def numbered(count: int, heading: str) -> Step:
    lines = [f"{n + 1}. {task}" for n, task in enumerate(TASKS[:count])]
    return say_scope(f"{heading} {TASKS[count - 1]}:\n" + "\n".join(lines))


def todo(count: int, done: int = 0) -> Step:
    items = [
        {"content": task, "status": "completed" if n < done else "pending"}
        for n, task in enumerate(TASKS[:count])
    ]
    return call("write_todos", {"todos": items}, f"Updated todo list: {count} items")


@pytest.mark.parametrize(
    "plans",
    [
        [boxes(n) for n in range(3, 9)],
        [numbered(n, "My plan, with") for n in range(3, 9)],
        [todo(n) for n in range(3, 9)],
    ],
    ids=["boxes", "a numbered plan", "a tool for lists"],
)
def test_a_plan_that_only_grows_is_noticed(plans: list[Step]) -> None:
    """Three tasks, four, five, six, seven, and none of them is done."""
    run = Run(ONLY)
    run.calls(*plans)
    found = [found for found in run.decisions if found.detector == "scope_creep"]
    assert [(one.reason, one.step, one.action) for one in found] == [("plan_only_grows", 4, "hint")]
    assert "from 3 to 7 tasks" in found[0].message


@pytest.mark.parametrize(
    "plans",
    [
        [boxes(n, n - 3) for n in range(3, 10)],
        [todo(n, n - 3) for n in range(3, 10)],
        [boxes(5)] * 8,
        [boxes(n) for n in (6, 5, 4, 3, 2)],
        [numbered(n, "What I found in") for n in range(3, 9)],
    ],
    ids=["tasks get done", "tasks get done in the tool", "the same plan", "it shrinks", "findings"],
)
def test_a_plan_that_is_worked_off_is_healthy(plans: list[Step]) -> None:
    """Tasks are done, or no more are added, or it is no plan."""
    run = Run()
    run.calls(*plans)
    assert "scope_creep" not in [found.detector for found in run.decisions]


@pytest.mark.parametrize("plan", [boxes, todo], ids=["boxes", "a tool for lists"])
def test_work_between_the_plans_is_progress(plan: Callable[[int], Step]) -> None:
    """It is worked on, marked or not."""
    run = Run()
    for count in range(3, 10):
        run.calls(plan(count), call("write_file", {"path": f"f{count}"}, f"wrote {count}"))
    assert "scope_creep" not in [found.detector for found in run.decisions]


def test_another_plan_is_another_plan() -> None:
    """Longer and longer, and never the same."""
    run = Run(ONLY)
    for count in range(3, 10):
        lines = [f"- [ ] job{count} part{place} of it" for place in range(count)]
        run.calls(say_scope("\n".join(lines)))
    assert run.actions == []


@pytest.mark.parametrize(
    "given",
    BAD,
    ids=str,
)
def test_whatever_a_tool_for_lists_is_given_nothing_throws(given: object) -> None:
    """Bad data is no plan."""
    run = Run()
    run.calls(*(call("write_todos", given, f"answer {number}") for number in range(2)))
    assert run.guard.faults.counts == {}
    assert run.actions == []


TOOLS = ["search", "lookup", "browse", "wiki", "maps", "news", "archive"]


def seen(run: Run) -> list[str]:
    return [found.detector for found in run.decisions]


def missing(tool: str) -> Step:
    return call(tool, {"q": "x"}, error=f"{tool}: the {tool * 2} of x is not there")


def test_tools_that_find_nothing_count() -> None:
    """Nothing found is in vain, too."""
    run = Run()
    run.calls(*(call(tool, {"q": tool}, f"No results found in {tool}.") for tool in TOOLS))
    assert "tool_shopping" in seen(run)


def test_one_tool_that_helps_ends_the_row() -> None:
    """Four in vain, then news."""
    run = Run()
    for start in (0, 3):
        run.calls(*(missing(tool) for tool in TOOLS[start : start + 4]))
        news = " ".join(f"fact{start}x{place}" for place in range(40))
        run.calls(call("encyclopedia", {"q": start}, news))
    assert "tool_shopping" not in seen(run)


def test_a_user_starts_anew() -> None:
    """Another task, other tools."""
    run = Run()
    for tool in TOOLS:
        run.calls(missing(tool), Step(Kind.OTHER, "user", text="then try another thing"))
    assert "tool_shopping" not in seen(run)


TOLD = {
    "all": [
        # Eight agents, one answer.
        case("several speakers may say the same", "",
             *(say(ANSWER, f"agent {number}") for number in range(8))),
        # Three texts that are alike are a pipeline's.
        case("draft review and final version are healthy", "", *drafts()[:3]),
        # Each says something else.
        case("drafts that change are healthy", "",
             *[say(f"{topic} " + " ".join(f"{topic}{n} does well" for n in range(20)))
             for topic in ("kettles", "toasters", "irons", "lamps", "fans")]),
        # What was written was used.
        case("a draft after a change is a new one", "",
             *[step for number, draft in enumerate(drafts() * 2) for step in (draft,
             call("write_file", {"path": f"draft{number}"}, "ok"))]),
        # Then it is wanted.
        case("a user asks for the next draft", "", *[step for draft in drafts() * 3
             for step in (draft, Step(Kind.OTHER, "user", text="make it shorter"))]),
        # One thing after the other is announced, and none of the tools is called.
        case("different announcements count where tools are seen", "only_announced: 10 hint",
             call("list_tools", {}, "weather, hotels, flights"), *map(tell,
             HEALTHY["different announcements, tools out of sight"])),
        # Each of six agents says once that it begins.
        case("agents are different speakers", "",
             *(tell("I will now begin working on the task.", f"agent {n}") for n in range(6))),
        # Each task more was asked for.
        case("a user may want more", "", *[step for count in range(3, 10)
             for step in (boxes(count), Step(Kind.OTHER, "user", text="and one thing more"))]),
        # `tuning.text.scope_turns`.
        case("the number is a setting", "plan_only_grows: 2 hint",
             *(boxes(n) for n in range(3, 6)), tuning={"text": {"scope_turns": 2}}),
        # Each was needed once.
        case("many tools that help are healthy", "", *[call(tool, {"q": "x"},
             " ".join(f"{tool}{place}" for place in range(40))) for tool in TOOLS]),
    ],
}  # fmt: skip
"""What one detector tells by itself, of so many steps; nothing of honest work."""


@pytest.mark.parametrize(STEPS, cases(TOLD))
def test_what_is_told(
    detector: str, told: str, steps: list[Step], settings: dict[str, Any]
) -> None:
    """Reason, step and action of each decision."""
    assert told_of(alone(detector, *steps, **settings)) == told
