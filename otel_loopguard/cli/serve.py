"""`serve`: judges the spans that agents in any language send by OTLP."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_loopguard import semconv
from otel_loopguard._control.flag import POLICY
from otel_loopguard.cli.output import is_fault, say
from otel_loopguard.errors import LoopGuardError, LoopGuardSettingsError
from otel_loopguard.replay.workers import COLLECTED
from otel_loopguard.server import Server, ServerSettings, Tenants
from otel_loopguard.server.forward import place_of
from otel_loopguard.server.metrics import ServerTelemetry

if TYPE_CHECKING:
    from otel_loopguard.settings import Settings

TOKEN: Final = "LOOPGUARD_SERVE_TOKEN"  # noqa: S105  # its name
"""The variable with the one token of a server without tenants."""


def run(
    read: Callable[[], Settings], tokens: str | None, headers: Sequence[str], **options: Any
) -> int:
    """Runs a server until it is stopped; returns 1 if it cannot run now.

    Args:
        read: Reads the settings of the guard.
        tokens: File of the tokens.
        headers: Headers for the next hop, `NAME=VALUE`.
        options: The others of `ServerSettings`.
    """
    named: dict[str, str] = {}
    for header in headers:
        name, equals, value = header.partition("=")
        if not name or not equals:
            # Not what was given: without the "=" it contains the value, often a key.
            raise LoopGuardSettingsError("--header: expected NAME=VALUE")
        named[name.strip()] = value.strip()
    gc.set_threshold(*COLLECTED)
    settings = ServerSettings(headers=named, **options)
    _log_all()  # before settings are read: that warns of unknown variables
    guard = read()
    telemetry = ServerTelemetry.unless_set_up()
    reread = type(guard)  # from the environment and its file
    server = Server(settings, guard, _tenants(tokens), telemetry, reread)
    try:
        asyncio.run(_run(server, settings, on=guard.enabled))
    except LoopGuardSettingsError:
        raise
    except LoopGuardError as error:  # it may pass, as an address in use
        say(f"otel-loopguard: {error}", error=True)
        return 1
    return 0


def _log_all() -> None:
    """Logs warnings and what people do on standard error, with the time: for days on end."""

    def is_line(record: logging.LogRecord) -> bool:
        by = getattr(record, semconv.CONTROL_BY, POLICY)
        return record.levelno >= logging.WARNING or by != POLICY

    logger = logging.getLogger("otel_loopguard")
    logger.removeFilter(is_fault)
    logger.addFilter(is_line)
    logger.setLevel(logging.INFO)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")


def _tenants(tokens: str | None) -> Tenants:
    if tokens is not None:
        return Tenants.from_file(Path(tokens))
    token = os.environ.get(TOKEN, "")
    try:
        return Tenants({token: "default"} if token else None)
    except LoopGuardSettingsError as error:
        raise LoopGuardSettingsError(f"{TOKEN}: {error}") from None


async def _run(server: Server, settings: ServerSettings, *, on: bool) -> None:
    async with server:
        say(f"a page for people, OTLP over HTTP and the flag's API: {server.url}")
        if server.grpc_port:
            host = settings.grpc.rpartition(":")[0]
            say(f"OTLP over gRPC: {host}:{server.grpc_port}")
        hop = settings.forward
        say(f"spans go on to {place_of(hop)}" if hop else "spans go nowhere else")
        if not on:
            say("nothing is judged: enabled (LOOPGUARD_ENABLED) is false")
        if server.is_open:
            say(f"no token is set: only this machine is served (set {TOKEN} or --tokens)")
        await server.wait()
