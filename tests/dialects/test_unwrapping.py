"""What instrumentations wrap around values comes off; what they did not wrap stays."""

from __future__ import annotations

from collections.abc import Callable

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

MESSAGE = '{"content": "x", "tool_call_id": "c", "type": "tool"}'
SAME = object()
"""What is left as it is written."""

CASES: dict[Callable[..., object], list[tuple[object, object]]] = {
    # Positional and named arguments of a call, without what the framework adds.
    call_inputs: [
        ('{"kwargs": {"q": 1}}', {"q": 1}),
        ('{"args": [], "sanitize_inputs_outputs": true, "kwargs": {"q": 1}}', {"q": 1}),
        ('{"args": ["a"], "kwargs": {}}', ["a"]),
        ('{"args": [{"q": 1}], "kwargs": {}}', {"q": 1}),
        ('{"args": ["a"], "kwargs": {"q": 1}}', {"args": ["a"], "kwargs": {"q": 1}}),
        ('{"kwargs": {"q": 1}, "other": 2}', SAME),
        ("plain", SAME),
        ('{"kwargs": {"q"', SAME),
        (None, SAME),
    ],
    # LangChain's inputs out of OpenLLMetry's envelope, also when it was cut.
    run_inputs: [
        ({"input_str": "{'x': 1}", "inputs": {"x": 2}, "kwargs": {}}, ({"x": 2}, None)),
        ({"input_str": "{'x': 1}", "kwargs": {"tool_call_id": "c"}}, ({"x": 1}, "c")),
        ({"input_str": "plain text"}, ("plain text", None)),
        ('{"input_str": "{\'x\': 1}", "tags": ["se', ({"x": 1}, None)),
        ('{"input_str": "{\'x\': ', ('{"input_str": "{\'x\': ', None)),
        ('{"x": 1}', ('{"x": 1}', None)),
    ],
    # The content of a tool message in each of its shapes; a command that changes more stays, for
    # that may be the progress that the call made.
    tool_message: [
        (MESSAGE, Outcome("x", "c")),
        (f'{{"output": {MESSAGE}}}', Outcome("x", "c")),
        (f'{{"type": "tool", "data": {MESSAGE}}}', Outcome("x", "c")),
        (f'{{"output": {{"lc": 1, "kwargs": {MESSAGE}}}, "kwargs": {{}}}}', Outcome("x", "c")),
        (f'{{"update": {{"messages": [{MESSAGE}]}}, "goto": []}}', Outcome("x", "c")),
        ('{"output": "plain"}', Outcome("plain")),
        ('"quoted"', Outcome("quoted")),
        ("plain", Outcome("plain")),
        ('{"content": "a page"}', Outcome('{"content": "a page"}')),
        ('{"content": "x", "tool_call_id": "c", "status": "error"}', Outcome("x", "c", "x", True)),
        *(
            (written, Outcome(written))
            for update in (
                f'{{"page": 2, "messages": [{MESSAGE}]}}',
                f'{{"messages": [{MESSAGE}, {MESSAGE}]}}',
                "{}",
            )
            for written in (f'{{"update": {update}, "goto": []}}',)
        ),
    ],
    # A result or an error of ADK, with or without OpenInference's wrapping.
    agent_result: [
        ('{"result": {"a": 1}}', Outcome({"a": 1})),
        ('{"error": "no"}', Outcome(None, None, "no", True)),
        ('{"id": "c", "name": "n", "response": {"result": "x"}}', Outcome("x")),
        ('{"result": 1, "more": 2}', Outcome('{"result": 1, "more": 2}')),
        ("plain", Outcome("plain")),
        ('"quoted"', Outcome("quoted")),
    ],
    # The repr of agno's result says whether the call failed.
    execution_result: [
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
    # OpenLLMetry's MCP result and its flag.
    protocol_result: [
        ('{"result": "x"}', Outcome("x")),
        ('{"result": "x", "is_error": true}', Outcome("x", None, "x", True)),
        ('{"result": "x", "is_error": false}', Outcome("x")),
        ('{"results": "x"}', Outcome('{"results": "x"}')),
    ],
    # LlamaIndex: the texts of the blocks.
    tool_output: [
        ('{"blocks": [{"text": "a"}, {"text": "b"}]}', Outcome("a\nb")),
        ('{"blocks": [{"text": "a"}], "is_error": true}', Outcome("a", None, "a", True)),
        ('{"no": "blocks"}', Outcome('{"no": "blocks"}')),
    ],
    # Only blocks that are all text become text.
    texts: [
        ('[{"text": "a"}, {"text": "b"}]', "a\nb"),
        ('[{"text": "a"}, {"image": "b"}]', SAME),
        ("[]", SAME),
        ("plain", SAME),
    ],
    # Text that Python cannot read as a literal.
    literal: [(one, SAME) for one in ("(", "a b", "\x00", "[" * 3000, "x" * 200_000, 5, None)],
}


@pytest.mark.parametrize(
    ("unwrap", "written", "expected"),
    [
        pytest.param(unwrap, *case, id=f"{unwrap.__name__}-{number}")
        for unwrap, cases in CASES.items()
        for number, case in enumerate(cases)
    ],
)
def test_a_wrapping_comes_off(
    unwrap: Callable[..., object], written: object, expected: object
) -> None:
    assert unwrap(written) == (written if expected is SAME else expected)
