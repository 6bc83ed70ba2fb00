"""State that is made anew in the child of a fork."""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forked(Protocol):
    """Has locks or tables that other threads of the parent may have held."""

    def forked(self) -> None:
        """Makes them anew; called in the child, before anything else."""
        ...


def reset_after_fork(owner: Forked) -> None:
    """Calls `owner.forked()` in every child of a fork, as long as the owner lives."""
    if not hasattr(os, "register_at_fork"):
        return
    reference = weakref.ref(owner)

    def renew() -> None:
        found = reference()
        if found is not None:
            found.forked()

    os.register_at_fork(after_in_child=renew)
