"""The version of the package, and nothing else."""

__version__ = "0.4.0.dev0"
