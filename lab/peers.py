"""The loop rules of eight agents, written anew from the descriptions of their sources.

No line is theirs. Each is named with the commit that it was read at. What the model sees is a
"warn"; a call that is refused, a run that is ended and a question to a person are a "stop". Rules
that ask another model (gemini-cli's judge) or bound the number of turns are left out.

Two mappings: of tools that run what the agent wrote (`PROGRAMS`) a failure is an answer, as in all
of these systems; names of tools that a rule knows stand for every tool that does the same.
"""

from __future__ import annotations

import json
import re
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from lab.runs import Call, Detector, Factory, Verdict

PROGRAMS = frozenset(
    "bash sh shell terminal execute_bash run_command python execute_code code_executor sql run_sql"
    " run_query".split()
)


@dataclass(frozen=True)
class Peer:
    """One system whose rules are compared.

    Attributes:
        name: Its name.
        make: Makes its detector.
        source: What was read, with its commit.
        rule: What it does, in a few words.
    """

    name: str
    make: Factory
    source: str
    rule: str


def raw(value: Any) -> str:
    """A value as text, in which the order of keys counts."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def parsed(value: Any) -> Any:
    """A value, read from JSON text where it is such."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def canonical(value: Any) -> str:
    """A value as text, in which the order of keys does not count."""
    return json.dumps(parsed(value), ensure_ascii=False, sort_keys=True)


def failure(call: Call) -> str | None:
    """The error of a call that failed; None for a program that did."""
    return None if call.tool in PROGRAMS else call.error


def outcome(call: Call) -> str:
    """What came back, an error included, as text."""
    return call.error if call.error is not None else raw(call.answer)


class OpenHands:
    """Five rules over the last 20 events since the user spoke."""

    def __init__(self) -> None:
        self.events: deque[tuple[str, str]] = deque(maxlen=20)
        self.nudged = False

    def observe(self, call: Call) -> Verdict | None:
        """A nudge at three errors of one call; a stop at the fourth, and by the other rules."""
        if call.after_user:
            self.events.clear()
        if call.tool is None:
            if call.answers_user:
                return None
            self.events.append(("message", ""))
        else:
            # The thought is a part of the action: another one makes it another action.
            self.events.append(("action", f"{call.tool} {canonical(call.args)} {call.text}"))
            failed = failure(call)
            self.events.append(("result", outcome(call)) if failed is None else ("error", failed))
        return self._verdict()

    def _verdict(self) -> Verdict | None:
        actions = [key for kind, key in self.events if kind == "action"]
        results = [(kind, key) for kind, key in self.events if kind in ("result", "error")]
        errors = 0
        for action, (kind, _) in zip(reversed(actions), reversed(results), strict=False):
            if action != actions[-1] or kind != "error":
                break
            errors += 1
        if errors == 3 and not self.nudged:
            self.nudged = True
            return "warn"
        self.nudged = self.nudged and errors >= 3
        if errors > 3 or _equal(actions, results, 4, 1) or _equal(actions, results, 6, 2):
            return "stop"
        talk = [kind for kind, _ in self.events][-3:]
        return "stop" if talk == ["message"] * 3 else None


def _equal(actions: list[str], results: list[tuple[str, str]], count: int, period: int) -> bool:
    """True if the last actions and the last results each repeat themselves with a period."""
    return all(
        len(found) >= count
        and all(found[place] == found[place + period] for place in range(-count, -period))
        for found in (actions, results)
    )


class GeminiCli:
    """A periodic tail of tool calls, and chants in what the model writes."""

    _STRUCTURE = re.compile(r"\s*(```|\||[*+-] |\d+\. |#+ |>|[=_*~─-]{3,}\s*$)")

    def __init__(self) -> None:
        self.tail: deque[str] = deque(maxlen=25)
        self.text = ""
        self.strikes = 0

    def observe(self, call: Call) -> Verdict | None:
        """The first detection of a prompt is fed back to the model, the second ends it."""
        if call.after_user:
            self.__init__()
        found = self._chants(call.text)
        if call.tool is not None:
            self.text = ""
            self.tail.append(f"{call.tool}:{raw(call.args)}")
            found = found or self._repeats()
        if not found:
            return None
        self.strikes += 1
        return "warn" if self.strikes == 1 else "stop"

    def _repeats(self) -> bool:
        """True if the newest calls are five times the same one to five."""
        tail = list(self.tail)
        return any(
            len(tail) >= 5 * period
            and all(tail[-place] == tail[-place - period] for place in range(1, 4 * period + 1))
            for period in range(1, 6)
        )

    def _chants(self, said: str) -> bool:
        """True if 50 characters come ten times, close together; structure is left out."""
        fenced = found = False
        for line in said.splitlines(keepends=True):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            if fenced or self._STRUCTURE.match(line):
                found = found or self._chanted()
                self.text = ""
            else:
                self.text += line
        return self._chanted() or found

    def _chanted(self) -> bool:
        self.text = self.text[-5000:]
        places: dict[str, list[int]] = {}
        for place in range(len(self.text) - 49):
            at = places.setdefault(self.text[place : place + 50], [])
            at.append(place)
            if len(at) >= 10 and at[-1] - at[-10] <= 9 * 250:
                gaps = {self.text[a:b] for a, b in zip(at[-10:], at[-9:], strict=False)}
                if len(gaps) <= 5:
                    return True
        return False


