"""Lists of tasks before they run: is the plan sound, how hard is it, what runs side by side?

Knows neither spans nor OpenTelemetry; every function is plain values in, plain values out.

::

    from otel_loopguard import planning

    tasks = planning.checked([{"id": "read"}, {"id": "write", "depends_on": ["read"]}])
    for phase in planning.phases(tasks):
        ...
"""

from otel_loopguard.planning.complexity import Complexity, complexity
from otel_loopguard.planning.following import follow
from otel_loopguard.planning.groups import groups, independent, phases
from otel_loopguard.planning.splitting import Advice, Factors, Strategy, Work, advise
from otel_loopguard.planning.subtasks import AskSubtasks, answered
from otel_loopguard.planning.task import Problem, Task, read
from otel_loopguard.planning.validation import checked, validate

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
