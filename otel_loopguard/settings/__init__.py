"""Every setting: its unit, its default, its environment variable.

A module holds what one family of rules needs; `Settings` is all of them together, in one flat
namespace.
"""

from otel_loopguard.settings.settings import Settings

__all__ = ["Settings"]
