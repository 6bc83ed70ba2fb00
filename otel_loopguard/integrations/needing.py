"""Modules of the framework that an adapter is for."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def needed(module: str, extra: str) -> Any:
    """Imports a module of the framework.

    Args:
        module: Its name.
        extra: The extra of this package that brings the framework.

    Raises:
        ModuleNotFoundError: It is not installed; the message says how it is.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        name = f"otel_loopguard.integrations.{extra.replace('-', '_')}"
        msg = f"{name} needs {module!r}: pip install 'otel-loopguard[{extra}]' ({error})"
        raise ModuleNotFoundError(msg, name=error.name, path=error.path) from error
