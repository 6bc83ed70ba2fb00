"""Parquet of an export, as the spans of its rows: Phoenix's dataframe, LangSmith's runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from otel_loopguard.backtest.extras import load
from otel_loopguard.errors import RecordingError
from otel_loopguard.replay.exports import export_reader_of

if TYPE_CHECKING:
    from otel_loopguard.spans.views import RecordedSpan

_ROWS: Final = 200
"""Rows in memory at once; one may hold a conversation of megabytes."""


def is_export(file: str) -> bool:
    """True of a Parquet file whose columns are those of an export that is read."""
    try:
        names: list[str] = load("pyarrow.parquet").read_schema(file).names
    except (OSError, load("pyarrow").ArrowException):
        return False  # DuckDB says what is wrong with it
    return export_reader_of(dict.fromkeys(names)) is not None


def export_spans(file: str, report: Callable[[str], None]) -> Iterator[RecordedSpan]:
    """The spans of the rows of an export, in their order.

    Raises:
        RecordingError: The file cannot be read further.
    """
    try:
        for batch in load("pyarrow.parquet").ParquetFile(file).iter_batches(_ROWS):
            for row in _rows(batch):
                reads = export_reader_of(row)
                if reads is not None:
                    yield from reads(row, report)
    except (OSError, load("pyarrow").ArrowException) as error:
        msg = f"{file}: cannot be read: {str(error).splitlines()[0]}"
        raise RecordingError(msg) from error


def _rows(batch: Any) -> Iterator[Mapping[str, object]]:
    """The rows as JSON would have them: times as text, nothing that is no number."""
    arrow = load("pyarrow")
    columns = [
        # Python's own times have no nanoseconds, and pandas writes them.
        column.cast(arrow.timestamp("us", column.type.tz), safe=False)
        if arrow.types.is_timestamp(column.type)
        else column
        for column in batch.columns
    ]
    plain = arrow.RecordBatch.from_arrays(columns, names=batch.schema.names)
    for row in plain.to_pylist():
        yield orjson.loads(orjson.dumps(row, default=str))
