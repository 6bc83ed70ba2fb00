"""One tool after the other, in vain."""

from __future__ import annotations

from otel_loopguard import Settings
from otel_loopguard.core import Kind, Step
from tests.calls import Run, call

TOOLS = ["search", "lookup", "browse", "wiki", "maps", "news", "archive"]


def seen(run: Run) -> list[str]:
    return [found.detector for found in run.decisions]


def missing(tool: str) -> Step:
    return call(tool, {"q": "x"}, error=f"{tool}: the {tool * 2} of x is not there")


def test_tools_tried_in_vain_are_noticed() -> None:
    """Five tools fail, each in its own way."""
    run = Run()
    run.calls(*(missing(tool) for tool in TOOLS))
    found = next(found for found in run.decisions if found.detector == "tool_shopping")
    assert (found.reason, found.step) == ("tools_tried_in_vain", 4)
    assert "5 different tools" in found.message


def test_tools_that_find_nothing_count() -> None:
    """Nothing found is in vain, too."""
    run = Run()
    run.calls(*(call(tool, {"q": tool}, f"No results found in {tool}.") for tool in TOOLS))
    assert "tool_shopping" in seen(run)


def test_one_tool_that_helps_ends_the_row() -> None:
    """Four in vain, then news."""
    run = Run()
    for start in (0, 3):
        run.calls(*(missing(tool) for tool in TOOLS[start : start + 4]))
        news = " ".join(f"fact{start}x{place}" for place in range(40))
        run.calls(call("encyclopedia", {"q": start}, news))
    assert "tool_shopping" not in seen(run)


def test_many_tools_that_help_are_healthy() -> None:
    """Each was needed once."""
    run = Run()
    for tool in TOOLS:
        run.calls(call(tool, {"q": "x"}, " ".join(f"{tool}{place}" for place in range(40))))
    assert run.actions == []


def test_few_tools_are_no_shopping() -> None:
    """Whatever else is wrong with it."""
    run = Run()
    run.calls(*(missing(tool) for tool in TOOLS[:4]))
    assert "tool_shopping" not in seen(run)


def test_a_tool_called_often_was_not_merely_tried() -> None:
    """Five tools, three times each: other detectors speak of that."""
    run = Run()
    for tool in TOOLS[:5]:
        run.calls(*[missing(tool)] * 3)
    assert "tool_shopping" not in seen(run)


def test_outcomes_that_were_not_captured_may_be_news() -> None:
    """Missing is not empty."""
    run = Run()
    run.calls(*(call(tool, {"q": "x"}) for tool in TOOLS))
    assert "tool_shopping" not in seen(run)


def test_an_outage_is_not_the_agents_doing() -> None:
    """Transient errors do not count."""
    run = Run()
    run.calls(*(call(tool, {"q": "x"}, error=f"503 from {tool}: try later") for tool in TOOLS))
    assert "tool_shopping" not in seen(run)


def test_writes_are_no_shopping() -> None:
    """All that a write says is "ok"."""
    run = Run()
    run.calls(*(call(f"create_{tool}", {"n": 1}, "ok") for tool in TOOLS))
    assert "tool_shopping" not in seen(run)


def test_a_user_starts_anew() -> None:
    """Another task, other tools."""
    run = Run()
    for tool in TOOLS:
        run.calls(missing(tool), Step(Kind.OTHER, "user", text="then try another thing"))
    assert "tool_shopping" not in seen(run)


def test_the_numbers_are_settings() -> None:
    """`tuning.text.shop_tools` and `tuning.text.shop_calls`."""
    run = Run(Settings(tuning={"text": {"shop_tools": 3}}))
    run.calls(*(missing(tool) for tool in TOOLS[:3]))
    assert "tool_shopping" in seen(run)
