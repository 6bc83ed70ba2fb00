"""Values that users hold: equal by their fields, shown by them, hashed where they are frozen."""

import copy
import pickle

import pytest

from otel_loopguard.core import Kind, Step
from otel_loopguard.core.decision import Fix


def test_values_of_equal_fields_are_equal() -> None:
    """As are their hashes and copies; a value of another class never is. None is changed."""
    one, same, other = Fix("Wait."), Fix("Wait.", "low"), Fix("Wait.", "high")
    assert one == same == copy.copy(one) == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(same)
    assert {one, same, other} == {one, other}
    assert one != other
    assert one != ("Wait.", "low")
    with pytest.raises(AttributeError, match="risk"):
        one.risk = "high"  # pyright: ignore[reportAttributeAccessIssue]


def test_what_was_read_off_a_step_is_no_part_of_it() -> None:
    """Nor can a step be hashed, as it may be changed."""
    step, parsed = Step(Kind.TOOL, "search"), Step(Kind.TOOL, "search", reading=object())
    assert step == parsed
    with pytest.raises(TypeError, match="unhashable"):
        hash(step)
