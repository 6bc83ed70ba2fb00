"""What is answered before a call runs: what speaks against it, and else how to execute it."""

from otel_loopguard.admission.admissions import Admissions, Asking, Objector

__all__ = ["Admissions", "Asking", "Objector"]
