"""An agent of any framework whose model follows a script, and the cases that all of them share.

Each framework has a subclass of `Looper` in its `agent.py`, and cases of its own beside it; what
every case comes to is in `cases.toml`.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_loopguard import LoopGuardPaused, LoopGuardStop, control, resilience, session, set_testing

FINAL = "I could not find it."
QUESTION = "What is the weather in Paris?"
Call = tuple[str, dict[str, Any]]
Script = Callable[[int, str], Sequence[Call]]
"""The calls that the model asks for in a turn, given all that it is told; none: it answers."""
SEARCH: Call = ("search", {"query": "x"})


def search(query: str) -> Call:
    return "search", {"query": query}


def always(*calls: Call) -> Script:
    """Asks for the same calls for ever, or at least for thirty turns."""
    return lambda turn, _: calls if turn <= 30 else ()


def turns(*asked: Sequence[Call]) -> Script:
    """Asks for these calls turn by turn, then answers."""
    return lambda turn, _: asked[turn - 1] if turn <= len(asked) else ()


def paused(key: str) -> Script:
    """Two searches; somebody pauses the run while the model says what the second is."""

    def script(turn: int, _: str) -> Sequence[Call]:
        if turn == 2:
            control.pause(key, "a person looks at it")
        return [search(str(turn))] if turn <= 2 else []

    return script


async def read(stream: Callable[[], Any]) -> None:
    """Reads a stream that is made here to its end."""
    async for _ in stream():
        pass


@dataclass(frozen=True)
class Asked:
    tool: str
    args: dict[str, Any]
    id: str


class Looper:
    """An agent with the tools `search`, which may have another name, and `fail`."""

    # Set by `Run`: what was exported, actions with reasons, whether only the adapter writes spans.
    spans: InMemorySpanExporter
    decided: list[str]
    alone: bool
    named: tuple[str, ...] = ()  # spans of tool calls that have not the tool's name in theirs
    ends_equal_calls = False  # the framework does so itself, after a few

    def __init__(self, script: Script, *, tool: str = "search", **options: Any) -> None:
        self.script = script
        if tool != "search":

            def called(query: str) -> str:
                """Is called."""
                return Looper.search(self, query)

            called.__name__ = tool
            self.search = called  # type: ignore[method-assign]
        self.ran: list[str] = []
        self.requests: list[list[tuple[str, str]]] = []
        self.build(**options)

    def build(self, **options: Any) -> None:
        """Makes the agent."""

    def run(self) -> str:
        raise NotImplementedError

    def stream(self) -> object:
        raise NotImplementedError

    def run_limited(self) -> tuple[str, Callable[[], object]]:
        """The name of the framework's own limit, and a run that may take so few steps."""
        raise NotImplementedError

    def below(self) -> AbstractContextManager[Any]:
        """A trace around any number of runs."""
        return trace.get_tracer("my.app").start_as_current_span("chat")

    def run_in_asyncio(self) -> object:
        """Runs it once by the coroutine, where `run` does not."""
        raise NotImplementedError

    def talk(self, key: str) -> object:
        raise NotImplementedError

    def history(self) -> tuple[list[str], list[str]]:
        """The ids of the calls that the framework keeps, and of the results."""
        raise NotImplementedError

    def kept(self) -> LoopGuardStop | None:
        """What stopped the last run, where the framework swallows it and the adapter keeps it."""

    def asked(self, messages: Sequence[tuple[str, str]]) -> list[Asked]:
        """What the model asks for, given the role and the text of each message."""
        self.requests.append(list(messages))
        turn = len(self.requests)
        calls = self.script(turn, str(messages))
        return [Asked(*call, f"call_{turn}_{place}") for place, call in enumerate(calls)]

    def found(self, query: str) -> str:
        """What a search finds."""
        return "No results."

    def search(self, query: str) -> str:
        """Searches."""
        self.ran.append(query)
        return self.found(query)

    def fail(self, query: str) -> str:
        """Fails."""
        self.ran.append(query)
        raise ValueError(query)

    def ended(self, run: Callable[[], object] | None = None) -> LoopGuardStop | None:
        """What stopped a run, which is the only one known of then."""
        self.ran.clear()
        self.requests.clear()
        self.spans.clear()
        try:
            (run or self.run)()
        except LoopGuardStop as stop:
            return stop
        return self.kept()

    def stopped(self, run: Callable[[], object] | None = None) -> LoopGuardStop:
        return self.ended(run) or sys.exit("it was not stopped")

    def count(self, run: Callable[[], object] | None = None) -> object:
        stop = self.stopped(run)
        return {"ran": len(self.ran), "parts": list(stop.parts)}

    def failures(self) -> list[bool]:
        return [
            span.status.status_code.name == "ERROR"
            for span in self.spans.get_finished_spans()
            if "search" in span.name or "fail" in span.name or span.name in self.named
        ]

    def errors(self) -> int:
        spans = self.spans.get_finished_spans()
        kinds = [(span.attributes or {}).get("error.type") for span in spans]
        return kinds.count("ValueError") + kinds.count("tool_error")


