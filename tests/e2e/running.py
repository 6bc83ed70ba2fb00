"""What the tests of this folder run: an agent, programs, and who takes what they send."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from stack.builds import Build
from stack.demo import agent_env
from stack.environments import Environment

from tests.zero_code.interpreter import lacking

Decisions = list[dict[str, Any]]
Agents = Callable[..., subprocess.Popen[str]]
EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def need(*builds: Build | Environment) -> None:
    for build in builds:
        if build.built() is None:
            make = "make collector balancer jaeger phoenix mlflow"
            lacking(f"{build.name} is not there: {make}")


def start_agent(port: int, *words: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "stack.agent", *words], env=agent_env(port) | env,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def lines_of(agent: subprocess.Popen[str], limit_s: float = 120) -> list[dict[str, Any]]:
    out, err = agent.communicate(timeout=limit_s)
    assert agent.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def decisions_of(agent: subprocess.Popen[str], limit_s: float = 120) -> Decisions:
    return [line for line in lines_of(agent, limit_s) if "id" in line]


class Sink(grpc.GenericRpcHandler):
    """A next hop: takes spans and log records by gRPC, whoever sends them."""

    def __init__(self) -> None:
        self._traces: list[tuple[str, bytes]] = []
        self._logs: list[bytes] = []
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers((self,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()

    def service(self, handler_call_details: Any) -> grpc.RpcMethodHandler[bytes, bytes]:
        def take(raw: bytes, context: Any) -> bytes:
            if handler_call_details.method == EXPORT:
                self._traces.append((context.peer().rpartition(":")[2], raw))
            else:
                self._logs.append(raw)
            return b""

        return grpc.unary_unary_rpc_method_handler(take)

    @property
    def spans(self) -> list[tuple[str, Any]]:
        return [
            (sender, span)
            for sender, raw in list(self._traces)
            for resource in ExportTraceServiceRequest.FromString(raw).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def records(self) -> list[Any]:
        return [
            record
            for raw in list(self._logs)
            for resource in ExportLogsServiceRequest.FromString(raw).resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    def ids(self) -> set[bytes]:
        return {span.span_id for _, span in self.spans}

    def stop(self) -> None:
        self._server.stop(None)
