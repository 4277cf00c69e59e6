"""What a caller may give as a prompt, and the token ids it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from operator import index
from typing import TYPE_CHECKING, Any

from draftmux.errors import RequestError

if TYPE_CHECKING:
    from draftmux.generation import Generation

FORMS = "a prompt is a text, a sequence of token ids, or a chat (a list of {'role', 'content'})"


def is_single(prompts: Any) -> bool:
    """Whether this is one prompt (text, token ids, or one chat) and not a list of prompts; RequestError if neither."""
    try:
        return isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], (Integral, Mapping)))
    except (TypeError, LookupError) as error:
        raise RequestError(f"{FORMS}, or a list of these, not {type(prompts).__name__}") from error


def encode(prompt: Any, tokenizer: Any, generation: Generation) -> list[int]:
    """Token ids of a text, a chat, or ids themselves; RequestError when the tokenizer cannot do it."""
    try:
        if not isinstance(prompt, str) and (not len(prompt) or not isinstance(prompt[0], Mapping)):
            return [index(token) for token in prompt]
    except (TypeError, LookupError) as error:
        raise RequestError(f"{FORMS}, not {prompt!r:.60}") from error
    if tokenizer is None:
        raise RequestError("this backend has no tokenizer; give token ids")
    try:
        return _encode(prompt, tokenizer, generation)
    except RequestError:
        raise
    except Exception as error:  # tokenizers and chat templates refuse prompts in ways of their own
        raise RequestError(f"the target's tokenizer cannot encode the prompt: {error}") from error


def _encode(prompt: Any, tokenizer: Any, generation: Generation) -> list[int]:
    templated = getattr(tokenizer, "chat_template", None) is not None
    if not isinstance(prompt, str) or generation.prompt_format == "chat":
        if not templated:
            raise RequestError("the target's tokenizer has no chat template; use prompt_format: raw and a text prompt")
    elif generation.prompt_format == "raw" or not templated:
        return list(tokenizer(prompt)["input_ids"])
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"])
