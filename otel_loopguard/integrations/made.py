"""Tool calls of an adapter, from their begin to their end."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from opentelemetry import trace

from otel_loopguard.control.making import Making, make

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Span
    from typing_extensions import Self

    from otel_loopguard.control import Flag
    from otel_loopguard.integrations.spans import OwnSpan

_MOST: Final = 1024


class Made:
    """A tool call while it is made; a span of ours is the current one.

    For a framework that tells of begin and end by two callbacks there is `end` in place of `with`.
    """

    def __init__(  # noqa: PLR0913
        self,
        own: OwnSpan,
        span: Span | None,
        flag_now: Callable[[], Flag | None],
        *,
        ours: bool = True,
        passing: tuple[type[BaseException], ...] = (),
        alone: Span | None = None,
    ) -> None:
        self._own = own
        self._alone = alone
        self._passing = passing
        self._span = span
        self._ours = ours
        self._flag_now = flag_now
        self._outcome: object = None
        self._owed = False
        self._current: AbstractContextManager[object] | None = None
        self._before: Making | None = None

    def __enter__(self) -> Self:
        if self._span is None:
            # Somebody else starts the span inside of the block, and may not write the arguments.
            self._before = make(Making(self._own.tool, self._own.args))
        if self._span is not None and self._ours:
            self._current = trace.use_span(self._span, end_on_exit=False)
            self._current.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._span is None:
            make(self._before)
        if self._current is not None:
            # The exception is recorded below, once.
            self._current.__exit__(None, None, None)
        self.end(None if isinstance(error, self._passing) else error)

    def result(self, outcome: object, *, failed: str | None = None) -> None:
        """Takes the result.

        Args:
            outcome: The result, a JSON value or text; it is a part of the results so far (D13).
            failed: What went wrong, if the result says that the call failed.
        """
        self._outcome = outcome
        self._owed = failed is None and not self._add_part()
        if self._span is not None and self._ours:
            self._own.result(self._span, outcome, failed)
        if self._alone is not None:
            self._own.result(self._alone, outcome, failed)

    def end(self, error: BaseException | None = None) -> None:
        """Ends the call.

        Args:
            error: What it ended in, if it did not come back.
        """
        if self._span is not None:
            said = self._outcome
            if said is None and isinstance(error, Exception):
                # What the call answered; our spans do not say it.
                said = f"{type(error).__name__}: {error}"
            self._own.tell(self._span, said)
            if self._ours:
                self._own.end(self._span, error)
        if self._alone is not None:
            self._own.tell(self._alone, self._outcome)
            self._own.end(self._alone, error)
        if self._owed:
            # The end of the first span may be what makes its session known.
            self._owed = False
            self._add_part()

    def _add_part(self) -> bool:
        flag = self._flag_now()
        if flag is None:
            return False
        flag.add_part(self._outcome)
        return True


class Calls:
    """Calls under way, where a framework tells of begin and end by two callbacks.

    The newest 1024 are kept; one that is put out of it, or begins again, is ended.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, Made] = OrderedDict()

    def begin(self, key: Hashable, made: Made) -> None:
        """A call begins.

        Args:
            key: What tells it from others that are made at the same time.
            made: The call.
        """
        self.end(key)
        self._made[key] = made
        if len(self._made) > _MOST:
            self._made.popitem(last=False)[1].end()

    def take(self, key: Hashable) -> Made | None:
        """The call, which came back: `result` and `end` are the caller's; None if unknown."""
        return self._made.pop(key, None)

    def end(self, key: Hashable, error: BaseException | None = None) -> None:
        """Ends a call that did not come back, if it is known."""
        made = self._made.pop(key, None)
        if made is not None:
            made.end(error)
