"""Work that is handed over again, in other words."""

from __future__ import annotations

from otel_loopguard.core import Kind, Step
from tests.calls import Run, call

ASK = "Please {} through the flavor graveyard page and identify the oldest flavor listed there"
WORDS = ["scroll", "continue looking", "keep scrolling", "go on searching", "scroll further down"]


def hand(text: str | None, agent: str = "WebSurfer") -> Step:
    return Step(Kind.HANDOFF, agent, agent="Orchestrator", args=text)


def test_a_reworded_instruction_is_noticed_when_nothing_new_comes_of_it() -> None:
    """The third time the same is asked, and the page says what it said before."""
    run = Run()
    for number, words in enumerate(WORDS):
        run.calls(
            hand(ASK.format(words)),
            call("scrolled", {"by": number}, "I scrolled down one page. The page shows: flavors"),
        )
    assert run.actions == ["hint"]
    assert run.decisions[0].detector == "handoff_repeat"
    assert run.decisions[0].step <= 6
    assert "WebSurfer" in run.decisions[0].message


def test_work_that_brings_news_is_no_loop() -> None:
    """However alike the instructions are, new findings count."""
    run = Run()
    for number, words in enumerate(WORDS * 2):
        news = " ".join(f"finding{number}x{place}" for place in range(60))
        run.calls(hand(ASK.format(words)), call("scrolled", {"by": number}, news))
    assert run.actions == []


def test_different_work_for_one_agent_is_no_loop() -> None:
    """A list of tasks is worked off."""
    run = Run()
    for task in ("open the report of March", "send a mail to Ann", "book a table at eight"):
        run.calls(hand(task), call("done", {"task": task}, "done, as always, without trouble"))
    assert run.actions == []


def test_an_instruction_that_grows_shorter_is_a_list_being_worked_off() -> None:
    """What is left to do gets less."""
    run = Run()
    items = [f"check invoice number{n} against the ledger" for n in range(8)]
    for number in range(6):
        run.calls(
            hand("; ".join(items[number:])), call("ok", {"n": number}, f"invoice {number} is fine")
        )
    assert run.actions == []


def test_without_the_text_nothing_counts() -> None:
    """What was handed over is not captured, so it is unknown."""
    run = Run()
    for number in range(9):
        run.calls(hand(None), call("scrolled", {"by": number}, "I scrolled down one page, again"))
    assert "handoff_repeat" not in [decision.detector for decision in run.decisions]


def test_a_user_who_speaks_starts_anew() -> None:
    """The user may ask for the same once more."""
    run = Run()
    for words in WORDS:
        run.calls(hand(ASK.format(words)), Step(Kind.OTHER, "user", text="again, please"))
    assert run.actions == []
