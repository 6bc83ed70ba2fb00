"""Backtests: what the guard would have decided about very many recorded sessions.

`replay_session` is a pure function from the rows of one session to its decisions. `run` applies it
to all sessions of a source: they are parted into buckets on disk, and each bucket is replayed by
itself. DuckDB, pyarrow, Ray and chdb are extras, imported where they are used.
"""

from __future__ import annotations

from otel_loopguard.backtest.session import BacktestResult, replay_session

__all__ = ["BacktestResult", "replay_session"]
