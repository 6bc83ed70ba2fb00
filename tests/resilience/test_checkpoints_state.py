"""What the guard counted goes with a checkpoint: work that is done again is no repeat (C19)."""

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import Action, LoopGuard, Settings, control, resilience, session
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Detection, Evidence, Kind, Step
from otel_loopguard.replay import Recording, Run
from tests.calls import call, handle_of
from tests.escalation.agents import asked, stuck
from tests.sessions.journals import JournalsInMemory, session_of, until
from tests.sessions.journals import guard as journalled
from tests.stores.memory import MemoryStore

FORECAST = "light rain in the west, twenty degrees, and a little wind"
NOTHING = "no results for this city"
NUMBERS = itertools.count()
PLAN = [{"id": "search"}, {"id": "report", "depends_on": ["search"]}]


@dataclass
class Scene:
    """A session of a live guard, and checkpoints of its application."""

    settings: Settings = field(default_factory=Settings)
    actions: list[str] = field(default_factory=list[str])
    # Other guards of this process must not know the session.
    key: str = field(default_factory=lambda: f"scene {next(NUMBERS)}")

    def __post_init__(self) -> None:
        self.guard = LoopGuard(
            self.settings, on_decision=lambda _, found: self.actions.append(found.action.value)
        )
        self.flag = self.guard.flag_named(self.key)
        self.points = resilience.Checkpoints(resilience.Callbacks(str, print))

    def does(self, *steps: Step) -> list[str]:
        """Does the steps; what was decided at them, without notes."""
        before = len(self.actions)
        for step in steps:
            self.guard.observe(step, self.key)
        return [action for action in self.actions[before:] if action != "allow"]

    def saves(self) -> resilience.Checkpoint:
        with session(self.key):
            return self.points.create()

    def report(self) -> Any:
        found = self.guard.report(self.key)
        assert found is not None
        return found

    def restores(self, point: resilience.Checkpoint) -> None:
        with session(self.key):
            self.points.restore(point)


EQUAL = [call("weather", {"city": "Paris"}, NOTHING)] * 2
FAILURES = [call("mail", {"to": "Ann"}, error="ValueError: there is no route to the host of Ann")]
LISTED = "one, two, three, and many more of the same kind"
TURNS = [call("read", {"path": "a"}, FORECAST), call("list", {"path": "b"}, LISTED)] * 2


@pytest.mark.parametrize("work", [EQUAL, FAILURES, TURNS], ids=["calls", "failures", "turns"])
def test_work_done_again_is_no_repeat(work: list[Step]) -> None:
    """However often; without a restore the same calls are noticed."""
    scene, other = Scene(), Scene()
    scene.does(call("start", {"n": 1}, "began"))
    point = scene.saves()
    for _ in range(4):
        assert scene.does(*work) == []
        scene.restores(point)
        other.does(*work)
    assert "hint" in other.actions


def test_what_was_known_at_the_checkpoint_is_known_again() -> None:
    """A loop that was hinted at before it has had its hint, after each restore."""
    scene = Scene()
    assert scene.does(*EQUAL, EQUAL[0]) == ["hint"]
    point = scene.saves()
    for _ in range(2):
        scene.restores(point)
        assert scene.does(*EQUAL, EQUAL[0]) == ["deny"]


def test_a_hint_and_a_deny_since_are_over() -> None:
    """The calls that were denied may be made again; a loop takes as many of them as any."""
    scene = Scene()
    point = scene.saves()
    assert scene.does(*EQUAL, *EQUAL) == ["hint", "deny"]
    assert scene.flag.control.action is Action.DENY
    scene.restores(point)
    assert scene.flag.control.action is Action.ALLOW
    assert not handle_of(scene.guard, scene.key).denies("weather", {"city": "Paris"})
    assert scene.does(*EQUAL, *EQUAL) == ["hint", "deny"]


@pytest.mark.parametrize("stop", [control.pause, control.abort])
def test_what_a_person_set_stays(stop: Callable[..., bool]) -> None:
    """So does what a person tells the model."""
    scene = Scene()
    point = scene.saves()
    stop(scene.key, "stop it", by="anna")
    scene.restores(point)
    assert scene.flag.control.by == "anna"
    control.resume(scene.key, by="anna", guidance="use the other table")
    scene.restores(point)
    assert scene.flag.control.hint == "use the other table"


def test_a_pause_of_the_policy_stays() -> None:
    """People were asked; going back is no answer."""
    scene = Scene(Settings(max_action="pause"))
    point = scene.saves()
    stuck(scene.guard, scene.key)
    (found,) = asked(scene.guard)
    scene.restores(point)
    assert scene.flag.control.action is Action.PAUSE
    assert found.id in [one.id for one in control.escalations()]


def test_milestones_and_the_plan_are_as_they_were() -> None:
    """What was reached since is still to be reached; a plan of later is gone."""
    scene = Scene()
    report = call("report", {"of": "x"}, "written")
    with session(scene.key, tasks=PLAN):
        scene.does(call("search", {"q": "x"}, FORECAST))
        point = scene.points.create()
        scene.does(report)
        assert scene.report().milestones == 100
        scene.points.restore(point)
        assert scene.report().milestones == 50
        control.milestones(["something", "else", "altogether"])
        scene.points.restore(point)
        assert scene.report().milestones == 50
        scene.does(report)
        assert scene.report().milestones == 100


