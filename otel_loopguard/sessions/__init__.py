"""Sessions: the steps of one conversation or run, and which step belongs to which."""

from otel_loopguard.sessions.cycles import CycleNews
from otel_loopguard.sessions.finding import Finding
from otel_loopguard.sessions.saved import SavedSession
from otel_loopguard.sessions.session import Session
from otel_loopguard.sessions.shelf import Shelf, WriterShelf
from otel_loopguard.sessions.table import Sessions

__all__ = ["CycleNews", "Finding", "SavedSession", "Session", "Sessions", "Shelf", "WriterShelf"]
