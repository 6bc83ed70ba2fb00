"""Detectors that look at work passed between agents."""
