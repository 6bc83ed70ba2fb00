"""Whether work is better split, and how."""

import json

import pytest

from otel_loopguard.core.task import Task
from otel_loopguard.plans import Work, advise, answered, validate
from otel_loopguard.plans.splitting import Strategy
from tests.tables import rows

WIDE = "Rewrite and migrate all of it, replace every call, update the whole store, add tests"
FILES = tuple(f"app/part{each}.py" for each in range(9))
FOLDERS = tuple(f"part{each}/main.py" for each in range(9))

VAGUE = "Improve things somehow, maybe make stuff better and write it nicely?"


@pytest.mark.parametrize(
    ("work", "strategy"),
    [
        (Work("Fix the typo in README.md", has_tests=True), Strategy.NONE),
        (Work(WIDE, FOLDERS), Strategy.COMPONENT),
        (Work(WIDE, FILES), Strategy.FILE),
        (Work(WIDE, FILES, components=("store", "view")), Strategy.COMPONENT),
        (Work(VAGUE, dependencies=("a",) * 4, has_tests=False), Strategy.TEST_FIRST),
    ],
    ids=["small", "by component", "by file", "named components", "test first"],
)
def test_how_work_is_split(work: Work, strategy: Strategy) -> None:
    """By component where several are touched, by file, or with the tests first."""
    advice = advise(work)
    assert advice.strategy is strategy
    assert advice.split is bool(advice.subtasks) is (strategy is not Strategy.NONE)
    assert validate(advice.subtasks) == []
    assert all(count > 0 for count in advice.actions.values())


BIG = rows(__file__, "big")


@pytest.mark.parametrize("said", BIG)
def test_an_ordinary_big_request_is_split(said: str) -> None:
    """By its words alone, without files or components; its parts are a sound plan."""
    advice = advise(said.replace("\\n", "\n"))
    assert advice.split
    assert len(advice.subtasks) >= 3
    assert validate(advice.subtasks) == []


@pytest.mark.parametrize("said", rows(__file__, "small"))
def test_an_ordinary_small_request_is_not(said: str) -> None:
    """However it is worded."""
    assert not advise(said, ask=lambda *_: pytest.fail("asked")).split


def test_the_parts_come_before_the_check_of_the_whole() -> None:
    """A part for each file, with actions for it; files that no part names are shared out."""
    advice = advise(Work(WIDE, FILES))
    *parts, check = advice.subtasks
    assert [part.id for part in parts] == list(FILES)
    assert check.depends_on == FILES
    assert [advice.actions[part.id] for part in parts] == [7] * 9
    assert advice.actions[check.id] == 3
    assert "many files are touched; changes may contradict each other" in advice.risks
    files = tuple(f"f{n}.py" for n in range(5))
    advice = advise(Work("Improve things somehow, better?", files, has_tests=False))
    assert advice.strategy is Strategy.TEST_FIRST
    assert list(advice.actions.values()) == [3, 15, 15, 3]


def test_a_file_that_is_called_like_a_part_of_ours_is_left_out() -> None:
    """The plan stays sound, whatever the names; unclear work begins with a question."""
    names = ("clarify", "check the whole", "a", "b", *(f"n{each}" for each in range(200)))
    advice = advise(Work(WIDE + " somehow, maybe?", components=names, has_tests=False))
    assert validate(advice.subtasks) == []
    assert any(task.id == "the rest" for task in advice.subtasks)
    assert advice.subtasks[0].id == "clarify"
    assert all("clarify" in task.depends_on for task in advice.subtasks[1:-1])


TASKS = [{"id": "one"}, {"id": "two", "depends_on": ["one"]}]


@pytest.mark.parametrize(
    "answer",
    [TASKS, json.dumps(TASKS), f"Here:\n```json\n{json.dumps(TASKS)}\n```\n", {"tasks": TASKS}],
    ids=["list", "JSON", "fenced", "map"],
)
def test_a_model_may_name_the_parts(answer: object) -> None:
    """What it answers is taken if it is sound."""
    asked: list[tuple[str, str]] = []

    def ask(description: str, strategy: str) -> object:
        asked.append((description, strategy))
        return answer

    advice = advise(Work(WIDE, FILES), ask=ask)
    assert asked == [(WIDE, "by_file")]
    assert [task.id for task in advice.subtasks] == ["one", "two"]
    assert (advice.source, advice.problems) == ("model", ())


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("cycle", [{"id": "a", "depends_on": ["b"]}, {"id": "b", "depends_on": ["a"]}]),
        *(("field", odd) for odd in ("I cannot do that.", [], None, b"\xff", "[" * 2_000_000)),
    ],
    ids=["circle", "prose", "nothing", "None", "bytes", "too long"],
)
def test_an_answer_that_is_not_sound_is_not_taken(kind: str, answer: object) -> None:
    """The rules' own parts stay, and the problems are said."""
    advice = advise(Work(WIDE, FILES), ask=lambda *_: answer)
    assert advice.source == "rules"
    assert [problem.kind for problem in advice.problems] == [kind]
    assert [task.id for task in advice.subtasks][:2] == list(FILES[:2])
    assert answered(answer)[1] == list(advice.problems)


def test_a_plan_is_a_piece_of_work() -> None:
    """Its words, its dependencies, the files in its arguments."""
    first = Task("a", description="Write src/a.py", args={"path": "src/a.py"})
    work = Work.of([first, Task("b", depends_on=("a",), args=["docs/b.md"])])
    assert list(work.files) == ["src/a.py", "docs/b.md"]
    assert list(work.dependencies) == ["b:a"]
    assert work.description == "Write src/a.py\nb"


def test_an_ordinary_request_is_split_into_what_it_lists() -> None:
    """Each part stands behind a verb; actions follow what is asked for, in a whole too."""
    advice = advise("Add OAuth login to the web shop, sessions in Redis, tests, docs")
    assert advice.split
    assert "; ".join(f"{part}: {count}" for part, count in advice.actions.items()) == (
        "Add OAuth login to the web shop: 6; sessions in Redis: 3; tests: 3; docs: 3; "
        "check the whole: 3"
    )
    assert "; ".join(task.id for task in advise(BIG[3].values[0]).subtasks) == (
        "Research the market for electric bikes in Europe; compare the five largest vendors; "
        "analyse their prices; write a report with charts; check the whole"
    )
    texts = ("Fix the typo in the readme", "Fix the crash and add a test", "Fix docs/index.md")
    found = [advise(text) for text in texts]
    assert [one.split for one in found] == [False, False, False]
    assert [one.actions[""] for one in found] == [3, 6, 7]
