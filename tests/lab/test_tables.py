"""The text format of runs: what a line means, and what is said of a wrong one."""

import json
from pathlib import Path

import pytest

from lab import tables
from lab.recorded import steps
from otel_loopguard.core import Kind
from tests.tables import rows


def read(tmp_path: Path, text: str) -> list[tables.Table]:
    """The tables of a file with this text."""
    path = tmp_path / "runs.txt"
    path.write_text(text, encoding="utf-8")
    return tables.load(path)


@pytest.mark.parametrize(("line", "told"), rows(__file__, "calls"))
def test_a_call(tmp_path: Path, line: str, told: str) -> None:
    """Arguments, answer or error of a line."""
    run = read(tmp_path, f"[one]\n{line}\n: nothing")[0].draw()
    (step,) = [row for row in run.steps if "tool" in row]
    assert [step["args"], step.get("result"), step.get("error")] == json.loads(told)


def test_blanks_are_filled(tmp_path: Path) -> None:
    """Counters, sums, lists, values, repeats."""
    text = """[one]
x = {3 times ab}
x2:
  t(n={n}, m={m}, sum={10-n*2:03}, of={n of a|b}) -> <x>  x3
: nothing
"""
    run = read(tmp_path, text)[0].draw()
    made = [(row["args"], row["result"]) for row in run.steps if "tool" in row]
    assert made[1] == ({"n": 1, "m": 0, "sum": "008", "of": "b"}, "ababab")
    assert made[5][0] == {"n": 2, "m": 1, "sum": "006", "of": "a"}


def test_a_row_is_a_run(tmp_path: Path) -> None:
    """Values of rows stand for their names, in what is wanted too."""
    text = "[one]\n| a | by\n| x | 3\n| y | 4\nt(of=<a>)  x9\n: hint@<by>\n"
    first, second = read(tmp_path, text)
    assert (first.name, second.name) == ("one: x", "one: y")
    assert (first.wanted.seen_by, second.wanted.seen_by) == (3, 4)
    assert second.draw().steps[2]["args"] == {"of": "y"}


@pytest.mark.parametrize(("want", "told"), rows(__file__, "wanted"))
def test_what_is_wanted(tmp_path: Path, want: str, told: str) -> None:
    """Seen by, stopped by, quiet, let through, aborted: in a line of its own, or at one's end."""
    for text in (f"[one]\nt() -> a\n: {want}", f"[one]\nt() -> a : {want}"):
        it = read(tmp_path, text)[0].wanted
        found = [it.seen_by, it.stopped_by, it.quiet, it.let_through, it.aborted]
        assert found == json.loads(told)


def test_blocks(tmp_path: Path) -> None:
    """Calls side by side, sub-agents, hand-offs, nodes, turns."""
    text = """[one]
together:
  t(n={n}) -> a  x2
agent scout: Look around.
  t() -> b
a >> b: yours
node plan -> {"todo": []}
user: go on
model: done
t() -> c  by other  after 3  took 2
: nothing
"""
    made = steps(read(tmp_path, text)[0].draw())
    kinds = [step.kind for step in made if step.kind is not Kind.MODEL]
    tool, handoff = Kind.TOOL, Kind.HANDOFF
    assert kinds == [tool, tool, handoff, tool, handoff, Kind.NODE, Kind.OTHER, tool]
    assert made[1].start == made[2].start
    assert made[-1].agent == "other"
    assert made[-1].end == made[-1].start + 2_000_000_000


def test_other_seeds_begin_with_other_work(tmp_path: Path) -> None:
    """A seed gives one run, another seed another."""
    table = read(tmp_path, "[one]\nt(q={word}) -> {prose 9}  x20\n: nothing\n")[0]
    assert table.draw().opening == 0
    assert 3 <= table.draw(1).opening <= 8
    assert table.draw(3) == table.draw(3)
    assert table.draw(3) != table.draw(4)
    assert not any("model" in row for row in table.draw(2).steps)


@pytest.mark.parametrize("cells", [row.values for row in rows(__file__, "wrong")], ids=str)
def test_a_wrong_line_is_named(tmp_path: Path, cells: tuple[str, ...]) -> None:
    """With its file, its number, and what was expected."""
    text = " | ".join(cells[1:]).rstrip(" |").replace("\\n", "\n")
    with pytest.raises(ValueError, match=r"runs\.txt:1") as error:
        read(tmp_path, text)[0].draw()
    assert cells[0] in str(error.value)