Make = Callable[..., Looper]


def streamed(make: Make) -> object:
    """Read as a stream it ends in the same stop after the same calls."""
    looper = make(always(SEARCH))
    return looper.count(looper.stream)


def in_asyncio(make: Make) -> object:
    """As a coroutine it ends in the same stop after the same calls."""
    looper = make(always(SEARCH))
    return looper.count(looper.run_in_asyncio)


def two_runs(make: Make) -> object:
    """The second run of an agent is not held by the first, which was aborted."""
    looper = make(always(SEARCH))
    found = [(looper.stopped().session, len(looper.ran)) for _ in range(2)]
    return {"ran": [made for _, made in found], "same": found[0][0] == found[1][0]}


def named(make: Make) -> object:
    """The name in the context is that of the session."""
    with session("run-7"):
        return make(always(SEARCH)).stopped().session


def next_turn(make: Make) -> object:
    """A conversation of the framework is the session, and a stop does not hold it for ever."""
    looper = make(always(SEARCH))
    keys, ran = set[str](), list[bool]()
    for _ in range(3):
        keys.add(looper.stopped(lambda: looper.talk("talk-7")).session or "")
        ran.append(len(looper.ran) > 0)
    # Keys that nobody gave are random.
    return {"ran": ran, "sessions": [*keys] if keys == {"talk-7"} else len(keys)}


def hint(make: Make) -> object:
    """Where the hint stands, and whether the framework keeps it; the run goes on."""
    looper = make(turns([SEARCH], [SEARCH], [SEARCH], [search("y")]))
    answer = looper.run()
    told = [one for one in looper.requests if "Do not repeat" in str(one)]
    end, last = [role for role, _ in told[0]][-2:], "Do not repeat" in told[0][-1][1]
    return {"end": end, "last": last, "kept": len(told) > 1, "answer": answer}


def after_a_deny(make: Make) -> object:
    """Other calls than those of the denied loop are made, two at once too."""
    looper = make(turns(*[[SEARCH]] * 4, [search("y"), search("z")]))
    answer = looper.run()
    return {"ran": sorted(looper.ran), "answer": answer}


def refused(make: Make) -> object:
    """Four calls were made, and what was refused is on the trace as failed."""
    looper = make(always(SEARCH))
    looper.stopped()
    failed = looper.failures()
    return {"ran": len(looper.ran), "made": failed[:4].count(False), "then": [*{*failed[4:]}]}


def at_once(make: Make) -> object:
    """Two equal calls in each message are stopped together, with the results of all."""
    looper = make(always(SEARCH, SEARCH))
    if looper.ends_equal_calls:
        raise NotImplementedError
    stop = looper.stopped()
    return {"parts": len(stop.parts) == len(looper.ran), "few": len(looper.ran) < 9}


