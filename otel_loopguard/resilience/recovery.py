"""After a failure: tries again, what is done before the next try, and what stands in for a result.

Plain tries again are made by tenacity (extra `retry`): it has no dependencies, most agent
frameworks bring it along, and it has the three forms that are needed (decorator, iterator with a
`with` block, the same in asyncio), with delays that tests can replace. stamina stands on top of it,
but its waits cannot be told exactly, and it logs and counts through hooks of its own. What is ours
is which error may be retried, and that an aborted session does not go on trying.
"""

from __future__ import annotations

import inspect
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypedDict, TypeVar, cast, overload

from otel_loopguard._control.context import current_flag, happened, named_session
from otel_loopguard._control.gate import check
from otel_loopguard._util.bounded import BoundedDict
from otel_loopguard._util.clock import deterministic
from otel_loopguard._util.errors import InternalErrors, logger, swallow
from otel_loopguard._util.locks import new_lock
from otel_loopguard._util.text import check_number, expected, named
from otel_loopguard.core.evidence import ErrorClass, exception_class
from otel_loopguard.errors import LoopGuardError, UnverifiedWriteError

if TYPE_CHECKING:
    import tenacity
    from typing_extensions import Unpack

_SEARCHED: Final = 2_000
"""Characters of an error that patterns are searched in: its message comes first."""


@dataclass(slots=True)
class Call:
    """The call that is tried, as the next try is to make it. Strategies change it.

    Attributes:
        tool: Name of the tool.
        args: Its arguments.
        limit_s: Seconds it may take; None: no limit is known.
        error: What the try before raised; None in the first.
        fresh: What a strategy has read anew, for the next try to use.
    """

    tool: str
    args: dict[str, object] = field(default_factory=dict[str, object])
    limit_s: float | None = None
    error: Exception | None = None
    fresh: object = None


Apply = Callable[[Call], object]
"""Prepares the next try. Returns False if it has nothing to try; may be a coroutine function."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to recover from errors of tools: classes of errors, or a pattern of their texts."""

    name: str
    apply: Apply
    tool: str = "*"
    error: type[Exception] | tuple[type[Exception], ...] | re.Pattern[str] = Exception
    attempts: int = 3

    def fits(self, tool: str, error: Exception) -> bool:
        """True if it is meant for this failure."""
        if not fnmatchcase(tool, self.tool):
            return False
        if isinstance(self.error, re.Pattern):
            return bool(self.error.search(f"{type(error).__name__}: {error}"[:_SEARCHED]))
        return isinstance(error, self.error)


def reconnect(connect: Callable[[], object]) -> Apply:
    """A strategy that connects anew before the next try.

    Args:
        connect: Connects; a coroutine function where it is used in `async for`.
    """

    def apply(_call: Call) -> object:
        result = connect()
        return result if inspect.isawaitable(result) else True

    return apply


def reread(read: Callable[[str], object], argument: str = "path") -> Apply:
    """A strategy that reads a file again before it is edited again.

    What was read is `call.fresh` in the next try. Where an editor wants the file to be read by its
    own tool first, let `read` do so.

    Args:
        read: Returns the content of a path; a coroutine function in `async for`.
        argument: Name of the argument that has the path; without it there is nothing to try.
    """

    def apply(call: Call) -> object:
        path = call.args.get(argument)
        if not isinstance(path, str):
            return False
        found = read(path)
        if inspect.isawaitable(found):
            return _kept(call, found)
        call.fresh = found
        return True

    return apply


def longer_limit(factor: float = 2, most_s: float = 600) -> Apply:
    """A strategy that gives the next try more time.

    Args:
        factor: What the limit of the try before is multiplied by.
        most_s: Seconds that it has at most. From there on, and without a limit, there is nothing
            to try.

    Raises:
        TypeError: One is no number.
        ValueError: The factor is not above 1, or the other below 0.
    """
    check_number("factor", factor)
    check_number("most_s", most_s, 0)
    if not factor > 1:
        raise ValueError(f"factor of a longer limit must be above 1, got {factor!r}")

    def apply(call: Call) -> object:
        if call.limit_s is None or call.limit_s >= most_s:
            return False
        call.limit_s = min(call.limit_s * factor, most_s)
        return True

    return apply


async def _kept(call: Call, found: Awaitable[object]) -> bool:
    call.fresh = await found
    return True


_PLACES: Final = 1024
"""Sessions and tools that tries are counted of, the newest: those that still fail."""


@dataclass(slots=True)
class Tally:
    """Results of a strategy."""

    tried: int = 0  # tries that it prepared
    recovered: int = 0  # tries of those that went well
    broke: int = 0  # times that it failed itself, or had nothing to try


