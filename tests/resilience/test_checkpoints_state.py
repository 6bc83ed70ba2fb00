"""What the guard counted goes with a checkpoint: work that is done again is no repeat (C19)."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import LoopGuard, Settings, control, resilience, session
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Detection, Evidence, Kind, Step
from otel_loopguard.replay import Recording, Run
from tests.calls import call, handle_of
from tests.escalation.agents import asked, stuck
from tests.sessions.journals import JournalsInMemory, session_of, until
from tests.sessions.journals import guard as journalled
from tests.stores.memory import MemoryStore
from tests.tables import rows

FORECAST = "light rain in the west, twenty degrees, and a little wind"
NUMBERS = count()
PLAN = [{"id": "search"}, {"id": "report", "depends_on": ["search"]}]
EQUAL = [call("weather", {"city": "Paris"}, "no results for this city")] * 2
LISTED = "one, two, three, and many more of the same kind"
WORK: dict[str, list[Step]] = {
    "start": [call("start", {"n": 1}, "began")],
    "twice": EQUAL,
    "thrice": [*EQUAL, EQUAL[0]],
    "four": EQUAL * 2,
    "failure": [call("mail", {"to": "Ann"}, error="ValueError: there is no route to the host")],
    "nothing": [
        call("search", {"q": f"{what} in Paris"}, "No results found.")
        for what in ("hotels", "museums", "parks")
    ],
    "turns": [call("read", {"path": "a"}, FORECAST), call("list", {"path": "b"}, LISTED)] * 2,
    "search": [call("search", {"q": "x"}, FORECAST)],
    "report": [call("report", {"of": "x"}, "written")],
    "look_up": [call("look_up", {"n": 1}, "it is the third one")],
    "user": [Step(Kind.OTHER, "user", text="and now something else")],
    "others": [call(f"tool{n}", {"n": n}, f"{n} is the answer to it") for n in range(8)],
}


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
        self.point: resilience.Checkpoint | None = None

    def does(self, *steps: Step) -> list[str]:
        """Does the steps; what was decided at them, without notes."""
        before = len(self.actions)
        for step in steps:
            self.guard.observe(step, self.key)
        return [action for action in self.actions[before:] if action != "allow"]

    def saves(self) -> None:
        with session(self.key):
            self.point = self.points.create()

    def restores(self) -> None:
        assert self.point is not None
        with session(self.key):
            self.points.restore(self.point)

    def report(self) -> Any:
        found = self.guard.report(self.key)
        assert found is not None
        return found

    def plans(self) -> None:
        with session(self.key, tasks=PLAN):
            pass

    def answers(self) -> None:
        plan = [{"id": "look_up"}, {"id": "say"}]
        control.answer(asked(self.guard)[0].id, "modify_plan", by="anna", plan=plan)


ACTS: dict[str, Callable[[Scene], object]] = {
    "save": Scene.saves,
    "restore": Scene.restores,
    "new": lambda scene: scene.does(*(call("t", {"n": n}, f"{n}") for n in islice(NUMBERS, 3))),
    "tasks": Scene.plans,
    "stuck": lambda scene: stuck(scene.guard, scene.key),
    "answer": Scene.answers,
    "pause": lambda scene: control.pause(scene.key, "stop it", by="anna"),
    "abort": lambda scene: control.abort(scene.key, "stop it", by="anna"),
    "guide": lambda scene: control.resume(scene.key, by="anna", guidance="elsewhere"),
    "declare": lambda _: control.milestones(["a", "b"]),
    "declare-others": lambda _: control.milestones(["something", "else", "altogether"]),
    "reach": lambda _: control.milestone("a"),
}
TOLD: dict[str, Callable[[Scene], object]] = {
    "flag": lambda scene: scene.flag.control.action,
    "by": lambda scene: scene.flag.control.by,
    "hint": lambda scene: scene.flag.control.hint,
    "milestones": lambda scene: scene.report().milestones,
    "actions": lambda scene: scene.report().actions,
    "denied": lambda scene: bool(
        handle_of(scene.guard, scene.key).denied_by("weather", {"city": "Paris"})
    ),
    "asked": lambda scene: len(asked(scene.guard)),
    "decided": lambda scene: ",".join(dict.fromkeys(scene.actions)),
    "plan": lambda _: ",".join(task.id for task in control.plan()),
}


@pytest.mark.parametrize(("_name", "settings", "script"), rows(__file__, "scripts"))
def test_what_goes_back_and_what_stays(_name: str, settings: str, script: str) -> None:
    """Calls, with what is decided about them behind `=`, what is done, and what is told by then."""
    scene = Scene(Settings(**json.loads(settings)))
    with session(scene.key):
        for word in script.split():
            name, equals, said = word.partition("=")
            if name in WORK:
                found = ",".join(scene.does(*WORK[name]))
                assert not equals or found == said, word
            elif name in TOLD:
                assert str(TOLD[name](scene)) == said, word
            else:
                ACTS[name](scene)


def test_the_session_of_the_checkpoint_goes_back() -> None:
    """Whoever restores it; another session keeps its counts, and what is not known is forgotten."""
    scene = Scene()
    scene.point = scene.points.create()
    scene.does(*EQUAL)
    scene.restores()
    scene.guard.flag_named("boss")
    scene.saves()
    assert scene.does(*EQUAL) == []
    for step in EQUAL:
        scene.guard.observe(step, "boss")
    with session("boss"):
        scene.points.restore(scene.point)
    assert scene.does(*EQUAL) == []
    scene.guard.observe(EQUAL[0], "boss")
    assert scene.actions == ["hint"]


def test_a_restore_that_fails_takes_nothing_back() -> None:
    """The application's state is what it was."""
    scene = Scene()
    scene.points = resilience.Checkpoints(resilience.Callbacks(str, {}.__getitem__))
    scene.saves()
    scene.does(*EQUAL)
    with pytest.raises(KeyError):
        scene.restores()
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
    scene.saves()
    scene.restores()
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
    runs = islice(Recording(str(shared / source), print), 5)
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
