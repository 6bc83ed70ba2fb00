"""Runs as readable text: `scenarios/README.md` has the grammar.

A table is a text with blanks in it (`{word}`, `{n}`); a run is drawn from it. Seed 0 is the run as
it is written. Other seeds fill the blanks otherwise and begin with other work, every second one
without model calls, every third one with other work between the calls of a loop.
"""

from __future__ import annotations

import json
import random
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from lab.runs import ANY, Row, Scenario

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
OTHER_WORK = (
    "bash(command=cat src/{word}_{hex 4}.py) -> {prose 60}",
    "visit_page(url=https://{word}.example/{word}/{hex 5}) -> {prose 90}",
    "run_sql(query=SELECT * FROM {word}_{hex 3} LIMIT 3) -> {prose 30}",
    "get_customer(id=C{hex 6}) -> {prose 25}",
    "kubectl(args=describe deployment {word}-{hex 5}) -> {prose 50}",
)
"""One healthy call of each of five trades, another one each time."""
THOUGHTS = (
    "Let me look at the {word}.",
    "Next I check the {word}.",
    "The last result points to the {word}, so I go there.",
    "Good, on to the {word} {word}.",
    "To be sure I look at the {word} as well.",
)
MODEL_S = 1.5  # a short turn of a model
CALL_S = 0.5  # a call of a tool that asks another machine
HANDOFF_S = 0.1  # nothing is computed
NODE_S = 0.4  # a node of a graph without a model
IDLE_S = 1.0  # between two calls where no model is seen

_BLANK = re.compile(
    r"\{(?:(?P<name>word|uuid)|(?P<kind>prose|hex|text) (?P<size>\d+)"
    r"|(?P<times>\d+) times (?P<what>[^{}]*)|any of (?P<any>[^{}]*)"
    r"|(?P<of>[nm\d+*/%() -]*[nm][nm\d+*/%() -]*) of (?P<list>[^{}]*)"
    r"|(?P<sum>[nm\d+*/%() -]*[nm][nm\d+*/%() -]*)(?P<form>:\w+)?)\}"
)
_CALL = re.compile(
    r"(?P<tool>(?:[\w.-]|\{[^{}]*\})+)\((?P<args>.*?)\)(?:\s+(?P<how>->|!!)(?: (?P<said>.*))?)?"
)
_EXTRA = re.compile(r"  +(x\d+|(?:after|took) [\d.]+(?:\.\.[\d.]+)?|(?:by|in) (?:\w|\{[^{}]*\})+)$")
_WANT = re.compile(r"(nothing|no stop|abort|hint|stop)(?:@(\d+))?")
_EXPECTED = re.compile(
    rf"(?:^|\s):\s+(?P<want>{_WANT.pattern}(?:,\s*{_WANT.pattern})*)(?:\s+#.*)?$"
)
_MODEL = re.compile(r"model(?:(?P<how>:| !!) ?(?P<said>.*))?")
_HANDOFF = re.compile(r"([^()]+?) >> ([^:]+)(?P<how>:)? ?(?P<said>.*)")
_HEAD = re.compile(r"(?:(?P<line>\S.*?)  )?(?P<key>with:|=) (?P<text>.*)")
_ARGUMENT = re.compile(r"(?:^|, )([A-Za-z_]\w*)=")


@dataclass(frozen=True)
class Line:
    """One line of a table, with those that are indented below it."""

    number: int
    text: str
    below: tuple[Line, ...] = ()


@dataclass(frozen=True)
class Table:
    """A scenario as text.

    Attributes:
        name: What it is called.
        lines: What is done.
        wanted: Of a run of it: a scenario without steps.
        values: What stands for `<name>`.
        source: File and line that it begins at.
        told: What is decided, as `= call_error: hint@2, deny@3` says; None where that is open.
        settings: Settings of the guard, `with: {"error_threshold": 2}`.
    """

    name: str
    lines: tuple[Line, ...]
    wanted: Scenario
    values: tuple[tuple[str, str], ...] = ()
    source: str = ""
    told: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def draw(self, seed: int = 0, *, bare: bool = False) -> Scenario:
        """One run of it; a bare one has no turns of the model but those that are written."""
        tape = _Tape(random.Random(f"{self.name} {seed}"), dict(self.values), self.source)
        tape.bare = bare
        tape.silent = seed > 0 and seed % 2 == 0
        trade = tape.dice.choice(OTHER_WORK)
        for _ in range(tape.dice.randrange(3, 9) if seed else 0):
            tape.call(trade)
        opening = tape.count
        tape.between = trade if seed % 3 == 2 else None
        tape.lines(self.lines)
        tape.steps.append({"end": "assistant"})
        return replace(self.wanted, id=self.name, steps=tuple(tape.steps), opening=opening)


