"""The exporter that spans go on to: as it is given, or by its name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.logger import logger

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

_GROUP: Final = "opentelemetry_traces_exporter"
_VARIABLE: Final = "LOOPGUARD_EXPORTER"
_OTLP: Final = {
    "grpc": ("otlp_proto_grpc",),
    "http/protobuf": ("otlp_proto_http",),
    "": ("otlp_proto_grpc", "otlp_proto_http"),
}

_NOWHERE: Final = "exporter %r %s (%s, entry points %s); spans are watched and go nowhere"


def given(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that are None: in a configuration file a variable that is not set."""
    return {name: value for name, value in settings.items() if value is not None}


def asked_for(exporter: SpanExporter | str | Mapping[str, Any] | None) -> SpanExporter | None:
    """The exporter that is asked for; None where spans go nowhere.

    Args:
        exporter: It, its name, or its name with its options; None: as `LOOPGUARD_EXPORTER` says.

    Raises:
        LoopGuardSettingsError: A mapping has not one name.
    """
    if exporter is None or isinstance(exporter, str):
        return _named(exporter, {})
    if not isinstance(exporter, Mapping):
        return exporter
    if len(exporter) != 1:
        msg = f"exporter must be one name with its options, got {sorted(exporter)}"
        raise LoopGuardSettingsError(msg)
    ((name, options),) = exporter.items()
    return _named(name, given(options or {}))


def _named(name: str | None, options: Mapping[str, Any]) -> SpanExporter | None:
    name = (name or os.environ.get(_VARIABLE) or "otlp").strip()
    if name == "none":
        return None
    found = _entry_point(name)
    why = "is not installed"
    try:
        made = found.load() if found else None
    except (ImportError, AttributeError) as error:
        made, why = None, f"does not load ({error})"
    if made is None:
        logger.warning(_NOWHERE, name, why, _VARIABLE, _GROUP)
        return None
    return made(**options)


def _entry_point(name: str) -> EntryPoint | None:
    names = (name,)
    if name == "otlp":
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get(
            "OTEL_EXPORTER_OTLP_PROTOCOL", ""
        )
        names = _OTLP.get(protocol.strip(), ())
    candidates = (found for name in names for found in entry_points(group=_GROUP, name=name))
    # Its own name would wrap without end.
    return next((found for found in candidates if found.name != "loopguard"), None)
