"""Steps of one made-up run, one after the other on a clock."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from otel_loopguard.core import Kind, Step
from tests.calls import EPOCH, SECOND

WORDS = (
    "account action address agent alarm amount answer archive arrival article asset author backup "
    "balance banner basket battery bridge budget buffer cable cache camera canal candle capital "
    "carrier castle ceiling channel chapter circuit claim client climate cluster coast column "
    "comment company contract copper corner cotton council courier credit culture current customer "
    "cycle damage dealer debate decade degree deposit desert detail device dialog diesel digest "
    "doctor domain donor driver editor effect engine entry escape estate event expert fabric "
    "factor farmer feature fiber figure filter finance flight folder forest format fossil frame "
    "freight garden gateway glacier grain handle harbor header health heater highway holder "
    "import income index insect invoice island issue jacket journal kernel ladder lagoon launch "
    "layer ledger lesson letter license limit locker magnet margin market matrix meadow member "
    "memory metal method mirror module morning museum needle network notice number object office "
    "option orchard order origin outlet owner package panel parcel partner patent patient pattern "
    "payment permit pilot planet pocket policy portal prairie premium printer process profile "
    "project pulse quarter query queue radar random ranking reason record region relay remedy "
    "report reserve result revenue river rocket router runner safety sample scale schema school "
    "screen season sector segment sensor series server shadow signal silver sketch socket source "
    "speech spring square stable station status storm stream summer supply surface switch symbol "
    "system table target ticket timber token topic tower tract trade traffic travel treaty tunnel "
    "turbine update valley vector vendor vessel village violin volume voyage wagon warden water "
    "weather window winter wizard worker writer yield zone"
).split()

THOUGHTS = (
    "Let me look at {}.",
    "Next I check {}.",
    "Now {}.",
    "The last result points to {}, so I go there.",
    "I will use the tool for {}.",
    "Good, on to {}.",
    "That leaves {}.",
    "To be sure I look at {} as well.",
)


@dataclass
class Tape:
    """What one run did, with everything random taken from one seed.

    Attributes:
        dice: Where everything random comes from.
        steps: The steps so far.
        now: The clock, in seconds.
        spoken: Whether model calls are seen, one before each tool call.
        between: What is done between two calls of a loop, now and then; None for nothing.
    """

    dice: random.Random
    steps: list[Step] = field(default_factory=list)
    now: float = 0.0
    spoken: bool = False
    between: Callable[[Tape], None] | None = None

    def call(
        self,
        tool: str,
        args: object,
        outcome: object = None,
        *,
        error: str | None = None,
        idle: float = 0.0,
        took: float | None = None,
        agent: str | None = None,
    ) -> None:
        """One tool call: `idle` seconds of nothing, the model's thinking, the call itself."""
        self.now += idle
        self._think()
        took = self.dice.uniform(0.1, 1.5) if took is None else took
        self._add(Kind.TOOL, tool, took, args, outcome, error, agent)

    def at_once(self, tool: str, args: object, outcome: object, took: float) -> None:
        """One call right after the one before: the same message asked for both."""
        self._add(Kind.TOOL, tool, took, args, outcome, None, None)

    def round(self, calls: list[tuple[str, object, object]]) -> None:
        """Calls that run side by side."""
        self._think()
        began, latest = self.now, self.now
        for tool, args, outcome in calls:
            self.now = began
            self._add(Kind.TOOL, tool, self.dice.uniform(0.5, 1.5), args, outcome, None, None)
            latest = max(latest, self.now)
        self.now = latest

    def model(self, text: str, took: float = 1.0) -> None:
        """One call of the model, and what it wrote."""
        began, self.now = self.now, self.now + took
        self.steps.append(
            Step(Kind.MODEL, "model", model="model", text=text, tokens_in=900, tokens_out=60,
                 start=_nanoseconds(began), end=_nanoseconds(self.now))
        )  # fmt: skip

    def node(self, name: str, outcome: object = None) -> None:
        """One node of a graph."""
        self._add(Kind.NODE, name, 0.4, None, outcome, None, None)

    def handoff(self, giver: str, taker: str, text: str | None) -> None:
        """Work that one agent gives to another."""
        self._add(Kind.HANDOFF, taker, 0.1, text, None, None, giver)

    def user(self, text: str = "and now?") -> None:
        """A user speaks."""
        self.now += 30
        self.steps.append(Step(Kind.OTHER, "user", text=text, end=_nanoseconds(self.now)))

    def aside(self) -> None:
        """What is done between two calls of a loop, if it is its turn."""
        if self.between is not None and self.dice.random() < 0.35:
            self.between(self)

    def word(self) -> str:
        """One word."""
        return self.dice.choice(WORDS)

    def prose(self, words: int = 60) -> str:
        """Text that says something new."""
        return " ".join(self.dice.choices(WORDS, k=words)).capitalize() + "."

    def hexadecimal(self, digits: int = 8) -> str:
        """Random digits of an id."""
        return "".join(self.dice.choices("0123456789abcdef", k=digits))

    def _think(self) -> None:
        if self.spoken:
            self.model(self.dice.choice(THOUGHTS).format(f"the {self.word()} {self.word()}"),
                       self.dice.uniform(0.8, 4))  # fmt: skip
        else:
            self.now += self.dice.uniform(0.5, 3)

    def _add(  # noqa: PLR0917
        self, kind: Kind, name: str, took: float, args: object, outcome: object,
        error: str | None, agent: str | None,
    ) -> None:  # fmt: skip
        began, self.now = self.now, self.now + took
        self.steps.append(
            Step(kind, name, agent=agent, args=args, outcome=outcome, error=error is not None,
                 error_text=error, start=_nanoseconds(began), end=_nanoseconds(self.now))
        )  # fmt: skip


def _nanoseconds(seconds: float) -> int:
    return EPOCH + round(seconds * SECOND)
