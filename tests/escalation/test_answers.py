"""Answers of people: what is one, and what the model is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard.errors import EscalationError
from otel_loopguard.escalation.answers import Answer, Reply, reply_in


@pytest.mark.parametrize(
    ("said", "reply"),
    [
        (None, None),
        ({"ok": True}, None),
        ("continue", Reply(Answer.CONTINUE, "callback", via="callback")),
        (" Abort ", Reply(Answer.ABORT, "callback", via="callback")),
        ({"answer": "SKIP_TASK"}, Reply(Answer.SKIP_TASK, "callback", via="callback")),
        (
            {"answer": "modify-plan", "guidance": "g" * 5000, "by": "n" * 500},
            Reply(Answer.MODIFY_PLAN, "n" * 100, "g" * 2000, "callback"),
        ),
    ],
)
def test_what_a_channel_gives_back(said: object, reply: Reply | None) -> None:
    """Nothing, a name, a map; case, dashes and space around do not matter, long texts are cut."""
    assert reply_in(said, "callback") == reply


@pytest.mark.parametrize(
    ("said", "why"),
    [
        *(
            (each, f"modify_plan, skip_task, got {each!r}")
            for each in ("", "yes", "continue;abort")
        ),
        ({"answer": 3}, "one of continue, abort, modify_plan, skip_task, got 3"),
        ({"answer": ["abort"]}, "one of continue"),
        ({"answer": "continue", "guidance": 3}, "guidance of an answer must be a text, got 3"),
        ({"answer": "continue", "by": 3}, "by of an answer must be a text, got 3"),
    ],
)
def test_what_is_no_answer(said: object, why: str) -> None:
    """The error has what was given, and what there is."""
    with pytest.raises(EscalationError, match=why):
        reply_in(said, "callback")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
        | st.dictionaries(st.sampled_from(["answer", "guidance", "by"]), inner),
    )
)  # fmt: skip
def test_whatever_comes_is_an_answer_or_refused(said: object) -> None:
    """Nothing but `EscalationError` is raised."""
    try:
        reply = reply_in(said, "webhook")
    except EscalationError:
        return
    assert reply is None or isinstance(reply.answer, Answer)