def load(path: Path) -> list[Table]:
    """The tables of a file.

    Raises:
        ValueError: A line that is none of the grammar, with file and number.
    """
    found: list[Table] = []
    parts: list[list[tuple[int, str]]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("["):
            parts.append([])
        elif not line.strip() or line.lstrip().startswith("#"):
            continue
        elif not parts:
            _wrong(f"{path}:{number}", line, "expected a [name] first")
        parts[-1].append((number, line.rstrip()))
    for (number, name), *lines in parts:
        found += _tables(name.strip("[]"), lines, f"{path.name}:{number}")
    return found


def _tables(name: str, lines: list[tuple[int, str]], source: str) -> Iterator[Table]:
    """A table, or one for each row of its values."""
    heads, values = _values([line[1:] for _, line in lines if line[0] == "|"])
    notes: dict[str, str] = {}
    kept: list[tuple[int, str]] = []
    for number, line in lines:
        if found := _HEAD.fullmatch(line):
            if found["line"]:
                kept.append((number, found["line"]))
            notes[found["key"]] = found["text"]
        elif line[0] != "|":
            kept.append((number, line))
    rest = _nested(kept)
    for number, cells in enumerate(values):
        if len(cells) != len(heads):
            _wrong(source, " | ".join(cells), f"expected {len(heads)} cells")
        given = tuple(zip(heads, cells, strict=True))
        said = {key: _filled(text, dict(given)) for key, text in notes.items()}
        told = said.get("=")
        wanted, done = (
            _wanted(rest, dict(given), source) if told is None else (Scenario("", ()), rest)
        )
        settings = json.loads(said.get("with:", "{}"))
        which = ""
        if len(values) > 1:
            # The first cell says which it is, unless two begin alike.
            firsts = [row[0] for row in values]
            which = cells[0] if firsts.count(cells[0]) == 1 else f"{cells[0]} {number + 1}"
            which = f": {which[:60]}"
        yield Table(name + which, done, wanted, given, source, told, settings)


def _values(lines: list[str]) -> tuple[list[str], list[list[str]]]:
    """The names in the first line, and the cells of each other one; a lone cell may have bars."""
    if not lines:
        return [], [[]]
    heads = [cell.strip() for cell in lines[0].split(" | ")]
    most = -1 if len(heads) > 1 else 0
    return heads, [[cell.strip() for cell in line.split(" | ", most)] for line in lines[1:]]


def _nested(lines: list[tuple[int, str]]) -> tuple[Line, ...]:
    """Lines with those that are indented deeper than the first one below the one before."""
    found: list[Line] = []
    indent = min((_indent(line) for _, line in lines), default=0)
    place = 0
    while place < len(lines):
        number, text = lines[place]
        end = place + 1
        while end < len(lines) and _indent(lines[end][1]) > indent:
            end += 1
        found.append(Line(number, text.strip(), _nested(lines[place + 1 : end])))
        place = end
    return tuple(found)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def every(lines: tuple[Line, ...]) -> Iterator[Line]:
    """The lines with all that are below them."""
    for line in lines:
        yield line
        yield from every(line.below)


def _wanted(
    lines: tuple[Line, ...], values: dict[str, str], source: str
) -> tuple[Scenario, tuple[Line, ...]]:
    """What is wanted, and the lines without it."""
    said: list[str] = []
    kept: list[Line] = []
    for line in lines:
        text = _filled(line.text, values)
        found = _EXPECTED.search(text)
        if found is None:
            kept.append(line)
            continue
        said += re.split(r",\s*", found["want"])
        if text[: found.start()].strip():
            kept.append(replace(line, text=_EXPECTED.sub("", line.text)))
    wants = {found[1]: found[2] for one in said if (found := _WANT.fullmatch(one))}
    if not wants:
        _wrong(source, "", "expected what is wanted, as `: hint@4` or `: nothing`")
    by = {name: None if at is None else int(at) for name, at in wants.items()}
    stops = "stop" in by or "abort" in by
    return (
        Scenario(
            "",
            (),
            seen_by=(by["hint"] or ANY) if "hint" in by else None,
            stopped_by=(by.get("stop") or ANY) if stops else None,
            quiet="nothing" in by,
            let_through="no stop" in by or "nothing" in by,
            aborted="abort" in by,
        ),
        tuple(kept),
    )


def _filled(text: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"<{name}>", value)
    return text


def _wrong(source: str, line: str, why: str) -> NoReturn:
    raise ValueError(f"{source}: {line.strip()!r}: {why}")


@dataclass
class _Tape:
    """The steps of one run, with everything random taken from one seed."""

    dice: random.Random
    values: dict[str, str]
    source: str
    steps: list[Row] = field(default_factory=lambda: [{"begin": "assistant"}])
    count: int = 0
    silent: bool = False
    bare: bool = False
    between: str | None = None
    counters: tuple[int, ...] = ()
    together: list[Row] | None = None
    spoken: bool = False  # the message that the next calls belong to has been written

    def lines(self, lines: tuple[Line, ...]) -> None:
        for line in lines:
            self._line(line)

    def _line(self, line: Line) -> None:
        text = _filled(line.text, self.values)
        if line.below:
            self._block(line)
        elif text == "~":
            if self.between is not None and self.dice.random() < 0.35:
                self.call(self.between)
        elif found := re.match(r"(?P<what>user|wait):\s?(?P<text>.*)", text):
            getattr(self, f"_{found['what']}")(self._fill(found["text"]))
        elif found := re.fullmatch(r"([a-z_]+) = (.*)", text):
            self.values[found[1]] = self._fill(found[2])
        else:
            self.call(text, line.number)

    def _repeat(self, times: str | None, do: Callable[[], None]) -> None:
        """Does something as often as is said, counting; once without."""
        outer = self.counters
        for number in range(int(times or 1)):
            if times:
                self.counters = (number, *outer)
            do()
        self.counters = outer

    def _block(self, line: Line) -> None:
        text = self._fill(line.text)
        if found := re.fullmatch(r"x(\d+):", text):
            self._repeat(found[1], lambda: self.lines(line.below))
        elif found := re.fullmatch(r"agent (.+?):(?: (.*))?", text):
            task = {"user": found[2]} if found[2] else {}
            self.steps.append({"begin": found[1], "nested": True, **task})
            self.lines(line.below)
            self.steps.append({"end": found[1]})
        elif text in ("message:", "together:"):
            self._think()
            self.spoken = True
            if text == "together:":
                self.together = []
            self.lines(line.below)
            if self.together is not None:
                self.steps.append({"together": self.together})
            self.together, self.spoken = None, False
        else:
            _wrong(f"{self.source} (line {line.number})", text, "expected a block")

    def call(self, text: str, number: int = 0) -> None:
        """The calls of a line."""
        extras: dict[str, str] = {}
        while found := _EXTRA.search(text):
            name, _, value = found[1].partition(" ")
            extras[name if value else "x"] = value or name[1:]
            text = text[: found.start()]
        self._repeat(extras.get("x"), lambda: self._once(text, number, extras))

    def _once(self, text: str, number: int, extras: Row) -> None:
        if found := _MODEL.fullmatch(text):
            row: Row = {"model": self._said(found, extras)}
        elif found := _HANDOFF.fullmatch(text):
            giver, taker, said = self._fill(found[1]), self._fill(found[2]), found["said"]
            row = {"handoff": taker, "agent": None if giver == "?" else giver}
            row |= {"args": self._fill(said, lines=True) if found["how"] else None}
            row["seconds"] = HANDOFF_S
        elif found := re.fullmatch(r"node (.+?)(?: -> (.*))?", text):
            result = None if found[2] is None else self._fill(found[2])
            row = {"node": self._fill(found[1]), "result": result, "seconds": NODE_S}
        elif found := _CALL.fullmatch(text):
            said = None if found["how"] is None else self._fill(found["said"] or "", lines=True)
            how = "error" if found["how"] == "!!" else "result"
            row = {"tool": self._fill(found["tool"]), "args": _arguments(self._fill(found["args"]))}
            row |= {how: said, "seconds": CALL_S}
        else:
            _wrong(f"{self.source} (line {number})", text, "expected tool(name=value) -> answer")
        if "after" in extras:
            self._wait(extras["after"])
        if "model" not in row:
            if not self.spoken:
                self._think()
            self.count += 1
            row |= {"id": f"c{self.count}"} if "tool" in row else {}
            row["seconds"] = self._seconds(extras.get("took"), row["seconds"])
        for extra, name in (("by", "agent"), ("in", "session")):
            if extra in extras:
                row[name] = self._fill(extras[extra])
        (self.steps if self.together is None else self.together).append(row)

    def _think(self) -> None:
        if self.bare:
            return
        if self.silent:
            self._wait(str(IDLE_S))
            return
        thought = self._fill(self.dice.choice(THOUGHTS)) if self.between is not None else ""
        self.steps.append({"model": {"seconds": MODEL_S, "text": thought}})

    def _user(self, text: str) -> None:
        self.steps += [{"end": "assistant"}, {"wait": 30}, {"begin": "assistant", "user": text}]

    def _said(self, found: re.Match[str], extras: Row) -> Row:
        took = {"seconds": self._seconds(extras.get("took"), MODEL_S)}
        if found["how"] is None:
            return took
        how = "text" if found["how"] == ":" else "error"
        return {**took, how: self._fill(found["said"], lines=True)}

    def _wait(self, text: str) -> None:
        self.steps.append({"wait": self._seconds(text, 0)})

    def _seconds(self, text: str | None, default: float) -> float:
        if text is None:
            return default
        low, _, high = text.partition("..")
        return self.dice.uniform(float(low), float(high)) if high else float(low)

    def _fill(self, text: str, *, lines: bool = False) -> str:
        """A text with its values and blanks filled in."""
        before, text = "", _filled(text, self.values)
        while text != before:  # a blank may stand in another one
            before, text = text, _BLANK.sub(self._blank, text)
        return _unescaped(text) if lines else text

    def _blank(self, found: re.Match[str]) -> str:
        if found["name"] or found["kind"]:
            return self._drawn(found["name"] or found["kind"], int(found["size"] or 0))
        if found["times"]:
            return found["what"] * int(found["times"])
        if found["any"]:
            return self.dice.choice(found["any"].split("|"))
        n, m = (*self.counters, 0, 0)[:2]
        sum_of: str = found["of"] or found["sum"]
        number: int = eval(sum_of, {"__builtins__": {}}, {"n": n, "m": m})
        if found["list"]:
            items = found["list"].split("|")
            return items[number % len(items)]
        return format(number, (found["form"] or ":")[1:])

    def _drawn(self, kind: str, size: int) -> str:
        """Something by chance, or a text of a length that is always the same."""
        dice = self.dice
        if kind == "text":
            return (" ".join(WORDS) * 10)[:size]
        if kind == "prose":
            return " ".join(dice.choices(WORDS, k=size)).capitalize() + "."
        if kind == "hex":
            return "".join(dice.choices("0123456789abcdef", k=size))
        return str(uuid.UUID(int=dice.getrandbits(128))) if kind == "uuid" else dice.choice(WORDS)


def _unescaped(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t")


def _arguments(text: str) -> Any:
    """Arguments: `name=value` with commas between, JSON, or text; `?` where not captured."""
    if text == "?":
        return None
    if text[:1] in ('"', "{"):
        return json.loads(text)
    heads = list(_ARGUMENT.finditer(text))
    if not heads:
        return text or {}
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return {head[1]: _value(text[head.end() : end]) for head, end in zip(heads, ends, strict=True)}


def _value(text: str) -> Any:
    try:
        return json.loads(text) if text[:1] in '"[{-0123456789tfn' else text
    except ValueError:
        return _unescaped(text)
