"""Where the programs of a stack listen, on loopback."""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Ports:
    """Ports of a stack; the defaults are those of the configuration files.

    Attributes:
        gateway_grpc: OTLP by gRPC.
        gateway_http: OTLP by HTTP.
        gateway_health: Health of the gateway.
        gateway_zpages: Its zPages.
        gateway_metrics: Metrics of the guards, for Prometheus.
        gateway_self: Its own metrics.
        agent_grpc: OTLP by gRPC, of the Collector beside the agent.
        agent_http: OTLP by HTTP.
        agent_health: Its health.
        agent_self: Its own metrics.
        jaeger_grpc: OTLP by gRPC.
        jaeger_http: OTLP by HTTP.
        jaeger_query: Jaeger's pages and its API.
        jaeger_query_grpc: The API by gRPC.
        jaeger_health: Health of Jaeger.
        jaeger_self: Its own metrics.
        prometheus: Prometheus.
        alertmanager: Alertmanager.
        webhook: What Alertmanager tells.
        redis: Redis.
    """

    gateway_grpc: int = 4317
    gateway_http: int = 4318
    gateway_health: int = 13133
    gateway_zpages: int = 55679
    gateway_metrics: int = 8889
    gateway_self: int = 8888
    agent_grpc: int = 4327
    agent_http: int = 4328
    agent_health: int = 13132
    agent_self: int = 8887
    jaeger_grpc: int = 14317
    jaeger_http: int = 14318
    jaeger_query: int = 16686
    jaeger_query_grpc: int = 16685
    jaeger_health: int = 13134
    jaeger_self: int = 8885
    prometheus: int = 9090
    alertmanager: int = 9093
    webhook: int = 9095
    redis: int = 6379

    @classmethod
    def free(cls) -> Ports:
        """Ports that nobody listens on."""
        return cls(*free_ports(len(fields(cls))))


def free_ports(count: int) -> list[int]:
    """Some ports that nobody listens on, below those that outgoing connections are given."""
    found: list[int] = []
    for port in random.sample(range(15_000, 32_000), 5_000):
        with socket.socket() as taken:
            if taken.connect_ex(("127.0.0.1", port)) != 0:
                found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"no {count} free ports between 15000 and 32000")
