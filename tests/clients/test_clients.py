"""The clients for TypeScript, Go and Java: built from this repository, and against a server."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from otel_loopguard.server import Tenants
from otel_loopguard.server.app import document
from tests.clients.programs import program
from tests.dialects.agents import TYPESCRIPT, built_typescript, run
from tests.server.serving import bearer, listening, send, serving, sessions

HERE = Path(__file__).resolve().parent
CLIENTS = HERE.parents[1] / "clients"
SOURCES = {
    "typescript": CLIENTS / "typescript/src/index.ts",
    "go": CLIENTS / "go/loopguard.go",
    "java": CLIENTS / "java/src/main/java/loopguard/LoopGuard.java",
}
TOKEN = "one-of-sixteen-signs-or-more"  # as agents have it, without a space
BEARER = bearer(TOKEN)


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a program that asks with the Go module."""
    built = tmp_path_factory.mktemp("go") / "asks"
    run(program("go"), "build", "-o", str(built), ".", at=HERE / "go")
    return [str(built)]


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Java class and the programs that use it, compiled by nothing but the JDK."""
    folder = tmp_path_factory.mktemp("java")
    sources = map(str, (SOURCES["java"], *HERE.glob("*.java")))
    run(program("javac"), "-Xlint:all,-serial", "-Werror", "-d", str(folder), *sources, at=folder)
    return folder


@pytest.fixture(scope="module")
def java(classes: Path) -> list[str]:
    """The command of a program that asks with the Java class."""
    return ["java", "-cp", str(classes), "Asks"]


def fields(source: str, language: str, name: str) -> set[str]:
    """The fields that a client reads of a schema."""
    begin, each, inner = {
        "typescript": (f"interface {name} {{", r"^  (\w+)\??:", r"^    (\w+):"),
        "go": (f"type {name} struct {{", r'json:"(\w+)"', ""),
        "java": (f"record {name}(", r"(\w+)[,)]", ""),
    }[language]
    if language == "typescript" and name == "Decision":  # it stands in that of the control
        begin, each = "interface Control {", inner
    body = source.partition(begin)[2].partition("\n}" if language != "java" else "{}")[0]
    return set(re.findall(each, body, re.MULTILINE))


@pytest.mark.parametrize("language", SOURCES)
def test_a_client_speaks_as_the_document_says(language: str) -> None:
    """It names its operations, and uses no path, parameter or field that they lack."""
    source, described = SOURCES[language].read_text(encoding="utf-8"), document()
    about = source.partition("two operations of")[2][:200].replace("{@code ", "`").replace("}", "`")
    path, operation = "/v1/session/control", described["paths"]["/v1/session/control"]["get"]
    named = [one["operationId"] for one in described["paths"][path].values()]
    assert all(f"`{name}`" in about for name in named)
    assert f"{path}?id=" in source
    used = set(re.findall(r"[?&](\w+)=", source))
    assert used == {"id", "wait", "since"}
    assert used <= {one["name"] for one in operation["parameters"]}
    control = described["components"]["schemas"]["Control"]["properties"]
    assert fields(source, language, "Control") == set(control)
    assert fields(source, language, "Decision") == set(control["decision"]["properties"])


def test_the_module_for_go_is_tested() -> None:
    go = program("go")
    run(go, "vet", "./...", at=CLIENTS / "go")
    assert run(go, "test", "-count=1", "./...", at=CLIENTS / "go").startswith("ok")


@pytest.mark.parametrize("language", ["go", "java"])
def test_a_client_follows_the_flag(language: str, request: pytest.FixtureRequest) -> None:
    ask = [*request.getfixturevalue(language), "hinted", "denied & refused", "aborted", "later"]
    with serving(Tenants({TOKEN: "default"})) as server:
        for session, count in zip(ask[-4:], (3, 4, 3, 1), strict=True):
            for number in range(10 * len(session), 10 * len(session) + count):
                send(server, number, session=session, **BEARER).raise_for_status()
        abort(server.url, "aborted")
        said = lines(ask, server.url, TOKEN, works=lambda: abort(server.url, "later"))
        unguarded = lines(ask, server.url, "of another")
    hint, repeated, mine, other, unknown, another, stopped, works, ended, *rest = said
    assert hint.startswith("hint: ")
    assert "search" in hint
    assert repeated == "hint: "
    assert mine.startswith("refused: 'search' was called")
    assert unknown == mine
    assert other == another == "refused: <nil>"
    assert stopped == "stopped: enough (session aborted aborted)"
    assert (works, ended) == ("works", "ended: enough (session later aborted)")
    assert rest in ([], ["interrupted: false"])
    assert "stopped: <nil>" in unguarded
    assert sum("401" in line and "goes on unguarded" in line for line in unguarded) == 1


@pytest.mark.parametrize("language", ["go", "java"])
def test_an_empty_address_is_the_one_by_default(
    language: str, request: pytest.FixtureRequest
) -> None:
    said = lines([*request.getfixturevalue(language), "a", "b", "c", "d"], "", TOKEN)
    assert said
    assert not any("cannot be used" in line for line in said)


def lines(
    command: list[str], url: str, token: str, works: Callable[[], None] | None = None
) -> list[str]:
    """What a program prints; once it works, something is done, or else it is ended."""
    known = {**os.environ, "LOOPGUARD_URL": url, "LOOPGUARD_TOKEN": token}
    said: list[str] = []
    with subprocess.Popen(
        command, env=known, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as running:
        for line in running.stdout or ():
            said.append(line.rstrip("\n"))
            if line == "works\n":
                (works or running.kill)()
    return said


@pytest.fixture(scope="module")
def built() -> Path:
    """Agents in Node, with the client for TypeScript, built."""
    program("npm")
    built_typescript()
    return TYPESCRIPT


def test_the_client_for_typescript_follows_the_flag(built: Path) -> None:
    with serving() as server:
        said = run("node", "--test", "client.test.mjs", at=built, LOOPGUARD_URL=server.url)
    assert "fail 0" in said


@pytest.mark.parametrize("agent", ["ai-sdk-agent.mjs", "mastra-agent.mjs"])
def test_an_agent_in_node_is_hinted_at_and_stopped(built: Path, agent: str) -> None:
    with serving() as server:
        said = json.loads(run("node", agent, server.url, "chat-1", at=built))
        assert said["action"] == "abort"
        assert said["hints"] >= 1
        assert said["steps"] < 30
        (row,) = sessions(server)
        assert (row["session"], row["by"]) == ("chat-1", "policy")


ENTRIES = tuple(f"otel-loopguard{part}" for part in ("", "/ai-sdk", "/mastra", "/otel"))


@pytest.mark.parametrize("packed", [False, pytest.param(True, marks=pytest.mark.rare)])
def test_it_is_installed_from_the_repository(tmp_path: Path, built: Path, packed: bool) -> None:
    """As the page says, from a fresh clone into an empty project, with its types."""
    del built  # for the compiler
    clone, project = tmp_path / "otel-loopguard/clients/typescript", tmp_path / "project"
    ignored = shutil.ignore_patterns("dist", "node_modules")
    shutil.copytree(CLIENTS / "typescript", clone, ignore=ignored)
    project.mkdir()
    (project / "package.json").write_text('{"type": "module", "private": true}')
    source = str(clone)
    if packed:
        name = run("npm", "pack", "--silent", at=clone).split()[-1]
        source = str(clone / name)
    run("npm", "install", "--no-audit", "--no-fund", "--install-links", source, at=project)
    installed = project / "node_modules/otel-loopguard"
    assert not installed.is_symlink()
    assert {one.name for one in installed.iterdir()} == {"README.md", "dist", "package.json"}
    imports = "".join(f"await import('{entry}');" for entry in ENTRIES)
    run("node", "--input-type=module", "-e", imports, at=project)
    shutil.copy(HERE / "user.ts", project)
    compiler = CLIENTS / "typescript/node_modules/typescript/bin/tsc"
    options = ("--noEmit", "--strict", "--module", "nodenext", "--target", "es2022")
    run("node", str(compiler), *options, "user.ts", at=project)


NO_CONTROL = (
    "null", "[]", "7", '"x"', "{}", "<html>\x1b[2J", "", "[" * 5000, '{"action": "\\u00',
    '{"action": 7, "version": "1"}', '{"action": "allow", "version": "1"} x',
    '{"action": "deny", "stops": true',
    '{"action": "deny", "stops": true, "version": "1"}' + " " * 2**21,
)  # fmt: skip


def test_an_answer_of_another_program_is_none_for_java(classes: Path) -> None:
    """It has a parser of its own: the JDK has none."""
    answers = {f"/{place}/v1/session/control": body for place, body in enumerate(NO_CONTROL)}
    with answering(answers) as url:
        asked = [
            *(f"{url}/{place}/" for place in range(len(NO_CONTROL))),
            "http://127.0.0.1:1",
            "::",
        ]
        said = run("java", "-cp", str(classes), "Answers", *asked, at=classes).splitlines()
    assert [line for line in said if "\x1b" in line] == []
    warned, allowed = [[line for line in said if part in line] for part in ("warned: ", "Control")]
    assert len(warned) == len(asked)
    assert all("the run goes on unguarded" in line for line in warned)
    assert len(allowed) == 2 * len(asked)
    assert all(
        "action=allow, stops=false" in line and line.endswith(" - false") for line in allowed
    )


def test_a_control_is_read_whole_by_java(classes: Path) -> None:
    """With what a later version may add to it."""
    control: dict[str, Any] = {
        "new": [1, 2.5, {"a": [], "b": {}}, None, True], "session": "a b&c", "action": "deny",
        "stops": True, "reason": 'é "\\/\b\f\n\r\t \U0001f600', "hint": None, "by": "ann",
        "until": 1790000000000000000, "version": "v", "warning": "spans\x1b come late",
        "decision": {
            "id": "i", "detector": "d", "rule": "r", "message": "m", "tool": "search", "step": 4,
            "count": 2.5, "confidence": 1, "shadow": False,
        },
    }  # fmt: skip
    bodies = {"/a": json.dumps(control), "/b": json.dumps(control, indent=1, ensure_ascii=False)}
    with answering({f"{at}/v1/session/control": body for at, body in bodies.items()}) as url:
        said = run(
            "java", "-Dfile.encoding=UTF-8", "-cp", str(classes), "Answers", url + "/a", url + "/b",
            at=classes,
        )  # fmt: skip
    assert said.count(
        'action=deny, stops=true, reason=é "\\/\b\f\n\r\t \U0001f600, hint=null, by=ann, '
        "until=1790000000000000000, decision=Decision[id=i, detector=d, rule=r, message=m, "
        "tool=search, step=4, count=2.5, confidence=1.0, shadow=false], "
        "warning=spans\x1b come late, version=v] - true".replace("\r", "\n")  # as it is read
    ) == 4  # fmt: skip
    assert said.count("warned: otel-loopguard: spans  come late") == 2


@contextmanager
def answering(bodies: dict[str, str]) -> Generator[str]:
    """An address that answers each path with a body."""

    def answer(to: BaseHTTPRequestHandler, _: bytes) -> None:
        path, _, query = to.path.partition("?")
        assert query == "id=a+b%26c"
        body = bodies[path].encode()
        to.send_response(200)
        to.send_header("content-length", str(len(body)))
        to.end_headers()
        to.wfile.write(body)

    with listening(answer) as url:
        yield url


def abort(url: str, session: str) -> None:
    """Ends a session, as a person would."""
    to = f"{url}/v1/sessions/{session}/abort"
    httpx.post(to, json={"reason": "enough"}, headers=BEARER).raise_for_status()
