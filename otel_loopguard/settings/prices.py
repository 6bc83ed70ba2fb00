"""Prices of models: the package's table with its date, and a file of the user's on top."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StringConstraints,
    ValidationError,
)

from otel_loopguard._util.bounded import keep
from otel_loopguard.errors import LoopGuardSettingsError
from otel_loopguard.settings._sources import read_file
from otel_loopguard.settings._types import Amount  # noqa: TC001  # pydantic reads it

if TYPE_CHECKING:
    from otel_loopguard.core import Step

_OWN: Final = Path(__file__).with_name("prices.toml")
_PER: Final = 1_000_000
"""Tokens that a price is for, as providers list them."""
_LONGEST: Final = 200
"""Characters of a model's name; an ARN of Bedrock has about 120."""
_NAMES: Final = 1_000
"""Names of models that are remembered with their price; a process calls a few dozen."""
_SHOWN: Final = 80
"""Characters of a wrong value in an error."""

# `bedrock:` and `google-gla:` (pydantic-ai); `ft:` is part of the name of a tuned model.
_SCHEME: Final = re.compile(r"\A(?!ft:)[a-z][a-z_-]+:(?!\d)")
_VENDOR: Final = re.compile(
    r"\A(?:(?:us|us-gov|eu|apac|jp|au|ca|global)\.)?"
    r"(?:ai21|alibaba|anthropic|deepseek|google|mistral|moonshot|moonshotai|openai|qwen|xai)\."
)
# What may follow a name and is still the same model: a date, a build, a word for the newest.
_VERSION: Final = re.compile(
    r"(?:[-@:_](?:\d{3,8}|\d{4}-\d\d-\d\d|\d\d-\d\d(?:\d\d)?|v\d{1,2}(?::\d{1,2})?"
    r"|latest|preview|beta|default)|\[1m\])*",
)
_TAIL: Final = re.compile(r"[-@:_\[]")


