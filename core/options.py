"""How a plugin declares an option: an attrs field with one line of help, which feeds docs, `check` and the schema."""

from __future__ import annotations

from typing import Any

from attrs import NOTHING, field
from attrs.validators import and_, ge, in_, le


def option(help: str, *, default: Any = NOTHING, minimum: Any = None, maximum: Any = None, choices: Any = None) -> Any:
    """An attrs field for a plugin option.

    `help` is one line for the reference; `minimum` and `maximum` are inclusive bounds; `choices` the allowed values.
    """
    rules = []
    if minimum is not None:
        rules.append(ge(minimum))
    if maximum is not None:
        rules.append(le(maximum))
    if choices is not None:
        rules.append(in_(choices))
    metadata = {"help": help, "minimum": minimum, "maximum": maximum, "choices": choices}
    factory: dict[str, Any] = {"factory": type(default)} if isinstance(default, (list, dict)) else {"default": default}
    return field(validator=and_(*rules) if rules else None, metadata=metadata, kw_only=True, **factory)
