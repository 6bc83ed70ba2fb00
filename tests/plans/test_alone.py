"""Plans need no OpenTelemetry."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import otel_loopguard

PROGRAM = """
import sys, types

package = types.ModuleType("otel_loopguard")
package.__path__ = [{path!r}]
sys.modules["otel_loopguard"] = package
from otel_loopguard import plans

assert plans.checked([{{"id": "a"}}])
assert plans.read([plans.Task("a")])[0] == [plans.Task("a")]
assert plans.advise("Improve it").score >= 0
assert plans.__all__ == sorted(plans.__all__, key=lambda name: (name.islower(), name))
print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


def test_the_room_of_plans_does_not_import_opentelemetry() -> None:
    """Only the package around it does, for the guard."""
    path = str(Path(otel_loopguard.__file__).parent)
    # Plugins of pydantic that happen to be installed (logfire has one) import what they like.
    alone = {**os.environ, "PYDANTIC_DISABLE_PLUGINS": "__all__"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(path=path)],
        capture_output=True, text=True, timeout=30, check=False, env=alone,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
