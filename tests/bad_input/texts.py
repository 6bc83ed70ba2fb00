"""Texts that patterns and parsers stumble over."""

from __future__ import annotations


def texts(n: int) -> dict[str, str]:
    """Texts of about `n` characters, by name; literals only as long as they are read."""
    return {
        "newlines": "\n" * n,
        "spaces": " " * n,
        "digits": "1" * n,
        "15": "15" * (n // 2),
        "hex": "a1" * (n // 2),
        "0x": "0x" * (n // 2),
        "/tmp/": "/tmp/" * (n // 5),
        "clock": "1:" * (n // 2),
        "took": "took " * (n // 5),
        "took=": "took=" * (n // 5),
        "pid": "pid " * (n // 4),
        "error": "error " * (n // 6),
        "tool": "tool " * (n // 5),
        "missing": "missing " * (n // 8),
        "open(": "open(" * (n // 5),
        "sed -a": "sed " + "-a " * (n // 3),
        "sed -i": "sed -i" * (n // 6),
        "; newline": ";\n" * (n // 2),
        "; spaces": ";" + " " * n,
        "<<-": "<<-" * (n // 3),
        "git": "git " * (n // 4),
        "npm": "npm aaaa " * (n // 9),
        "sleep": "sleep 1" + " " * n + "x",
        "half a UUID": "00000000-0000-" * (n // 14),
        "1.1.": "1." * (n // 2),
        "dates": "2024-01-01T" * (n // 11),
        "one word": "A" * n,
        "one error": "A" * n + "Error: x",
        "tracebacks": "Traceback (most recent call last)" * (n // 33),
        "brackets": "[" * n,
        "braces": "{" * n,
        "quotes": '"' * n,
        "minus": "-" * min(n, 99_000) + "1",
        "a list": "[" + "1," * min(n // 2, 49_000) + "]",
        "a sum": "+".join(["1"] * min(n // 2, 45_000)),
        "agno": "status='failure' result=" + " error=" * (n // 7) + " updated_session_state=",
        "camel": "aB" * (n // 2),
        "surrogates": "\ud800" * (n // 3),
        "escapes": "'" + "\\d" * min(n // 2, 49_000) + "'",
    }
