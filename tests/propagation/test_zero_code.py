"""The propagator without code: by the environment, and by a configuration file."""

import os
from pathlib import Path

import pytest

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


WAYS = [
    ("opentelemetry.sdk", "", {
        "OTEL_PROPAGATORS": "tracecontext,baggage,loopguard", "PYTHONWARNINGS": "error",
        "LOOPGUARD_PROPAGATION_KEY": "a key that is theirs",
    }),
    ("opentelemetry.configuration", FROM_FILE, {}),
]  # fmt: skip


@pytest.mark.parametrize(("needed", "begin", "variables"), WAYS)
def test_a_key_is_all_it_takes(
    needed: str, begin: str, variables: dict[str, str], tmp_path: Path
) -> None:
    """Beside `OTEL_PROPAGATORS`, or beside the name of the propagator in a configuration file."""
    place = tmp_path / "otel.yaml"
    place.write_text(FILE, encoding="utf-8")
    program = PROGRAM.format(begin=begin)
    done = run(interpreter(needed), "-c", program, CONFIG=os.fspath(place), **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "loopguard.session=run-42,loopguard.control=allow", "LoopGuardPropagator",
    ]  # fmt: skip
