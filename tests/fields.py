"""The settings as pydantic has them, for pages and tests that go through all of them."""

from pydantic.fields import FieldInfo

from otel_loopguard import Settings
from otel_loopguard.settings._group import Group


def fields_of(group: type[Group] = Settings) -> dict[str, FieldInfo]:
    """The fields of a group, those of groups in it by dotted name."""
    found: dict[str, FieldInfo] = {}
    for name, field in group.pydantic_model().model_fields.items():
        inner = group.fields[name].default
        if isinstance(inner, Group):
            found |= {f"{name}.{part}": each for part, each in fields_of(type(inner)).items()}
        else:
            found[name] = field
    return found
