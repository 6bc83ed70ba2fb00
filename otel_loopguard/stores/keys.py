"""The names that things have in Redis."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_BUCKET: Final = 500
_LONGEST: Final = 200
_UNSAFE: Final = re.compile(r"[^\w.:@/+=~-]|^$", flags=re.ASCII)


class Keys:
    """Names of keys.

    `PREFIX:tool_profile:{TOOL}`, `PREFIX:{SESSION}:journal`, `PREFIX:KIND:{KEY}`. What stands in
    braces decides on which node of a Cluster a key lies, so that all that is written at once
    lies on one. In a name, other characters than letters, digits and `_.:@/+=~-` are
    written as `%` and their bytes; a name of more than 200 characters is cut, with a digest behind.

    Args:
        prefix: What all begin with: the setting `store_prefix`.
        entries: Entries of a journal that are kept.
    """

    def __init__(self, prefix: str, entries: int) -> None:
        self._prefix = prefix
        self._buckets = -(-entries // _BUCKET) + 1

    @property
    def bucket(self) -> int:
        """How many ids one set of ids has. A set of up to 512 numbers takes 8 bytes for each."""
        return _BUCKET

    def profile(self, tool: str) -> str:
        """The profile of a tool: a sorted set (A1)."""
        return f"{self._prefix}:tool_profile:{{{quoted(tool)}}}"

    def journal(self, session: str) -> list[str]:
        """The journal of a session: a stream, and the sets of the ids that are in it."""
        tag = f"{self._prefix}:{{{quoted(session)}}}"
        return [f"{tag}:journal", *(f"{tag}:ids:{number}" for number in range(self._buckets))]

    def value(self, kind: str, key: str) -> str:
        """A value: a string."""
        return f"{self._prefix}:{quoted(kind)}:{{{quoted(key)}}}"

    def claim(self, kind: str, key: str) -> str:
        """The claim beside a value: a string."""
        return f"{self.value(kind, key)}:claim"

    def topic(self, name: str) -> str:
        """A topic that is published to; no key."""
        return f"{self._prefix}:{quoted(name)}:topic"


def quoted(name: str) -> str:
    """A name as it stands in a key."""
    text = _UNSAFE.sub(_bytes_of, name)
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{text[:100]}~{digest}"


def id_number(entry_id: str) -> int:
    """The number that stands for an entry's id among the ids of a journal; 64 bits, signed."""
    data = entry_id.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big", signed=True)


def _bytes_of(found: re.Match[str]) -> str:
    data = found[0].encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data) or "%"
