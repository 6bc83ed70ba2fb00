"""Programs from Maven Central, each a folder of jars."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from stack.builds import HERE, cache
from stack.programs import installed


@dataclass(frozen=True)
class Jars:
    """A program for Java, fetched once and kept beside what is built.

    Attributes:
        name: What people call it.
        pom: What it is made of, for Maven.
    """

    name: str
    pom: Path

    @property
    def variable(self) -> str:
        """The environment variable that names another folder of jars."""
        return f"{self.name.upper()}_JARS"

    def path(self) -> Path:
        """Where the jars are, or would be."""
        given = os.environ.get(self.variable)
        digest = hashlib.sha256(self.pom.read_bytes()).hexdigest()[:16]
        return Path(given) if given else cache() / f"{self.name}-{digest}"

    def built(self) -> Path | None:
        """The jars, if they are there."""
        path = self.path()
        return path if path.is_dir() else None

    def build(self) -> Path:
        """The jars; fetched first if they are not there.

        Raises:
            MissingError: There is no Maven.
            subprocess.CalledProcessError: They cannot be fetched; Maven's output was shown.
        """
        path = self.path()
        if not path.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            maven = installed("mvn", package="maven")
            with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as name:
                fetched = Path(name) / "jars"
                goal = ("dependency:copy-dependencies", f"-DoutputDirectory={fetched}")
                subprocess.run([maven, "-q", "-B", "-f", str(self.pom), *goal], check=True)
                fetched.rename(path)
        return path


KAFKA = Jars("kafka", HERE / "kafka" / "pom.xml")
