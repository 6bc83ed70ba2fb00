"""Adapters: a thin file for each agent framework, imported only by who uses it.

The spans stay the only source of truth: an adapter detects nothing. It does what the framework
allows at its own supported hook, before a model call and before a tool call. Where no span
processor feeds a guard, it shows what it knows to the default guard of the process (`alone.py`).
"""
