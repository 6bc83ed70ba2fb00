"""Work that agents hand back and forth: what `handoffs.txt` cannot say."""

import pytest

from otel_loopguard import Settings
from otel_loopguard._util.errors import raise_faults
from otel_loopguard.core import Detection, Kind, Step
from otel_loopguard.detectors.handoffs import RingCycle, TopicCycle
from tests.calls import EPOCH, SECOND, Run, call
from tests.hostile.rig import sizes
from tests.sessions.test_cycles import rally

ASK = "Please {} through the flavor graveyard page and identify the oldest flavor listed there"
WORDS = ["scroll", "continue looking", "keep scrolling", "go on searching", "scroll further down"]
NOTHING = "The page did not change; it shows the list of flavors that it showed before."


def surfer(text: object) -> Step:
    return Step(Kind.HANDOFF, "WebSurfer", agent="Orchestrator", args=text)


def ran(text: str, *, begin: float, end: float) -> Step:
    """One run of a sub-agent, in seconds."""
    start, stop = EPOCH + round(begin * SECOND), EPOCH + round(end * SECOND)
    return Step(Kind.AGENT, "WebSurfer", agent="WebSurfer", args=text, start=start, end=stop)


def heard(run: Run, detector: str) -> list[str]:
    """The messages of a detector."""
    return [one.message for one in run.decisions if one.detector == detector]


@pytest.mark.parametrize("announced", [False, True])
def test_a_sub_agent_that_nothing_announced_counts_by_its_runs(*, announced: bool) -> None:
    """Runs that end are exchanges; not one that a hand-off announced, nor workers side by side."""
    run = Run(Settings(sensitivity=0.6) if announced else Settings())
    for number, words in enumerate(WORDS[:2] if announced else WORDS):
        text = ASK.format(words)
        run.calls(surfer(text) if announced else call("scrolled", {"by": number}, NOTHING))
        run.calls(ran(text, begin=number * 10, end=number * 10 + 9))
    assert bool(heard(run, "handoff_repeat")) is not announced
    beside = Run()
    beside.calls(*(ran(ASK.format("scroll"), begin=1, end=10 + number) for number in range(6)))
    assert beside.decisions == []


@pytest.mark.parametrize("broken", [RingCycle, TopicCycle], ids=lambda one: one.name)
def test_the_pair_count_works_on_where_the_others_fail(
    broken: type[RingCycle | TopicCycle], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A detector that throws is switched off, is named, and the plain count goes on (B9)."""

    def throw(_self: object, _evidence: object) -> Detection | None:
        raise RuntimeError("broken for this test")

    raise_faults(False)
    monkeypatch.setattr(broken, "observe", throw)
    run = Run(Settings())
    rally(run, 5)
    assert heard(run, "exchange_pair")
    assert run.guard.faults.counts[f"{broken.name}:RuntimeError"] == 1


def test_tables_do_not_grow_with_the_session() -> None:
    """Every exchange has another giver, receiver and text, hundreds of words of it."""
    run = Run()

    def feed(first: int, last: int) -> int:
        for number in range(first, last):
            text = " ".join(f"word{number}x{place}" for place in range(100))
            run.calls(Step(Kind.HANDOFF, f"agent{number}", agent=f"giver{number}", args=text))
        return sizes(run.guard, depth=9)

    early, late = feed(0, 100), feed(100, 300)
    assert late < early * 1.05
    assert run.decisions == []
