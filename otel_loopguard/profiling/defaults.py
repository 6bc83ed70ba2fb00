"""How long tools take that nothing is known of yet."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

DEFAULTS_MS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "web_search": 3_000,
        "web_crawl": 12_000,
        "web_scrape": 8_000,
        "file_read": 500,
        "file_write": 1_000,
        "file_process": 5_000,
        "database_query": 2_000,
        "database_insert": 3_000,
        "api_call": 4_000,
        "api_batch": 15_000,
        "mcp_tool": 5_000,
        "data_analysis": 20_000,
        "image_process": 10_000,
        "video_process": 60_000,
    }
)
"""Milliseconds by the name of the tool (A2). Users add theirs in `profile_defaults_ms`."""
