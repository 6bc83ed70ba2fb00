"""A model at an OpenAI-compatible address."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import httpx

_TRIES = 6
"""Requests before a server counts as failed, over a minute: overload and limits of rate pass."""
_PASSING = (408, 429)
"""Statuses of HTTP below 500 that another try may get past."""
_TIMEOUT_S = 300
"""Seconds for one answer; a model that reasons takes minutes."""


class ModelError(Exception):
    """A model's server that does not answer, or not as asked; the run ends.

    Attributes:
        ends: What the run ends by: `rejected` where the conversation is not accepted, else `error`.
    """

    def __init__(self, why: str, ends: str = "error") -> None:
        super().__init__(why)
        self.ends = ends


class RefusedError(Exception):
    """A server that accepts no request at all: key, name of the model or address are wrong."""


@dataclass(frozen=True)
class Answer:
    """A message of the model.

    Attributes:
        message: As the server wrote it, for the next request.
        tokens_in: Tokens of the request.
        tokens_out: Tokens of the answer.
    """

    message: dict[str, Any]
    tokens_in: int
    tokens_out: int


class Model:
    """Asks for chat completions.

    Args:
        url: Address of the API, as `https://api.openai.com/v1`.
        name: Name of the model.
        key: Sent as bearer token.
        temperature: Sent if it is given; some models accept none.
    """

    def __init__(
        self, url: str, name: str, key: str | None = None, *, temperature: float | None = None
    ) -> None:
        self.name = name
        self._more = {} if temperature is None else {"temperature": temperature}
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._answered = False
        self._client = httpx.Client(base_url=url, headers=headers, timeout=_TIMEOUT_S)

    def complete(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], seed: int
    ) -> Answer:
        """The next message.

        Raises:
            ModelError: The server failed, or the conversation is not accepted.
            RefusedError: The server wants another key, model or address.
        """
        body = {"model": self.name, "messages": messages, "tools": tools, "seed": seed}
        try:
            said = self._post(body | self._more)
            # An answer in parts that nobody asked for, such as `reasoning`, is not sent back.
            message = said["choices"][0]["message"]
            kept = {key: message.get(key) for key in ("content", "tool_calls") if message.get(key)}
            used: dict[str, int] = said.get("usage") or {}
            return Answer(
                {"role": "assistant", "content": None, **kept},
                used.get("prompt_tokens", 0),
                used.get("completion_tokens", 0),
            )
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ModelError(f"no chat completion: {type(error).__name__}: {error}") from None

    def _post(self, body: dict[str, Any]) -> Any:
        why = ""
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(2**attempt)
            try:
                said = self._client.post("chat/completions", json=body)
            except httpx.TransportError as error:
                why = f"{type(error).__name__}: {error}"
                if isinstance(error, httpx.ConnectError) and not self._answered:
                    raise RefusedError(why) from None
                continue
            if said.is_success:
                self._answered = True
                return said.json()
            why, status = f"HTTP {said.status_code}: {said.text[:300]}", said.status_code
            if status in _PASSING or status >= 500:
                continue
            # What is not accepted from the first request on is not the conversation.
            if status in (401, 403) or not self._answered:
                raise RefusedError(why)
            raise ModelError(why, "rejected")
        raise ModelError(why)
