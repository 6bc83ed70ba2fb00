"""Everyday sessions as real spans: the healthy ones go unnoticed, the stuck ones are noticed."""

from __future__ import annotations

from tests.documented.traced import Traced

SENTENCES = [
    f"The {a} of the {b} {verb} a {c} near the {d}."
    for a, b, verb, c, d in zip(
        "harbor letter garden bridge summer market window forest engine planet".split() * 4,
        "city king school river valley museum castle farmer island office".split() * 3
        + ["sea"] * 10,
        "shows keeps opens covers holds turns leaves brings".split() * 5,
        "ticket lantern barrel signal mirror canvas".split() * 7,
        "station prairie temple lagoon tower".split() * 8,
        strict=False,
    )
]


# Several agents, whose runs are the only sign that they hand work to each other


def test_agents_that_answer_each_other_are_no_loop() -> None:
    """What an agent says during its run comes back to the other: a debate, a review."""
    team, said = Traced(), iter(SENTENCES)
    tasks = {"pro": "Argue for the work at home.", "contra": "Argue against the work at home."}
    with team.running(name="moderator"):
        for _ in range(8):
            for name, task in tasks.items():
                with team.running(name=name, task=task):
                    team.model(" ".join(next(said) for _ in range(2)), agent=name)
    assert team.actions == []


def test_one_instruction_for_many_files_is_no_loop() -> None:
    """The parts of a path tell two files apart, as names do."""
    team = Traced()
    rule = "Follow the style guide, keep it short, use the imperative, and do not touch the code."
    words = [sentence.split() for sentence in SENTENCES]
    with team.running(name="lead"):
        for index in range(10):
            file = f"src/{words[index][4]}/{words[index][1]}_{words[index + 1][1]}.py"
            with team.running(name="documenter", task=f"Write the docstring of {file}. {rule}"):
                team.call("edit_file", f'{{"path": "{file}"}}', "ok")
                team.model("Done.", agent="documenter")
    assert team.actions == []
