"""Lists of tasks before they run: is the plan sound, how hard is it, what runs side by side?

Knows neither spans nor OpenTelemetry; every function is plain values in, plain values out.

::

    from otel_loopguard import plans

    tasks = plans.checked([{"id": "read"}, {"id": "write", "depends_on": ["read"]}])
    for phase in plans.phases(tasks):
        ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from otel_loopguard._util.lazy import lazy
from otel_loopguard.core.task import Problem, Task, read
from otel_loopguard.plans.plans import (
    Complexity,
    checked,
    complexity,
    follow,
    groups,
    independent,
    phases,
    validate,
)

if TYPE_CHECKING:
    from otel_loopguard.plans.splitting import (
        Advice,
        AskSubtasks,
        Factors,
        Strategy,
        Work,
        advise,
        answered,
    )

__all__ = [
    "Advice",
    "AskSubtasks",
    "Complexity",
    "Factors",
    "Problem",
    "Strategy",
    "Task",
    "Work",
    "advise",
    "answered",
    "checked",
    "complexity",
    "follow",
    "groups",
    "independent",
    "phases",
    "read",
    "validate",
]

__getattr__ = lazy(
    __name__, {"splitting": "Advice AskSubtasks Factors Strategy Work advise answered"}
)
