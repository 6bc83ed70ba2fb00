"""What coding agents send to a hook, how it is read, and what each of them is answered.

`python -m tests.hooks.exchanges` writes `event` and `answers` anew, from `payload`.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from otel_loopguard.hooks.agents import AGENTS, HookAnswer, HookEvent, Reply

FOLDER = Path(__file__).with_name("data")
SAID = {
    reply.value: HookAnswer(
        reply,
        "" if reply is Reply.HINT else "read_file gave the same answer 5 times",
        "Try another file." if reply is Reply.HINT else "",
    )
    for reply in Reply
    if reply is not Reply.NOTHING
}


class Exchange(NamedTuple):
    agent: str
    payload: dict[str, Any]
    event: dict[str, Any] | None
    answers: dict[str, dict[str, Any]]
    """The message to the agent by reply; replies that are not named have none."""


def exchanges(agent: str) -> list[dict[str, Any]]:
    return json.loads((FOLDER / f"{agent}.json").read_text(encoding="utf-8"))


def every_exchange() -> Iterator[Exchange]:
    for agent in AGENTS:
        for each in exchanges(agent):
            yield Exchange(agent, each["payload"], each["event"], each["answers"])


def read(agent: str, payload: Any) -> dict[str, Any] | None:
    event = AGENTS[agent].read(payload)
    return None if event is None else written(event)


def written(event: HookEvent) -> dict[str, Any]:
    values = {name: getattr(event, name) for name in HookEvent.__slots__} | {
        "kind": event.kind.value, "calls": [written(call) for call in event.calls] or None,
    }  # fmt: skip
    return {name: one for name, one in values.items() if one is not None and one is not False}


def answers(agent: str, payload: Any) -> dict[str, dict[str, Any]]:
    told = {name: AGENTS[agent].answer(payload, said) for name, said in SAID.items()}
    return {name: answer for name, answer in told.items() if answer}


FIELDS = "text content stdout message isError exit x".split()


def something(dice: random.Random, depth: int = 0) -> Any:
    """Any value of JSON, also those that no program should send."""
    made: tuple[Callable[[], Any], ...] = (
        lambda: None,
        lambda: dice.choice([True, False]),
        lambda: dice.choice([0, -1, 1.5, 10**30, float("inf"), float("nan")]),
        lambda: dice.choice(["", " ", "null", '{"a": 1}', "[[[[", "\ud800", "\x00", "é" * 20_000]),
        lambda: [something(dice, depth + 1) for _ in range(dice.randrange(3))] if depth < 4 else [],
        lambda: {
            dice.choice(FIELDS): something(dice, depth + 1)
            for _ in range(dice.randrange(3) if depth < 4 else 0)
        },
    )
    return dice.choice(made)()


def write() -> None:
    for agent in AGENTS:
        payloads = [each["payload"] for each in exchanges(agent)]
        told = [
            {"payload": one, "event": read(agent, one), "answers": answers(agent, one)}
            for one in payloads
        ]
        text = json.dumps(told, indent=1, ensure_ascii=False) + "\n"
        (FOLDER / f"{agent}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
