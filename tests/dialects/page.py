"""Tables of the pages about dialects, made from the code and the captures."""

from collections.abc import Iterable

from otel_loopguard.core import Kind, Step
from otel_loopguard.dialects import registered
from otel_loopguard.spans.reader import collect_keys
from tests.dialects import captures
from tests.dialects.captures import PARTLY, SCRIPT, UNREADABLE
from tests.docs.markdown import table


def recovered() -> str:
    captures.need_shared()
    names = captures.names()
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        groups.setdefault(_given_back(name), []).append(f"`{name}`")
    rows = ((*given, ", ".join(found)) for given, found in groups.items())
    whys = UNREADABLE | {name: why for name, (_, why) in PARTLY.items()}
    left = "".join(f"* `{name}`: {whys[name]}.\n" for name in sorted(whys) if name in names)
    heads = "calls|arguments|results|failures with text|session id|captures"
    return f"{table(heads, rows)}\nNot or only partly readable:\n\n{left}"


def keys() -> str:
    rows = ((name, _code(collect_keys(f"{name}_keys"))) for name in ("session", "agent"))
    return table("|read from", rows)


def dialects() -> str:
    rows: list[tuple[str, ...]] = []
    for dialect in registered():
        about = (type(dialect).__doc__ or "").partition("\n")[0]
        more = "" if about.startswith("Reads spans that have") else about
        rows.append((dialect.name, _code(sorted(dialect.marks)), more))
    return table("dialect|marks: one of|", rows)


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _given_back(name: str) -> tuple[str, ...]:
    run = captures.live(name)
    tools, executed = run.of(Kind.TOOL), captures.executed(name)
    failed = [step for step in tools if step.error]
    went_well = [step for step in tools if not step.error]
    steps = [*run.read, *run.opened.values()]
    return (
        "-" if not (executed or tools) else _share(len(tools), executed),
        _share(_arguments(name, tools), len(tools)),
        _share(sum(step.outcome is not None for step in went_well), len(went_well)),
        _share(sum(step.error_text is not None for step in failed), len(failed)),
        "yes" if any(step.session is not None for step in steps) else "no",
    )


def _share(found: int, of: int) -> str:
    return "-" if not of else "all" if found == of else "none" if not found else f"{found} of {of}"


def _arguments(name: str, tools: list[Step]) -> int:
    if not captures.scripted(name):
        return sum(step.args is not None for step in tools)
    pairs = zip(tools, SCRIPT, strict=True)
    return sum(captures.same_args(step, args) for step, (_, args) in pairs)