class OpenCode:
    """Three equal calls in a row: the permission `doom_loop`, which asks by default.

    With `shipped` only calls of one message are compared, as the code does; without, as its
    documentation says.
    """

    def __init__(self, *, shipped: bool = False) -> None:
        self.shipped = shipped
        self.last: deque[tuple[int, str]] = deque(maxlen=3)

    def observe(self, call: Call) -> Verdict | None:
        """Asks at the third."""
        if call.tool is None:
            return None
        message = call.message if self.shipped else 0
        self.last.append((message, f"{call.tool}:{raw(call.args)}"))
        return "stop" if len(self.last) == 3 and len(set(self.last)) == 1 else None


class Goose:
    """More than three equal calls in a row, or three equal errors of one tool: the call is denied.

    With `shipped` the first rule is off, as it is by default.
    """

    def __init__(self, *, shipped: bool = False) -> None:
        self.shipped = shipped
        self.before = ""
        self.count = 0
        self.failed: tuple[str, str] | None = None
        self.failures = 0

    def observe(self, call: Call) -> Verdict | None:
        """Denies the call."""
        if call.tool is None:
            return None
        now = f"{call.tool} {canonical(call.args)}"
        self.count = self.count + 1 if now == self.before else 1
        self.before = now
        denied = self.count > 3 and not self.shipped
        if self.failures >= 3:
            denied = denied or (self.failed is not None and self.failed[0] == call.tool)
            self.failures = 0
        if denied:
            return "stop"
        failed = failure(call)
        if failed is None:
            self.failed, self.failures = None, 0
        else:
            of = (call.tool, failed[:100])
            self.failures = self.failures + 1 if of == self.failed else 1
            self.failed = of
        return None


class RooCode:
    """The fourth equal call in a row, or three mistakes in a row: the user is asked.

    A mistake is a call that failed, or a message without one that does not end the task.
    """

    def __init__(self) -> None:
        self.before: str | None = None
        self.repeats = 0
        self.mistakes = 0

    def observe(self, call: Call) -> Verdict | None:
        """Refuses the call and asks."""
        if call.after_user:
            self.mistakes = 0
        if call.tool is not None:
            now = f"{call.tool} {canonical(call.args)}"
            self.repeats = self.repeats + 1 if now == self.before else 0
            self.before = now
            if self.repeats >= 3:
                self.before, self.repeats = None, 0
                return "stop"
        elif call.answers_user:
            return None
        missed = call.tool is None or failure(call) is not None
        self.mistakes = self.mistakes + 1 if missed else 0
        if self.mistakes >= 3:
            self.mistakes = 0
            return "stop"
        return None


class Cline:
    """Equal calls in a row: a notice at the third, a stop from the fifth.

    Its counter of mistakes is left out: what counts as one is a matter of its own tools.
    """

    def __init__(self) -> None:
        self.before = ""
        self.count = 0

    def observe(self, call: Call) -> Verdict | None:
        """Warns, then stops."""
        if call.tool is None:
            return None
        now = f"{call.tool} {canonical(call.args)}"
        self.count = self.count + 1 if now == self.before else 1
        self.before = now
        return "stop" if self.count >= 5 else "warn" if self.count == 3 else None


class Crush:
    """More than five of the last ten steps have equal calls with equal results: the run ends.

    A step is one message of the model with all of its calls; before ten steps nothing is said.
    """

    def __init__(self) -> None:
        self.steps: deque[str] = deque(maxlen=10)
        self.now: list[str] = []

    def observe(self, call: Call) -> Verdict | None:
        """Ends the run after a step."""
        if call.tool is not None:
            self.now.append(f"{call.tool}\0{raw(call.args)}\0{outcome(call)}")
        if not call.last:
            return None
        self.steps.append("\0".join(self.now))
        self.now = []
        if len(self.steps) < 10:
            return None
        counts = Counter(step for step in self.steps if step)
        return "stop" if max(counts.values(), default=0) > 5 else None


