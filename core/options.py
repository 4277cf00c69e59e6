"""How a plugin declares an option: an attrs field with one line of help, which feeds docs, `check` and the schema."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

from attrs import NOTHING, field
from attrs.validators import and_, ge, in_, instance_of, le, optional


def option(
    help: str,
    *,
    default: Any = NOTHING,
    minimum: Any = None,
    maximum: Any = None,
    choices: Any = None,
    types: tuple[type, ...] = (),
) -> Any:
    """An attrs field for a plugin option.

    `help` is one line for the reference; `minimum` and `maximum` are inclusive bounds; `choices` the allowed values;
    `types` what it may be where it may be a plugin, which only its protocol tells.
    """
    rules = []
    if minimum is not None:
        rules.append(ge(minimum))
    if maximum is not None:
        rules.append(le(maximum))
    if choices is not None:
        rules.append(in_(choices))
    if types:
        rules.append(instance_of(types))
    metadata = {"help": help, "minimum": minimum, "maximum": maximum, "choices": choices}
    own = isinstance(default, (list, dict))  # each object has its own copy
    factory: dict[str, Any] = {"factory": partial(copy.copy, default)} if own else {"default": default}
    validator = and_(*rules) if rules else None
    if default is None and validator is not None:
        validator = optional(validator)
    return field(validator=validator, metadata=metadata, kw_only=True, **factory)
