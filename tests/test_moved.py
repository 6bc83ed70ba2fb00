"""Import paths that the documentation of 0.3 used."""

from __future__ import annotations

import importlib

import pytest

from otel_loopguard._util.moved import MOVED, RENAMED

USED = {
    "dialects": ("SpanView", "register"),
    "escalation.signing": ("headers", "key_of"),
    "exporter": ("LoopGuardSpanExporter",),
    "faults": ("Faults",),
    "instrumentor": ("LoopGuardInstrumentor",),
    "judge": ("Opinion", "Question"),
    "planning": ("groups", "validate"),
    "processor": ("LoopGuardSpanProcessor",),
    "propagation": ("LoopGuardPropagator",),
    "recordings": ("Recording",),
    "remote": ("Notice", "send", "wire_name"),
    "sampler": ("LoopGuardSampler",),
}


@pytest.mark.parametrize("old", USED)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_old_path_has_its_names(old: str) -> None:
    """What was imported from it still can be."""
    module = importlib.import_module(f"otel_loopguard.{old}")
    for name in USED[old]:
        assert getattr(module, name) is not None


@pytest.mark.parametrize("old", MOVED)
def test_an_old_path_warns_with_the_new_one(old: str) -> None:
    """Each name that is looked up says where it is now."""
    new = importlib.import_module(f"otel_loopguard.{MOVED[old]}")
    name = next(
        (full.rpartition(".")[2] for full in RENAMED if full.rpartition(".")[0] == old),
        next(one for one in vars(new) if not one.startswith("_") and one != "annotations"),
    )
    with pytest.warns(DeprecationWarning, match=MOVED[old].replace(".", r"\.")):
        getattr(importlib.import_module(f"otel_loopguard.{old}"), name)


def test_a_name_that_never_was_is_an_attribute_error() -> None:
    """As with any module."""
    with pytest.raises(AttributeError):
        importlib.import_module("otel_loopguard.faults").Nothing  # noqa: B018
