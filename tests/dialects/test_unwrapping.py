"""What instrumentations wrap around values comes off; what they did not wrap stays."""

from __future__ import annotations

import pytest

from otel_loopguard.spans.unwrap import (
    Outcome,
    agent_result,
    call_inputs,
    execution_result,
    literal,
    protocol_result,
    run_inputs,
    tool_message,
    tool_output,
)
from otel_loopguard.spans.values import texts


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('{"kwargs": {"q": 1}}', {"q": 1}),
        ('{"args": [], "sanitize_inputs_outputs": true, "kwargs": {"q": 1}}', {"q": 1}),
        ('{"args": ["a"], "kwargs": {}}', ["a"]),
        ('{"args": [{"q": 1}], "kwargs": {}}', {"q": 1}),
        ('{"args": ["a"], "kwargs": {"q": 1}}', {"args": ["a"], "kwargs": {"q": 1}}),
        ('{"kwargs": {"q": 1}, "other": 2}', '{"kwargs": {"q": 1}, "other": 2}'),
        ("plain", "plain"),
        ('{"kwargs": {"q"', '{"kwargs": {"q"'),
        (None, None),
    ],
)
def test_inputs_of_calls(written: object, expected: object) -> None:
    """Positional and named arguments of a call, without what the framework adds."""
    assert call_inputs(written) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"input_str": "{'x': 1}", "inputs": {"x": 2}, "kwargs": {}}, ({"x": 2}, None)),
        ({"input_str": "{'x': 1}", "kwargs": {"tool_call_id": "c"}}, ({"x": 1}, "c")),
        ({"input_str": "plain text"}, ("plain text", None)),
        ('{"input_str": "{\'x\': 1}", "tags": ["se', ({"x": 1}, None)),
        ('{"input_str": "{\'x\': ', ('{"input_str": "{\'x\': ', None)),
        ('{"x": 1}', ('{"x": 1}', None)),
    ],
    ids=["inputs", "repr", "text", "cut after", "cut within", "clean"],
)
def test_inputs_of_runs(written: object, expected: object) -> None:
    """LangChain's inputs out of OpenLLMetry's envelope, also when it was cut."""
    assert run_inputs(written) == expected


MESSAGE = '{"content": "x", "tool_call_id": "c", "type": "tool"}'


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (MESSAGE, Outcome("x", "c")),
        (f'{{"output": {MESSAGE}}}', Outcome("x", "c")),
        (f'{{"type": "tool", "data": {MESSAGE}}}', Outcome("x", "c")),
        (f'{{"output": {{"lc": 1, "kwargs": {MESSAGE}}}, "kwargs": {{}}}}', Outcome("x", "c")),
        (f'{{"update": {{"messages": [{MESSAGE}]}}, "goto": []}}', Outcome("x", "c")),
        ('{"output": "plain"}', Outcome("plain")),
        ('"quoted"', Outcome("quoted")),
        ("plain", Outcome("plain")),
        ('{"content": "a page"}', Outcome('{"content": "a page"}')),
        (
            '{"content": "x", "tool_call_id": "c", "status": "error"}',
            Outcome("x", "c", "x", True),
        ),
    ],
)
def test_messages_of_tools(written: object, expected: Outcome) -> None:
    """The content of a tool message in each of its shapes; other results stay."""
    assert tool_message(written) == expected


@pytest.mark.parametrize(
    "update",
    [f'{{"page": 2, "messages": [{MESSAGE}]}}', f'{{"messages": [{MESSAGE}, {MESSAGE}]}}', "{}"],
    ids=["state", "two", "nothing"],
)
def test_a_command_that_changes_more_stays(update: str) -> None:
    """What else it changes may be the progress that the call made."""
    written = f'{{"update": {update}, "goto": []}}'
    assert tool_message(written) == Outcome(written)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('{"result": {"a": 1}}', Outcome({"a": 1})),
        ('{"error": "no"}', Outcome(None, None, "no", True)),
        ('{"id": "c", "name": "n", "response": {"result": "x"}}', Outcome("x")),
        ('{"result": 1, "more": 2}', Outcome('{"result": 1, "more": 2}')),
        ("plain", Outcome("plain")),
        ('"quoted"', Outcome("quoted")),
    ],
)
def test_results_of_adk(written: object, expected: Outcome) -> None:
    """A result or an error, with or without OpenInference's wrapping."""
    assert agent_result(written) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            "status='success' result='a error=b' error=None updated_session_state=None",
            Outcome("a error=b"),
        ),
        (
            "status='failure' result=None error='no' updated_session_state=None images=None",
            Outcome(None, None, "no", True),
        ),
        (
            "status='failure' result=None err",
            Outcome("status='failure' result=None err", failed=True),
        ),
        ("status='success' result=[1, 2] error=None updated_session_state={}", Outcome([1, 2])),
        ("plain", Outcome("plain")),
    ],
)
def test_results_of_agno(written: object, expected: Outcome) -> None:
    """The repr of agno's result says whether the call failed."""
    assert execution_result(written) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('{"result": "x"}', Outcome("x")),
        ('{"result": "x", "is_error": true}', Outcome("x", None, "x", True)),
        ('{"result": "x", "is_error": false}', Outcome("x")),
        ('{"results": "x"}', Outcome('{"results": "x"}')),
    ],
)
def test_results_of_the_protocol(written: object, expected: Outcome) -> None:
    """OpenLLMetry's MCP result and its flag."""
    assert protocol_result(written) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('{"blocks": [{"text": "a"}, {"text": "b"}]}', Outcome("a\nb")),
        ('{"blocks": [{"text": "a"}], "is_error": true}', Outcome("a", None, "a", True)),
        ('{"no": "blocks"}', Outcome('{"no": "blocks"}')),
    ],
)
def test_outputs_of_llama_index(written: object, expected: Outcome) -> None:
    """The texts of the blocks."""
    assert tool_output(written) == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('[{"text": "a"}, {"text": "b"}]', "a\nb"),
        ('[{"text": "a"}, {"image": "b"}]', '[{"text": "a"}, {"image": "b"}]'),
        ("[]", "[]"),
        ("plain", "plain"),
    ],
)
def test_texts_of_blocks(written: object, expected: object) -> None:
    """Only blocks that are all text become text."""
    assert texts(written) == expected


@pytest.mark.parametrize("written", ["(", "a b", "\x00", "[" * 3000, "x" * 200_000, 5, None])
def test_what_is_no_literal_stays(written: object) -> None:
    """Text that Python cannot read as a literal is kept as it is."""
    assert literal(written) == written
