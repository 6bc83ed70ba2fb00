"""Tasks with a known answer, each with a small world that its tools look at.

All are made from a number, so that everybody who runs them has the same ones. Some are one call
away from their answer, some need several, and some can only be waited for: the agent that solves
them does what a guard must not mistake for a loop.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

_FIRST = "Mara Jonas Elif Pablo Ingrid Tariq Noemi Oskar Yuki Bruno".split()
_LAST = "Lind Okafor Sorel Varga Petrov Haddad Moreau Kimura Brandt Silva".split()
_CITIES = "Oslo Lima Porto Kyoto Turin Accra Quito Riga Cairo Perth".split()
_THINGS = "gate boat kettle piano lamp ladder drum sofa tent mirror".split()
_COLOURS = "green orange purple yellow silver brown white scarlet black blue".split()
_PLACES = "Hallam Corvin Astbury Delmar Fenwick Gorran Ilkley Jarrow Kelso Marden".split()
_BUILDINGS = "bridge tower library station theatre".split()
_WORDS = "falcon harbor ember willow comet lantern meadow pepper saddle thistle".split()


@dataclass(frozen=True)
class Task:
    """One question, and where its answer can be found.

    Attributes:
        id: Kind and number, as `file-2`.
        question: What the agent is asked.
        answer: A word or a number that is in a right answer.
        files: Text of each file, by name.
        people: What is known of a person, by name.
        documents: What a search looks through.
        jobs: For each job how often it says that it runs, and then its result.
    """

    id: str
    question: str
    answer: str
    files: dict[str, str] = field(default_factory=dict[str, str])
    people: dict[str, str] = field(default_factory=dict[str, str])
    documents: tuple[str, ...] = ()
    jobs: dict[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])

    def solved(self, said: str | None) -> bool:
        """True if a text has the answer as a word of its own."""
        text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", said or "")
        word = rf"(?<![\w.]){re.escape(self.answer)}(?!\w|\.\d)"
        return bool(re.search(word, text, re.IGNORECASE))


def tasks(number: int = 32, seed: int = 1) -> list[Task]:
    """So many tasks, of each kind in turn; equal for equal arguments."""
    kinds = list(_KINDS.items())
    return [
        make(f"{kind}-{at // len(kinds) + 1}", random.Random(f"{seed} {kind} {at}"))
        for at in range(number)
        for kind, make in [kinds[at % len(kinds)]]
    ]


def _sum(name: str, dice: random.Random) -> Task:
    one, two = dice.randint(12, 99), dice.randint(12, 99)
    sign, result = dice.choice([("+", one + two), ("*", one * two)])
    return Task(name, f"What is {one} {sign} {two}?", str(result))


def _file(name: str, dice: random.Random) -> Task:
    thing, colour = dice.choice(_THINGS), dice.choice(_COLOURS)
    return Task(
        name,
        f"Read the file {thing}.txt. Which colour does the {thing} have?",
        colour,
        files={f"{thing}.txt": f"The {thing} is old. It is {colour} and stands in the yard."},
    )


def _person(name: str, dice: random.Random) -> Task:
    people = _some_people(dice)
    who = dice.choice(list(people))
    what, answer = dice.choice(_known(people[who]))
    return Task(name, f"Look up {who}. What is the {what} of {who}?", answer, people=people)


def _document(name: str, dice: random.Random) -> Task:
    built = [
        (place, dice.choice(_BUILDINGS), dice.randint(1801, 1999))
        for place in dice.sample(_PLACES, 4)
    ]
    documents = tuple(
        f"{place} {kind}. The {kind} of {place} was built in {year} by the town."
        for place, kind, year in built
    )
    place, kind, year = dice.choice(built)
    question = f"In which year was the {kind} of {place} built? Search for it."
    return Task(name, question, str(year), documents=documents)


def _hidden(name: str, dice: random.Random) -> Task:
    names = [f"{word}.txt" for word in dice.sample(_THINGS, 4)]
    secret, holder = dice.choice(_WORDS), dice.choice(names)
    files = {each: f"Nothing is noted about the {each[:-4]} yet." for each in names}
    files[holder] = f"The code word is {secret}."
    return Task(name, "One of the files has the code word. What is it?", secret, files=files)


def _hop(name: str, dice: random.Random) -> Task:
    people = _some_people(dice)
    who, thing = dice.choice(list(people)), dice.choice(_THINGS)
    what, answer = dice.choice(_known(people[who]))
    return Task(
        name,
        f"The file {thing}.txt says who owns the {thing}. What is the {what} of the owner?",
        answer,
        files={f"{thing}.txt": f"The {thing} belongs to {who}."},
        people=people,
    )


def _total(name: str, dice: random.Random) -> Task:
    counts = {f"day{day}.txt": dice.randint(3, 40) for day in range(1, dice.randint(3, 6))}
    return Task(
        name,
        f"Each of the files {', '.join(counts)} has a number of visitors. How many in all?",
        str(sum(counts.values())),
        files={each: f"Visitors: {count}" for each, count in counts.items()},
    )


def _job(name: str, dice: random.Random) -> Task:
    job, code = f"build-{dice.randint(10, 99)}", dice.randint(1000, 9999)
    return Task(
        name,
        f"The job {job} is running. Wait until it is finished. What is its result code?",
        str(code),
        jobs={job: (dice.randint(3, 9), f"finished, result code {code}")},
    )


_KINDS: dict[str, Callable[[str, random.Random], Task]] = {
    "sum": _sum,
    "file": _file,
    "person": _person,
    "document": _document,
    "hidden": _hidden,
    "hop": _hop,
    "total": _total,
    "job": _job,
}


def _some_people(dice: random.Random) -> dict[str, str]:
    drawn = zip(dice.sample(_FIRST, 3), dice.sample(_LAST, 3), dice.sample(_CITIES, 3), strict=True)
    return {
        f"{first} {last}": f"City: {city}. Phone number: {dice.randint(1000, 9999)}."
        for first, last, city in drawn
    }


def _known(entry: str) -> list[tuple[str, str]]:
    found = re.findall(r"([A-Z][a-z ]+): (\w+)\.", entry)
    return [(what.lower(), answer) for what, answer in found]
