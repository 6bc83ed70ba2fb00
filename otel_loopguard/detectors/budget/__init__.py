"""Verdicts about what is used up, and about milestones."""
