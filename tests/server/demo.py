"""`make demo-serve`: a stuck agent in Node is hinted at and stopped by `otel-loopguard serve`."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from tests.dialects.agents import TYPESCRIPT, built_typescript, run
from tests.server.process import Serve

SESSION = "chat-1"


def follow(url: str) -> None:
    """Prints the flag each time that it changes, until it aborts."""
    version, action = "", "allow"
    with httpx.Client(base_url=url, timeout=60) as client:
        while action != "abort":
            query = {"wait": 30, "since": version}
            control = client.get(f"/v1/sessions/{SESSION}/control", params=query).json()
            version, action = control["version"], control["action"]
            print(f"flag    {action}" + (f": {control['reason']}" if control["reason"] else ""))
            if action == "hint":
                print(f"hint    {control['hint']}")


def main() -> int:
    """Runs the server and the agent; 0 if the agent was stopped."""
    if shutil.which("npm") is None:
        sys.exit("demo-serve needs Node 20 or newer with npm")
    print("builds the client and the agent, once")
    built_typescript()
    with TemporaryDirectory() as folder, Serve(Path(folder) / "log") as server:
        print(f"serve   listens on {server.url}, with a page for people at {server.url}/")
        watcher = threading.Thread(target=follow, args=(server.url,), daemon=True)
        watcher.start()
        said = json.loads(run("node", "ai-sdk-agent.mjs", server.url, SESSION, at=TYPESCRIPT))
        watcher.join(timeout=5)
    print(f"agent   ended after {said['steps']} of 30 steps and {said['hints']} hints")
    return 0 if said["action"] == "abort" else 1


if __name__ == "__main__":
    sys.exit(main())