class Price(BaseModel):
    """Prices of one model in USD per million tokens; a cache without one costs as input does."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    input: Amount
    output: Amount
    cache_read: Amount | None = None
    cache_write: Amount | None = None

    def cost(self, fresh: int, read: int, write: int, output: int) -> float:
        """Cost of tokens in USD."""
        read_price = self.input if self.cache_read is None else self.cache_read
        write_price = self.input if self.cache_write is None else self.cache_write
        total = fresh * self.input + read * read_price + write * write_price
        return (total + output * self.output) / _PER


class LongPrice(Price):
    """Prices of requests with more than so many input tokens."""

    above: Annotated[int, Field(ge=1)]


_Name = Annotated[str, StringConstraints(to_lower=True)]


def cost_of(step: Step, prices_file: str) -> float | None:
    """Returns the cost of a model call, as reported or by its tokens; None if unknown."""
    if step.cost is not None or step.tokens is None:
        return step.cost
    table = PriceTable.load(prices_file)
    return table.cost(
        step.model or step.name or "", step.tokens_in or 0, step.tokens_out or 0,
        cache_read=step.cache_read or 0, cache_write=step.cache_write or 0,
    )  # fmt: skip


class PriceTable(BaseModel):
    """Prices of models, found by the names that spans have for them.

    Dates and versions at the end of a name, and providers before it, need no entry:
    `us.anthropic.claude-sonnet-4-5-20250929-v1:0` has the price of `claude-sonnet-4-5`. A word that
    may stand for another model (`-mini`, `-fast`) does.

    Attributes:
        models: Prices by name.
        long: Prices of requests with more input tokens than they say, by name.
        date: When they were looked up.
        sources: Addresses at which they were looked up.
    """

    model_config = ConfigDict(extra="forbid")

    models: dict[_Name, Price] = {}
    long: dict[_Name, LongPrice] = {}
    date: Annotated[str, BeforeValidator(str)] = ""
    sources: tuple[str, ...] = ()
    _known: dict[str, str | None] = PrivateAttr(default_factory=dict)

    @classmethod
    @cache
    def load(cls, path: str = "") -> PriceTable:
        """The table of the package, with a file of yours on top; each is read once.

        The file (TOML, JSON, or YAML with the extra `yaml`) has a table `models` of `input`,
        `output`, `cache_read` and `cache_write` by model, in USD per million tokens, and may have a
        table `long` of the same with `above`, a number of input tokens. An entry replaces that of
        the package.

        Args:
            path: Your file; empty: the package's own prices.

        Raises:
            LoopGuardSettingsError: The file cannot be read, or has a value that cannot be used; the
                message has file, name and value.
        """
        if not path:
            return _read(_OWN)
        own, yours = cls.load(), _read(Path(path))
        # A price of yours holds for long requests too, unless you say otherwise.
        long = {name: each for name, each in own.long.items() if name not in yours.models}
        return cls(models=own.models | yours.models, long=long | yours.long, date=own.date)

    def cost(
        self, model: str, input_tokens: int, output_tokens: int, *,
        cache_read: int = 0, cache_write: int = 0,
    ) -> float | None:  # fmt: skip
        """Returns the cost of one call of a model, in USD.

        Args:
            model: Its name, with or without provider, date and version.
            input_tokens: All tokens that it read.
            output_tokens: All tokens that it wrote.
            cache_read: Of the input, those that came out of a cache.
            cache_write: Of the input, those that were put into one. Where both together are more
                than the input they are counted beside it, as some instrumentations tell them.

        Returns:
            The cost; None if the model is in no table.
        """
        name = self._name_of(model)
        if name is None:
            return None
        read, write = max(cache_read, 0), max(cache_write, 0)
        fresh = max(input_tokens, 0)
        fresh = fresh - read - write if read + write <= fresh else fresh
        price = self.models[name]
        other = self.long.get(name)
        if other is not None and fresh + read + write > other.above:
            price = other
        return price.cost(fresh, read, write, max(output_tokens, 0))

    def _name_of(self, model: str) -> str | None:
        """The name that a model has in the table; remembered, for spans say few names often."""
        if len(model) > _LONGEST:
            return None
        if model not in self._known:
            found = next((name for way in _ways(model) if (name := self._longest(way))), None)
            keep(self._known, model, found, _NAMES)
            return found
        return self._known[model]

    def _longest(self, name: str) -> str | None:
        """The longest entry of which this is a version."""
        ends = [len(name), *(found.start() for found in reversed([*_TAIL.finditer(name)]))]
        for end in ends:
            if name[:end] in self.models:
                return name[:end] if _VERSION.fullmatch(name, end) else None
        return None


def _ways(model: str) -> Iterator[str]:
    """Names to look for: as it is, then without what says who provides it."""
    name = model.strip().lower()
    while True:
        yield name
        # `ft:gpt-4o-2024-08-06:organisation::id`: a tuned model has the price of its base.
        if name.startswith("ft:"):
            yield ":".join(name.split(":")[:2])
        # OpenRouter writes `claude-sonnet-4.5`.
        if name.startswith("claude-") and "." in name:
            yield name.replace(".", "-")
        shorter = name.partition("/")[2] or _VENDOR.sub("", _SCHEME.sub("", name))
        if not shorter or shorter == name:
            return
        name = shorter


def _read(path: Path) -> PriceTable:
    """The prices of one file; an error says where it is, and what is wrong there."""
    try:
        found = PriceTable.model_validate(read_file(path))
        alone = found.long.keys() - found.models.keys()
        if not alone:
            return found
        why = f"long.{min(alone)}: a long request has a price in [models] too"
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        value = "" if wrong["type"] == "missing" else f" = {wrong['input']!r:.{_SHOWN}}"
        why = f"{'.'.join(map(str, wrong['loc']))}{value}: {wrong['msg']}"
    except ValueError as error:
        why = str(error)
    raise LoopGuardSettingsError(f"prices_file (LOOPGUARD_PRICES_FILE) = {str(path)!r}: {why}")
