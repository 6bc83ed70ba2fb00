"""Keyed digests: what stands for a call outside of the process, and cannot be searched for."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

_OF_PROCESS: Final = secrets.token_bytes(32)
"""For guards without a key; the children of a fork have it too."""

_SIZE: Final = 8


class Digests:
    """Makes keyed digests (blake2b with a key, 8 bytes) of identities.

    Who has no key cannot tell from a digest what it was made of, not even by trying all likely
    arguments. With the same key equal identities have equal digests in every process; without one
    the key is a random one of this process, and digests of two processes never compare.

    Args:
        key: The setting `digest_key`, of any length; empty: none.

    Attributes:
        shared: Whether there is a key, so that digests of several processes compare.
    """

    def __init__(self, key: str = "") -> None:
        self.shared = bool(key)
        given = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=64).digest()
        self._base = hashlib.blake2b(
            digest_size=_SIZE, key=given if key else _OF_PROCESS, person=b"loopguard"
        )

    def of(self, *parts: int | str | bytes | None) -> bytes:
        """The digest of an identity, 8 bytes.

        Args:
            *parts: What it is made of; of another type or split otherwise it is another identity.
        """
        made = self._base.copy()
        for part in parts:
            if part is None:
                mark, data = b"n", b""
            elif isinstance(part, int):
                mark, data = b"i", b"%d" % part
            elif isinstance(part, str):
                mark, data = b"s", part.encode("utf-8", "surrogatepass")
            else:
                mark, data = b"b", part
            made.update(b"%c%d:" % (mark, len(data)))
            made.update(data)
        return made.digest()

    def number(self, *parts: int | str | bytes | None) -> int:
        """The same as a number, 0 to 2**64 - 1."""
        return int.from_bytes(self.of(*parts), "big")
