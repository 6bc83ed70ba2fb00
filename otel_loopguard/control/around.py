"""The run that a framework keeps in a context variable of its own, where spans are not current."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from otel_loopguard.faults import Faults, attempt

_CONFIG: Final = "langchain_core.runnables.config"
_OPENINFERENCE: Final = "openinference.instrumentation.langchain"
_KEYS: Final = ("session_id", "conversation_id", "thread_id")
"""Where the instrumentations of LangChain look for a session, first found wins."""
_faults: Final = Faults()


def places_around() -> Iterator[str | int]:
    """Where a run of LangChain or LangGraph is, if this is inside of one.

    Yields:
        The key of its session, by its config; then the id of its trace, as OpenInference knows it.
    """
    # Never imported here: who uses it has imported it.
    module = sys.modules.get(_CONFIG)
    variable = None if module is None else getattr(module, "var_child_runnable_config", None)
    config = None if variable is None else variable.get(None)
    if not isinstance(config, Mapping):
        return
    key = _key(cast("Mapping[str, Any]", config))
    if key is not None:
        yield key
    spans = sys.modules.get(_OPENINFERENCE)
    trace_id = None if spans is None else attempt(_faults, "around", _trace, spans)
    if trace_id is not None:
        yield trace_id


def _key(config: Mapping[str, Any]) -> str | None:
    for part in ("metadata", "configurable"):
        found = config.get(part)
        if isinstance(found, Mapping):
            known = cast("Mapping[str, object]", found)
            key = next((known[name] for name in _KEYS if known.get(name)), None)
            if isinstance(key, (str, int)):
                return str(key)
    return None


def _trace(module: Any) -> int | None:
    if not module.LangChainInstrumentor().is_instrumented_by_opentelemetry:
        return None
    span = module.get_current_span()
    context = None if span is None else span.get_span_context()
    return context.trace_id if context is not None and context.is_valid else None
