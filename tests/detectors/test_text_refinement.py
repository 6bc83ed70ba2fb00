"""A text that is refined again and again."""

from __future__ import annotations

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from tests.calls import Run, call

DRAFT = (
    "Our new kettle boils a litre of water in two minutes, keeps it warm for an hour, and comes in "
    "{} colours that go with every kitchen. Order it today and get the {} cup free of charge."
)
CHANGES = [("five", "first"), ("fine", "first"), ("five", "finest"), ("great", "first")]


def say(text: str, agent: str = "writer") -> Step:
    return Step(Kind.MODEL, "chat", agent=agent, model="m", text=text)


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


def test_draft_review_and_final_version_are_healthy() -> None:
    """Three texts that are alike are a pipeline's."""
    run = Run()
    run.calls(*drafts()[:3])
    assert run.actions == []


def test_drafts_that_change_are_healthy() -> None:
    """Each says something else."""
    run = Run()
    for topic in ("kettles", "toasters", "irons", "lamps", "fans"):
        run.calls(say(f"{topic} " + " ".join(f"{topic}{n} does well" for n in range(20))))
    assert run.actions == []


def test_a_draft_after_a_change_is_a_new_one() -> None:
    """What was written was used."""
    run = Run()
    for number, draft in enumerate(drafts() * 2):
        run.calls(draft, call("write_file", {"path": f"draft{number}"}, "ok"))
    assert run.actions == []


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


def test_a_progress_report_is_healthy() -> None:
    """Nothing but the number moves, and that is what matters."""
    run = Run()
    for part in range(10, 90, 10):
        run.calls(
            call("status", {"job": part}, f"{part} %"),
            say(
                f"The export of all the customers' records is running; {part} % of it are done now."
            ),
        )
    assert "refinement_spiral" not in [decision.detector for decision in run.decisions]


def test_data_is_no_draft() -> None:
    """Records of a batch are alike (F11)."""
    run = Run()
    for number in range(8):
        run.calls(
            say(
                f'{{"question": "is it in order", "answer": "yes", "of": "all {number} of them"}}'
                * 2
            )
        )
    assert run.actions == []


def test_a_user_asks_for_the_next_draft() -> None:
    """Then it is wanted."""
    run = Run()
    for draft in drafts() * 3:
        run.calls(draft, Step(Kind.OTHER, "user", text="make it shorter"))
    assert run.actions == []


def test_two_speakers_do_not_refine_each_other() -> None:
    """Writer and critic quote the same text, and each says it twice."""
    run = Run()
    for number, change in enumerate(CHANGES):
        run.calls(say(DRAFT.format(*change), "critic" if number % 2 else "writer"))
    assert run.actions == []


def test_the_numbers_are_settings() -> None:
    """`tuning.text.refine_times` and `tuning.text.alike`."""
    run = Run(Settings(tuning={"text": {"refine_times": 2}}))
    run.calls(*drafts()[:3])
    assert run.actions == ["hint"]
    run = Run(Settings(tuning={"text": {"alike": 1.0}}))
    run.calls(*drafts())
    assert run.actions == []