def history(make: Make) -> object:
    """Every call that the framework keeps has a result, when two at once were stopped too."""
    loopers = make(always(SEARCH)), make(always(SEARCH, SEARCH))
    if type(loopers[0]).history is Looper.history:
        raise NotImplementedError
    for looper in loopers:
        looper.stopped()
    return [sorted(calls) == sorted(told) for calls, told in (one.history() for one in loopers)]


def a_tool_that_fails(make: Make) -> object:
    """It fails as without the guard: the model is told, or the caller is; the trace says so."""
    looper = make(turns([("fail", {"query": "broken"})]))
    looper.spans.clear()
    raised = ""
    try:
        looper.run()
    except ValueError as error:
        raised = str(error)
    told = "broken" in looper.requests[-1][-1][1]
    return {"ran": looper.ran, "raised": raised, "told": told, "failed": looper.failures()}


def failing(make: Make) -> object:
    """A stop of a loop of calls that fail carries no errors along; spans tell of each."""
    looper = make(always(("fail", {"query": "No such file or directory"})))
    if looper.ends_equal_calls:
        raise NotImplementedError
    try:
        stop = looper.ended()
    except ValueError:
        return "raises"
    spans = looper.errors() == len(looper.ran)
    return {"stopped": stop is not None, "parts": len(stop.parts) if stop else 0, "spans": spans}


def wrong_arguments(make: Make) -> object:
    """A model that gives arguments that the tool does not take is stopped too."""
    looper = make(always(("search", {"wrong": "x"})))
    stop = looper.ended()
    return {"stopped": stop is not None, "few": len(looper.requests) < 20, "ran": len(looper.ran)}


def unknown_tool(make: Make) -> object:
    """A model that asks for a tool that there is not is stopped too."""
    looper = make(always(("nosuch", {"query": "x"})))
    try:
        stop = looper.ended()
    except Exception as error:  # noqa: BLE001
        return type(error).__name__
    return {"stopped": stop is not None, "few": len(looper.requests) < 20}


def limit(make: Make) -> object:
    """A gate has the limit that it was given: nobody resumed, and the results so far are there."""
    looper = make(paused("run-limit"), limit_s=0.05)
    try:
        with session("run-limit"):
            looper.run()
        stop: LoopGuardStop | None = looper.kept()
    except LoopGuardPaused as paused_too_long:
        stop = paused_too_long
    assert isinstance(stop, LoopGuardPaused)
    return {"ran": len(looper.ran), "parts": list(stop.parts)}


PLACES: dict[str, tuple[str, str]] = {
    # Where a conversation is named, around each turn or all, and what is below an outer span.
    "each": ("session", ""), "once": ("", "session"), "both": ("session", "below"),
    "outer": ("", "below"),
}  # fmt: skip


def turns_of_a_conversation(make: Make) -> object:
    """Every run is a turn: twelve with one question go on, a stuck one ends, and two go on."""
    looper = make(turns())
    looper.found = lambda _: "sunny and warm in Paris, 21 degrees"  # type: ignore[method-assign]

    def turn(times: int) -> int:
        """The calls that were made of so many; negative: it was stopped."""
        looper.script = turns(*[[SEARCH]] * times)
        stop = looper.ended()
        return -len(looper.ran) if stop else len(looper.ran)

    def entered(what: str, place: str) -> AbstractContextManager[Any]:
        if what == "session":
            return session(f"chat {place}")
        return looper.below() if what == "below" else nullcontext()

    said = {}
    for place, (inside, around) in PLACES.items():
        with entered(around, place):
            looper.decided.clear()
            made = []
            for times in (*[1] * 12, 20, 1, 1):
                if times == 20:
                    # Twelve turns at once with the same call and answer may earn a word.
                    told = {one.split()[0] for one in looper.decided} - {"allow", "hint"}
                with entered(inside, place):
                    made.append(turn(times))
        said[place] = (made[:12], made[12] < 0, made[13:], told) == ([1] * 12, True, [1, 1], set())
    return said


