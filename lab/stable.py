"""Changes that change nothing: a healthy run that was let through must be let through again.

Each scenario is played as it is and once for each change: in words of no language, in capitals,
wrapped, slower, with other ids, shared by two agents, told by another convention. `make
eval-stable` lists every healthy run that is stopped after a change only, and every stuck one that a
fourfold pace hides.
"""

from __future__ import annotations

import json
import logging
import random
import re
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from lab.runs import Row, Scenario
from lab.scenarios import load, play

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SHUFFLED = "".join(random.Random(7).sample(_LETTERS, len(_LETTERS)))
_INVENTED = str.maketrans(_LETTERS + _LETTERS.upper(), _SHUFFLED + _SHUFFLED.upper())
_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<![\w-])(?=\w*\d)[0-9a-f]{8,40}(?![\w-])"
)
PACES = (0.6, 1.7, 4.0, 15.0)

Change = Callable[[Scenario], Scenario]


def _deep(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value, or text that may be one, with all its texts changed, names of fields too."""
    if isinstance(value, str):
        if value[:1] in ("{", "["):
            try:
                return json.dumps(_deep(json.loads(value), change))
            except ValueError:
                pass
        return change(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {change(name): _deep(item, change) for name, item in fields.items()}
    if isinstance(value, list):
        return [_deep(item, change) for item in cast("list[Any]", value)]
    return value


def _answers(scenario: Scenario, change: Callable[[Any], Any]) -> Scenario:
    def one(step: Row) -> Row:
        return {
            name: change(value) if name in ("result", "error") and value is not None else value
            for name, value in step.items()
        }

    return replace(scenario, steps=tuple(map(one, scenario.steps)))


def _tools(scenario: Scenario, *, whole: bool) -> Scenario:
    """Tools called by invented names; with `whole` everything that is said besides."""

    def one(step: Row) -> Row:
        step = dict(step)
        if "tool" in step:
            step["tool"] = _invented(step["tool"])
            if whole:
                step["args"] = _deep(step["args"], _invented)
        call = step.get("model", {}).get("call")
        if call:
            call = {**call, "name": _invented(call["name"])}
            if whole:
                call["arguments"] = _deep(call["arguments"], _invented)
            step["model"] = {**step["model"], "call": call}
        text: str = step.get("model", {}).get("text") or ""
        if whole and text:
            step["model"] = {**step["model"], "text": _invented(text)}
        return step

    changed = replace(scenario, steps=tuple(map(one, scenario.steps)))
    return _answers(changed, partial(_deep, change=_invented)) if whole else changed


def _invented(text: str) -> str:
    return text.translate(_INVENTED)


def _paced(scenario: Scenario, factor: float) -> Scenario:
    def one(step: Row) -> Row:
        step = {
            name: value * factor if name in ("wait", "seconds") else value
            for name, value in step.items()
        }
        if "model" in step:
            step["model"] = {**step["model"], "seconds": step["model"]["seconds"] * factor}
        return step

    return replace(scenario, steps=tuple(map(one, scenario.steps)))


def _amid(scenario: Scenario) -> Scenario:
    """Useful calls of another kind in between, one after each third call."""
    steps: list[Row] = []
    calls = 0
    for step in scenario.steps:
        steps.append(step)
        if "tool" in step:
            calls += 1
            if calls % 3 == 0:
                beside = {name: step[name] for name in ("session", "agent") if name in step}
                steps.append(
                    {
                        **beside,
                        "tool": "lookup_part",
                        "args": {"part": f"P-{calls}"},
                        "id": f"beside-{calls}",
                        "seconds": 0.3,
                        "result": _page(calls),
                    }
                )
    return replace(scenario, steps=tuple(steps))


def _page(number: int) -> str:
    dice = random.Random(number)
    words = ("".join(dice.choices(_LETTERS, k=dice.randint(3, 9))) for _ in range(30))
    return f"part {number}: " + " ".join(words)


def _ids(scenario: Scenario, form: str) -> Scenario:
    """Ids in answers in another form, each the same one wherever it stands."""

    def other(found: re.Match[str]) -> str:
        dice = random.Random(found[0])
        if form == "uuid":
            digits = f"{dice.getrandbits(128):032x}"
            return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
        return f"{dice.getrandbits(64):016x}" if form == "hex" else str(dice.randint(10**7, 10**8))

    return _answers(scenario, partial(_deep, change=lambda text: _ID.sub(other, text)))


def _turned(said: Any) -> Any:
    """A JSON object with its fields in another order, also where it is written as text."""
    if isinstance(said, str) and said[:1] in ("{", "["):
        try:
            return json.dumps(_turned(json.loads(said)))
        except ValueError:
            return said
    if isinstance(said, dict):
        fields = cast("dict[str, Any]", said)
        return {name: _turned(fields[name]) for name in reversed(fields)}
    if isinstance(said, list):
        return [_turned(item) for item in cast("list[Any]", said)]
    return said


def _turning(scenario: Scenario) -> Scenario:
    """Every second answer has its fields in another order, as maps of some languages have."""
    steps = list(scenario.steps)
    places = [place for place, step in enumerate(steps) if step.get("result") is not None]
    for place in places[::2]:
        steps[place] = {**steps[place], "result": _turned(steps[place]["result"])}
    return replace(scenario, steps=tuple(steps))


def _parts(scenario: Scenario) -> Scenario:
    """Answers as a list of content parts, as MCP gives them."""

    def one(step: Row) -> Row:
        if step.get("result") is None:
            return step
        said = step["result"]
        text = said if isinstance(said, str) else json.dumps(said)
        return {**step, "result": [{"type": "text", "text": text}]}

    return replace(scenario, steps=tuple(map(one, scenario.steps)))


def _told(scenario: Scenario, form: Callable[[str], Any]) -> Scenario:
    """Errors in what is answered, where the span says nothing of them."""

    def one(step: Row) -> Row:
        if step.get("error") is None:
            return step
        return {**step, "error": None, "result": form(step["error"])}

    return replace(scenario, steps=tuple(map(one, scenario.steps)))


def _traced(scenario: Scenario) -> Scenario:
    """A new id and time of each request below every answer that is text."""
    steps = list(scenario.steps)
    for number, step in enumerate(steps):
        if isinstance(step.get("result"), str) and step["result"][:1] not in ("{", "["):
            request = uuid.UUID(int=random.Random(number).getrandbits(128))
            below = f"request_id: {request}\ntimestamp: 2026-05-01T10:{number % 60:02}:07Z"
            steps[number] = {**step, "result": f"{step['result']}\n{below}"}
    return replace(scenario, steps=tuple(steps))


def _prefixed(scenario: Scenario) -> Scenario:
    """Tools under the names that clients of MCP give them."""

    def one(step: Row) -> Row:
        if "tool" in step:
            step = {**step, "tool": f"mcp__server__{step['tool']}"}
        call = step.get("model", {}).get("call")
        if call:
            call = {**call, "name": f"mcp__server__{call['name']}"}
            step = {**step, "model": {**step["model"], "call": call}}
        return step

    return replace(scenario, steps=tuple(map(one, scenario.steps)))


def _shared(scenario: Scenario) -> Scenario:
    """Two agents in turn, each with every second call, under the one that began."""
    steps: list[Row] = []
    number = 0
    for step in scenario.steps:
        alone = "tool" in step and "agent" not in step
        number += alone
        steps.append({**step, "agent": ("one", "other")[number % 2]} if alone else step)
    return replace(scenario, steps=tuple(steps))


CHANGES: dict[str, Change] = {
    "answers invented": partial(_answers, change=partial(_deep, change=_invented)),
    "tools invented": partial(_tools, whole=False),
    "all invented": partial(_tools, whole=True),
    "capitals": partial(_answers, change=partial(_deep, change=str.upper)),
    "wrapped": partial(_answers, change=lambda said: {"output": said}),
    "blank line": partial(
        _answers, change=lambda said: said + "\n" if isinstance(said, str) else said
    ),
    "uuid": partial(_ids, form="uuid"),
    "hex": partial(_ids, form="hex"),
    "digits": partial(_ids, form="digits"),
    "amid": _amid,
    "openinference": lambda scenario: replace(
        scenario,
        # It has no words of its own for a hand-off.
        steps=tuple(
            step if "handoff" in step else {**step, "dialect": "openinference"}
            for step in scenario.steps
        ),
    ),
    "fields turned": _turning,
    "content parts": _parts,
    "status": partial(_answers, change=lambda said: {"status": "success", "data": said}),
    "errors of MCP": partial(
        _told, form=lambda said: {"content": [{"type": "text", "text": said}], "isError": True}
    ),
    "errors in fields": partial(_told, form=lambda said: {"ok": False, "error": said}),
    "errors as text": partial(_told, form=lambda said: f"Error: {said}"),
    "request ids": _traced,
    "mcp names": _prefixed,
    "two agents": _shared,
    **{f"pace {pace}": partial(_paced, factor=pace) for pace in PACES},
}


def flips(scenario: Scenario) -> tuple[int, list[str]]:
    """How many changes were tried on a run, and what went another way after which."""
    before = play(scenario)
    if not scenario.stuck:
        if before.stopped is not None:
            return 0, []
        found: list[str] = []
        for name, change in CHANGES.items():
            after = play(change(scenario))
            if after.stopped is not None:
                at, said = next(
                    ((at, one) for at, one in after.decisions if one.action.stops), (0, None)
                )
                why = after.refused if said is None else f"{said.detector}/{said.reason}"
                found.append(f"{name}: {scenario.id!r} is stopped at {after.stopped} ({at} {why})")
        return len(CHANGES), found
    if before.noticed is None:
        return 0, []
    slow = play(_paced(scenario, 4.0))
    if slow.noticed is None or slow.noticed > 2 * max(before.noticed, 1):
        late = f"4 times as slow: {scenario.id!r} noticed at {before.noticed}, then {slow.noticed}"
        return 1, [late]
    return 1, []


def main() -> None:
    """Lists the flips of the scenarios in files."""
    runs = [one for path in map(Path, sys.argv[1:]) for one in load(path)]
    tried = turned = 0
    with ProcessPoolExecutor(initializer=logging.disable) as pool:
        for count, found in pool.map(flips, runs):
            tried += count
            turned += len(found)
            for line in found:
                print(line)
    print(f"{turned} flips of {tried}")


if __name__ == "__main__":
    main()