class Recoveries:
    """Strategies by tool and error, what each has left, and how each fared.

    Strategies are asked in the order in which they were registered. Each has 3 tries (`attempts`)
    in one session and for one tool, over all its failing calls, and gets them back when a call of
    that tool went well: an agent that fails in a loop does not recover for ever. Where no session
    is known they are the tries of one call: what others do uses up none of them.
    """

    def __init__(self, faults: InternalErrors) -> None:
        self.faults = faults
        self._strategies: tuple[Strategy, ...] = ()
        self._used: BoundedDict[tuple[str, str], dict[str, int]] = BoundedDict(_PLACES)
        self.tallies: dict[str, Tally] = {}
        self._lock = new_lock()

    def register(
        self,
        name: str,
        apply: Apply,
        *,
        tool: str = "*",
        error: type[Exception] | tuple[type[Exception], ...] | str = Exception,
        attempts: int = 3,
    ) -> None:
        """Adds a strategy; one of the same name is replaced.

        ::

            recoveries().register("reconnect", reconnect(db.connect), error=ConnectionError)

        Raises:
            TypeError: The strategy cannot be called, or the attempts are no whole number.
            ValueError: The name is empty or no text, or the attempts are below 1.
        """
        named("name of a strategy", name)
        if not callable(apply):
            raise TypeError(f"strategy {name!r}: {expected('a function', apply)}")
        check_number(f"attempts of the strategy {name!r}", attempts, 1, whole=True)
        which = _pattern(name, error) if isinstance(error, str) else error
        with self._lock:
            others = tuple(known for known in self._strategies if known.name != name)
            self._strategies = (*others, Strategy(name, apply, tool, which, attempts))
            self.tallies.setdefault(name, Tally())

    def next_strategy(self, session: str, call: Call, error: Exception) -> Strategy | None:
        """The next strategy for a failure, with one of its tries used; None if none is left."""
        with self._lock:
            place = session, call.tool
            used = self._used[place] = self._used.get(place, {})
            for strategy in self._strategies:
                tried = used.get(strategy.name, 0)
                if tried < strategy.attempts and strategy.fits(call.tool, error):
                    used[strategy.name] = tried + 1
                    return strategy
        return None

    def went_well(self, session: str, call: Call, strategy: Strategy | None) -> None:
        """A try went well: what was used of the tool's strategies is given back."""
        if strategy is None and not self._used:
            return
        with self._lock:
            self._used.pop((session, call.tool), None)
            if strategy is not None:
                self.tallies[strategy.name].recovered += 1
                logger.info("tool %r recovered by %r", call.tool, strategy.name)

    def count(self, strategy: Strategy, *, prepared: bool) -> None:
        """Counts a strategy that prepared a try, or that broke or had nothing to try."""
        with self._lock:
            tally = self.tallies[strategy.name]
            tally.tried += prepared
            tally.broke += not prepared


class Recovering:
    """The tries of one call; each is a `with` block that yields the `Call` to make."""

    def __init__(self, recoveries: Recoveries, call: Call) -> None:
        self._recoveries = recoveries
        self._call = call
        self._session = _session()
        self._next: Strategy | None = None
        self._begun = False

    def __iter__(self) -> Iterator[Recovering]:
        """Tries, until one goes well or raises."""
        while self._goes_on():
            result = self._applied()
            if inspect.isawaitable(result):
                if inspect.iscoroutine(result):
                    result.close()
                raise TypeError(f"strategy {self._name!r} is to be awaited: use `async for`")
            if self._prepared(result):
                yield self

    async def __aiter__(self) -> AsyncIterator[Recovering]:
        """As iterating, for strategies that may be coroutine functions."""
        while self._goes_on():
            result = self._applied()
            if inspect.isawaitable(result):
                waiting, result = result, False
                with swallow(self._recoveries.faults, f"recovery.{self._name}"):
                    result = await waiting
            if self._prepared(result):
                yield self

    def __enter__(self) -> Call:
        self._begun = True
        return self._call

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        tried, self._next = self._next, None
        if error is None:
            self._recoveries.went_well(self._session, self._call, tried)
            self._call.error = None
            return False
        # What this package raises to stop is no failure of the tool.
        if not isinstance(error, Exception) or isinstance(error, LoopGuardError):
            return False
        self._call.error = error
        self._next = self._recoveries.next_strategy(self._session, self._call, error)
        return self._next is not None

    def _goes_on(self) -> bool:
        """True if there is another try; raises the failure if no strategy is left."""
        if not self._begun or self._next is not None:
            return True
        if self._call.error is not None:
            raise self._call.error
        return False

    @property
    def _name(self) -> str:
        return "" if self._next is None else self._next.name

    def _applied(self) -> object:
        """Result of the next strategy: False if it broke, or an awaitable."""
        if self._next is not None:
            with swallow(self._recoveries.faults, f"recovery.{self._name}"):
                return self._next.apply(self._call)
            return False
        return True

    def _prepared(self, result: object) -> bool:
        """Counts a strategy; True to try again, False to go to the next strategy."""
        strategy, call = self._next, self._call
        if strategy is None:
            return True
        prepared = result is not False
        self._recoveries.count(strategy, prepared=prepared)
        if prepared:
            logger.info("tool %r failed: trying %r", call.tool, strategy.name)
        elif call.error is not None:
            self._next = self._recoveries.next_strategy(self._session, call, call.error)
        return prepared


