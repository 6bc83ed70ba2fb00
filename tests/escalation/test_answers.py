"""Answers of people: what is one, and what the model is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_loopguard.errors import EscalationError
from otel_loopguard.escalation.answers import Answer, Reply, answer_of, reply_in, reply_of


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("continue", Answer.CONTINUE),
        (" Abort ", Answer.ABORT),
        ("modify-plan", Answer.MODIFY_PLAN),
        ("SKIP_TASK", Answer.SKIP_TASK),
    ],
)
def test_names_of_answers(name: str, answer: Answer) -> None:
    """Case, dashes and space around do not matter."""
    assert answer_of(name) is answer


@pytest.mark.parametrize("name", ["", "yes", "continue;abort", 3, None, ["abort"]], ids=repr)
def test_what_is_no_answer(name: object) -> None:
    """The error has what was given, and what there is."""
    with pytest.raises(
        EscalationError, match="one of continue, abort, modify_plan, skip_task"
    ) as told:
        answer_of(name)
    assert repr(name) in str(told.value)


def test_what_the_model_is_told() -> None:
    """Guidance goes to the model; an abort and a bare `continue` say nothing."""
    assert Reply(Answer.CONTINUE, "anna").hint is None
    assert Reply(Answer.ABORT, "anna", "stop it").hint is None
    said = Reply(Answer.CONTINUE, "anna", "look into the index").hint
    assert said == "A person looked at this run and says: look into the index"
    skipped = Reply(Answer.SKIP_TASK, "anna", "it is not needed").hint
    assert skipped is not None
    assert "leave the task" in skipped
    assert skipped.endswith("it is not needed")
    nobody = Reply(Answer.SKIP_TASK, "time limit", via="limit").hint
    assert nobody is not None
    assert nobody.startswith("Nobody answered in time")


def test_long_texts_are_cut() -> None:
    """Guidance to 2,000 characters, a name to 100."""
    reply = reply_of({"answer": "continue", "guidance": "g" * 5000, "by": "n" * 500}, "api")
    assert (len(reply.guidance), len(reply.by)) == (2000, 100)


@pytest.mark.parametrize("name", ["guidance", "by"])
def test_what_is_no_text_is_refused(name: str) -> None:
    """Guidance and name are texts."""
    with pytest.raises(EscalationError, match=f"{name} of an answer must be a text, got 3"):
        reply_of({"answer": "continue", name: 3}, "api")


def test_what_a_channel_gives_back() -> None:
    """Nothing, a name, a map; a map without an answer is none."""
    assert reply_in(None, "webhook") is None
    assert reply_in({"ok": True}, "webhook") is None
    assert reply_in("abort", "callback") == Reply(Answer.ABORT, "callback", via="callback")
    given = {"answer": "modify_plan", "guidance": "use B", "by": "anna"}
    assert reply_in(given, "webhook") == Reply(Answer.MODIFY_PLAN, "anna", "use B", "webhook")


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
