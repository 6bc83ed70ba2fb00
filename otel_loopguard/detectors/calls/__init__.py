"""Detectors that look at finished tool calls."""
