"""The version of the package, and nothing else."""

__version__ = "0.2.0"
