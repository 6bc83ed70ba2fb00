"""Who wrote a text."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from otel_loopguard.identity.canonical import key_of, text_bytes

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_NAMED: Final = 200


@lru_cache(maxsize=1024)
def _key(agent: str, node: str, model: str) -> int:
    return key_of(text_bytes(f"saying\0{agent}\0{node}\0{model}"))


def speaker_of(step: Step) -> tuple[int, str]:
    """Key and name of who wrote a step's text: its agent, node and model.

    Different agents are different speakers, and so are two models that are asked the same.
    """
    agent, node, model = ((part or "")[:_NAMED] for part in (step.agent, step.node, step.model))
    return _key(agent, node, model), repr(agent or node) if agent or node else "the model"
