"""What breakers and checks learn from the steps that a guard sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard import semconv
from otel_loopguard.control import Remedies, offer
from otel_loopguard.core import ErrorClass, Kind
from otel_loopguard.identity import error_class, is_runner, parsed, signature_of

if TYPE_CHECKING:
    from otel_loopguard.core import Step
    from otel_loopguard.faults import Faults
    from otel_loopguard.settings import Settings
    from otel_loopguard.stores import Store


class Lessons:
    """Tells the breakers and checks of one guard of every step.

    Args:
        settings: Settings of the guard.
        faults: Where faults are counted.
        store: Where breakers are shared with other processes; None: they are not.
        live: Whether the steps happen now. What a replay shows is long over: it teaches nothing,
            and its guard is not the one that `control` asks.
    """

    def __init__(
        self, settings: Settings, faults: Faults, store: Store | None = None, *, live: bool
    ) -> None:
        self.remedies = Remedies(settings, faults, store) if live else None
        if self.remedies is not None:
            offer(self.remedies)

    def learn(self, step: Step) -> None:
        """Takes a canonical step that ended; tool calls and runs of agents say something.

        Of a tool that runs what the agent wrote (a shell, an interpreter) the kind of arguments is
        always the same and says nothing: no error pattern is learned there. A call that was refused
        was not made: it says nothing of its tool.

        Source: FEATURES C14, E5.
        """
        remedies = self.remedies
        if remedies is None or not step.name or step.error_type == semconv.ERROR_DENY:
            return
        error = error_class(step) if step.error else ErrorClass.UNKNOWN
        if step.kind is Kind.AGENT:
            remedies.breakers.finished(None, step.name, step.error, error)
        elif step.kind is Kind.TOOL:
            args = None if is_runner(step.name) else parsed(step.args)
            # It costs more than all the rest, and only checks of such errors want it.
            named = step.error and args is not None and error is not ErrorClass.TRANSIENT
            remedies.finished(
                step.name,
                step.agent,
                args,
                error=step.error,
                error_class=error,
                signature=signature_of(step) if named else None,
            )

    def close(self) -> None:
        """Tells other processes what they do not know yet."""
        if self.remedies is not None:
            self.remedies.breakers.close()
