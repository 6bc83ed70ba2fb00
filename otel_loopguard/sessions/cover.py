"""Covers the identities in a session, so that no store can be searched for an argument."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from otel_loopguard.core import Detection, Evidence

_SINGLE: Final = ("error_line", "error_shape", "failure", "file")
_UNSIGNED: Final = 0xFFFF_FFFF_FFFF_FFFF


class Cover:
    """Turns keys of 64 bits into keyed digests of 64 bits (BLAKE2b), at 0.7 µs each.

    The keys of evidence are xxhash, which anybody can compute; with a secret seed it is no better,
    for the seed can be computed from one known text and its hash. So the 8 bytes are hashed once
    more, with a key that is not in the store.

    Args:
        key: The setting `digest_key`; empty: a random one, so that they compare within the
            process only.

    Attributes:
        id: Two bytes that tell the key.
        lasting: Whether another process can have the same key.
    """

    __slots__ = ("_keyed", "id", "lasting")

    def __init__(self, key: str) -> None:
        given = hashlib.blake2b(key.encode("utf-8", "surrogatepass")).digest()
        secret = given if key else secrets.token_bytes(32)
        self.lasting = bool(key)
        self.id = hashlib.blake2b(b"loopguard journal", key=secret, digest_size=2).digest()
        self._keyed = hashlib.blake2b(key=secret, digest_size=8)

    def of(self, key: int) -> int:
        """The digest of one key."""
        keyed = self._keyed.copy()
        keyed.update((key & _UNSIGNED).to_bytes(8, "big"))
        return int.from_bytes(keyed.digest(), "big")

    def call(self, seen: Evidence) -> None:
        """Replaces the keys of a call by their digests."""
        of, call, exact, outcome = self.of, seen.call, seen.call_exact, seen.outcome
        if call is not None:
            seen.call = of(call)
        if exact is not None:
            seen.call_exact = seen.call if exact == call else of(exact)
        if outcome is not None:
            seen.outcome = of(outcome)
        if seen.outcome_exact is not None:
            seen.outcome_exact = (
                seen.outcome if seen.outcome_exact == outcome else of(seen.outcome_exact)
            )
        for name in _SINGLE:
            key: int | None = getattr(seen, name)
            if key is not None:
                setattr(seen, name, of(key))
        if seen.agent:
            seen.agent = of(seen.agent)
        if seen.score is not None:
            seen.score = (of(seen.score[0]), seen.score[1])
        if seen.place is not None:
            seen.place = (of(seen.place[0]), seen.place[1])

    def detection(self, found: Detection) -> Detection:
        """A detection with its keys replaced; one that names none is known by its rule."""
        keys = found.keys or frozenset({self._rule(found)})
        return replace(found, keys=frozenset(map(self.of, keys)))

    def _rule(self, found: Detection) -> int:
        raw = hashlib.blake2b(f"{found.detector}\0{found.reason}".encode(), digest_size=8)
        return int.from_bytes(raw.digest(), "big")
