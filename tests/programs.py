"""Programs in a process of their own."""

import os
import subprocess
import sys


def printed(program: str, **environment: str) -> str:
    """What a Python program prints, on both of its streams; it has to end well."""
    known = {name: value for name, value in os.environ.items() if "LOOPGUARD" not in name}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False,
        env={**known, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
