"""Detectors that look at what models write, and at tools tried in vain."""
