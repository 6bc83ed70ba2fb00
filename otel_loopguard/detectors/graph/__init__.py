"""Detectors that look at the nodes of a graph and the agents of a run."""
