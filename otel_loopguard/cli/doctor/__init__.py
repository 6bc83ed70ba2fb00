"""`doctor`: what this environment or a recording has, and what is missing."""