def _pattern(name: str, text: str) -> re.Pattern[str]:
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error as error:
        msg = f"error of the strategy {name!r} is not a regular expression: {text!r}: {error}"
        raise ValueError(msg) from None


def _session() -> str:
    """The session that tries are counted in; without one every call counts for itself."""
    flag = current_flag()
    key = (None if flag is None else flag.control.session) or named_session()
    return key or f"call-{uuid.uuid4().hex}"


@dataclass(frozen=True, slots=True)
class Degraded:
    """In place of the result of a step that did not run, or failed.

    Attributes:
        step: Name of the step.
        reason: Why, in a few words.
        value: What there is instead: nothing (None), a part, an older or a default value.
    """

    step: str
    reason: str
    value: object = None


@dataclass(frozen=True, slots=True)
class Partial:
    """The results that a step may build on, with what is missing among them.

    Attributes:
        values: Result by step. Of a degraded one what stands in for it; one for which nothing
            does is left out.
        missing: Reason by step, for all degraded ones.
    """

    values: dict[str, object] = field(default_factory=dict[str, object])
    missing: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def complete(self) -> bool:
        """True if no step is missing."""
        return not self.missing

    @property
    def note(self) -> str | None:
        """A sentence for the model or the user about what is missing; None if nothing is."""
        if not self.missing:
            return None
        missing = ", ".join(
            f"{step} ({reason}{'; a stand-in is used' if step in self.values else ''})"
            for step, reason in self.missing.items()
        )
        return f"This rests on partial data: {missing}."


def degraded(step: str, reason: str, value: object = None) -> Degraded:
    """The result of a step that is skipped, so that what depends on it can run. Logged.

    Args:
        step: Name of the step.
        reason: Why it is skipped, in a few words. It is logged: no content.
        value: What there is instead; it is not logged.

    Raises:
        ValueError: Name or reason is empty.
    """
    if not step or not reason:
        msg = f"a degraded result needs a step and a reason, got {step!r} and {reason!r}"
        raise ValueError(msg)
    stands_in = "nothing replaces it" if value is None else "a stand-in is used"
    logger.warning("step %r is skipped: %s; %s", step, reason, stands_in)
    happened("degraded")
    return Degraded(step, reason, value)


def combined(results: Mapping[str, object]) -> Partial:
    """Splits the results of several steps into values and missing ones.

    Args:
        results: Result by step. What a `Partial` or `Degraded` among them lacks is missing
            here too, so that it is known two steps later.
    """
    found = Partial()
    new = sum(isinstance(result, Degraded) for result in results.values())
    if new:
        happened("missing_dependencies", new)
    for step, result in results.items():
        if isinstance(result, Partial):
            found.missing.update(result.missing)
            found.values[step] = result.values
        elif isinstance(result, Degraded):
            found.missing[result.step] = result.reason
            if result.value is not None:
                found.values[step] = result.value
        else:
            found.values[step] = result
    return found


_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

On = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool]
"""Which errors are retried: classes, or a predicate."""


class Rules(TypedDict, total=False):
    """Options of `resilience.retrying`; what is not given is as below.

    Attributes:
        limit: Further tries after the first (3).
        delay_s: Seconds before the first further try, then doubled (2).
        max_delay_s: Seconds of a delay at most (30).
        on: Which errors; by default those after which trying again can help: time-outs,
            connections, 408, 429 and 5xx.
    """

    limit: int
    delay_s: float
    max_delay_s: float
    on: On


