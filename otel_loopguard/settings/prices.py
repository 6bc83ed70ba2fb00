"""What models cost: a table of the package with its date, and a file of the user's on top."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, cast

from otel_loopguard._util.bounded import keep
from otel_loopguard.errors import LoopGuardSettingsError

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
_Fields: TypeAlias = dict[str, object]
_FIELDS: Final = ("input", "output", "cache_read", "cache_write")

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


@dataclass(frozen=True, slots=True)
class Price:
    """Prices of one model in USD per million tokens; a cache without one costs as input does."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def cost(self, fresh: int, read: int, write: int, output: int) -> float:
        """Cost of tokens in USD."""
        read_price = self.input if self.cache_read is None else self.cache_read
        write_price = self.input if self.cache_write is None else self.cache_write
        total = fresh * self.input + read * read_price + write * write_price
        return (total + output * self.output) / _PER


def cost_of(step: Step, prices_file: str) -> float | None:
    """Returns the cost of a model call, as reported or by its tokens; None if unknown."""
    if step.cost is not None or step.tokens is None:
        return step.cost
    table = table_of(prices_file)
    return table.cost(
        step.model or step.name or "", step.tokens_in or 0, step.tokens_out or 0,
        cache_read=step.cache_read or 0, cache_write=step.cache_write or 0,
    )  # fmt: skip


@cache
def table_of(prices_file: str) -> PriceTable:
    """The table with a file on top, read once: a guard asks for it when it starts."""
    return PriceTable.load(prices_file)


class PriceTable:
    """Prices of models, found by the names that spans have for them.

    Dates and versions at the end of a name, and providers before it, need no entry:
    `us.anthropic.claude-sonnet-4-5-20250929-v1:0` has the price of `claude-sonnet-4-5`. A word that
    may stand for another model (`-mini`, `-fast`) does.

    Attributes:
        models: Prices by name.
        long: Prices of requests with more input tokens than the number beside them, by name.
        date: When they were looked up.
    """

    def __init__(
        self, models: Mapping[str, Price], long: Mapping[str, tuple[int, Price]], date: str
    ) -> None:
        self.date = date
        self.models: Final = dict(models)
        self.long: Final = dict(long)
        self._known: dict[str, str | None] = {}

    @classmethod
    def load(cls, path: str | None = None) -> PriceTable:
        """The table of the package, with a file of yours on top.

        The file (TOML, JSON, or YAML with the extra `yaml`) has a table `models` of `input`,
        `output`, `cache_read` and `cache_write` by model, in USD per million tokens, and may have a
        table `long` of the same with `above`, a number of input tokens. An entry replaces that of
        the package.

        Args:
            path: Your file; None or empty: the package's own prices.

        Raises:
            LoopGuardSettingsError: The file cannot be read, or has a value that cannot be used; the
                message has file, line and value.
        """
        own = _packaged()
        if not path:
            return cls(own.models, own.long, own.date)
        yours = _Reader(Path(path)).table()
        # A price of yours holds for long requests too, unless you say otherwise.
        long = {name: each for name, each in own.long.items() if name not in yours.models}
        return cls(own.models | yours.models, long | yours.long, own.date)

    def __len__(self) -> int:
        return len(self.models)

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
        above, other = self.long.get(name, (0, None))
        if other is not None and fresh + read + write > above:
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
        # OpenRouter writes `claude-sonnet-4.5`.
        if name.startswith("claude-") and "." in name:
            yield name.replace(".", "-")
        shorter = name.partition("/")[2] or _VENDOR.sub("", _SCHEME.sub("", name))
        if not shorter or shorter == name:
            return
        name = shorter


@cache
def _packaged() -> PriceTable:
    return _Reader(_OWN).table()


class _Reader:
    """Reads one file; an error names its line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def table(self) -> PriceTable:
        # Only where prices are wanted: it loads the parsers.
        from otel_loopguard.settings._file import read_file  # noqa: PLC0415

        try:
            found = read_file(self._path)
        except ValueError as error:
            self._fail(error)
        models: dict[str, Price] = {}
        for name, fields in self._entries(found, "models"):
            models[name] = self._price(name, fields)
        long: dict[str, tuple[int, Price]] = {}
        for name, fields in self._entries(found, "long"):
            above = fields.pop("above", None)
            if not isinstance(above, int) or isinstance(above, bool) or above < 1:
                self._fail(
                    f"'above' is a number of input tokens, got {_shown(above)}", "long", name
                )
            if name not in models:
                self._fail("a long request has a price in [models] too", "long", name)
            long[name] = above, self._price(name, fields, "long")
        return PriceTable(models, long, str(found.get("date", "")))

    def _entries(self, found: Mapping[str, object], table: str) -> Iterator[tuple[str, _Fields]]:
        entries = found.get(table, {})
        if not isinstance(entries, dict):
            self._fail(f"[{table}] has prices by model, got {_shown(entries)}")
        for name, fields in cast("dict[object, object]", entries).items():
            if not isinstance(fields, dict):
                self._fail(f"expected prices, got {_shown(fields)}", table, str(name))
            yield str(name).lower(), dict(cast("_Fields", fields))

    def _price(self, name: str, fields: _Fields, table: str = "models") -> Price:
        for field, amount in fields.items():
            if field not in _FIELDS:
                expected = ", ".join(_FIELDS)
                self._fail(f"{field!r} is none of {expected}", table, name)
            number = isinstance(amount, (int, float)) and not isinstance(amount, bool)
            if not number or not 0 <= cast("float", amount) < math.inf:
                why = f"{field!r} is USD per million tokens, 0 or more, got {_shown(amount)}"
                self._fail(why, table, name)
        if missing := {"input", "output"} - fields.keys():
            self._fail(f"{min(missing)!r} is missing", table, name)
        return Price(**cast("dict[str, float]", fields))

    def _fail(self, why: object, table: str = "", name: str = "") -> NoReturn:
        where = f" line {line}: " if name and (line := self._line(table, name)) else " "
        about = f"{table}.{name}: " if name else ""
        msg = f"prices_file={str(self._path)!r}:{where}{about}{why}"
        raise LoopGuardSettingsError(msg) from None

    def _line(self, table: str, name: str) -> int | None:
        """The line that names an entry; the one after the head of its table where there is one."""
        lines = self._path.read_text("utf-8-sig", "replace").lower().splitlines()
        head = next((i for i, line in enumerate(lines) if re.search(rf"\b{table}\b", line)), 0)
        for place, line in enumerate(lines[head:], head + 1):
            if name.lower() in line:
                return place
        return None


def _shown(found: object) -> str:
    return repr(found)[:_SHOWN]
