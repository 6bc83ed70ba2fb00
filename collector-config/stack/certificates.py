"""Certificates that nobody trusts but who is told to."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from stack.programs import installed


class Certificate(NamedTuple):
    """A certificate of this machine, in PEM.

    Attributes:
        path: The certificate, signed by itself.
        key: Its key, without a password.
    """

    path: Path
    key: Path


def self_signed(folder: Path) -> Certificate:
    """Makes one.

    Args:
        folder: Where it is put.

    Raises:
        MissingError: There is no openssl.
    """
    made = Certificate(folder / "certificate.pem", folder / "key.pem")
    command = [
        *(installed("openssl", package="openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes"),
        *("-days", "2", "-subj", "/CN=localhost"),
        *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        *("-keyout", str(made.key), "-out", str(made.path)),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return made
