"""What clients and tools may send through the middleware of an MCP server."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("mcp_types")
from otel_loopguard.integrations.mcp import LoopGuardServerMiddleware

TEXT = {"content": [{"type": "text", "text": "found"}]}


@pytest.mark.parametrize("meta", [None, {"otel-loopguard/call": {}}, {"otel-loopguard/call": [1]}])
@pytest.mark.parametrize("result", [TEXT, {"content": 5}, {"content": [{"type": "new"}]}, {}])
def test_a_call_is_made_whatever_comes_with_it(
    meta: dict[str, Any] | None, result: dict[str, Any]
) -> None:
    """A client's mark of another form, or the result of an extension, was an error of the call."""

    async def answer(_: object) -> dict[str, Any]:
        return result

    call = SimpleNamespace(
        method="tools/call", request_id=1, meta=meta, session=object(),
        params={"name": "search", "arguments": {}},
    )  # fmt: skip
    assert asyncio.run(LoopGuardServerMiddleware()(call, answer)) == result
