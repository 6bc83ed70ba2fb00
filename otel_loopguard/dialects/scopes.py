"""Which instrumentation scopes speak of agents, and which surely do not."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Interest(Enum):
    """What is known of an instrumentation scope."""

    AGENT = "agent"
    NONE = "none"
    UNKNOWN = "unknown"


_AGENTS: Final = (
    "openinference.",
    "@arizeai/openinference",
    "opentelemetry.instrumentation.genai",
    "langsmith",
    "langfuse",
    "logfire.openai",
    "pydantic-ai",
    "pydantic_ai",
    "strands.",
    "gcp.vertex.agent",
    "google.adk",
    "autogen",
    "agent_framework",
    "agent-framework",
    "semantic_kernel",
    "mcp-python-sdk",
    "fastmcp",
    "traceloop",
    "crewai",
    "smolagents",
)
_AGENT_SCOPES: Final = frozenset(("ai", "mcp"))
_CONTRIB: Final = "opentelemetry.instrumentation."
# fmt: off
_AGENT_LIBRARIES: Final = frozenset(
    (
        "agno", "anthropic", "bedrock", "cohere", "crewai", "google_generativeai", "groq",
        "haystack", "langchain", "llamaindex", "mcp", "mistralai", "ollama", "openai",
        "openai_agents", "openai_v2", "replicate", "sagemaker", "together", "transformers",
        "vertexai", "watsonx", "writer",
    )
)
# fmt: on
# fmt: off
_OTHER_LIBRARIES: Final = frozenset(
    (
        "aio_pika", "aiohttp_client", "aiohttp_server", "aiokafka", "aiopg", "asgi", "asyncclick",
        "asyncio", "asyncpg", "aws_lambda", "boto", "boto3sqs", "cassandra", "celery", "click",
        "confluent_kafka", "dbapi", "django", "elasticsearch", "falcon", "fastapi", "flask",
        "grpc", "httpx", "jinja2", "kafka", "logging", "mysql", "mysqlclient", "pika", "psycopg",
        "psycopg2", "pymemcache", "pymongo", "pymssql", "pymysql", "pyramid", "redis",
        "remoulade", "requests", "sqlalchemy", "sqlite3", "starlette", "system_metrics",
        "threading", "tornado", "tortoiseorm", "urllib", "urllib3", "wsgi",
    )
)
# fmt: on
OWN_SCOPE: Final = "otel_loopguard"
"""Of spans that say what was decided, which are no steps of an agent."""
_OTHERS: Final = (
    "@opentelemetry/instrumentation-",
    "go.opentelemetry.io/contrib/instrumentation/",
    "io.opentelemetry.",
    "azure.core",
)


def interest_in(scope: str) -> Interest:
    """What is known of a scope by its name: prefixes of agent instrumentations come first."""
    if scope in _AGENT_SCOPES or scope.startswith(_AGENTS):
        return Interest.AGENT
    if scope.startswith(_CONTRIB):
        library = scope.removeprefix(_CONTRIB).partition(".")[0]
        if library in _AGENT_LIBRARIES:
            return Interest.AGENT
        return Interest.NONE if library in _OTHER_LIBRARIES else Interest.UNKNOWN
    return Interest.NONE if scope == OWN_SCOPE or scope.startswith(_OTHERS) else Interest.UNKNOWN
