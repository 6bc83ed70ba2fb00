"""The figures of `eval` and `calibrate`, and the stop line that they rest on."""

import os
from pathlib import Path
from typing import Any

import pytest

from otel_loopguard import LoopGuardError, Settings
from otel_loopguard.cli.calibrate import HIGHEST, allowed, changes
from otel_loopguard.cli.evaluate import Judgement, score
from tests.cli.conftest import tried
from tests.tables import rows


def judged(
    loop: bool | None, noticed: int | None, stopped: int | None, onset: int | None = 1
) -> Judgement:
    return Judgement("t", "s", loop, 100, onset, noticed, stopped)


def test_scores() -> None:
    """Shares and medians are those of the definition; what cannot be said is None."""
    about = [
        judged(True, 3, 5), judged(True, 5, None), judged(True, None, None),
        judged(True, 9, None, onset=None), judged(False, 2, 4), judged(False, None, None),
        judged(None, 1, 1), judged(None, None, None),
    ]  # fmt: skip
    row = score(about)
    assert (row["n"], row["loops"], row["healthy"], row["unlabelled"]) == (8, 4, 2, 2)
    assert (row["noticed_tp"], row["noticed_fp"], row["noticed_recall"]) == (3, 1, 0.75)
    assert (row["stopped_tp"], row["stopped_fp"], row["stopped_false"]) == (1, 1, 0.5)
    assert (row["noticed_median_steps"], row["stopped_median_steps"]) == (3, 4)
    unsaid = score([judged(None, None, None)])
    assert unsaid["noticed_recall"] is unsaid["stopped_median_steps"] is None


@pytest.mark.parametrize(("given", "above"), rows(__file__, "allowed"))
def test_how_many_runs_may_be_stopped(given: str, above: str) -> None:
    """The line is put at the conformal quantile, ceil((n + 1)(1 - rate)) of n."""
    runs, rate = map(float, given.split())
    assert allowed(int(runs), rate) == int(above)


@pytest.mark.parametrize(("given", "said"), rows(__file__, "refused"))
def test_too_few_runs(given: str, said: str) -> None:
    """It is refused, with how many are needed and which rate there are enough for."""
    runs, rate = map(float, given.split())
    with pytest.raises(LoopGuardError, match=said):
        allowed(int(runs), rate)


def test_the_highest_line_is_a_setting() -> None:
    """Every line that may be tried is one that the settings take."""
    assert Settings(**changes(Settings(), HIGHEST)).deny_after == HIGHEST
    with pytest.raises(LoopGuardError):
        Settings(deny_after=HIGHEST + 1)


def test_files_are_read_more_than_once(command: Any, tmp_path: Path) -> None:
    """What is broken in them is told once, and a pipe is refused."""
    past, pipe = tmp_path / "past.jsonl", tmp_path / "pipe"
    past.write_text("\n".join([*map(tried, range(9), [9] + [0] * 8), "{broken"]))
    result = command("calibrate", past, "--false-stops", 0.1)
    assert (result.exit_code, result.stderr.count("past.jsonl:10")) == (1, 1)
    os.mkfifo(pipe)
    result = command("calibrate", pipe, "--false-stops", 0.5)
    assert result.exit_code == 2
    assert f"{pipe}: calibrate reads its files more than once" in result.stderr
