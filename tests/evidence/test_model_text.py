"""What models write, and what is new in what tools answer."""

import pytest

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Progress, Step
from otel_loopguard.core.evidence import ModelText
from otel_loopguard.evidence.model_text import ModelTextExtractor
from tests.calls import Run

MB = 1_000_000
UNITS = [
    "The value is read again and it differs from before. ",
    "a",
    " ",
    "\n",
    "```",
    "plan ",
    "(",
]
UNITS += ["- [ ] a task\n", "- [ ", "i will now just then ", "i am so very really "]
UNITS += ["i am not quite it is "]


def say(text: str | None, agent: str | None = "writer", model: str | None = "m") -> Step:
    return Step(Kind.MODEL, "chat", agent=agent, model=model, text=text)


def seen(*steps: Step) -> list[ModelText]:
    sense = ModelTextExtractor(Settings(), Progress())
    return [found for step in steps if (found := sense.extract(step)) is not None]


def test_a_long_text_has_done_what_it_announces() -> None:
    text = "I will run the tests. " + "They are described in the manual, chapter by chapter. " * 20
    (saying,) = seen(say(text))
    assert saying.promise is None
    # Evidence is numbers, apart from the name of the agent: the text is not held.
    values = [getattr(saying, name) for name in ModelText.__slots__]
    assert [value for value in values if isinstance(value, str)] == ["'writer'"]


def test_samples_are_kept_of_few_speakers() -> None:
    """Four samples of 2,000 characters, however many speakers and texts there are."""
    sense = ModelTextExtractor(Settings(), Progress())
    for number in range(500):
        sense.extract(say("x y " * 10_000, agent=f"agent {number}"))
    kept = list(sense._last.values())  # pyright: ignore[reportPrivateUsage]
    assert len(kept) == 4
    assert sum(len(last.sample) for last in kept) <= 8_000


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_odd_texts_do_no_harm(unit: str) -> None:
    """Whatever they are made of, nothing throws and nothing is stopped."""
    run = Run()
    text = unit * (MB // 20 // len(unit))
    run.calls(*[say(text)] * 6, say("\ud800 lone surrogate " * 50))
    assert run.guard.faults.counts == {}
    assert set(run.actions) <= {"allow", "hint", "steer"}