class DeerFlow:
    """Equal sets of calls among the last 20, and calls of one tool among the last 50.

    What a call is about is its path, address, query or command alone; a file is known in pieces of
    200 lines; what writes is compared whole.
    """

    _SALIENT = ("path", "url", "query", "command", "pattern", "glob", "cmd")
    _WRITES = frozenset("content text new new_str new_string old old_str old_string".split())

    def __init__(self) -> None:
        self.sets: deque[str] = deque(maxlen=20)
        self.tools: deque[str] = deque(maxlen=50)
        self.warned: set[str] = set()
        self.now: list[tuple[str, str]] = []

    def observe(self, call: Call) -> Verdict | None:
        """Warns once of a set at 3 and of a tool at 30; takes the calls away at 5 and at 50."""
        if call.tool is None:
            return None
        self.now.append((call.tool, self._key(call)))
        if not call.last:
            return None
        calls, self.now = self.now, []
        return self._repeated("\0".join(sorted(map(":".join, calls)))) or self._often(calls)

    def _repeated(self, of: str) -> Verdict | None:
        self.sets.append(of)
        self.warned = {one for one in self.warned if one in self.sets or one in self.tools}
        count = self.sets.count(of)
        if count >= 5:
            return "stop"
        if count >= 3 and of not in self.warned:
            self.warned.add(of)
            return "warn"
        return None

    def _often(self, calls: list[tuple[str, str]]) -> Verdict | None:
        for tool, _ in calls:
            self.tools.append(tool)
            count = self.tools.count(tool)
            if count >= 50:
                return "stop"
            if count < 30:
                self.warned.discard(tool)
            elif tool not in self.warned:
                self.warned.add(tool)
                return "warn"
        return None

    def _key(self, call: Call) -> str:
        given = parsed(call.args)
        if not isinstance(given, dict):
            return canonical(given)
        args = cast("dict[str, Any]", given)
        if self._WRITES & args.keys():
            return canonical(args)
        path = args.get("path") or args.get("file_path") or args.get("file")
        begin = args.get("start_line", args.get("offset"))
        if path and isinstance(begin, int):
            length = args.get("limit")
            end = args.get("end_line", begin + length if isinstance(length, int) else begin)
            return f"{path}:{begin // 200}-{int(end) // 200}"
        salient = {name: args[name] for name in self._SALIENT if args.get(name) is not None}
        return canonical(salient or args)


PEERS = (
    Peer(
        "OpenHands",
        OpenHands,
        "OpenHands/software-agent-sdk, `stuck_detector.py`, 611629e (2026-08-22)",
        "equal action and result x4; an action that fails x3 (nudge), x4; A-B-A-B x3; 3 messages",
    ),
    Peer(
        "gemini-cli",
        GeminiCli,
        "google-gemini/gemini-cli, `LoopDetectionService`, 5411f11 (2026-08-21)",
        "the same 1 to 5 calls x5; 50 characters x10: feedback, then a halt",
    ),
    Peer(
        "opencode",
        OpenCode,
        "opencode, `processor.ts`, 36160ef",
        "equal call x3: asks (as documented)",
    ),
    Peer(
        "goose",
        Goose,
        "goose, `RepetitionInspector`, 37c043b",
        "equal call x4 (as configured), equal error of a tool x3: denies the call",
    ),
    Peer(
        "Roo Code",
        RooCode,
        "Roo Code, `ToolRepetitionDetector`, cb83656 (2026-04)",
        "equal call x4, or 3 mistakes in a row: asks",
    ),
    Peer("cline", Cline, "Cline SDK, 21cb8d2 (2026-08-22)", "equal call x3: notice; x5: stop"),
    Peer(
        "crush",
        Crush,
        "charmbracelet/crush, `internal/agent/loop_detection.go`, 37f36e9",
        "more than 5 of 10 steps with equal calls and results: ends the run",
    ),
    Peer(
        "deer-flow",
        DeerFlow,
        "bytedance/deer-flow, `loop_detection_middleware.py`, f1f4af9 (2026-08-22)",
        "equal set of calls x3 of 20: warning, x5: final answer; one tool x30, x50 of 50",
    ),
)


def opencode_shipped() -> Detector:
    """Opencode as it ships."""
    return OpenCode(shipped=True)


def goose_shipped() -> Detector:
    """Goose as it ships."""
    return Goose(shipped=True)


AS_SHIPPED = (
    Peer("opencode, as shipped", opencode_shipped, PEERS[2].source, "within one message alone"),
    Peer("goose, as shipped", goose_shipped, PEERS[3].source, "equal errors alone"),
)
"""Two of them do less than they document."""
