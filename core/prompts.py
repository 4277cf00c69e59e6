"""What a caller may give as a prompt, and the token ids it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from operator import index
from typing import TYPE_CHECKING, Any

from draftmux.config.nodes import shorten
from draftmux.errors import RequestError

if TYPE_CHECKING:
    from draftmux.generation import Generation

FORMS = "a prompt is a text, a sequence of token ids, or a chat (a list of {'role', 'content'})"


def is_single(prompts: Any) -> bool:
    """Whether this is one prompt (text, token ids, or one chat) and not a list of prompts; RequestError if neither."""
    try:
        if isinstance(prompts, str) or isinstance(_first(prompts), (Integral, Mapping)):
            return True
        return getattr(prompts, "ndim", None) == 1  # items of tensors are tensors
    except (TypeError, LookupError) as error:
        raise RequestError(f"{FORMS}, or a list of these, not {_kind(prompts)}") from error


def encode(prompt: Any, tokenizer: Any, generation: Generation) -> list[int]:
    """Token ids of a text, a chat, or ids themselves; RequestError when the tokenizer cannot do it."""
    try:
        if not isinstance(prompt, str):
            first = _first(prompt)
            if not isinstance(first, Mapping):
                return [index(token) for token in prompt]
            first["role"]
    except (TypeError, LookupError) as error:
        raise RequestError(f"{FORMS}, not {_kind(prompt)}: {shorten(repr(prompt))}") from error
    if tokenizer is None:
        raise RequestError("this backend has no tokenizer; give token ids")
    try:
        return _encode(prompt, tokenizer, generation)
    except RequestError:
        raise
    except Exception as error:  # tokenizers and chat templates refuse prompts in ways of their own
        raise RequestError(f"the target's tokenizer cannot encode the prompt: {error}") from error


def _first(items: Any) -> Any:
    """The first item of a list, tuple or array, None of an empty one; TypeError or LookupError for other things."""
    if isinstance(items, (Mapping, bytes, bytearray, memoryview)) or not hasattr(items, "__getitem__"):
        raise TypeError("neither a list nor an array")
    return items[0] if len(items) else None


def _kind(given: Any) -> str:
    hint = " (give its 'input_ids')" if isinstance(given, Mapping) and "input_ids" in given else ""
    return f"{type(given).__name__}{hint}"


def _encode(prompt: Any, tokenizer: Any, generation: Generation) -> list[int]:
    templated = getattr(tokenizer, "chat_template", None) is not None
    if not isinstance(prompt, str) or generation.prompt_format == "chat":
        if not templated:
            raise RequestError("the target's tokenizer has no chat template; use prompt_format: raw and a text prompt")
    elif generation.prompt_format == "raw" or not templated:
        return list(tokenizer(prompt)["input_ids"])
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"])
