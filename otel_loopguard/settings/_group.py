"""Groups of named values with defaults; pydantic is loaded once a value is set, and checks it.

Most guards run with few values set, or none. The package with a processor takes 0.30 s of CPU to
import; pydantic would add 0.22 s and 64 modules, pydantic-settings another 0.11 s and 108.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    cast,
    get_args,
    get_type_hints,
)

from otel_loopguard.errors import LoopGuardSettingsError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from typing_extensions import Self


class Secret:
    """A `pydantic.SecretStr` that was not checked, by default that of a setting nobody set."""

    def __init__(self, secret: str = "") -> None:
        self._secret = secret

    def __bool__(self) -> bool:
        return bool(self._secret)

    def get_secret_value(self) -> str:
        """The text."""
        return self._secret


NO_SECRET: Final[Any] = Secret()


class Value(NamedTuple):
    """One field: its default, a check beyond its bounds, and the bounds."""

    default: Any
    check: Callable[[Any], Any] | None = None
    bounds: Mapping[str, Any] = {}

    def declared(self, hint: Any, about: str | None) -> tuple[Any, Any]:
        """Its type and description as pydantic has them."""
        from pydantic import AfterValidator, BeforeValidator, Field, SecretStr  # noqa: PLC0415

        if isinstance(self.default, Group):
            return hint, Field(default_factory=type(self.default), description=about)
        types = _types(hint)
        if (int in types or float in types) and bool not in types:
            hint = Annotated[hint, BeforeValidator(_not_boolean)]
        if self.check is not None:
            hint = Annotated[hint, AfterValidator(self.check)]
        default = SecretStr("") if self.default is NO_SECRET else self.default
        return hint, Field(default, description=about, **self.bounds)


def _types(hint: Any) -> list[Any]:
    return [hint, *(each for part in get_args(hint) for each in _types(part))]


def _not_boolean(given: object) -> object:
    """Refuses what pydantic takes for 1: `budget_cost = true` would end a run at one dollar."""
    if isinstance(given, bool):
        msg = "Input should be a number"
        raise ValueError(msg)  # noqa: TRY004  # of pydantic's validators
    return given


def value(default: Any, *, check: Callable[[Any], Any] | None = None, **bounds: Any) -> Any:
    """Declares a field of a group of settings that has bounds; others are declared by a default.

    Args:
        default: Its default, of the type that is annotated.
        check: Called with a value that is set; returns it, or raises `ValueError`.
        **bounds: Further arguments of pydantic's `Field`, such as `ge` or `pattern`.
    """
    return Value(default, check, bounds)


def one_of(known: Collection[str], what: str) -> Callable[[Any], Any]:
    """A check that refuses names that are not among the known ones."""

    def check(given: Mapping[str, Any] | frozenset[str]) -> Mapping[str, Any] | frozenset[str]:
        unknown = sorted(set(given) - set(known))
        if unknown:
            msg = f"unknown {what} {unknown[0]!r:.100}, expected one of {', '.join(sorted(known))}"
            raise ValueError(msg)
        return given

    return check


class Group:
    """Values by name, which do not change; the text below each says what it means."""

    fields: ClassVar[Mapping[str, Value]] = {}

    def __init_subclass__(cls) -> None:
        own = {
            name: each if isinstance(each, Value) else Value(each)
            for name in cls.__annotations__
            for each in (vars(cls)[name],)
        }
        for name, each in own.items():
            setattr(cls, name, each.default)
        cls.fields = {**cls.fields, **own}

    def __init__(self, /, **given: Any) -> None:
        if given:
            model = self.pydantic_model(frozenset(given.keys() & self.fields))
            vars(self).update(_set(model.model_validate(given)))

    @classmethod
    def made(cls, given: Mapping[str, Any]) -> Self:
        """A group of values that were checked."""
        made = cls.__new__(cls)
        vars(made).update(given)
        return made

    @property
    def model_fields_set(self) -> frozenset[str]:
        """Names of the values that were set, also those that equal their default."""
        return frozenset(vars(self).keys() & self.fields)

    def model_dump(self, *, exclude_unset: bool = False) -> dict[str, Any]:
        """The values by name, those of groups as maps."""
        return {
            name: value.model_dump(exclude_unset=exclude_unset)
            if isinstance(value, Group)
            else value
            for name, value in self
            if not exclude_unset or name in vars(self)
        }

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> Self:
        """A copy with other values, which are not checked."""
        own = {name: getattr(self, name) for name in self.model_fields_set}
        return self.made({**own, **(update or {})})

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]:
        """The JSON schema of what may be set."""
        return cls.pydantic_model().model_json_schema()

    @classmethod
    @lru_cache(64)
    def pydantic_model(cls, only: frozenset[str] | None = None) -> type[BaseModel]:
        """The model that checks all fields, or some."""
        from pydantic import ConfigDict, create_model  # noqa: PLC0415

        from otel_loopguard.settings import _types  # noqa: PLC0415

        hints = get_type_hints(cls, localns=vars(_types), include_extras=True)
        # Who checks a few values needs no descriptions, which are read off the source.
        abouts = _abouts(cls) if only is None else {}
        fields: dict[str, Any] = {
            name: field.declared(hints[name], abouts.get(name))
            for name, field in cls.fields.items()
            if only is None or name in only
        }
        config = ConfigDict(extra="forbid", hide_input_in_errors=True)
        return create_model(cls.__name__, __config__=config, __doc__=cls.__doc__, **fields)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Any) -> Any:
        from pydantic_core import core_schema  # noqa: PLC0415

        del source

        def plain(value: object) -> object:
            return value.model_dump(exclude_unset=True) if isinstance(value, cls) else value

        return core_schema.no_info_after_validator_function(
            lambda model: cls.made(_set(model)),
            core_schema.no_info_before_validator_function(plain, handler(cls.pydantic_model())),
        )

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((name, getattr(self, name)) for name in self.fields)

    def __setattr__(self, name: str, value: object) -> None:
        raise LoopGuardSettingsError(f"{name} cannot be changed: settings are frozen")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and dict(self) == dict(other)

    __hash__ = None  # type: ignore[assignment]  # some values are maps

    def __repr__(self) -> str:
        shown = (
            f"{name}={getattr(self, name)!r}"
            for name, field in self.fields.items()
            if name in vars(self) and field.bounds.get("repr", True)
        )
        return f"{type(self).__name__}({', '.join(shown)})"


def _set(model: BaseModel) -> dict[str, Any]:
    return {name: getattr(model, name) for name in model.model_fields_set}


def leaves(group: type[Group], before: str = "") -> Iterator[tuple[str, Value]]:
    """The fields of a group and of the groups in it, by dotted name."""
    for name, field in group.fields.items():
        if isinstance(field.default, Group):
            yield from leaves(type(field.default), f"{before}{name}.")
        else:
            yield before + name, field


def _abouts(group: type[Group]) -> dict[str, str]:
    """The texts below the fields of a class and of those above it, where their source is there."""
    import ast  # noqa: PLC0415  # for the schema alone
    import inspect  # noqa: PLC0415  # likewise

    found: dict[str, str] = {}
    for cls in reversed(group.__mro__[: group.__mro__.index(Group)]):
        try:
            body = ast.parse(inspect.getsource(cls)).body[0]
        except (OSError, TypeError):  # a class of `python -c`
            continue
        for field, below in pairwise(cast("ast.ClassDef", body).body):
            if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
                text = ast.literal_eval(below.value)
                found[ast.unparse(field.target)] = " ".join(text.split())
    return found
