"""Names of a package that are imported when they are asked for (PEP 562)."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # without typing, which every import of the package would wait for
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any


def lazy(
    package: str, names: Mapping[str, str], *, elsewhere: Mapping[str, str] | None = None
) -> Callable[[str], Any]:
    """A `__getattr__` for a package.

    Args:
        package: The package that modules are named below.
        names: By module the names that are taken from it, with spaces between; without any, the
            module itself is meant.
        elsewhere: By module names that are looked for here and are not; the error says where.
    """
    modules = {name: module for module, own in names.items() for name in (own or module).split()}
    # Modules and not what is in them, which a test may replace.
    imported: dict[str, ModuleType] = {}

    def load(name: str) -> Any:
        found = imported.get(name)
        if found is None:
            if name not in modules:
                others = (elsewhere or {}).items()
                places = [f"{package}.{module}" for module, own in others if name in own.split()]
                if places:
                    # An AttributeError would lose its text: `from … import` writes its own.
                    msg = f"cannot import name {name!r} from {package!r}; import it from "
                    raise ImportError(msg + " or ".join(places), name=package)
                raise AttributeError(f"module {package!r} has no attribute {name!r}")
            found = imported[name] = import_module(f"{package}.{modules[name]}")
        return found if name == modules[name] else getattr(found, name)

    return load
