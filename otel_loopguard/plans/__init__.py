"""Lists of tasks before they run: is the plan sound, how hard is it, what runs side by side?

Knows neither spans nor OpenTelemetry; every function is plain values in, plain values out.

::

    from otel_loopguard import planning

    tasks = planning.checked([{"id": "read"}, {"id": "write", "depends_on": ["read"]}])
    for phase in planning.phases(tasks):
        ...
"""

from __future__ import annotations

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
    "Strategy",
    "Work",
    "advise",
    "answered",
    "checked",
    "complexity",
    "follow",
    "groups",
    "independent",
    "phases",
    "validate",
]
