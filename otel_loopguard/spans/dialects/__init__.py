"""Dialects: what instrumentations write, read as one kind of step."""
