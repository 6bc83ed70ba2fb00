"""The propagator without code: by the environment, and by a configuration file."""

from __future__ import annotations

import os
from pathlib import Path

from tests.zero_code.interpreter import interpreter, run

PROGRAM = """
from opentelemetry import propagate
import otel_loopguard
{begin}
with otel_loopguard.session("run-42"):
    carrier = {{}}
    propagate.inject(carrier)
print(".".join(carrier["baggage"].split(".")[:3]))
print(type(propagate.get_global_textmap()._propagators[-1]).__name__)
"""
FROM_FILE = """
from opentelemetry.configuration.file import configure_propagator, load_config_file
import os
configure_propagator(load_config_file(os.environ["CONFIG"]).propagator)
"""
FILE = """
file_format: "1.0"
propagator:
  composite: [{tracecontext: }, {baggage: }, {loopguard: {propagation_key: "the key of a file"}}]
"""
SAID = ["loopguard.session=run-42,loopguard.control=allow", "LoopGuardPropagator"]


def test_by_the_environment() -> None:
    """`OTEL_PROPAGATORS` and a key are all it takes."""
    variables = {
        "OTEL_PROPAGATORS": "tracecontext,baggage,loopguard",
        "LOOPGUARD_PROPAGATION_KEY": "a key that is theirs",
    }
    program = ("-W", "error", "-c", PROGRAM.format(begin=""))
    done = run(interpreter("opentelemetry.sdk"), *program, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == SAID


def test_by_a_configuration_file(tmp_path: Path) -> None:
    """Settings stand beside the name of the propagator."""
    place = tmp_path / "otel.yaml"
    place.write_text(FILE, encoding="utf-8")
    program = ("-c", PROGRAM.format(begin=FROM_FILE))
    variables = {"CONFIG": os.fspath(place)}
    done = run(interpreter("opentelemetry.configuration"), *program, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == SAID