ITEMS = [f"SKU-{1000 + number}" for number in range(50)]
Work = tuple[str, Sequence[str], Sequence[str], float]
WORK: dict[str, Work] = {
    "polled_too_soon": ("job_status", ["j-7"] * 20, ["running"] * 19 + ["done"], 0),
    "polled_too_soon, JSON": (
        "get_job", ["j-7"] * 20, ['{"state": "QUEUED"}'] * 19 + ['{"state": "OK"}'], 0
    ),
    "polled_too_soon, declared": ("look", ["j-7"] * 20, ["12 pages so far"] * 19 + ["done"], 0),
    "agent_limit": ("get_health", ["shop"] * 20, ["all systems normal"] * 20, 600),
    "identical_call": ("press_key", ["down"] * 12, ["ok"] * 12, 0),
    "identical_call, JSON": ("scroll", ["down"] * 14, ['{"status": "ok"}'] * 14, 0),
    "found_nothing": ("find_article", ITEMS, ["Not found"] * 50, 0),
    "": ("read_page", ITEMS, [f"page about {item} and {item[::-1]}" for item in ITEMS], 0),
}  # fmt: skip
"""Tool, arguments, answers and seconds before each call, by what may be said of it: the model takes
no time, many items that are not there are many, and a run of three hours is noted."""


def everyday(make: Make) -> object:
    """Every call is made, the agent comes to its end, and nothing but an allowed hint is said.

    Where instrumentations show its nodes, they may be hinted at: the model takes no time.
    """
    alone, said = make(turns()).alone, {}
    for allowed, work in WORK.items():
        told = told_of(make, *work) - {f"hint {allowed.partition(',')[0]}", f"allow {allowed}"}
        if not alone:
            told = {one for one in told if one.partition(" ")[0] not in ("allow", "hint")}
        if told:
            said[allowed] = sorted(told)
    return said


def told_of(
    make: Make, tool: str, asked: Sequence[str], answers: Sequence[str], pause_s: float
) -> set[str]:
    def script(turn: int, _: str) -> Sequence[Call]:
        clock.advance(pause_s)
        return [(tool, {"query": asked[turn - 1]})] if turn <= len(asked) else []

    with set_testing(True) as clock:
        looper, left = make(script, tool=tool), [*answers]
        looper.found = lambda _: left.pop(0)  # type: ignore[method-assign]
        looper.decided.clear()
        assert looper.run() == FINAL
    assert not left
    return {*looper.decided}


def own_limit(make: Make) -> object:
    """The model hears of it at four fifths, once; when it strikes no result is lost."""
    looper = make(lambda turn, _: [search(f"page {turn}")])
    looper.found = lambda query: f"The {query} says {query * 9}."  # type: ignore[method-assign]
    limit, run = looper.run_limited()
    with session("limited"):
        try:
            run()
        except Exception as error:  # noqa: BLE001
            raised = type(error).__name__
    newest = [told[-1][1] for told in looper.requests]
    warned = [number for number, text in enumerate(newest, 1) if "which ends the run" in text]
    parts, others = resilience.parts("limited"), (*resilience.parts("nobody"), *resilience.parts())
    return {
        "struck": raised == limit,
        "warned": len(warned) == 1 and 8 <= warned[0] <= 9,
        "parts": len(parts) >= 9 and "The page 1 says" in str(parts[0]) and not others,
    }


def unguarded(make: Make) -> object:
    """Without a guard the agent runs as it would."""
    looper = make(lambda turn, _: [search(str(turn % 9))] if turn <= 30 else ())
    answer = looper.run()
    return {"ran": len(looper.ran), "answer": answer}


SHARED: dict[str, Callable[[Make], object]] = {
    case.__name__: case
    for case in (
        streamed, in_asyncio, two_runs, named, next_turn, hint, after_a_deny, refused, at_once,
        history, a_tool_that_fails, failing, wrong_arguments, unknown_tool, limit,
    )
}  # fmt: skip
LIVE: dict[str, Callable[[Make], object]] = {
    case.__name__: case for case in (turns_of_a_conversation, everyday, own_limit)
}
"""Cases of the frameworks that the interpreter of the tests has."""
