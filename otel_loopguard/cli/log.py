"""What the command line lets through of the guard's log."""

from __future__ import annotations

import logging


def keep_faults() -> None:
    """Leaves decisions, which are printed, out of standard error; faults stay."""
    logging.getLogger("otel_loopguard").addFilter(_is_fault)


def _is_fault(record: logging.LogRecord) -> bool:
    return record.exc_info is not None
