"""A session of a coding agent, collected line by line from its transcript."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from heapq import merge
from operator import itemgetter
from typing import ClassVar, Final, Literal, TypeVar

from xxhash import xxh3_64_hexdigest

from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.fields import (
    JsonObject,
    Report,
    integer,
    is_list,
    is_map,
    kind_of,
    mapping,
    text,
)
from otel_loopguard.core import Kind, Step
from otel_loopguard.replay.labelled_runs import MAX_STEPS, Run
from otel_loopguard.spans.coding_tools import answer_step, prompt_step, tool_step

_Step = TypeVar("_Step")
Ending = Literal["finished", "interrupted", "unknown"]
"""The end of a turn: by the agent itself, by a person or a limit, or unknown."""

_LONGEST: Final = 100_000
"""Characters of an answer that are kept, half of them its end."""
# Calls without a result that are remembered, with their arguments: agents make a few at once.
_OPEN_CALLS: Final = 10_000
_KNOWN: Final = 10_000
"""Ids of calls that are remembered, so that one written again counts once: 170 bytes each, and the
longest run in the development data has 92 calls."""
_FILES: Final = frozenset(("image", "document", "input_image"))
# Characters of the name of a tool or an agent: no tool has a longer one, a hostile file may.
_NAME_CHARS: Final = 200


@dataclass(slots=True)
class Transcript(Run):
    """A session as its agent wrote it down."""

    agent: str = ""  # `claude-code`, `codex`, `gemini`, or as the file says
    version: str = ""
    cwd: str = ""
    endings: tuple[Ending, ...] = ()  # of each turn, by the prompts among its steps


@dataclass(slots=True)
class _Call:
    tool: str | None
    args: object
    start: int
    agent: str | None


class Session:
    """Collects the steps of a session in the order in which they ended.

    Attributes:
        id: As the transcript says; empty while it has not said.
        cwd: Folder that the agent works in, likewise.
        agent: Name of the coding agent.
        model: Name of the model that is asked, where it is told apart from the answers.
    """

    def __init__(self, agent: str, report: Report) -> None:
        self.agent = agent
        self.id = self.version = self.cwd = ""
        self.model: str | None = None
        self.ending: Ending = "unknown"
        self._endings: list[Ending] = []
        self._report = report
        self._steps: list[Step] = []
        self._newest: Step | None = None
        self._calls: BoundedDict[str, _Call] = BoundedDict(_OPEN_CALLS)
        self._known: BoundedDict[str, None] = BoundedDict(_KNOWN)
        self._told = False

    def prompt(self, time: int) -> None:
        """A person wrote; what follows at once belongs to the same turn."""
        newest = self._newest
        if newest is not None and newest.name == "user" and newest.kind is Kind.OTHER:
            return
        if newest is not None:
            self._endings.append(self.ending)
        self.ending = "unknown"
        self._add(prompt_step(self.agent, start=time))

    def answer(self, model: str | None, start: int, end: int, agent: str | None = None) -> Step:
        """A model begins to answer; its text and its tokens may come later."""
        agent = agent and agent[:_NAME_CHARS]
        named = model or self.model
        step = answer_step(self.agent, named, sub_agent=agent, start=start, end=end)
        self._add(step)
        return step

    def say(self, step: Step, said: str) -> None:
        """A model wrote something more."""
        if said and len(step.text or "") < _LONGEST:
            step.text = f"{step.text}\n{said}"[:_LONGEST] if step.text else said[:_LONGEST]

    def used(self, step: Step, whole: int, out: int, read: int = 0, written: int = 0) -> None:
        """Sets the tokens of an answer, those read from and written to a cache included."""
        step.tokens_in, step.tokens_out = whole, out
        step.cache_read, step.cache_write = read, written

    def call(self, key: object, tool: object, args: object, time: int, agent: str | None) -> None:
        """A tool is called."""
        if not isinstance(key, str) or not key:
            self._report("a call has no id, and cannot be joined with its result")
            return
        if key in self._known:
            return
        self._known[key] = None
        self.ending = "unknown"
        self._calls[key] = _Call(
            text(tool)[:_NAME_CHARS] or None, args, time, agent and agent[:_NAME_CHARS]
        )

    def result(
        self,
        key: object,
        outcome: object,
        time: int,
        *,
        error: object = None,
        stopped: bool = False,
    ) -> None:
        """A tool answered; a second result of the same call is ignored."""
        if not isinstance(key, str) or not key:
            self._report("a result has no id, and cannot be joined with its call")
            return
        call = self._calls.pop(key, None)
        if call is None:
            if key not in self._known:
                self._known[key] = None
                self._report("a result belongs to no call before it")
            return
        step = tool_step(
            self.agent,
            call.tool,
            call.args,
            _kept(outcome),
            error=error,
            stopped=stopped or None,
            call_id=key,
            sub_agent=call.agent,
            start=call.start,
            end=max(time, call.start),
        )
        step.outcome = _cut(step.outcome)
        self._add(step)

    def is_open(self, key: str) -> bool:
        """True if a call has no result yet."""
        return key in self._calls

    def settled(self) -> list[Step]:
        """Takes out the steps that no later line changes, while the transcript is being written.

        The newest answer of a model may get more text, and its tokens, until another step follows
        or the turn has ended.
        """
        newest = self._steps[-1] if self._steps else None
        grows = newest is not None and newest.kind is Kind.MODEL and self.ending != "finished"
        count = len(self._steps) - grows
        taken = self._steps[:count]
        del self._steps[:count]
        self._endings.clear()
        return taken

    def finish(self) -> Transcript | None:
        """The session; None if nothing happened in it."""
        if not self._steps and not self._calls:
            return None
        return Transcript(
            id=self.id,
            source=self.agent,
            steps=self._steps,
            group=self.cwd,
            agent=self.agent,
            version=self.version,
            cwd=self.cwd,
            endings=(*self._endings, self.ending),
        )

    def _add(self, step: Step) -> None:
        self._newest = step
        if len(self._steps) < MAX_STEPS:
            self._steps.append(step)
        elif not self._told:
            self._told = True
            self._report(f"the session has more than {MAX_STEPS:,} steps, the rest is left out")


class Reader(ABC):
    """Reads the lines of one agent's transcript.

    Args:
        report: Told what a line lacks or has wrongly.

    Attributes:
        session: The session that the last line belongs to.
    """

    agent: ClassVar[str]
    """Name of the coding agent."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._begin()

    @staticmethod
    @abstractmethod
    def begins(line: JsonObject) -> bool:
        """True if a transcript of this agent may begin with such a line."""

    @abstractmethod
    def take(self, line: JsonObject) -> Transcript | None:
        """Takes a line; returns the session before it, where another one begins."""

    def _begin(self) -> None:
        """Starts a new session, without anything of the one before."""
        self.session = Session(self.agent, self.report)

    def _begin_anew(self) -> Transcript | None:
        """Starts another session; returns the one before."""
        before = self.finish()
        self._begin()
        return before

    def _named(self, key: str) -> Transcript | None:
        """Takes the id of the session; returns the one before, where it is another's."""
        before = self._begin_anew() if self.session.id not in ("", key) else None
        self.session.id = key
        return before

    def finish(self) -> Transcript | None:
        """The session so far."""
        return self.session.finish()

    def _map(self, line: JsonObject, name: str) -> JsonObject:
        """A field that is an object; empty if it is missing, or something else (reported)."""
        value = line.get(name)
        if value is not None and not is_map(value):
            self.report(f"`{name}` is {kind_of(value)}, expected an object")
        return mapping(value)

    def _blocks(self, content: object) -> list[JsonObject]:
        """The blocks of a message; one that is only text is one block."""
        if isinstance(content, str):
            return [{"type": "text", "text": content}] if content else []
        if not is_list(content):
            if content is not None:
                self.report(f"`content` is {kind_of(content)}, expected text or a list")
            return []
        found: list[JsonObject] = [block for block in content if is_map(block)]
        if len(found) < len(content):
            self.report("an entry of `content` is no object")
        return found


