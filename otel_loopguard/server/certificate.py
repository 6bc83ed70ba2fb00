"""The TLS certificate of a server, which may be renewed while it runs."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from otel_loopguard.errors import LoopGuardSettingsError

if TYPE_CHECKING:
    import grpc


class _Pair(NamedTuple):
    key: bytes
    chain: bytes


class Certificate:
    """A certificate and its key, in files of PEM.

    Args:
        certificate: Path of the certificate.
        key: Path of its key; empty: it is in the same file.

    Raises:
        LoopGuardSettingsError: TLS cannot use them.
    """

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = certificate
        self._key = key or certificate
        self._context: ssl.SSLContext | None = None
        self._pair = self.read()

    def read(self) -> _Pair:
        """Returns what is in the files now.

        Raises:
            LoopGuardSettingsError: TLS cannot use it.
        """
        try:
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            return _Pair(Path(self._key).read_bytes(), Path(self._certificate).read_bytes())
        except OSError as error:
            what = f"certificate = {self._certificate!r:.100}, key = {self._key!r:.100}"
            msg = f"{what}: TLS cannot use them: {error.strerror or error}"
            raise LoopGuardSettingsError(msg) from error

    def use(self, pair: _Pair) -> bool:
        """Uses what was read for connections from now on; returns False if it is the same."""
        if pair == self._pair:
            return False
        self._pair = pair
        if self._context is not None:
            self._load(self._context)
        return True

    def follow(self, context: ssl.SSLContext) -> None:
        """Sets where a new certificate is loaded."""
        self._context = context

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials for gRPC, which asks for each connection what to use."""
        import grpc  # noqa: PLC0415

        given = self._pair

        def newest() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            if given is self._pair:
                return None
            given = self._pair
            return grpc.ssl_server_certificate_configuration([given])

        first = grpc.ssl_server_certificate_configuration([given])
        # Its stubs leave out that None is no change.
        return grpc.dynamic_ssl_server_credentials(first, cast("Any", newest))

    def _load(self, context: ssl.SSLContext) -> None:
        # OpenSSL would ask for the password of an encrypted key on the terminal.
        context.load_cert_chain(self._certificate, self._key, password=lambda: b"")
