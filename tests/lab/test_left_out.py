"""Leave one source out: thresholds are chosen within limits, and measured where they were not."""

from __future__ import annotations

from lab.left_out import LINES, SENSITIVITIES, Limits, Trial, Tried, choose, rows
from otel_loopguard.cli.evaluate import Judgement

DEFAULT = SENSITIVITIES.index(1.0)


def judged(source: str, loop: bool, tier: str = "t") -> Judgement:
    return Judgement(tier, source, loop, 10, None, None, None)


def tried(first: float | None, line: int = 0) -> Tried:
    """Trials of a run that is noticed from a sensitivity on, and stopped up to a line then."""
    return tuple(
        Trial(each, seen, seen and line > 0, line if seen else 0)
        for each in SENSITIVITIES
        for seen in [first is not None and each >= first]
    )


def test_the_default_wins_where_nothing_is_gained() -> None:
    """Thresholds stay as they are if others find no more."""
    pairs = [(judged("a", True), tried(0.5, LINES)), (judged("a", False), tried(None))]
    assert choose(pairs, Limits(), 2) == (DEFAULT, 2)


def test_more_is_found_up_to_the_limit() -> None:
    """The sensitivity goes up while more is found, and not past the limit of false notices."""
    pairs = [(judged("a", True), tried(2.0)), (judged("a", True), tried(1.5))]
    pairs += [(judged("a", False), tried(2.0))] + [(judged("a", False), tried(None))] * 9
    assert SENSITIVITIES[choose(pairs, Limits(false_notices=0.1), 1).place] == 2.0
    assert SENSITIVITIES[choose(pairs, Limits(false_notices=0.05), 1).place] == 1.5


def test_the_stop_line_goes_up_until_nothing_healthy_is_stopped() -> None:
    """The stop line is the lowest that keeps to the limit of false stops."""
    pairs = [(judged("a", True), tried(0.5, 3)), (judged("a", False), tried(1.0, 2))]
    assert choose(pairs, Limits(false_notices=1), 1) == (DEFAULT, 3)
    assert choose(pairs, Limits(false_notices=1, false_stops=1), 1) == (DEFAULT, 1)


def test_no_threshold_keeps_to_the_limit() -> None:
    """Where every threshold hurts, the most careful one is taken."""
    pairs = [(judged("a", False), tried(0.5, LINES)), (judged("a", True), tried(0.5, LINES))]
    assert choose(pairs, Limits(), 1) == (0, LINES + 1)


def test_tiers_weigh_the_same() -> None:
    """Many runs of one tier do not outweigh few of another."""
    pairs = [(judged("a", True, "big"), tried(0.5))] * 50
    pairs += [(judged("a", True, "small"), tried(1.25))]
    assert SENSITIVITIES[choose(pairs, Limits(), 1).place] == 1.25


def test_a_source_is_measured_with_what_others_chose() -> None:
    """The figures of a source do not rest on its own runs."""
    pairs = [
        (judged("a", True), tried(1.5, 1)),
        (judged("a", False), tried(None)),
        (judged("b", True), tried(1.5, 1)),
        (judged("b", False), tried(1.5)),
    ]
    found = {(row["tier"], row["source"]): row for row in rows(pairs, Limits(), 1)}
    assert list(found) == [("all", "a"), ("all", "b"), ("t", "all"), ("all", "all")]
    # Without a, b's own healthy run forbids more; without b nothing does.
    assert found["all", "a"]["sensitivity"] == 1.0
    assert found["all", "b"]["sensitivity"] == 1.5
    assert [found["all", each]["noticed_tp"] for each in ("a", "b", "all")] == [0, 1, 1]
    assert [found["all", each]["noticed_fp"] for each in ("a", "b", "all")] == [0, 1, 1]
    assert found["all", "b"]["stopped_tp"] == 1
    assert found["all", "all"]["default_noticed_tp"] == 0