def test_milestones_count_after_a_turn_of_the_user() -> None:
    """They are those of the task that is gone back to."""
    scene = Scene(Settings(tuning={"milestones": {"steps": 3}}))
    with session(scene.key):
        control.milestones(["a", "b"])
        control.milestone("a")
        point = scene.points.create()
        scene.does(Step(Kind.OTHER, "user", text="and now something else"))
        scene.points.restore(point)
        done = [call(f"tool{n}", {"n": n}, f"{n} is the answer to it") for n in range(8)]
        assert "hint" in scene.does(*done)


def test_a_plan_of_a_person_stays() -> None:
    """What was done of it since is to be done again."""
    scene = Scene(Settings(max_action="pause"))
    done = call("look_up", {"n": 1}, "it is the third one")
    with session(scene.key, tasks=PLAN):
        point = scene.points.create()
        stuck(scene.guard, scene.key)
        (found,) = asked(scene.guard)
        control.answer(found.id, "modify_plan", by="anna", plan=[{"id": "look_up"}, {"id": "say"}])
        scene.does(done)
        scene.points.restore(point)
        assert [task.id for task in control.plan()] == ["look_up", "say"]
        assert scene.report().milestones == 0
        scene.does(done)
        assert scene.report().milestones == 50


def test_what_was_spent_stays_spent() -> None:
    """A budget cannot be won back by going back."""
    scene = Scene(Settings(budget_actions=6, budget_action="pause"))
    point = scene.saves()
    for turn in range(3):
        scene.does(*(call(f"t{n}", {"n": n}, f"{turn} and {n}") for n in range(3)))
        scene.restores(point)
    assert "pause" in scene.actions
    assert scene.report().actions == 9


def test_the_session_of_the_checkpoint_goes_back() -> None:
    """Whoever restores it; another session keeps its counts, and what is not known is forgotten."""
    scene = Scene()
    outside = scene.points.create()
    scene.does(*EQUAL)
    scene.restores(outside)
    scene.guard.flag_named("boss")
    point = scene.saves()
    assert scene.does(*EQUAL) == []
    for step in EQUAL:
        scene.guard.observe(step, "boss")
    with session("boss"):
        scene.points.restore(point)
    assert scene.does(*EQUAL) == []
    scene.guard.observe(EQUAL[0], "boss")
    assert scene.actions == ["hint"]


def test_a_restore_that_fails_takes_nothing_back() -> None:
    """The application's state is what it was."""
    scene = Scene()
    scene.points = resilience.Checkpoints(resilience.Callbacks(str, {}.__getitem__))
    point = scene.saves()
    scene.does(*EQUAL)
    with pytest.raises(KeyError):
        scene.restores(point)
    assert scene.does(EQUAL[0]) == ["hint"]


class Locked:
    """A detector that cannot be copied."""

    name = "locked"
    takes = Evidence

    def __init__(self, _: Settings) -> None:
        self.lock = threading.Lock()

    def observe(self, _: Evidence) -> Detection | None:
        return None


def test_a_detector_that_cannot_be_copied_begins_anew() -> None:
    """That is counted as a fault, and all others go back."""
    raise_faults(False)
    scene = Scene(Settings(detectors=(f"{__name__}:Locked",)))
    scene.does(*EQUAL)
    point = scene.saves()
    scene.restores(point)
    assert scene.guard.faults.counts == {"locked:TypeError": 1}
    assert scene.does(*EQUAL) == []
    assert scene.report().switched_off == ()


def test_in_a_journal_the_restore_is_written_down() -> None:
    """Another process forgets what was done before it, and counts what was done since."""
    store = MemoryStore()
    one, other = (journalled(JournalsInMemory(store)) for _ in range(2))
    points = resilience.Checkpoints(resilience.Callbacks(str, print))
    session_of(one, "restored")
    with session("restored"):
        point = points.create()
        for step in EQUAL:
            one.observe(step, "restored")
        points.restore(point)
        one.observe(EQUAL[0], "restored")
    one.shutdown()
    known = session_of(other, "restored")
    until(lambda: known.journal is not None and known.journal.before.calls == 3)
    for alerts, step in enumerate(EQUAL):
        other.observe(step, "restored")
        assert other.report("restored").alert_count == alerts  # type: ignore[union-attr]
    other.shutdown()


@pytest.mark.parametrize("source", ["traces/magentic.jsonl.gz", "traces/sweagent.jsonl.gz"])
def test_any_run_may_go_back(shared: Path, source: str) -> None:
    """All that a run leads to can be saved and put back, with no fault; a second time too."""
    runs = itertools.islice(Recording(str(shared / source), print), 5)
    for number, run in enumerate(runs):
        assert isinstance(run, Run)
        guard = LoopGuard(clock="replay")
        for step in run.steps:
            guard.observe(step, str(number))
        saved = handle_of(guard, str(number)).saved()
        for _ in range(2):
            handle_of(guard, str(number)).restore(saved)
            for step in run.steps[:50]:
                guard.observe(step, str(number))
        assert not guard.faults.counts
