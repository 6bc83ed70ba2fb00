"""Writes the recorded run that ships with the package as spans.

    python tests/cli/make_sample.py ../shared/traces/intercode.jsonl.gz

InterCode recorded commands and answers, no spans and no times: each call becomes a GenAI tool span,
one second apart. The same input gives the same bytes.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

RUN = "intercode/ic_sql_multiturn_gpt-3.5_10_turns/147"
"""The model asks a table that does not exist, in two wordings in turn, until its turns are over."""

TARGET = Path(__file__).parents[2] / "otel_loopguard/cli/data/intercode-sql.otlp.jsonl.gz"
TRACE = "1c0de000000000000000000000000147"
AGENT = f"{1:016x}"
SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


def main(source: str) -> None:
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        run = next(line for line in map(json.loads, lines) if line["id"] == RUN)
    spans = [_call(index, step) for index, step in enumerate(run["steps"])]
    spans.append(_agent(len(spans)))
    scope = {"scope": {"name": "intercode"}, "spans": spans}
    document = {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [scope]}]}
    data = json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n"
    TARGET.write_bytes(gzip.compress(data.encode(), mtime=0))
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")


def _call(index: int, step: dict[str, Any]) -> dict[str, Any]:
    start = START + index * SECOND
    span = _span(index + 2, f"execute_tool {step['tool']}", start, start + SECOND // 10)
    span["parentSpanId"] = AGENT
    span["attributes"] = _attributes(
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": step["tool"],
            "gen_ai.tool.call.arguments": step["args"],
        }
        | ({} if step["error"] else {"gen_ai.tool.call.result": step["output"]})
    )
    if step["error"]:
        span["status"] = {"code": 2, "message": step["output"]}
    return span


def _agent(calls: int) -> dict[str, Any]:
    span = _span(1, "invoke_agent gpt-3.5", START - SECOND, START + calls * SECOND)
    span["attributes"] = _attributes(
        {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "gpt-3.5"}
    )
    return span


def _span(number: int, name: str, start: int, end: int) -> dict[str, Any]:
    times = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(end)}
    return {"traceId": TRACE, "spanId": f"{number:016x}", "name": name, "kind": 1, **times}


def _attributes(values: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]


if __name__ == "__main__":
    main(sys.argv[1])