class Retrying:
    """Rules of trying again, by `resilience.retrying`; threads and tasks may share them."""

    def __init__(
        self, *, limit: int = 3, delay_s: float = 2, max_delay_s: float = 30, on: On | None = None
    ) -> None:
        if not (on is None or callable(on) or isinstance(cast("object", on), tuple)):
            msg = expected("classes of errors, or a function", on, "retrying(on=OSError)")
            raise TypeError(msg)
        check_number("limit", limit, 0, whole=True)
        check_number("delay_s", delay_s, 0)
        check_number("max_delay_s", max_delay_s, 0)
        self._limit = limit
        self._delays_s = delay_s, max_delay_s
        self._on = on

    def __call__(self, function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
        """Makes a function, or a coroutine function, one that is tried again."""
        wraps: Any = self._made(is_async=inspect.iscoroutinefunction(function)).wraps
        return wraps(function)

    def __iter__(self) -> Iterator[tenacity.AttemptManager]:
        """Tries, each a `with` block: an error inside it is swallowed if another try follows."""
        return iter(self._made())

    def __aiter__(self) -> AsyncIterator[tenacity.AttemptManager]:
        """As iterating, with delays that do not block the event loop."""
        return aiter(self._made(is_async=True))

    def _made(self, *, is_async: bool = False) -> Any:
        """The tenacity object that makes the tries."""
        try:
            import tenacity  # noqa: PLC0415
        except ImportError:
            msg = "retries need tenacity: pip install 'otel-loopguard[retry]'"
            raise ImportError(msg) from None
        wait = tenacity.wait_none()
        if not deterministic():
            delay_s, max_delay_s = self._delays_s
            wait = tenacity.wait_exponential(multiplier=delay_s, max=max_delay_s)
        return (tenacity.AsyncRetrying if is_async else tenacity.Retrying)(
            retry=tenacity.retry_if_exception(self._may_retry),
            stop=tenacity.stop_after_attempt(self._limit + 1),
            wait=wait,
            before=_check_again,
            before_sleep=self._log,
            reraise=True,
        )

    def _may_retry(self, error: BaseException) -> bool:
        """True for an error to try again after; what this package raises to stop is none."""
        if isinstance(error, LoopGuardError) or not isinstance(error, Exception):
            return isinstance(error, UnverifiedWriteError)
        on = self._on
        if on is None:
            return exception_class(error) is ErrorClass.TRANSIENT
        if isinstance(on, (type, tuple)):
            return isinstance(error, cast("tuple[type[Exception], ...]", on))
        return on(error)

    def _log(self, state: tenacity.RetryCallState) -> None:
        failed = None if state.outcome is None else state.outcome.exception()
        happened("retries")
        delay = 0.0 if state.next_action is None else state.next_action.sleep
        logger.info(
            "try %d of %d failed with %s; the next one is in %.1f s",
            state.attempt_number, self._limit + 1, type(failed).__name__, delay,
        )  # fmt: skip


@overload
def retrying(function: Callable[_Given, _Result], /) -> Callable[_Given, _Result]: ...
@overload
def retrying(**rules: Unpack[Rules]) -> Retrying: ...
def retrying(
    function: Callable[_Given, _Result] | None = None, /, **rules: Unpack[Rules]
) -> Callable[_Given, _Result] | Retrying:
    """Tries again after errors that may pass: at most 3 times, 2, 4 and 8 s later.

    ::

        @resilience.retrying
        def search(query): ...

        for attempt in resilience.retrying(limit=2, on=ConnectionError):
            with attempt:
                page = fetch(url)

        async for attempt in resilience.retrying():
            with attempt:
                page = await fetch(url)

    The last error is raised as it is. Between two tries the session is asked: in an aborted one
    `LoopGuardAbort` is raised instead of trying again. Every try leaves a span if the function
    makes one, so that the detectors see a storm of errors all the same.

    Args:
        function: A function or coroutine function, for the form without brackets.
        **rules: See `Rules`.

    Returns:
        The function, or a decorator that can be iterated over as well.

    Raises:
        ImportError: The extra `retry` is missing; said when the first try is made.
        TypeError: There is no such rule, or its value is no number.
        ValueError: A limit or delay is below 0.
    """
    made = Retrying(**rules)
    return made if function is None else made(function)


def verified(
    write: Callable[[], object], stored: Callable[[], bool], **rules: Unpack[Rules]
) -> None:
    """Writes, reads back, and writes again with growing delays until it is there.

    Args:
        write: Writes; has to bear being called again.
        stored: Reads back; whether what was written is there.
        **rules: See `Rules`; an unverified write is tried again whatever `on` says.

    Raises:
        UnverifiedWriteError: It is not there after the last try; what `write` and `stored` raise
            in the last try is raised as it is.
    """
    for attempt in Retrying(**rules):
        with attempt:
            write()
            _require(stored(), write)


async def verified_async(
    write: Callable[[], Awaitable[object]],
    stored: Callable[[], Awaitable[bool]],
    **rules: Unpack[Rules],
) -> None:
    """As `verified`, with coroutine functions, without blocking the event loop.

    Args:
        write: Writes; has to bear being called again.
        stored: Reads back; whether what was written is there.
        **rules: See `Rules`.

    Raises:
        UnverifiedWriteError: It is not there after the last try.
    """
    async for attempt in Retrying(**rules):
        with attempt:
            await write()
            _require(await stored(), write)


def _require(there: object, write: Callable[[], object]) -> None:
    if not there:
        name = getattr(write, "__qualname__", type(write).__name__)
        raise UnverifiedWriteError(f"what {name} was to store is not there when it is read back")


def _check_again(state: tenacity.RetryCallState) -> None:
    if state.attempt_number > 1:
        check()
