"""The package's logger: every message begins with the package's name.

Where an application configures no logging, Python prints warnings bare on standard error; without
the name nobody could tell whose they are.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any, Final

_PREFIX: Final = "otel-loopguard: "

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:  # Python 3.10 cannot subscript it
    _Adapter = logging.LoggerAdapter


class _Named(_Adapter):
    def process(
        self, msg: object, kwargs: MutableMapping[str, Any]
    ) -> tuple[object, MutableMapping[str, Any]]:
        return f"{_PREFIX}{msg}", kwargs


logger: Final = _Named(logging.getLogger("otel_loopguard"), {})
"""Logs to `otel_loopguard`; `extra=` of a call is kept."""