def merged(runs: Iterable[Iterable[_Step]], end: Callable[[_Step], int]) -> Iterator[_Step]:
    """Steps of several runs by their ends, each run in its order, however its clock jumps."""

    def timed(run: Iterable[_Step]) -> Iterator[tuple[int, _Step]]:
        now = 0
        for step in run:
            now = max(now, end(step))
            yield now, step

    return (step for _, step in merge(*map(timed, runs), key=itemgetter(0)))


def tokens(usage: JsonObject, *names: str) -> int:
    """The sum of counts that are there."""
    found = (integer(usage.get(name)) for name in names)
    return sum(count for count in found if count is not None and 0 < count < 10**12)


def _kept(outcome: object) -> object:
    """An answer without the bytes of pictures and files: a digest tells them apart."""
    if is_list(outcome):
        return [_kept(block) for block in outcome]
    if not is_map(outcome) or text(outcome.get("type")) not in _FILES:
        return outcome
    return {"type": outcome["type"], "digest": _digest(repr(outcome))}


def _cut(outcome: object) -> object:
    """A long text as its beginning, a digest of its middle, and its end."""
    if not isinstance(outcome, str) or len(outcome) <= _LONGEST:
        return outcome
    half = _LONGEST // 2
    return f"{outcome[:half]}\n… {_digest(outcome[half:-half])} …\n{outcome[-half:]}"


def _digest(written: str) -> str:
    return xxh3_64_hexdigest(written.encode("utf-8", "surrogatepass"))
