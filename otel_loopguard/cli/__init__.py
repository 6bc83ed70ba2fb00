"""The command line, `otel-loopguard`; needs the extra `cli`."""

from __future__ import annotations

import sys


def main() -> None:
    """Runs the command line.

    Exits with 0 if all went well, 1 if lines of the input were broken and passed over or `doctor`
    misses something, 2 if arguments or files cannot be used, the output cannot be written, or the
    extra `cli` is not installed. `hook run` always exits with 0.
    """
    if sys.argv[1:2] == ["hook"] and {"-h", "--help"}.isdisjoint(sys.argv):
        # Started at every event of an agent: without what only people need.
        if sys.argv[2:3] == ["run"]:
            from otel_loopguard.hooks import client  # noqa: PLC0415

            client.main(sys.argv[3:])
        if sys.argv[2:3] == ["serve"]:
            from otel_loopguard.hooks import process  # noqa: PLC0415

            sys.exit(process.main(sys.argv[3:]))
    try:
        from otel_loopguard.cli.app import app  # noqa: PLC0415  # typer and rich are an extra
    except ModuleNotFoundError as missing:
        if missing.name not in {"rich", "typer"}:
            raise
        need = "the command line needs the extra `cli`: pip install 'otel-loopguard[cli]'"
        print(need, file=sys.stderr)  # noqa: T201
        sys.exit(2)
    app()
